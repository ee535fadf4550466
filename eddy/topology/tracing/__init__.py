"""Derives a row: evaluates a plan from scratch over tables, and finds the rows from which each row is made."""
