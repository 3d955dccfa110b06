"""Floodmark: SQL Server change data capture into a warehouse, in batches, on Airflow and Spark."""
