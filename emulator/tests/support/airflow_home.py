"""Airflow writes into its home as soon as it is imported: tests give it one that goes when they end."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile


def choose_airflow_home() -> None:
    """Unless the environment names one. Before the first import of Airflow."""
    if "AIRFLOW_HOME" in os.environ:
        return
    home = tempfile.mkdtemp(prefix="floodmark-airflow-")
    os.environ["AIRFLOW_HOME"] = home
    atexit.register(shutil.rmtree, home, ignore_errors=True)
