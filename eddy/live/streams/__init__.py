"""Live queries for many clients: published queries, and the events of streams. HTTP is not part of this package."""
