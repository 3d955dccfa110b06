"""One DAG per pipeline of the configuration."""

from floodmark.config.loading import load_config
from floodmark.orchestration.dag_factory import build_dags
from floodmark.wiring import config_path

path = config_path()
globals().update(build_dags(load_config(path, parse_rules=False), path))
