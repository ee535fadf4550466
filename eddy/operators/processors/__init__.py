"""Processors: the author's objects that take records one by one, with stores and punctuators."""
