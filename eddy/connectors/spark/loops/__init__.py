"""Recursions as loops over frames. The steps of a loop's body are compiled like all other steps.

linear_loops        waves: op is applied to one frontier after the other, until a frontier is empty
pointer_doubling    the same sum by a logarithm of the number of waves, if each key leads to one other key
linear_cycles       the rows that cycles reach
nested_loops        nested time: the definitions are computed in each iteration, until nothing changes
loop_bounds         the last depth that a bound allows
"""
