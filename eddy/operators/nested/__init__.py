"""Recursion by nested time: any steps, with differences kept by epoch and iteration."""
