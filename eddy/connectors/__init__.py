"""Connectors to outside systems: the port `log`, the logs that implement it, and Spark."""
