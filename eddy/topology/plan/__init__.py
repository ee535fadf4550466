"""The plan: the program as data, its nodes, and what follows from them: placement, identity, states, pictures."""
