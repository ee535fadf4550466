"""One-off statements: each node of the algebra is one function over all rows of its inputs."""
