"""The DAG that guards a source's retention: which sources have one, and what its configuration refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk import DAG

from floodmark.app.pipeline import App
from floodmark.config.loading import dump_config, load_config
from floodmark.core.errors import ConfigError
from floodmark.core.upkeep import OnLow, RetentionSettings
from floodmark.orchestration.dags.upkeep import build_retention_dags

CONFIG = """
sources:
  shop:
    conn_id: shop_mssql
    retention: {keep: 3d, on_low: raise_retention, ceiling: 7d, cleanup_margin: 12h}
  plain: {conn_id: plain_mssql}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "pipelines.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def dags_of(folder: Path, text: str) -> dict[str, DAG]:
    path = write(folder, text)
    return build_retention_dags(App(load_config(path)), path)


def test_a_source_whose_retention_is_guarded_has_a_dag_and_no_other(tmp_path: Path) -> None:
    dags = dags_of(tmp_path, CONFIG)
    assert list(dags) == ["cdc_retention_shop"]
    dag = dags["cdc_retention_shop"]
    assert [task.task_id for task in dag.tasks] == ["keep_retention"]
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    assert "`raise_retention`" in (dag.doc_md or "")


def test_settings_are_in_the_units_of_the_job_and_survive_being_written_out(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, CONFIG))
    assert load_config(write(tmp_path, dump_config(config))).sources == config.sources
    retention = config.sources["shop"].retention
    assert retention is not None
    assert retention.settings() == RetentionSettings(
        4320, 10_080, 86_400, OnLow.RAISE_RETENTION, None, margin_seconds=43_200
    )


@pytest.mark.parametrize(
    ("was", "wrong", "problem"),
    [
        ("keep: 3d, ", "", "sources.shop.retention.on_low: raise_retention requires keep"),
        ("keep: 3d", "keep: 10s", "sources.shop.retention.keep: a retention must be at least a minute"),
        ("raise_retention", "pray", "sources.shop.retention.on_low: "),
        ("ceiling", "celing", "unknown key (did you mean ceiling?)"),
    ],
)
def test_retention_that_means_nothing_is_refused_by_its_place(
    tmp_path: Path, was: str, wrong: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        dags_of(tmp_path, CONFIG.replace(was, wrong))
    assert problem in str(caught.value)
