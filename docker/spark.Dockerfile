# The image of eddy with Java and Spark, for `eddy backfill` and `eddy verify`.
#   docker build -f docker/Dockerfile -t eddy .
#   docker build -f docker/spark.Dockerfile -t eddy-spark .
FROM eddy
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir 'pandas>=2.2,<3' 'pyarrow>=18' 'pyspark>=4.0.1,<5'
USER 10001
