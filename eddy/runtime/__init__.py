"""The worker and its parts: epochs, restores, positions, cuts, the error policy."""
