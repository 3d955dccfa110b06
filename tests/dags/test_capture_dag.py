"""The DAG that keeps a source's capture job: which sources have one, and how it is scheduled."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk import DAG

from floodmark.app.pipeline import App
from floodmark.config.loading import load_config
from floodmark.core.errors import ConfigError
from floodmark.orchestration.dags.upkeep import build_capture_dags

CONFIG = """
sources:
  shop:
    conn_id: shop_mssql
    capture:
      time_zone: Europe/Berlin
      stops: [{stop: "0 8 * * 1-5", start: "0 18 * * 1-5"}]
      job: {maxtrans: 1000}
  plain: {conn_id: plain_mssql}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
"""


def dags_of(folder: Path, text: str) -> dict[str, DAG]:
    path = folder / "pipelines.yaml"
    path.write_text(text, encoding="utf-8")
    return build_capture_dags(App(load_config(path)), path)


def test_a_source_whose_capture_job_is_kept_has_a_dag_and_no_other(tmp_path: Path) -> None:
    assert list(dags_of(tmp_path, CONFIG)) == ["cdc_capture_shop"]


def test_capture_dag_is_one_task_that_never_runs_twice_at_once(tmp_path: Path) -> None:
    dag = dags_of(tmp_path, CONFIG)["cdc_capture_shop"]
    assert [task.task_id for task in dag.tasks] == ["keep_capture"]
    assert (dag.max_active_runs, dag.catchup) == (1, False)


def test_page_of_the_capture_dag_names_its_stops_and_parameters(tmp_path: Path) -> None:
    page = dags_of(tmp_path, CONFIG)["cdc_capture_shop"].doc_md
    assert page is not None
    for words in ("Planned stops (Europe/Berlin)", "| `0 8 * * 1-5` | `0 18 * * 1-5` |", "`maxtrans` 1000"):
        assert words in page


@pytest.mark.parametrize(
    ("was", "wrong", "problem"),
    [
        ("Europe/Berlin", "Europe/Atlantis", "sources.shop.capture.time_zone: not a time zone: 'Europe/Atlantis'"),
        ("maxtrans: 1000", "maxtrans: 0", "sources.shop.capture.job.maxtrans: "),
        ("maxtrans: 1000", "max_trans: 9", "unknown key (did you mean maxtrans?)"),
        ("0 18 * * 1-5", "at six", "stops[0].start: not a cron expression: 'at six'"),
    ],
)
def test_capture_configuration_that_means_nothing_is_refused_by_its_place(
    tmp_path: Path, was: str, wrong: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        dags_of(tmp_path, CONFIG.replace(was, wrong))
    assert problem in str(caught.value)
