"""Recursion by waves: linear steps over the rows of the wave before, and what becomes of rows that never end."""
