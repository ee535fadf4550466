"""What eddy costs, beside what else a user could take: `python -m benchmarks --help`, docs/benchmarks.md."""
