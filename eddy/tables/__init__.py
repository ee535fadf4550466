"""The tables of an application for other programs: read whole from their topics, and shown at versions."""
