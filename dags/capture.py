"""One DAG per source whose capture job is kept. Airflow only looks into files that hold its name and the word DAG."""

from airflow.sdk import DAG

from floodmark.config.loading import load_config
from floodmark.orchestration.dags.capture import build_capture_dags
from floodmark.wiring.places import config_path

path = config_path()
dags: dict[str, DAG] = build_capture_dags(load_config(path, parse_rules=False), path)
globals().update(dags)
