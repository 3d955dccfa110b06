"""The example sessions of the documents: each command, run in their order, prints what the page shows.

Times, LSNs and durations are not compared, nor the widths of columns.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from shop_connections import set_connections
from typer.testing import CliRunner

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.cli.main import app
from floodmark.cli.process import out
from floodmark.postgres.session import WarehouseConnection
from floodmark.spark import job
from load_without_spark import no_session, stager

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    tables:
      - source: dbo.Orders
        target: shop.orders
        rules: [{name: amount_not_negative, sql: "Amount >= 0"}]
      - {source: dbo.Customers, target: shop.customers}
"""
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
_EXIT_PROBLEMS, _EXIT_FAILED = 4, 1
_MASKED = (
    (r"0x[0-9A-F]{20}", "LSN"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d(\.\d+)?)?", "TIME"),
    (r"\d+:\d\d:\d\d", "DURATION"),
    (r"\b\d+ (ms|s|min|KB|kB)\b", "AMOUNT"),
    (r"Golden\d+_\d+", "Shop"),
    (r"[\s─━-]+", " "),
)


class World:
    """The source of the examples, its warehouse, and the command line."""

    def __init__(self, source: CdcDatabase, warehouse: WarehouseConnection) -> None:
        self.source = source
        self.warehouse = warehouse

    def change(self, *statements: str) -> None:
        self.source.run(*statements)
        self.source.scan()

    def call(self, line: str) -> str:
        """Return what a command of a page prints on standard output. It succeeds, or finds a problem of the source."""
        words = shlex.split(line.removeprefix("floodmark "))
        done = CliRunner().invoke(app, words)
        assert done.exit_code == (_EXIT_PROBLEMS if words[0] == "doctor" else 0), done.output
        return done.stdout

    def run(self) -> None:
        assert self.call("floodmark run shop -q") == ""

    # -- what happens before a session ---------------------------------------------------------------------------------

    def load(self) -> None:
        self.change(
            "INSERT INTO dbo.Customers VALUES (1, N'Ada'), (2, N'Ben')", "INSERT INTO dbo.Orders VALUES (1, 1, 20)"
        )
        self.run()
        self.change("INSERT INTO dbo.Orders VALUES (2, 2, 12.5)")
        self.run()

    def break_a_rule(self) -> None:
        self.load()
        self.change("INSERT INTO dbo.Orders VALUES (3, 2, -5)")
        self.run()

    def lose_the_target(self) -> None:
        self.load()
        with psycopg.connect(self.warehouse.conninfo(), autocommit=True) as session:
            session.execute("TRUNCATE shop.orders")
        self.change("INSERT INTO dbo.Customers VALUES (3, N'Cai')")
        assert CliRunner().invoke(app, ["run", "shop", "-q"]).exit_code == _EXIT_FAILED

    def add_a_column(self) -> None:
        self.load()
        self.change(
            "ALTER TABLE dbo.Customers ADD Newsletter bit NULL", "UPDATE dbo.Customers SET Newsletter = 1 WHERE Id = 2"
        )
        self.run()


BEFORE: Mapping[tuple[str, str], Callable[[World], None]] = {
    ("docs/operations.md", "Status and verdicts"): World.load,
    ("docs/operations.md", "Doctor"): World.load,
    ("docs/operations.md", "Alerts"): World.break_a_rule,
    ("docs/operations.md", "Verify"): World.load,
    ("docs/loads.md", "First load, repair, reload"): World.load,
    ("docs/recovery.md", "Rows in quarantine"): World.break_a_rule,
    ("docs/recovery.md", "A lost target"): World.lose_the_target,
    ("docs/source_jobs.md", "Capture schedule"): World.load,
    ("docs/drift.md", "A new column"): World.add_a_column,
}
"""By page and section."""


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulator: Emulator, database: WarehouseConnection
) -> Iterator[World]:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    monkeypatch.setenv("FLOODMARK_DATA_DOCS", str(tmp_path / "docs"))
    monkeypatch.setattr(out, "width", 100)

    def run_load(
        secrets: Mapping[str, str], _target: object, window_id: int, _path: Path, _progress: None = None, **_: bool
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "SparkStager", stager)
            for name, value in secrets.items():
                patch.setenv(name, value)
            job.run_load_job(window_id, no_session())

    monkeypatch.setattr("floodmark.cli.runs.run_load", run_load)
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Customers (Id int NOT NULL CONSTRAINT PK_Customers PRIMARY KEY, Name nvarchar(40))",
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Customer int, Amount decimal(9, 2))",
        )
        source.enable("Customers", "Orders")
        set_connections(monkeypatch, emulator, source.name, database)
        yield World(source, database)


def sessions(page: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the sections of a page whose blocks have output: heading, and each command with its output."""
    found = []
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        steps: list[tuple[str, str]] = []
        for block in _BLOCK.findall(section):
            lines = block.replace("\\\n", "")
            shown = [part.partition("\n") for part in re.split(r"^\$ ", lines, flags=re.MULTILINE)[1:]]
            if any(output.strip() for _, _, output in shown):
                steps += [(command, output) for command, _, output in shown]
        if steps:
            found.append((section.partition("\n")[0], steps))
    return found


def masked(text: str) -> str:
    for pattern, mask in _MASKED:
        text = re.sub(pattern, mask, text)
    return text.strip()


@pytest.mark.parametrize(("page", "heading"), BEFORE)
def test_session_of_a_page_prints_what_the_page_shows(world: World, page: str, heading: str) -> None:
    steps = dict(sessions((REPOSITORY / page).read_text(encoding="utf-8")))[heading]
    BEFORE[page, heading](world)
    for command, output in steps:
        assert masked(world.call(command)) == masked(output), command


def test_verify_prints_its_result_and_nothing_else_when_it_is_quiet(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.load()
    caplog.clear()
    quiet = world.call("floodmark verify shop -q")
    assert [each for each in caplog.records if each.name.startswith("floodmark")] == []
    assert masked(quiet) == masked(world.call("floodmark verify shop"))


def test_each_session_is_run() -> None:
    """Pages that follow one clone from its set-up have a test of their own (``make test-tutorial``)."""
    pages = {page for page, _ in BEFORE}
    found = {
        (page, heading) for page in pages for heading, _ in sessions((REPOSITORY / page).read_text(encoding="utf-8"))
    }
    assert found == set(BEFORE)
