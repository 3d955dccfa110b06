"""One DAG per source, which looks for drift. Airflow only looks into files that hold its name and the word DAG."""

from airflow.sdk import DAG

from floodmark.config.loading import load_config
from floodmark.orchestration.drift_dag import build_drift_dags
from floodmark.wiring import config_path

path = config_path()
dags: dict[str, DAG] = build_drift_dags(load_config(path, parse_rules=False), path)
globals().update(dags)
