"""The owner of Floodmark's DAGs in Airflow."""

from __future__ import annotations

OWNER = "floodmark"
