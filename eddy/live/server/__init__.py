"""Live queries over served tables, in a program: one thread keeps them up to date; readers get rows and patches."""
