"""The page on the configuration holds what the models hold."""

import re
from pathlib import Path

import pytest
import yaml

from floodmark.config import Config, PipelineConfig, RuleConfig, TableConfig, load_config
from floodmark.config.models import AlertsConfig, EmailConfig, keys_of
from floodmark.config.sections import CaptureConfig, RetentionConfig

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("## A pipeline", PipelineConfig),
        ("## A table", TableConfig),
        ("## A rule", RuleConfig),
        ("## Capture of a source", CaptureConfig),
        ("## Retention of a source", RetentionConfig),
        ("## Alerts", AlertsConfig),
        ("## Alerts", EmailConfig),
    ],
)
def test_every_key_is_explained(heading: str, model: type) -> None:
    section = PAGE.partition(heading)[2].partition("\n## ")[0]
    explained = {name.partition(".")[0] for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)?)`", section)}
    assert set(keys_of(model)) <= explained


def test_example_is_a_valid_configuration(tmp_path: Path) -> None:
    example = PAGE.partition("```yaml\n")[2].partition("```")[0]
    path = tmp_path / "pipelines.yaml"
    path.write_text(example, encoding="utf-8")
    assert set(load_config(path).pipelines) == {"shop"}
    assert set(yaml.safe_load(example)) == set(keys_of(Config))
