"""Compiles a plan to operators: the whole circuit, and the steps inside its loops."""
