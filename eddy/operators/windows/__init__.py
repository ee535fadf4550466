"""Windows of time: steps assign windows to records, and close a window when all source partitions have passed it."""
