"""The decisions that the status pages take: who may make them, from where, and in whose name they are done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from served_pages import configure_pages, fill_ledger, pages_of

from floodmark.core.patterns import Listed, ListedTable
from floodmark.core.schema import TableName
from floodmark.orchestration.pages.buttons import Rights
from floodmark.orchestration.pages.content import Query, pipeline_page, quarantine_page, table_page
from floodmark.orchestration.pages.decisions import take_decision, why_refused
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection

OWN = {"content-type": "application/json", "host": "airflow.test", "origin": "https://airflow.test"}
BROWSER = OWN | {"sec-fetch-site": "same-origin"}
NARROWED = """
INSERT INTO floodmark.drift_events (source, source_schema, source_name, instance_name, instance_object_id,
    instance_created_at, kind, column_name, before, after, is_captured, proposal, policies)
VALUES ('shop', 'dbo', 'Orders', 'dbo_Orders', 1, now(), 'type_narrowed', 'Amount', 'bigint', 'int', true, '', '{}')
"""
CLOSE = {"alert": "k", "reason": "Its source is gone."}
DAGS = ("cdc_shop", "cdc_expired")
PATTERN = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.*, target: shop.*}]}
"""


@pytest.fixture(autouse=True)
def pages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: WarehouseConnection, ledger: PostgresLedger
) -> None:
    """A ledger with an open alert about pipeline expired, and rows in quarantine of pipeline shop."""
    configure_pages(monkeypatch, tmp_path, database)
    fill_ledger(database)


@pytest.fixture
def ask(database: WarehouseConnection) -> Iterator[Callable[[str], list[Any]]]:
    """Ask the ledger."""
    with psycopg.connect(database.conninfo(), autocommit=True) as session:
        yield lambda statement: session.execute(statement).fetchall()


def viewer(*runs: str) -> Rights:
    """Return the rights of a user who may read the DAGs, and start runs of some."""
    return Rights(DAGS, lambda dag: dag in runs)


def made(rights: Rights, pipeline: str, decision: str, **body: Any) -> tuple[int, str]:
    answer = take_decision(rights, pipeline, decision, body, "anna")
    (said,) = json.loads(answer.body).values()
    return answer.code, said


@pytest.mark.parametrize(
    ("headers", "is_taken"),
    [
        (BROWSER, True),
        (OWN, True),
        (OWN | {"origin": "https://public.test"}, True),  # behind a proxy that changes the host
        (BROWSER | {"content-type": "application/json; charset=utf-8"}, True),
        (BROWSER | {"content-type": "text/plain"}, False),
        (BROWSER | {"content-type": "application/x-www-form-urlencoded"}, False),
        (BROWSER | {"sec-fetch-site": "cross-site", "origin": "https://evil.test"}, False),
        (BROWSER | {"sec-fetch-site": "same-site", "origin": "https://other.test"}, False),
        (OWN | {"origin": "https://evil.test"}, False),
        (OWN | {"origin": "null"}, False),
        ({name: value for name, value in OWN.items() if name != "origin"}, False),
    ],
)
def test_decision_is_taken_from_the_pages_alone(headers: dict[str, str], is_taken: bool) -> None:
    assert (why_refused(headers, "https://public.test/airflow") == "") == is_taken


def test_alert_is_closed_with_name_and_reason(ask: Callable[[str], list[Any]]) -> None:
    assert made(viewer("cdc_expired"), "expired", "close", **CLOSE) == (200, "The alert is closed.")
    assert ask("SELECT outcome FROM floodmark.alerts WHERE ended_at IS NOT NULL") == [
        ("anna closed it: Its source is gone.",)
    ]
    assert made(viewer("cdc_expired"), "expired", "close", **CLOSE) == (404, "The alert is no longer open.")


def test_alert_is_not_closed_without_a_reason_or_from_another_pipeline(ask: Callable[[str], list[Any]]) -> None:
    code, said = made(viewer("cdc_expired"), "expired", "close", alert="k", reason=" ")
    assert (code, "an alert is closed with a reason" in said) == (409, True)
    assert made(viewer("cdc_expired"), "expired", "close", alert="k")[0] == 400
    assert made(viewer("cdc_shop"), "shop", "close", **CLOSE)[0] == 404
    assert ask("SELECT count(*) FROM floodmark.alerts WHERE ended_at IS NOT NULL") == [(0,)]


LAKE = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {kind: iceberg, conn_id: lake}
ledger: {conn_id: warehouse}
pipelines: {shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}}
"""
UNDECIDED = """
SELECT (SELECT count(*) FROM floodmark.alerts WHERE ended_at IS NULL),
    (SELECT count(*) FROM floodmark.quarantine WHERE settled_at IS NULL),
    (SELECT count(*) FROM floodmark.drift_events WHERE approved_at IS NULL)
"""
NEEDS = [
    ("expired", "close", CLOSE, "cdc_expired"),
    ("shop", "discard", {"table": "dbo.Orders", "rule": ""}, "cdc_shop"),
    ("shop", "release", {"table": "dbo.Orders"}, "cdc_shop"),
    ("shop", "approve", {"event_id": 1, "proposal": ""}, "cdc_drift_shop"),
    ("shop", "reject", {"event_id": 1, "proposal": ""}, "cdc_drift_shop"),
]


def test_user_without_the_right_changes_nothing(ask: Callable[[str], list[Any]], database: WarehouseConnection) -> None:
    with psycopg.connect(database.conninfo()) as session:
        session.execute(NARROWED)
    for pipeline, decision, body, right in NEEDS:
        others = {"cdc_shop", "cdc_expired", "cdc_drift_shop"} - {right}
        refused = made(viewer(*others), pipeline, decision, **body)
        assert refused == (403, f"It needs the right to trigger the DAG {right}.")
        hidden = Rights((), lambda _: True)
        assert made(hidden, pipeline, decision, **body)[0] == 404
    assert ask(UNDECIDED) == [(1, 3, 1)]


def test_event_without_a_proposal_is_acknowledged_once(
    ask: Callable[[str], list[Any]], database: WarehouseConnection
) -> None:
    with psycopg.connect(database.conninfo()) as session:
        session.execute(NARROWED)
    operator = viewer("cdc_drift_shop")
    assert made(operator, "shop", "approve", event_id=1, proposal="EXEC x;")[0] == 409
    assert made(operator, "expired", "approve", event_id=1, proposal="")[0] == 404  # it has no such table
    assert made(operator, "shop", "approve", event_id=1, proposal="") == (200, "Event 1 is acknowledged.")
    assert ask("SELECT approved_by FROM floodmark.drift_events") == [("anna",)]
    assert made(operator, "shop", "approve", event_id=1, proposal="") == (404, "The event is decided already.")


def test_event_of_a_table_that_a_pattern_brought_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: WarehouseConnection, ledger: PostgresLedger
) -> None:
    with psycopg.connect(database.conninfo()) as session:
        session.execute(NARROWED)
    orders = ListedTable(TableName("dbo", "Orders"), "dbo.*", Listed.TAKEN)
    ledger.record_pattern_tables("shop", [orders])
    configure_pages(monkeypatch, tmp_path, database, PATTERN)
    approved = made(viewer("cdc_drift_shop"), "shop", "approve", event_id=1, proposal="")
    assert approved == (200, "Event 1 is acknowledged.")


def test_rows_leave_quarantine_by_rule(ask: Callable[[str], list[Any]]) -> None:
    operator = viewer("cdc_shop")
    assert made(operator, "shop", "discard", table="dbo.Orders", rule="other") == (200, "Entries discarded: 0.")
    assert made(operator, "shop", "discard", table="dbo.Orders", rule="amount_is_positive") == (
        200,
        "Entries discarded: 3.",
    )
    assert ask("SELECT DISTINCT settled_by, outcome FROM floodmark.quarantine") == [("anna", "discarded")]
    assert made(operator, "shop", "discard", table="dbo.None", rule="")[0] == 409
    assert made(operator, "shop", "none")[0] == 404


def test_rows_of_a_lake_are_released_by_command_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: WarehouseConnection, ask: Callable[[str], list[Any]]
) -> None:
    operator = viewer("cdc_shop")
    (tmp_path / "lake.yaml").write_text(LAKE, encoding="utf-8")
    monkeypatch.setenv("FLOODMARK_CONFIG", str(tmp_path / "lake.yaml"))
    code, said = made(operator, "shop", "release", table="dbo.Orders")
    assert (code, "Run: floodmark quarantine release shop dbo.Orders" in said) == (409, True)
    page = quarantine_page(operator, lambda _: False, "shop", "dbo.Orders", Query()).body
    assert ("decisions/shop/release" in page, "decisions/shop/discard" in page) == (False, True)
    assert ask(UNDECIDED) == [(1, 3, 0)]


def test_buttons_are_for_those_who_may_press_them(database: WarehouseConnection) -> None:
    with psycopg.connect(database.conninfo()) as session:
        session.execute(NARROWED)
    assert "decisions/expired/close" in pipeline_page(viewer("cdc_expired"), "expired", Query()).body
    assert "decisions/" not in pipeline_page(viewer("cdc_shop"), "expired", Query()).body
    page = table_page(viewer("cdc_drift_shop", "cdc_load_shop"), "shop", "dbo.Orders", Query()).body
    assert "decisions/shop/approve" in page
    assert "api/v2/dags/cdc_load_shop/dagRuns" in page
    page = table_page(viewer(), "shop", "dbo.Orders", Query()).body
    assert "<form" not in page
    assert "floodmark drift approve 1" in page  # without a script, too


class Manager:
    """An authorization manager whose user may see all, and start runs of cdc_expired."""

    def is_authorized_view(self, **_: object) -> bool:
        return True

    def get_authorized_dag_ids(self, **_: object) -> set[str]:
        return set(DAGS)

    def is_authorized_dag(self, *, method: str, access_entity: Any, details: Any, user: object) -> bool:
        return (method, access_entity.value, details.id, user) == ("POST", "RUN", "cdc_expired", "operator")


@pytest.mark.filterwarnings("ignore:Using `httpx` with")  # Airflow imports a test client of its own
def test_route_asks_airflow_for_the_right_and_refuses_other_sites(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[str], list[Any]]
) -> None:
    async def post(app: Any, pipeline: str, decision: str, body: object, headers: dict[str, str]) -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="https://airflow.test") as client:
            return await client.post(f"/decisions/{pipeline}/{decision}", json=body, headers=headers)

    with pages_of(monkeypatch, Manager) as app:
        foreign = BROWSER | {"sec-fetch-site": "cross-site", "origin": "https://evil.test"}
        refused = asyncio.run(post(app, "expired", "close", CLOSE, foreign))
        assert (refused.status_code, ask("SELECT ended_at FROM floodmark.alerts")) == (403, [(None,)])
        discard = {"table": "dbo.Orders", "rule": ""}
        assert asyncio.run(post(app, "shop", "discard", discard, BROWSER)).status_code == 403
        done = asyncio.run(post(app, "expired", "close", CLOSE, BROWSER))
    assert (done.status_code, done.json()) == (200, {"done": "The alert is closed."})
    assert ask("SELECT outcome FROM floodmark.alerts") == [("operator closed it: Its source is gone.",)]


@pytest.mark.filterwarnings("ignore:Using `httpx` with")
@pytest.mark.parametrize(
    ("path", "accept", "code", "to"),
    [
        (
            "/status/shop?q=a%20b",
            "text/html",
            303,
            "/below/api/v2/auth/login?next=%2Fbelow%2Ffloodmark%2Fstatus%2Fshop%3Fq%3Da%2520b",
        ),
        ("/status/shop?format=json", "text/html", 401, None),
        ("/status/shop", "*/*", 401, None),
    ],
)
def test_browser_without_a_login_gets_the_page_of_the_login(
    monkeypatch: pytest.MonkeyPatch, path: str, accept: str, code: int, to: str | None
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.test/below")

    async def get(app: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="https://airflow.test") as client:
            return await client.get(path, headers={"accept": accept})

    with pages_of(monkeypatch, Manager) as app:
        app.dependency_overrides.clear()
        answer = asyncio.run(get(app))
    assert (answer.status_code, answer.headers.get("location")) == (code, to)
    assert "Orders" not in answer.text
