"""`spark.read.format("eddy")`: topics and tables of a log as frames, by PySpark's Python Data Source API.

    data_source.py      the class that Spark calls
    source_options.py   the options, checked in the driver
    source_program.py   the topology that an option names
    pinned_source.py    options → offsets and serdes, as of `load()`
    spark_columns.py    values of serdes ↔ columns
    frame_columns.py    the columns of a frame
    source_reading.py   Spark's partitions and their records
    source_tables.py    the latest rows of tables
    source_streams.py   topics as streams
    frame_writing.py    the rows of tasks, encoded
    job_writing.py      the rows of a job, once

Records are read by the port of `connectors/log.py`, as a backfill reads them: only committed ones, without a jar.
"""
