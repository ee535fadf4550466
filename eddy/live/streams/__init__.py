"""Live queries for many clients: queries that are published once, and the events of their streams, without HTTP."""
