"""The tables of an application for others to read: read from their topics, kept whole, shown at versions."""
