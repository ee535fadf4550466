"""The use of eddy in a user's program: logs and workers, and an application's tables and live queries."""
