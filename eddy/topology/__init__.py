"""The author's program: the DSL and SQL, the plan that they build, and the checks and pictures of a plan."""
