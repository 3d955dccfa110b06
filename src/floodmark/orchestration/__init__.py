"""Airflow: DAG factories, operators, failure policy, asset events."""
