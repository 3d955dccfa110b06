"""The end of open versions in the view of a history: ``open_end``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import psycopg
import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, Style, TableSettings
from floodmark.postgres.session import WarehouseConnection

FAR = date(9999, 12, 31)
ENDS = 'SELECT "Id", "Amount", __valid_to FROM shop.orders_history ORDER BY "Id", __lsn'
RULE = "SELECT xmin::text FROM pg_rewrite WHERE ev_class = 'shop.orders_history'::regclass"


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int)",
            "INSERT INTO dbo.Orders VALUES (1, 10), (2, 20)",
        )
        source.enable("Orders")
        made = SwitchRig(emulator, source, database)
        configure(made, FAR)
        yield made


def configure(rig: SwitchRig, open_end: date | None) -> None:
    chosen: dict[str, Any] = {"style": Style.HISTORY, "open_end": open_end}
    rig.pipelines = [PipelineSettings("shop", (TableSettings(ORDERS, TableName("shop", "orders"), **chosen),))]


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def ends(rig: SwitchRig) -> list[tuple[int, int, datetime | None]]:
    """Return the versions with their ends, as a session in UTC has them: other zones have a year behind Python's."""
    with psycopg.connect(rig.connection.conninfo(), options="-c timezone=UTC") as session:
        return session.execute(ENDS).fetchall()


def test_newest_versions_have_the_end_that_is_asked_for_and_no_row_has_it(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1", "DELETE dbo.Orders WHERE Id = 2")
    rig.run()
    found = ends(rig)
    assert [(key, amount, to == midnight(FAR)) for key, amount, to in found] == [
        (1, 10, False),
        (1, 11, True),
        (2, 20, False),
        (2, 20, True),
    ]
    assert all(to is not None for *_, to in found)
    assert rig.rows("SELECT count(*)::int FROM shop.orders_versions WHERE __valid_to > '9000-01-01'") == [(0,)]
    now = 'SELECT "Id", "Amount" FROM shop.orders_history WHERE now() BETWEEN __valid_from AND __valid_to'
    assert rig.rows(f"{now} AND NOT __deleted") == [(1, 11)]


def test_view_is_changed_where_it_is_when_the_end_changes_and_otherwise_left_alone(rig: SwitchRig) -> None:
    configure(rig, None)
    rig.run()
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute("GRANT SELECT ON shop.orders_history TO PUBLIC")
    amount = 20
    for day in (FAR, date(2999, 1, 2), None):
        configure(rig, day)
        for is_again in (False, True):
            before, amount = rig.rows(RULE), amount + 1
            rig.change(f"UPDATE dbo.Orders SET Amount = {amount} WHERE Id = 2")
            rig.run()
            assert (rig.rows(RULE) == before) == is_again
        assert ends(rig)[-1] == (2, amount, midnight(day) if day else None)
    granted = "SELECT count(*)::int FROM information_schema.role_table_grants WHERE grantee = 'PUBLIC'"
    assert rig.rows(f"{granted} AND table_name = 'orders_history'") == [(1,)]


def test_view_with_an_end_follows_a_new_column(rig: SwitchRig) -> None:
    rig.run()
    with psycopg.connect(rig.connection.conninfo()) as session:
        for table in ("orders", "orders_versions"):
            session.execute(f"ALTER TABLE shop.{table} ADD COLUMN own integer")
    rig.change("UPDATE dbo.Orders SET Amount = 21 WHERE Id = 2")
    rig.run()
    assert ends(rig)[-1] == (2, 21, midnight(FAR))
    assert rig.rows('SELECT own FROM shop.orders_history WHERE "Id" = 1') == [(None,)]


def test_end_does_not_depend_on_the_time_zone_of_the_session_that_makes_the_view(rig: SwitchRig) -> None:
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        (name,) = session.execute("SELECT current_database()").fetchone() or ("",)
        session.execute(f"ALTER DATABASE \"{name}\" SET timezone = 'Asia/Tokyo'")
    rig.run()
    before = rig.rows(RULE)
    assert [to for *_, to in ends_as_text(rig)] == ["9999-12-31 00:00:00+00"] * 2
    rig.change("UPDATE dbo.Orders SET Amount = 21 WHERE Id = 2")
    rig.run()
    assert rig.rows(RULE) == before


def ends_as_text(rig: SwitchRig) -> list[tuple[Any, ...]]:
    with psycopg.connect(rig.connection.conninfo(), options="-c timezone=UTC") as session:
        return session.execute(ENDS.replace("__valid_to", "__valid_to::text")).fetchall()
