"""Live queries: asked as values, kept up to date by a dataflow, served as rows and patches."""
