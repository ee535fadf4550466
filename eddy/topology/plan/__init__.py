"""The plan: the program as data, its nodes, and their placement, identity, states and pictures."""
