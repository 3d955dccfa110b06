"""The page of a table's rows in quarantine, and who may see their keys."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import psycopg
import pytest
from served_pages import configure_pages, fill_ledger, pages_of

from floodmark.orchestration.pages import content
from floodmark.orchestration.pages.buttons import Rights
from floodmark.orchestration.pages.content import Answer, Query, quarantine_page
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.ledger.status import PostgresStatusLedger
from floodmark.postgres.session import WarehouseConnection

DAGS = ("cdc_shop", "cdc_late")
ALL = Query()
AGAIN = """
INSERT INTO floodmark.quarantine
    (pipeline, source_schema, source_name, target_schema, target_name, window_id, rule, key, lsn, row_data)
VALUES ('shop', 'dbo', 'Orders', 'shop', 'orders', 60, 'amount_is_positive', '[4713]',
        decode('00000000000000000043', 'hex'), '{}'),
    ('shop', 'dbo', 'Orders', 'shop', 'orders', 60, 'has_name', '[4713]', decode('00000000000000000043', 'hex'), '{}')
"""
ADD = """
INSERT INTO floodmark.quarantine
    (pipeline, source_schema, source_name, target_schema, target_name, window_id, rule, key, lsn, row_data)
VALUES ('shop', 'dbo', 'Orders', 'shop', 'orders', 59, 'has_name', '["<script>"]',
        decode('00000000000000000042', 'hex'), '{"Amount": "-987.65"}'),
    ('shop', 'dbo', 'Other', 'shop', 'other', 59, 'has_name', '["other"]', decode('00000000000000000042', 'hex'), '{}')
"""


@pytest.fixture(autouse=True)
def rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: WarehouseConnection, ledger: PostgresLedger
) -> None:
    """Three rows of a rule with the keys 4712 to 4714, one of another rule, and one of another table."""
    configure_pages(monkeypatch, tmp_path, database)
    fill_ledger(database)
    with psycopg.connect(database.conninfo()) as session:
        session.execute(ADD)


def page(*, may_read: bool, query: Query = ALL) -> Answer:
    return quarantine_page(
        Rights(DAGS), lambda conn_id: may_read and conn_id == "warehouse", "shop", "dbo.Orders", query
    )


def keys_of(answer: Answer) -> list[list[object]]:
    return [each["key"] for each in json.loads(answer.body)["rows"]]


def test_viewer_without_the_right_sees_counts_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the keys were read")

    monkeypatch.setattr(PostgresStatusLedger, "list_quarantined_keys", refuse)
    shown = page(may_read=False)
    assert shown.code == 200
    for words in ("amount_is_positive", ">3<", "only users who may read the connection <code>warehouse</code>"):
        assert words in shown.body
    document = page(may_read=False, query=Query(format="json")).body
    assert json.loads(document)["rows"] is None
    rules = {each["rule"]: each["rows"] for each in json.loads(document)["rules"]}
    assert rules == {"amount_is_positive": 3, "has_name": 1}
    for text in (shown.body, document):
        assert "4712" not in text
        assert "script&gt;" not in text


def test_viewer_with_the_right_sees_keys_escaped_and_no_other_value() -> None:
    shown = page(may_read=True)
    for words in (
        "<code>4714</code>",
        "<code>&lt;script&gt;</code>",
        "floodmark quarantine release shop dbo.Orders",
        "<code>65</code>",  # the change, as this kind of source prints it
    ):
        assert words in shown.body
    assert "987.65" not in shown.body
    assert "other" not in shown.body


def test_row_that_broke_a_rule_twice_and_another_rule_waits_once(database: WarehouseConnection) -> None:
    with psycopg.connect(database.conninfo()) as session:
        session.execute(AGAIN)
    assert "4 rows wait in quarantine." in page(may_read=True).body
    document = json.loads(page(may_read=True, query=Query(format="json")).body)
    assert document["waiting_rows"] == 4
    assert {each["rule"]: each["rows"] for each in document["rules"]} == {"amount_is_positive": 3, "has_name": 2}
    rows = {(each["rule"], *each["key"]): each["lsn"] for each in document["rows"]}
    assert len(rows) == len(document["rows"]) == 5
    assert (rows["amount_is_positive", 4713], rows["amount_is_positive", 4712]) == ("66", "65")


def test_rows_are_chosen_by_rule_and_shown_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keys_of(page(may_read=True, query=Query(text="has_name", format="json"))) == [["<script>"]]
    monkeypatch.setattr(content, "KEYS_OF_A_PAGE", 3)
    assert "Page 1 of 2" in page(may_read=True).body
    assert keys_of(page(may_read=True, query=Query(page=2, format="json"))) == [[4712]]
    assert keys_of(page(may_read=True, query=Query(page=9, format="json"))) == [[4712]]


def test_page_is_for_those_who_may_read_the_dag() -> None:
    for pipeline, table in (("expired", "dbo.Gone"), ("shop", "dbo.Other"), ("none", "dbo.Orders")):
        answer = quarantine_page(Rights(DAGS), lambda _: True, pipeline, table, Query())
        assert (answer.code, "amount_is_positive" in answer.body) == (404, False)
    assert "No row is in quarantine." in quarantine_page(Rights(DAGS), lambda _: True, "late", "dbo.Late", Query()).body


@pytest.mark.filterwarnings("ignore:Using `httpx` with")  # Airflow imports a test client of its own
@pytest.mark.parametrize("readable", ["warehouse", "another"])
def test_page_asks_airflow_whether_the_user_may_read_the_connection(
    monkeypatch: pytest.MonkeyPatch, readable: str
) -> None:
    class Manager:
        def is_authorized_view(self, **_: object) -> bool:
            return True

        def get_authorized_dag_ids(self, **_: object) -> set[str]:
            return {"cdc_shop"}

        def is_authorized_dag(self, **_: object) -> bool:
            return False

        def is_authorized_connection(self, *, method: str, details: object, user: object) -> bool:
            return (method, getattr(details, "conn_id", None), user) == ("GET", readable, "operator")

    async def ask(app: object) -> httpx.Response:
        transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow.test") as client:
            return await client.get("/quarantine/shop/dbo.Orders")

    with pages_of(monkeypatch, Manager) as made:
        answer = asyncio.run(ask(made))
    assert (answer.status_code, "4712" in answer.text) == (200, readable == "warehouse")
