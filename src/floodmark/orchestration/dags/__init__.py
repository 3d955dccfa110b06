"""The DAGs, built from the configuration. Heavy imports are avoided: Airflow parses DAG files again and again."""
