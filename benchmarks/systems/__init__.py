"""The systems that are measured, each a program of its own, so that time and memory are its own.

All take the same arguments: `load FILE OUT BATCH` or `live FILE OUT BATCH CHANGES SUMS`, write the
counts to OUT (and SUMS), and print one line of JSON: seconds, latencies and resident memory.
"""
