"""What the user wrote: the DSL, the plan that it builds, the checks on it and its pictures."""
