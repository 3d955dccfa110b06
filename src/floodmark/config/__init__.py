"""The configuration file ``include/pipelines.yaml`` as frozen, validated models."""

from floodmark.config.loading import dump_config, load_config
from floodmark.config.models import Config, PipelineConfig, RuleConfig, TableConfig

__all__ = ["Config", "PipelineConfig", "RuleConfig", "TableConfig", "dump_config", "load_config"]
