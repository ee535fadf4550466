"""Recursion by waves: linear steps over the rows of the previous wave, and the treatment of rows that never end."""
