"""Connectors to outside systems: the port `log`, the logs that implement it, serdes of a registry, and Spark."""
