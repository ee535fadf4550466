"""Windows of time: rows get windows by the times of their sources, and windows close when all have passed them."""
