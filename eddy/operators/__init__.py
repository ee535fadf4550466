"""Z-sets and the operators on them, incrementally. No input or output, no clock, no threads."""
