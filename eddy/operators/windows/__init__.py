"""Windows of time: rows get windows where their source is read, and windows close when all sources have passed them."""
