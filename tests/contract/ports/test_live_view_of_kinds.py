"""``live_view`` over every kind of source: the warehouse makes the view, and knows no kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from guarded_pipeline import GuardedPipeline
from guarded_servers import Elsewhere
from test_safeguards import PIPELINES

from emulator_process import Emulator, running_emulator
from floodmark.postgres.session import WarehouseConnection


@pytest.fixture(scope="module")
def server(open_dir: Path) -> Iterator[Emulator]:
    with running_emulator(open_dir / "viewed", "--capture-interval", "0.1", "--secondary-port", "0") as running:
        yield running


@pytest.fixture(params=PIPELINES)
def viewed(
    request: pytest.FixtureRequest, server: Emulator, database: WarehouseConnection, tmp_path: Path
) -> Iterator[GuardedPipeline]:
    with ExitStack() as stack, PIPELINES[request.param](server, database, tmp_path, Elsewhere(server, stack)) as made:
        tables = tuple(replace(each, live_view=True) for each in made.settings.tables)
        made.settings = replace(made.settings, tables=tables)
        yield made


def test_view_has_the_rows_that_the_source_has_and_none_of_floodmarks_columns(viewed: GuardedPipeline) -> None:
    viewed.put((1, "one"), (2, "two"), (3, "three"))
    assert viewed.run() == set()
    viewed.remove(2)
    viewed.put((3, "new"))
    assert viewed.run() == set()
    with psycopg.connect(viewed.warehouse.conninfo()) as session:
        found = session.execute("SELECT * FROM shop.orders_live ORDER BY id")
        names = [column.name for column in found.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    assert {row["id"]: row["note"] for row in rows} == {1: "one", 3: "new"}
    assert {"id", "amount", "note"} <= set(names)
    # The device is part of the key.
    assert [name for name in names if name.startswith("__")] == (["__device"] if viewed.kind == "compact" else [])
