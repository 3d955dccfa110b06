"""All DAGs of the configuration. Airflow reads a file that holds its name and the word DAG."""

from floodmark.dags import *  # noqa: F403
