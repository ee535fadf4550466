"""A worker's health, metrics and topology over HTTP, while it runs."""
