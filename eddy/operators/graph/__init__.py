"""Incremental graph algorithms: reachability from roots, and totals over trees."""
