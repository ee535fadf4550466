"""The author's program: the DSL and SQL, the plan that they build, its checks and pictures."""
