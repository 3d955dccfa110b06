"""Iceberg tables as a warehouse: Parquet staging, a merge by Spark, and publication in the ledger's transaction."""
