"""Recursions as loops over frames; the steps of a loop's body are compiled as all others are.

linear_loops        waves: a frontier, and what op makes of it, until it is empty
pointer_doubling    the same sum in a logarithm of the waves, where each key leads to one other
linear_cycles       the rows that cycles reach
nested_loops        nested time: the definitions anew in each iteration, until nothing changes
loop_bounds         the last depth that a bound leaves
"""
