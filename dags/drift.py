"""Two DAGs per source: one looks for drift, the other asks about switches of capture instances. Airflow only looks into
files that hold its name and the word DAG."""

from airflow.sdk import DAG

from floodmark.config.loading import load_config
from floodmark.orchestration.dags.drift import build_drift_dags
from floodmark.orchestration.dags.switch import build_switch_dags
from floodmark.wiring.places import config_path

path = config_path()
config = load_config(path, parse_rules=False)
dags: dict[str, DAG] = build_drift_dags(config, path) | build_switch_dags(config, path)
globals().update(dags)
