"""Z-sets, and operators that update their results by deltas. Operators do no I/O, and use no clock and no threads."""
