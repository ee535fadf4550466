"""Live queries over the tables of a view server: rows that stay right, and patches as they change."""
