"""eddy in a program of one's own: logs and workers by name, and an application's tables and live queries."""
