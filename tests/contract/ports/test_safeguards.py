"""The safeguards of ``docs/windows.md``, on a pipeline over every kind of source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from guarded_fleet import fleet_pipeline
from guarded_pipeline import GuardedPipeline
from guarded_servers import Elsewhere, cdc_pipeline, stream_pipeline, tracking_pipeline
from source_contract import KINDS, SafeguardContract

from emulator_process import Emulator, running_emulator
from floodmark.postgres.session import WarehouseConnection

PAGE = Path(__file__).parents[3] / "docs" / "windows.md"
HEADING = "## The safeguards, by kind of source"
PIPELINES = {
    "cdc": cdc_pipeline,
    "change_tracking": tracking_pipeline,
    "compact": fleet_pipeline,
    "event_stream": stream_pipeline,
}


@pytest.fixture(scope="module")
def group(open_dir: Path) -> Iterator[Emulator]:
    """A primary and its readable secondary."""
    with running_emulator(open_dir / "guarded", "--capture-interval", "0.1", "--secondary-port", "0") as running:
        yield running


@pytest.fixture(scope="module")
def elsewhere(group: Emulator) -> Iterator[Elsewhere]:
    with ExitStack() as stack:
        yield Elsewhere(group, stack)


@pytest.fixture
def guarded(
    request: pytest.FixtureRequest,
    group: Emulator,
    database: WarehouseConnection,
    tmp_path: Path,
    elsewhere: Elsewhere,
) -> Iterator[GuardedPipeline]:
    with PIPELINES[request.param](group, database, tmp_path, elsewhere) as made:
        yield made


class TestSafeguards(SafeguardContract):
    """With the fixture ``guarded`` of every kind."""


def table_of_the_page() -> dict[str, dict[str, str]]:
    """Return the cells of the table by safeguard and kind."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").split(HEADING)[1].split("\n## ")[0].splitlines()
        if line.startswith("|")
    ]
    kinds = [cell.strip("`") for cell in rows[0][1:]]
    return {promise: dict(zip(kinds, cells, strict=True)) for promise, *cells in rows[2:]}


def test_kinds_of_each_safeguard_are_those_of_the_page() -> None:
    cases = [each for each in vars(SafeguardContract).values() if hasattr(each, "promise")]
    tested: dict[str, set[str]] = {}
    for case in cases:
        tested.setdefault(case.promise, set()).update(case.kinds)
    page = table_of_the_page()
    assert {
        promise: {kind for kind in cells if not cells[kind].startswith("-")} for promise, cells in page.items()
    } == tested
    assert all(tuple(cells) == KINDS for cells in page.values())
    without = [cell for cells in page.values() for cell in cells.values() if cell.startswith("-")]
    assert all(re.fullmatch(r"- \(.{10,}\)", cell) for cell in without), without


def test_every_case_of_the_contract_is_a_safeguard_of_the_page() -> None:
    names = {name for name in vars(SafeguardContract) if name.startswith("test_")}
    assert names == {name for name, each in vars(SafeguardContract).items() if hasattr(each, "promise")}
