"""The status pages, served as Airflow serves them, and a ledger with each state that a card may have."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
import uvicorn
from fastapi import FastAPI

from floodmark.orchestration.pages import content, routes
from floodmark.orchestration.pages.cards import DagState
from floodmark.orchestration.pages.content import LiveReads
from floodmark.postgres.session import WarehouseConnection

LONG = "a_pipeline_with_a_name_of_as_many_characters_as_a_name_may_have_" + "x" * 36
LONG_TABLE = "dbo." + "Table" * 25
CONFIG = f"""
sources: {{shop: {{conn_id: shop_mssql}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  shop: {{source: shop, max_lag: 15m, tables: [{{source: dbo.Orders, target: shop.orders}}]}}
  expired: {{source: shop, tables: [{{source: dbo.Gone, target: shop.gone}}]}}
  late: {{source: shop, tables: [{{source: dbo.Late, target: shop.late}}]}}
  stopped: {{source: shop, tables: [{{source: dbo.Stopped, target: shop.stopped}}]}}
  away: {{source: shop, tables: [{{source: dbo.Away, target: shop.away}}]}}
  {LONG}:
    source: shop
    tables: [{{source: {LONG_TABLE}, target: shop.{"t" * 63}}}]
"""
EMPTY_CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines: {new: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}}
"""
DAG_STATES = {
    "cdc_stopped": DagState(is_paused=True, next_run_at=None),
    "cdc_shop": DagState(is_paused=False, next_run_at=datetime.now(UTC) + timedelta(minutes=5)),
}
STATES = {
    "expired": "incident",
    "away": "unreadable",
    "late": "attention",
    "stopped": "paused",
    "shop": "attention",
    LONG: "healthy",
}
_TABLES = """
INSERT INTO floodmark.tables
    (pipeline, source_schema, source_name, target_schema, target_name, watermark, watermark_at, consistent, window_id)
SELECT *, decode('00000000000000000042', 'hex'), timestamp '2026-05-01 12:00', true, 60
FROM (VALUES ('shop', 'dbo', 'Orders', 'shop', 'orders'), ('expired', 'dbo', 'Gone', 'shop', 'gone'),
    ('late', 'dbo', 'Late', 'shop', 'late'), (%(long)s, 'dbo', %(long_table)s, 'shop', %(long_target)s)) AS t
"""
_VERDICTS = """
INSERT INTO floodmark.verdicts (pipeline, source_schema, source_name, verdict, cause, hint)
VALUES ('shop', 'dbo', 'Orders', 'ready', 'it has changes.', ''),
    ('expired', 'dbo', 'Gone', 'expired', 'cleanup deleted changes that were not read.', 'Reload the table.'),
    ('late', 'dbo', 'Late', 'not_captured_yet', 'the capture job has not read the log yet.', '')
"""
_WINDOWS = """
WITH made AS (
    INSERT INTO floodmark.windows
        (pipeline, to_lsn, state, attempt, plan, opened_at, merged_at, checked_at, advanced_at, lag_seconds, dag_id,
        run_id)
    SELECT 'shop', decode('00000000000000000042', 'hex'), 'advanced', 1, '{}', at, at + interval '9 seconds' * (n %% 7),
        at + interval '70 seconds', at + interval '71 seconds', CASE WHEN n > 20 THEN 70 + 3 * n END,
        'cdc_shop', 'scheduled__2026-05-01T00:00:00+00:00__' || n
    FROM (
        SELECT n, timestamptz '2026-05-01 00:00Z' + n * interval '5 minutes' FROM generate_series(1, 60) AS g (n)
    ) AS w (n, at)
    RETURNING window_id
)
INSERT INTO floodmark.window_tables (window_id, source_schema, source_name, kind, read_rows, inserted_rows,
    updated_rows, deleted_rows, margin_seconds, change_rows, change_bytes)
SELECT window_id, 'dbo', 'Orders', 'changes', 900 + 40 * window_id, 600, 30 * window_id, 10 * (window_id %% 5),
    CASE WHEN window_id > 20 THEN 250000 - 900 * window_id END, CASE WHEN window_id %% 4 = 0 THEN 1000 * window_id END,
    CASE WHEN window_id %% 4 = 0 THEN 400000 * window_id END
FROM made
"""
_REST = (
    """
    INSERT INTO floodmark.alerts (event_key, kind, subject, what, place, since, means, advice)
    VALUES ('k', 'run_failed', 'expired', 'Run 5 failed.', 'run 5', 'now', 'No table is loaded.',
        E'Read its log.\\n-- Then:\\nSELECT 1')
    """,
    """
    INSERT INTO floodmark.quarantine
        (pipeline, source_schema, source_name, target_schema, target_name, window_id, rule, key, lsn, row_data)
    SELECT 'shop', 'dbo', 'Orders', 'shop', 'orders', 60, 'amount_is_positive', jsonb_build_array(4711 + n),
        decode('00000000000000000042', 'hex'), '{"Amount": "-8"}' FROM generate_series(1, 3) AS g (n)
    """,
    "UPDATE floodmark.tables SET published_window_id = 60 WHERE pipeline = 'shop'",
)


def fill_ledger(database: WarehouseConnection) -> None:
    """Write what ``STATES`` says, with sixty windows of dbo.Orders, of which the first twenty have no measures."""
    names = {"long": LONG, "long_table": LONG_TABLE.removeprefix("dbo."), "long_target": "t" * 63}
    with psycopg.connect(database.conninfo()) as session:
        for statement in (_TABLES, _WINDOWS):
            session.execute(statement, names)
        for statement in (_VERDICTS, *_REST):
            session.execute(statement)


def configure_pages(
    monkeypatch: pytest.MonkeyPatch, folder: Path, database: WarehouseConnection, config: str = CONFIG
) -> None:
    """Let the pages read a configuration, the ledger of ``database`` and ``DAG_STATES``, and keep nothing."""
    source = {"conn_type": "mssql", "host": "127.0.0.1", "port": 1, "login": "sa", "password": "p", "schema": "Shop"}
    warehouse = {"conn_type": "postgres", "host": database.host, "login": database.user, "schema": database.database}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", json.dumps(source))
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(warehouse | {"port": database.port}))
    path = folder / "pipelines.yaml"
    path.write_text(config, encoding="utf-8")
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    monkeypatch.setattr(content, "_LEDGER", LiveReads(kept_seconds=0))
    monkeypatch.setattr(content, "read_dag_states", lambda _: DAG_STATES)


class Operator(str):
    """The user of the pages, as far as they know Airflow's users."""

    __slots__ = ()

    def __new__(cls) -> Operator:
        return super().__new__(cls, "operator")

    def get_name(self) -> str:
        return str(self)


@contextmanager
def pages_of(monkeypatch: pytest.MonkeyPatch, manager: type) -> Iterator[FastAPI]:
    """Make the app of the pages for a user whose rights an authorization manager has."""
    for module in ("airflow.api_fastapi.app", "airflow.api_fastapi.core_api.security"):
        monkeypatch.setattr(f"{module}.get_auth_manager", manager)
    routes._made.cache_clear()
    made = routes._made()
    security = pytest.importorskip("airflow.api_fastapi.core_api.security")  # at the top it would warn
    made.dependency_overrides[security.get_user] = Operator
    yield made
    routes._made.cache_clear()


@contextmanager
def served(pages: FastAPI) -> Iterator[str]:
    """Serve the pages below the path that Airflow gives them. Yield the address of that of all pipelines."""
    outer = FastAPI()
    outer.get("/favicon.ico", status_code=204)(lambda: None)  # Airflow has one
    outer.mount("/floodmark", pages)
    server = uvicorn.Server(uvicorn.Config(outer, host="127.0.0.1", port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/floodmark/status"
    finally:
        server.should_exit = True
        thread.join(10)
