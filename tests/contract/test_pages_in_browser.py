"""The status pages in a real browser: what it shows, whether it fits, and that its console is empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait
from served_pages import (
    CONFIG,
    EMPTY_CONFIG,
    LONG,
    LONG_TABLE,
    STATES,
    configure_pages,
    fill_ledger,
    pages_of,
    served,
)
from warehouse_shop import INSERT, Row, Shop, first_load

from floodmark.app.pipeline import Pipeline
from floodmark.app.status import read_status
from floodmark.core.errors import WarehouseUnavailableError
from floodmark.core.settings import OnFailure, Rule
from floodmark.core.status import PipelineStatus
from floodmark.orchestration.pages import content
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from installed_browser import console_of, open_browser, show, why_no_browser

pytestmark = [
    pytest.mark.skipif(bool(why_no_browser()), reason=why_no_browser()),
    pytest.mark.filterwarnings("ignore:Using `httpx` with"),
]
_LIMIT_SECONDS = 30
VIEWS = [(width, scheme) for width in (1280, 380) for scheme in ("light", "dark")]
BACKGROUND = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}
CLIPBOARD = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
DRAWN = """
return [...document.querySelectorAll("canvas")].map((canvas) => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return pixels.some((value) => value !== 0);
});
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


class Manager:
    """An authorization manager that shows a user everything."""

    def is_authorized_view(self, **_: object) -> bool:
        return True

    def is_authorized_connection(self, **_: object) -> bool:
        return True

    def is_authorized_dag(self, **_: object) -> bool:
        return True

    def get_authorized_dag_ids(self, **_: object) -> set[str]:
        return {f"cdc_{name}" for name in (*STATES, "new")} | {"cdc_load_shop"}


def _read(pipeline: Pipeline, *, live: bool) -> PipelineStatus:
    if pipeline.name == "away":
        raise WarehouseUnavailableError("connection warehouse", "the server does not answer.", "Start it.")
    return read_status(pipeline, live=live)


@pytest.fixture
def pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: WarehouseConnection, request: pytest.FixtureRequest
) -> Iterator[str]:
    """The address of the pages of a configuration that a test gives, else of ``CONFIG``."""
    configure_pages(monkeypatch, tmp_path, database, getattr(request, "param", CONFIG))
    monkeypatch.setattr(content, "read_status", _read)
    with pages_of(monkeypatch, Manager) as made, served(made) as address:
        yield address


@pytest.fixture
def filled(pages: str, database: WarehouseConnection, ledger: PostgresLedger) -> str:
    fill_ledger(database)
    return pages


def all_of(browser: Chrome, selector: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, selector)


def texts(browser: Chrome, selector: str) -> list[str]:
    return [each.text for each in all_of(browser, selector)]


def run(browser: Chrome, script: str) -> Any:
    return browser.execute_script(script)  # type: ignore[no-untyped-call]


def wait_until(browser: Chrome, condition: Callable[[], object]) -> None:
    """Wait for a page that is on its way: what is left of the one before may go while it is read."""
    waiting = WebDriverWait(browser, _LIMIT_SECONDS, ignored_exceptions=[StaleElementReferenceException])
    waiting.until(lambda _: condition())


def check_fit(browser: Chrome, scheme: str) -> None:
    """The page does not scroll sideways, has the colours of the scheme, and has written nothing to the console."""
    assert run(browser, "return document.scrollingElement.scrollWidth <= innerWidth")
    assert run(browser, "return getComputedStyle(document.body).backgroundColor") == BACKGROUND[scheme]
    # The page of all pipelines has this status while one cannot be read, and the browser notes it.
    assert [each for each in console_of(browser) if "status of 503" not in each] == []


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_each_state_of_a_card_is_shown_and_fits(browser: Chrome, filled: str, width: int, scheme: str) -> None:
    show(browser, width, scheme)
    browser.get(filled)
    names, states = texts(browser, ".card h2"), texts(browser, ".card .state")
    assert dict(zip(names, states, strict=True)) == STATES
    assert states == sorted(states, key=list(dict.fromkeys(STATES.values())).index)
    assert "Run failed: Run 5 failed." in all_of(browser, ".card.incident")[0].text
    check_fit(browser, scheme)


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_pages_of_pipelines_and_tables_fit_even_with_long_names(
    browser: Chrome, filled: str, width: int, scheme: str
) -> None:
    show(browser, width, scheme)
    for path in ("expired", LONG, f"{LONG}/{quote(LONG_TABLE)}", "expired/dbo.Gone"):
        browser.get(f"{filled}/{path}")
        assert texts(browser, "h1") == [path.rsplit("/", maxsplit=1)[-1]]
        assert "-" not in texts(browser, "td, td span, dd")
        check_fit(browser, scheme)


def test_margin_of_the_ledger_is_in_place_of_a_headroom_that_only_the_source_knows(
    browser: Chrome, filled: str
) -> None:
    show(browser, 1280, "light")
    browser.get(f"{filled}/shop")
    headings = texts(browser, "th")
    assert ("Margin" in headings, "Headroom" in headings, "Behind" in headings) == (True, False, False)
    assert "2d 6:26:40" in texts(browser, "td")
    browser.get(f"{filled}/shop?live=true")  # which does not answer
    browser.find_element(By.LINK_TEXT, "Query only the ledger.").click()
    wait_until(browser, lambda: "Margin" in texts(browser, "th"))
    console_of(browser)


def test_lines_of_a_hint_are_kept(browser: Chrome, filled: str) -> None:
    """A hint may end in T-SQL, whose comments end with their lines."""
    show(browser, 1280, "light")
    browser.get(f"{filled}/expired")
    assert texts(browser, ".notes .advice") == ["What to do: Read its log.\n-- Then:\nSELECT 1\nCopy"]
    script = all_of(browser, ".advice pre code")[0]
    assert "monospace" in script.value_of_css_property("font-family")
    browser.execute_cdp_cmd("Browser.grantPermissions", CLIPBOARD)
    all_of(browser, ".advice button")[0].click()
    wait_until(browser, lambda: texts(browser, ".advice button") == ["Copied"])
    assert run(browser, "return navigator.clipboard.readText()") == "-- Then:\nSELECT 1"


def test_address_of_a_page_is_copied_to_share_it(browser: Chrome, filled: str) -> None:
    show(browser, 1280, "light")
    browser.get(f"{filled}/{LONG}")
    browser.execute_cdp_cmd("Browser.grantPermissions", CLIPBOARD)
    all_of(browser, "[data-address] button")[0].click()
    wait_until(browser, lambda: texts(browser, "[data-address] button") == ["Copied"])
    assert run(browser, "return navigator.clipboard.readText()") == f"{filled}/{LONG}"


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_charts_of_a_table_are_drawn(browser: Chrome, filled: str, width: int, scheme: str) -> None:
    show(browser, width, scheme)
    browser.get(f"{filled}/shop/dbo.Orders")
    assert texts(browser, "figcaption") == [
        "Rows of each window",
        "Duration of each window",
        "Lag at publication",
        "Margin before cleanup",
        "Size of the change tables",
        "Rows of the change tables",
    ]
    wait_until(browser, lambda: run(browser, DRAWN) == [True] * 6)
    # Without a pointer on a chart, its legend has the newest window.
    legends = [text.replace("\n", " ") for text in texts(browser, ".u-legend")]
    assert "2026-05-01 05:00:00" in legends[0]
    assert "inserted600" in legends[0]
    assert [legend.endswith("-") for legend in legends] == [False] * 6
    links = [each.get_attribute("href") or "" for each in all_of(browser, "tbody a[data-airflow]")]
    assert links[0].endswith(f"/dags/cdc_shop/runs/{quote('scheduled__2026-05-01T00:00:00+00:00__60', safe='')}")
    check_fit(browser, scheme)


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_rows_in_quarantine_are_reached_and_chosen_by_rule(
    browser: Chrome, filled: str, width: int, scheme: str
) -> None:
    show(browser, width, scheme)
    browser.get(f"{filled}/shop/dbo.Orders")
    browser.find_element(By.LINK_TEXT, "Rows in quarantine").click()
    wait_until(browser, lambda: texts(browser, "h1") == ["Quarantine of dbo.Orders"])
    assert texts(browser, "td.name code") == ["4714", "4713", "4712"]
    browser.find_element(By.LINK_TEXT, "amount_is_positive").click()
    wait_until(browser, lambda: all_of(browser, "a[aria-current]"))
    check_fit(browser, scheme)
    browser.find_element(By.LINK_TEXT, "dbo.Orders").click()
    wait_until(browser, lambda: texts(browser, "h1") == ["dbo.Orders"])


def test_cards_are_searched_and_filtered_by_keyboard(browser: Chrome, filled: str) -> None:
    show(browser, 1280, "light")
    browser.get(filled)
    all_of(browser, "#q")[0].send_keys("EXP", Keys.ENTER)
    wait_until(browser, lambda: texts(browser, ".card h2") == ["expired"])
    assert all_of(browser, "#q")[0].get_attribute("value") == "EXP"
    browser.get(filled)
    Select(all_of(browser, "#state")[0]).select_by_visible_text("paused")
    all_of(browser, "form button")[0].click()
    wait_until(browser, lambda: texts(browser, ".card h2") == ["stopped"])
    browser.get(f"{filled}?q=nothing")
    assert "No pipeline matches." in all_of(browser, "body")[0].text


@pytest.mark.parametrize("pages", [EMPTY_CONFIG], indirect=True)
@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_new_installation_without_a_ledger_is_shown(browser: Chrome, pages: str, width: int, scheme: str) -> None:
    show(browser, width, scheme)
    browser.get(pages)
    assert texts(browser, ".card h2") == ["new"]
    assert "none yet" in all_of(browser, ".card")[0].text
    check_fit(browser, scheme)
    browser.get(f"{pages}/new/dbo.Orders")
    assert "None yet." in all_of(browser, "body")[0].text
    check_fit(browser, scheme)
    browser.get(f"{pages}/none")
    assert "There is no pipeline of that name" in all_of(browser, "[role=alert]")[0].text
    assert run(browser, "return document.scrollingElement.scrollWidth <= innerWidth")


def press(browser: Chrome, label: str, **fields: str) -> None:
    """Open a button's form, fill it in, and send it."""
    details = next(each for each in all_of(browser, "details.act") if label in each.text)
    details.find_element(By.TAG_NAME, "summary").click()
    for name, value in fields.items():
        details.find_element(By.NAME, name).send_keys(value)
    details.find_element(By.TAG_NAME, "button").click()


def test_alert_is_closed_by_a_button(browser: Chrome, filled: str, database: WarehouseConnection) -> None:
    show(browser, 380, "dark")
    browser.get(f"{filled}/expired")
    press(browser, "Close the alert", reason="The pipeline is retired.")
    wait_until(browser, lambda: texts(browser, "output") == ["The alert is closed."])
    check_fit(browser, "dark")
    with psycopg.connect(database.conninfo()) as session:
        (outcome,) = session.execute("SELECT outcome FROM floodmark.alerts").fetchone() or ("",)
    assert outcome == "operator closed it: The pipeline is retired."
    browser.get(f"{filled}/expired")
    assert "Open alerts" not in texts(browser, "h2")


def test_rows_are_released_by_a_button(
    browser: Chrome, pages: str, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    rule = Rule("positive", "amount > 0", OnFailure.QUARANTINE)
    Shop(database, ledger).run(first_load(rules=(rule,)), 10, [Row(1, INSERT, 10, -4711), Row(2, INSERT, 10, 5)])
    show(browser, 1280, "light")
    browser.get(pages.replace("/status", "/quarantine/shop/dbo.Orders"))
    press(browser, "Release the rows")
    wait_until(browser, lambda: all_of(browser, "output")[0].text.endswith("Still waiting: 0."))
    assert texts(browser, "output")[0].startswith("Released: 1.")
    with psycopg.connect(database.conninfo()) as session:
        assert session.execute('SELECT count(*) FROM shop.orders WHERE "Amount" = -4711').fetchone() == (1,)
    # What is done once is not done again.
    assert not all_of(browser, "details[open] button")[0].is_enabled()


def test_page_reads_without_a_script(browser: Chrome, filled: str) -> None:
    show(browser, 380, "light")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(f"{filled}/shop/dbo.Orders")
        assert [each.is_displayed() for each in all_of(browser, "details.act")] == [False]
        assert "floodmark reload shop dbo.Orders" in texts(browser, "code.copy")
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
