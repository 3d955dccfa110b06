"""The data docs on the status pages: of a pipeline's own windows alone, without the web, and rows for few."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from served_pages import configure_pages, pages_of, served

from floodmark.orchestration.pages.buttons import Rights
from floodmark.orchestration.pages.content import Answer, Query, pipeline_page
from floodmark.orchestration.pages.data_docs import docs_page
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.quality.checks import CheckedBatch, to_json

DAGS = ("cdc_shop", "cdc_late")
FAILED = "validations/shop/shop/orders/staged/shop window 7/20260501T120000.000000Z/warehouse-shop.html"
SUITE = "expectations/shop/shop/orders/staged.html"
PASSED = "passed/shop window 6 20260501T110000.000000Z.html"
OTHER = "passed/late window 9 20260501T110000.000000Z.html"
# As Great Expectations writes them.
PAGE = """<!DOCTYPE html><html><head><title>x</title>
<link rel="stylesheet" href="https://cdn.test/bootstrap.min.css"/>
<script src="https://cdn.test/jquery.js"></script></head>
<body><img src="https://assets.test/logo.png"><p>key 4711 was found</p>
<a href="../../../../../../../index.html">Home</a><SCRIPT>
steal()</SCRIPT ></body></html>"""


def batch(page: str, pipeline: str = "shop") -> CheckedBatch:
    failures = ("expected: no row; found: 1 rows",) if page == FAILED else ()
    return CheckedBatch(
        pipeline, 7, datetime(2026, 5, 1, tzinfo=UTC), "shop.orders.staged", 1, failures, warnings=(), page=page
    )


@pytest.fixture(autouse=True)
def docs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: WarehouseConnection, ledger: PostgresLedger
) -> Path:
    """A folder with two windows of pipeline shop and one of another, and a file outside of it."""
    configure_pages(monkeypatch, tmp_path, database)
    folder = tmp_path / "docs"
    monkeypatch.setenv("FLOODMARK_DATA_DOCS", str(folder))
    for page in (FAILED, SUITE, PASSED, OTHER, "../secret.html", ".stores/secret.json"):
        path = folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE if page in (FAILED, SUITE) else f"<p>{page}</p>", encoding="utf-8")
    records = {
        "shop 1": [batch(FAILED)],
        "shop 2": [batch(PASSED)],
        "late 1": [batch(OTHER, "late")],
        # The name of another pipeline may begin like this one's.
        "shop x 1": [batch("passed/shop x.html", "shop x")],
    }
    (folder / ".stores" / "windows").mkdir(parents=True)
    for name, batches in records.items():
        text = json.dumps([to_json(each) for each in batches])
        (folder / ".stores" / "windows" / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def page(path: str, *, may_read: bool = True, dags: tuple[str, ...] = DAGS, pipeline: str = "shop") -> Answer:
    return docs_page(Rights(dags), lambda conn_id: may_read and conn_id == "warehouse", pipeline, path)


@pytest.mark.parametrize("path", ["", "index.html"])
def test_front_page_has_the_windows_of_the_pipeline(path: str) -> None:
    front = page(path, may_read=False)
    assert front.code == 200
    for words in ("found: 1 rows", "shop%20window%206", "shop%20window%207"):
        assert words in front.body
    for words in ("late", "shop x", "http", "<script"):
        assert words not in front.body
    assert page(path, dags=("cdc_late",)).code == 404


def test_page_is_shown_without_anything_from_the_web() -> None:
    shown = page(FAILED)
    assert (shown.code, "key 4711 was found" in shown.body) == (200, True)
    assert 'href="../../../../../../../index.html"' in shown.body
    assert "<style>" in shown.body
    for words in ("http", "script", "steal", "<link", "<img"):
        assert words not in shown.body.casefold()
    assert page(SUITE).code == page(PASSED).code == 200


def test_rows_are_for_those_who_may_read_the_connection() -> None:
    refused = page(FAILED, may_read=False)
    assert (refused.code, "4711" in refused.body) == (403, False)
    assert "only users who may read the connection warehouse" in refused.body
    assert page(PASSED, may_read=False).code == 200


@pytest.mark.parametrize(
    "path",
    [
        "../secret.html",
        "passed/../../secret.html",
        "/etc/passwd",
        ".stores/secret.json",
        ".stores/windows/shop 1.json",
        OTHER,
        "passed/shop x.html",
        "passed",
        "none.html",
    ],
)
def test_nothing_else_is_read(path: str) -> None:
    answer = page(path)
    assert (answer.code, "secret" in answer.body.replace(path, "")) == (404, False)


def test_deleted_page_of_an_old_window_is_missed(docs: Path) -> None:
    (docs / PASSED).unlink()
    assert page(PASSED).code == 404


def test_data_docs_are_linked_where_the_server_has_them(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 'href="../docs/shop/"' in pipeline_page(Rights(DAGS), "shop", Query()).body
    monkeypatch.setenv("FLOODMARK_DATA_DOCS", str(docs / "none"))
    assert "Data docs" not in pipeline_page(Rights(DAGS), "shop", Query()).body
    assert page("").code == 200
    assert "No window has been checked yet." in page("").body


class Manager:
    """An authorization manager whose user may read the DAG, and no connection."""

    def is_authorized_view(self, **_: object) -> bool:
        return True

    def is_authorized_connection(self, **_: object) -> bool:
        return False

    def get_authorized_dag_ids(self, **_: object) -> set[str]:
        return {"cdc_shop"}


@pytest.mark.filterwarnings("ignore:Using `httpx` with")  # Airflow imports a test client of its own
def test_route_has_a_policy_that_loads_nothing_and_stays_in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with pages_of(monkeypatch, Manager) as made, served(made) as status:
        root = status.replace("/status", "/docs")
        front = httpx.get(f"{root}/shop/")
        assert (front.status_code, "shop%20window%206" in front.text) == (200, True)
        assert front.headers["content-security-policy"].startswith("default-src 'none';")
        assert httpx.get(f"{root}/shop/{FAILED}").status_code == 403
        assert httpx.get(f"{root}/late/").status_code == 404
        for path in ("..%2F..%2Fsecret.html", "passed/%2e%2e/%2e%2e/secret.html", "%2Fetc%2Fpasswd"):
            answer = httpx.get(f"{root}/shop/{path}")
            assert (answer.status_code, "<p>../secret" in answer.text) == (404, False)
