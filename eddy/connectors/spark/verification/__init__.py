"""Verification: the rows of a worker's outputs and states beside expected rows, and a verdict.

verifying          one verification, from the cut to the verdict
comparison         the topics of all sinks and stores, in one job: `diff` joins expected with found rows,
                   `equivalence` decides whether different bytes are equal, `held_rows` are left out
mismatches         all differences, as Parquet
repair             corrections of tables, as records of their topics
disk_comparison    stores on disk beside their changelogs, without Spark
verdict            the verdicts, and their lines for people: `disk_verdict`; `verdict_document` for programs
"""
