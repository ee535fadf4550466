"""History in files: records that precede the records of a topic, in the formats that Spark reads.

history         the files of each topic; a fingerprint of the rows is noted, and compared with the rows read later
record_files    the files of one topic as frames of records, in order
file_columns    which columns are key, value, time and headers
file_schemas    refuses files whose columns differ
csv_files       CSV by eddy's own parser, in Spark's tasks
lake_formats    formats that need packages: Avro, Delta, Iceberg
"""
