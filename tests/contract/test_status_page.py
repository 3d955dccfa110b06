"""The pages *Floodmark status* of Airflow: a real ledger and source, the rights of viewers, and what cannot be read."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psycopg
import pytest
from shop_connections import set_connections

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.app.pipeline import Pipeline
from floodmark.app.status import read_status
from floodmark.core.errors import DataQualityError
from floodmark.core.status import PipelineStatus
from floodmark.orchestration.pages import content, routes
from floodmark.orchestration.pages.buttons import Rights
from floodmark.orchestration.pages.cards import DagState
from floodmark.orchestration.pages.content import LiveReads, Query, overview, pipeline_page, table_page
from floodmark.orchestration.pages.routes import STATUS_PATH, status_app
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
  other: {source: shop, tables: [{source: "dbo.<b>Lines", target: other.lines}]}
"""


DAGS = ("cdc_shop", "cdc_other")
DAG_STATES = {
    "cdc_shop": DagState(is_paused=False, next_run_at=datetime(2020, 1, 1, tzinfo=UTC)),
    "cdc_other": DagState(is_paused=True, next_run_at=None),
}


HISTORY = (
    """
    INSERT INTO floodmark.windows
        (pipeline, to_lsn, state, attempt, plan, opened_at, merged_at, checked_at, advanced_at, lane)
    SELECT 'shop', decode('00000000000000000001', 'hex'), state, attempt, '{}', at, at + interval '3 seconds',
        at + interval '4 seconds', CASE state WHEN 'advanced' THEN at + interval '5 seconds' END, lane
    FROM (SELECT timestamptz '2026-05-01 12:00:00Z') AS t (at),
        (VALUES ('advanced', 1, ''), ('checked', 2, 'replay 0x01-0x02')) AS w (state, attempt, lane)
    """,
    """
    INSERT INTO floodmark.window_tables
        (window_id, source_schema, source_name, kind, read_rows, inserted_rows, updated_rows, quarantined_rows)
    VALUES (1, 'dbo', 'Orders', 'changes', 4, 2, 1, 1), (2, 'dbo', 'Orders', 'replay', 7, 0, 0, 0),
        (1, 'dbo', 'Lines', 'changes', 9, 9, 0, 0)
    """,
    """
    INSERT INTO floodmark.gaps (pipeline, source_schema, source_name, verdict, cause)
    VALUES ('shop', 'dbo', 'Orders', 'expired', 'it was cleaned up.')
    """,
    """
    INSERT INTO floodmark.quarantine
        (pipeline, source_schema, source_name, target_schema, target_name, window_id, rule, key, lsn, row_data)
    VALUES ('shop', 'dbo', 'Orders', 'shop', 'orders', 1, 'amount_is_positive', '{"Id": 4711}',
        decode('00000000000000000001', 'hex'), '{"Id": 4711}')
    """,
)


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run("CREATE TABLE dbo.Orders (Id int PRIMARY KEY)", "INSERT dbo.Orders VALUES (1)")
        made.enable("Orders")
        made.scan()
        yield made


@pytest.fixture(autouse=True)
def config(  # noqa: PLR0917  (fixtures)
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    emulator: Emulator,
    source: CdcDatabase,
    database: WarehouseConnection,
    ledger: PostgresLedger,
) -> Path:
    set_connections(monkeypatch, emulator, source.name, database)
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    monkeypatch.setattr(content, "_LEDGER", LiveReads(kept_seconds=0))
    # Airflow's database is not here.
    monkeypatch.setattr(content, "read_dag_states", lambda _: DAG_STATES)
    return path


def read_page(dags: Collection[str], *, live: bool) -> tuple[str, int]:
    answer = overview(Rights(dags), Query(live))
    return answer.body, answer.code


def read_pipeline(pipeline: str = "shop", dags: Collection[str] = DAGS, *, live: bool = False) -> str:
    answer = pipeline_page(Rights(dags), pipeline, Query(live))
    assert answer.code == 200
    return answer.body


def test_page_shows_every_pipeline_as_the_ledger_has_it_or_as_it_is_now(database: WarehouseConnection) -> None:
    page, code = read_page(DAGS, live=False)
    assert code == 200
    for words in ("2 pipelines: 1 paused, 1 healthy", 'href="status/shop"', 'href="status/other"', "none yet", ">due<"):
        assert words in page
    assert page.index("status/other") < page.index("status/shop")  # a paused pipeline needs attention first
    assert "never run" in read_pipeline()
    assert "dbo.&lt;b&gt;Lines" in read_pipeline("other")
    with psycopg.connect(database.conninfo()) as session:
        session.execute(
            "INSERT INTO floodmark.tables (pipeline, source_schema, source_name, target_schema, target_name)"
            " VALUES ('shop', 'dbo', 'Orders', 'shop', 'orders')"
        )
    assert "first load" in read_pipeline()
    # Only the source shows that there is no such table.
    assert "instance missing" not in read_pipeline("other")
    page, code = read_page(DAGS, live=True)
    assert (code, "1 incident" in page) == (200, True)
    assert "instance missing" in read_pipeline("other", live=True)
    # Left open, it queries the ledger again, and never the source.
    assert ['http-equiv="refresh"' in read_page(DAGS, live=live)[0] for live in (False, True)] == [True, False]


def test_page_that_queries_the_source_shows_what_the_next_run_does() -> None:
    assert "The next run" not in read_pipeline("other")
    page = read_pipeline("other", live=True)
    assert re.search(r"The next run.*dbo\.&lt;b&gt;Lines.*left out.*instance missing: ", page, re.DOTALL)
    [document] = json.loads(pipeline_page(Rights(DAGS), "other", Query(live=True, format="json")).body)["pipelines"]
    assert [(each["source"], each["step"]) for each in document["plan"]["tables"]] == [("dbo.<b>Lines", "left_out")]
    [document] = json.loads(pipeline_page(Rights(DAGS), "other", Query(format="json")).body)["pipelines"]
    assert "plan" not in document


LAKE = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {kind: iceberg, conn_id: lake}
ledger: {conn_id: warehouse}
pipelines: {shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}}
"""


def test_page_of_a_table_in_a_lake_has_its_files(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: WarehouseConnection
) -> None:
    def read(**query: str) -> str:
        answer = table_page(Rights(DAGS), "shop", "dbo.Orders", Query(**query))
        assert answer.code == 200
        return answer.body

    assert "lake" not in read()
    config.write_text(LAKE, encoding="utf-8")
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "fs", "extra": {"path": str(tmp_path)}}))
    assert "There is no table yet" in read()  # nor a catalog
    summary = {"total-records": "9", "total-position-deletes": "2", "total-data-files": "3"}
    summary |= {"total-delete-files": "1", "total-files-size": "2048"}
    metadata = {"current-snapshot-id": 77, "snapshots": [{"snapshot-id": 77, "summary": summary}]}
    (tmp_path / "v1.metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    with psycopg.connect(database.conninfo()) as session:
        session.execute("CREATE SCHEMA floodmark_lake")
        session.execute(
            "CREATE TABLE floodmark_lake.iceberg_tables AS SELECT 'lake' AS catalog_name, 'shop' AS table_namespace,"
            " 'orders' AS table_name, %s AS metadata_location",
            [f"file:{tmp_path}/v1.metadata.json"],
        )
    words = " ".join(read().split())
    assert "3 files and 1 with deletes, 2.0 KiB, 1 snapshot. Newest snapshot:" in words
    assert "Upkeep is due" in words
    found = json.loads(read(format="json"))["lake"]
    assert (found["snapshot"], found["rows"], found["files"], found["is_due"]) == (77, 7, 3, True)


def test_pages_have_the_same_as_json() -> None:
    document = json.loads(overview(Rights(DAGS), Query(format="json")).body)
    assert [(each["pipeline"], each["state"]) for each in document["pipelines"]] == [
        ("shop", "healthy"),
        ("other", "paused"),
    ]
    document = json.loads(pipeline_page(Rights(DAGS), "other", Query(format="json")).body)
    assert [table["source"] for table in document["pipelines"][0]["tables"]] == ["dbo.<b>Lines"]
    answer = pipeline_page(Rights(["cdc_shop"]), "other", Query(format="json"))
    assert (answer.code, json.loads(answer.body)["pipelines"]) == (404, [])


def test_page_of_a_table_shows_its_history(database: WarehouseConnection) -> None:
    page = table_page(Rights(DAGS), "shop", "dbo.Orders", Query())
    assert (page.code, "None yet." in page.body, "charts-data" in page.body) == (200, True, False)
    with psycopg.connect(database.conninfo()) as session:
        for statement in HISTORY:
            session.execute(statement)
    page = table_page(Rights(DAGS), "shop", "dbo.Orders", Query())
    assert page.code == 200
    for words in (
        "+2 ~1 \N{MINUS SIGN}0",
        "3.0 s",
        "1 in quarantine",
        "Rule amount_is_positive: 1 row,",
        "expired: it was cleaned up.",
        "Not repaired.",
        "replay, replay 0x01-0x02",
        "checked, attempt 2",
    ):
        assert words in page.body
    assert page.body.index('data-label="Window"><span>2') < page.body.index('data-label="Window"><span>1')
    # Keys and values of rows are not for every viewer.
    assert "4711" not in page.body
    history = json.loads(table_page(Rights(DAGS), "shop", "dbo.Orders", Query(format="json")).body)["history"]
    assert [(each["window_id"], each["read_rows"]) for each in history["windows"]] == [(1, 4), (2, 7)]
    assert "4711" not in json.dumps(history)


def test_window_links_to_its_run_for_those_who_may_read_the_dag(database: WarehouseConnection) -> None:
    with psycopg.connect(database.conninfo()) as session:
        for statement in HISTORY:
            session.execute(statement)
        session.execute(
            "UPDATE floodmark.windows SET dag_id = 'cdc_load_shop', run_id = 'manual__1/+2' WHERE lane = ''"
        )
    link = 'href="../../../dags/cdc_load_shop/runs/manual__1%2F%2B2"'
    assert link in table_page(Rights([*DAGS, "cdc_load_shop"]), "shop", "dbo.Orders", Query()).body
    for form in ("", "json"):
        assert "manual__1" not in table_page(Rights(DAGS), "shop", "dbo.Orders", Query(format=form)).body


def test_actions_on_a_table_are_on_its_page(database: WarehouseConnection) -> None:
    with psycopg.connect(database.conninfo()) as session:
        session.execute(
            "INSERT INTO floodmark.drift_events (source, source_schema, source_name, instance_name, instance_object_id,"
            " instance_created_at, kind, column_name, before, after, is_captured, proposal, policies) VALUES ('shop',"
            " 'dbo', 'Orders', 'dbo_Orders', 1, now(), 'column_added', 'Note', '', 'int', false, 'EXEC x;', '{}')"
        )
    page = table_page(Rights([*DAGS, "cdc_load_shop", "cdc_switch_shop"]), "shop", "dbo.Orders", Query()).body
    for words in (
        'href="../../../dags/cdc_load_shop"',
        "{&#34;table&#34;: &#34;dbo.Orders&#34;}",
        "floodmark reload shop dbo.Orders",
        "floodmark replay shop",
        "{&#34;event_id&#34;: 1}",
        "floodmark drift approve 1",
    ):
        assert words in page
    assert "DAG cdc_load_shop" not in table_page(Rights(DAGS), "shop", "dbo.Orders", Query()).body


def test_page_of_a_table_is_for_those_who_may_read_its_dag() -> None:
    for dags, pipeline, table in (
        (["cdc_other"], "shop", "dbo.Orders"),
        (DAGS, "shop", "dbo.<b>Lines"),
        (DAGS, "none", "dbo.Orders"),
    ):
        page = table_page(Rights(dags), pipeline, table, Query())
        assert (page.code, "dbo.Orders" in page.body) == (404, False)
    assert table_page(Rights(DAGS), "other", "dbo.<b>Lines", Query()).code == 200


def test_cards_are_found_by_name_and_state() -> None:
    assert "status/shop" not in overview(Rights(DAGS), Query(text="OTH")).body
    assert "status/other" not in overview(Rights(DAGS), Query(state="healthy")).body
    assert "No pipeline matches." in overview(Rights(DAGS), Query(text="<script>")).body


def test_page_says_why_a_pipeline_cannot_be_read_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, config: Path, emulator: Emulator
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", "postgres://user:s3cret@127.0.0.1:1/away")
    page, code = read_page(DAGS, live=False)
    assert code == 503
    assert page.count("unreadable</span>") == 2
    assert pipeline_page(Rights(DAGS), "shop", Query()).code == 503
    config.write_text("pipelines: 7", encoding="utf-8")
    broken, code = read_page(DAGS, live=False)
    assert code == 503
    for text in (page, broken):
        assert "Traceback" not in text
        assert "s3cret" not in text
        assert emulator.password not in text


def test_page_shows_only_the_pipelines_whose_dags_the_viewer_may_read() -> None:
    page, code = read_page(["cdc_other", "cdc_load_shop"], live=False)
    assert code == 200
    assert "status/other" in page
    assert "shop" not in page
    answer = pipeline_page(Rights(["cdc_other", "cdc_load_shop"]), "shop", Query())
    assert (answer.code, "dbo.Orders" in answer.body) == (404, False)
    page, code = read_page([], live=True)
    assert (code, "There is no pipeline whose DAG you may read." in page) == (200, True)


def test_sources_are_asked_once_for_several_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def read(pipeline: Pipeline, *, live: bool) -> PipelineStatus:
        asked.append((pipeline.name, live))
        return read_status(pipeline, live=live)

    monkeypatch.setattr(content, "read_status", read)
    pages = [read_page(DAGS, live=True)[0] for _ in range(3)]
    assert sorted(asked) == [("other", True), ("shop", True)]
    assert all("status/shop" in page for page in pages)
    monkeypatch.setattr(content, "_LEDGER", LiveReads())
    for _ in range(3):
        read_page(DAGS, live=False)
    assert asked.count(("shop", False)) == 1


def test_page_shows_no_value_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DataQualityError("dbo.Orders", "rows broke rule r.", "Correct them.", "such as key 4711")

    monkeypatch.setattr(content, "read_status", refuse)
    page, code = read_page(DAGS, live=False)
    assert code == 503
    assert "rows broke rule r." in page
    assert "4711" not in page


@pytest.mark.filterwarnings("ignore:Using `httpx` with")  # Airflow imports a test client of its own
def test_page_is_for_users_of_airflow_alone() -> None:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=status_app)
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow.test") as client:
            return await client.get(STATUS_PATH)

    answer = asyncio.run(ask())
    assert answer.status_code == 401
    assert "Orders" not in answer.text


@pytest.mark.filterwarnings("ignore:Using `httpx` with")
def test_page_asks_airflow_which_dags_the_user_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Manager:
        def is_authorized_view(self, **_: object) -> bool:
            return True

        def get_authorized_dag_ids(self, *, user: object, method: str) -> set[str]:
            return {"cdc_other"} if (user, method) == ("operator", "GET") else set()

    routes._made.cache_clear()
    for module in ("airflow.api_fastapi.app", "airflow.api_fastapi.core_api.security"):
        monkeypatch.setattr(f"{module}.get_auth_manager", Manager)
    app = routes._made()
    security = pytest.importorskip("airflow.api_fastapi.core_api.security")  # at the top it would warn
    app.dependency_overrides[security.get_user] = lambda: "operator"

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow.test") as client:
            return await client.get(STATUS_PATH)

    answer = asyncio.run(ask())
    routes._made.cache_clear()
    assert answer.status_code == 200
    assert "status/other" in answer.text
    assert "shop" not in answer.text
