"""Spark: backfill and verify."""
