"""Live queries as values: the builder, its abstract syntax, a naive evaluation, and the plan of operators."""
