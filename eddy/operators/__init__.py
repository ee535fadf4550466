"""How deltas flow: Z-sets and the operators on them. No input or output, no clock, no threads."""
