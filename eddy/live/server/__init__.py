"""Live queries over served tables, in a program: loaded, kept up to date by one thread, read as rows and patches."""
