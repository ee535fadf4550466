"""The tables of an application for others to read: followed in their topics, kept whole, read at versions."""
