"""Health for operations: what a worker says about itself over HTTP, while it runs."""
