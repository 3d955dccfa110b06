"""The buttons of the status pages in a real Airflow: its login, its frame, its rights, and the runs that it starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark_laptop.stack import Stack
from installed_browser import open_browser, why_no_browser

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(bool(why_no_browser()), reason=why_no_browser())]

_LIMIT_SECONDS = 120
_LOAD_DAG, _DAG = "cdc_load_shop", "cdc_shop"
_TABLE = "dbo.Orders"
_READER = "reader"
_SET = "arguments[0].value = arguments[1]"
_POST = """
const done = arguments[arguments.length - 1];
fetch(arguments[0], {method: "POST", headers: {"Content-Type": "application/json"}, body: arguments[1]})
  .then((answer) => done(answer.status));
"""


@pytest.fixture
def stack(stack_dir: Path) -> Iterator[Stack]:
    """Airflow without a scheduler: it takes runs, and starts none."""
    with Stack(stack_dir / "s", print) as made:
        PostgresLedger(WarehouseConnection(**made.warehouse_address)).ensure_schema()
        made.airflow.processes = ("dag-processor", "api-server")
        users = {"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"admin:admin,{_READER}:viewer"}
        made.airflow.extra_environment = {**made.airflow.extra_environment, **users}
        made.start_airflow()
        for dag in (_LOAD_DAG, _DAG):
            made.airflow.wait_for_dag(dag)
        yield made


def wait(browser: Chrome, condition: Callable[[Chrome], Any]) -> Any:
    return WebDriverWait(browser, _LIMIT_SECONDS).until(condition)


def find(browser: Chrome, selector: str) -> Any:
    return wait(browser, lambda at: at.find_elements(By.CSS_SELECTOR, selector))[0]


def log_in(browser: Chrome, stack: Stack, user: str, address: str) -> None:
    """Open an address without a session: Airflow's login comes first, and then the page."""
    passwords = json.loads((stack.airflow.home / "passwords.json").read_text(encoding="utf-8"))
    browser.delete_all_cookies()
    browser.get(address)
    find(browser, "input[name=username]").send_keys(user)
    find(browser, "input[name=password]").send_keys(passwords[user])
    find(browser, "button[type=submit]").click()
    wait(browser, lambda at: at.current_url == address)


def press(browser: Chrome, label: str, **fields: str) -> str:
    """Press a button of the page. Return what it says in the end."""
    details = wait(
        browser, lambda at: [each for each in at.find_elements(By.CSS_SELECTOR, "details.act") if label in each.text]
    )[0]
    details.find_element(By.TAG_NAME, "summary").click()
    for name, value in fields.items():
        browser.execute_script(_SET, details.find_element(By.NAME, name), value)
    details.find_element(By.TAG_NAME, "button").click()
    output = details.find_element(By.TAG_NAME, "output")
    wait(browser, lambda _: output.text not in ("", "Sending…"))
    return str(output.text)


def backfills(stack: Stack) -> list[dict[str, Any]]:
    return list(stack.airflow.call("GET", f"/backfills?dag_id={_DAG}")["backfills"])


def test_operator_starts_runs_from_the_pages_and_a_reader_does_not(stack: Stack, tmp_path: Path) -> None:
    page = f"{stack.airflow.url}/floodmark/status/shop/{_TABLE}"
    with open_browser(tmp_path / "operator") as browser:
        log_in(browser, stack, "admin", page)
        said = press(browser, "Replay an interval", from_date="2026-05-01T10:00", to_date="2026-05-01T10:10")
        assert said.startswith("Airflow has started it"), said
        reload_in_the_frame(browser, stack)
    (made,) = backfills(stack)
    assert (made["from_date"], made["to_date"]) == ("2026-05-01T10:00:00Z", "2026-05-01T10:10:00Z")
    (run,) = stack.airflow.runs(_LOAD_DAG)
    assert (run["conf"], run["state"], run["triggering_user_name"]) == ({"table": _TABLE}, "queued", "admin")
    with open_browser(tmp_path / "reader") as browser:
        log_in(browser, stack, _READER, page)
        find(browser, "h1")
        assert browser.find_elements(By.CSS_SELECTOR, "details.act") == []
        refused = [
            (f"../../../api/v2/dags/{_LOAD_DAG}/dagRuns", {"logical_date": None, "conf": {"table": _TABLE}}),
            ("../../decisions/shop/discard", {"table": _TABLE, "rule": ""}),
        ]
        for address, body in refused:
            assert browser.execute_async_script(_POST, address, json.dumps(body)) == 403
    assert len(stack.airflow.runs(_LOAD_DAG)) == 1


def reload_in_the_frame(browser: Chrome, stack: Stack) -> None:
    """Press the button inside Airflow's own page, whose frame has fewer rights, and follow the link to the run."""
    browser.get(f"{stack.airflow.url}/plugin/floodmark_status")
    browser.switch_to.frame(find(browser, "iframe"))
    find(browser, ".card a").click()
    wait(browser, lambda at: at.find_elements(By.LINK_TEXT, _TABLE))[0].click()
    said = press(browser, "Reload the table")
    assert said.startswith("Airflow has started it: manual__"), said
    find(browser, "output a").click()
    browser.switch_to.default_content()
    wait(browser, lambda at: f"/dags/{_LOAD_DAG}/runs/manual__" in at.current_url)
