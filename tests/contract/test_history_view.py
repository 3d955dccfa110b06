"""Additions to the view of a history: the end of open versions (``open_end``), and ``track``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import psycopg
import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.errors import TableNotPlannableError
from floodmark.core.schema import TableName
from floodmark.core.settings import ColumnSettings, PipelineSettings, Style, TableSettings
from floodmark.postgres.session import WarehouseConnection

FAR = date(9999, 12, 31)
ENDS = 'SELECT "Id", "Amount", __valid_to FROM shop.orders_history ORDER BY "Id", __lsn'
GRANTED = (
    "SELECT privilege_type::text FROM information_schema.role_table_grants"
    " WHERE grantee = 'PUBLIC' AND table_name = 'orders_history'"
)
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


def configure(rig: SwitchRig, open_end: date | None, *track: str, **others: Any) -> None:
    chosen: dict[str, Any] = {"style": Style.HISTORY, "open_end": open_end, "track": track, **others}
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
    # An ended version whose end is not known has none: it is over.
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute("UPDATE shop.orders_versions SET __valid_to = NULL")
    assert [to for *_, to in ends(rig)] == [None, midnight(FAR)] * 2


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
    assert rig.rows(GRANTED) == [("SELECT",)]


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


# --------------------------------------------------------------------------------------------------------------------
# ``track``

TRACKED = 'SELECT "Id", "Amount", __tracked FROM shop.orders_history ORDER BY "Id", __load, __lsn'


def test_version_is_tracked_where_a_tracked_column_differs_from_the_version_before(rig: SwitchRig) -> None:
    rig.database.run("ALTER TABLE dbo.Orders ADD Note nvarchar(20)")
    rig.database.run("EXEC sys.sp_cdc_disable_table 'dbo', 'Orders', 'all'")
    rig.database.enable("Orders")
    configure(rig, FAR, "Amount")
    rig.run()
    for change in (
        "UPDATE dbo.Orders SET Note = N'a'",
        "UPDATE dbo.Orders SET Amount = 11, Note = N'b' WHERE Id = 1",
        "UPDATE dbo.Orders SET Amount = NULL WHERE Id = 1",
        "UPDATE dbo.Orders SET Note = NULL WHERE Id = 1",
        "DELETE dbo.Orders WHERE Id = 2",
        "INSERT dbo.Orders VALUES (2, 20, NULL)",
    ):
        rig.change(change)
    rig.run()
    assert rig.rows(TRACKED) == [
        (1, 10, True),
        (1, 10, False),
        (1, 11, True),
        (1, None, True),
        (1, None, False),
        (2, 20, True),
        (2, 20, False),
        (2, 20, True),
        (2, 20, True),
    ]
    # Each column that is tracked counts, and the view is changed where it is: it keeps what its users have given it.
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute("GRANT SELECT ON shop.orders_history TO PUBLIC")
    before, oid = rig.rows(RULE), "SELECT 'shop.orders_history'::regclass::oid::bigint"
    was = rig.rows(oid)
    configure(rig, FAR, "Note", "Amount")
    rig.change("UPDATE dbo.Orders SET Amount = 10, Note = NULL WHERE Id = 1")
    rig.run()
    assert [tracked for key, _, tracked in rig.rows(TRACKED) if key == 1] == [True] * 6
    assert rig.rows(RULE) != before
    assert rig.rows(oid) == was
    assert rig.rows(GRANTED) == [("SELECT",)]
    # Nothing is changed by the next window, and without the setting the column goes.
    before = rig.rows(RULE)
    rig.change("UPDATE dbo.Orders SET Amount = 12 WHERE Id = 1")
    rig.run()
    assert rig.rows(RULE) == before
    configure(rig, None)
    rig.change("UPDATE dbo.Orders SET Amount = 13 WHERE Id = 1")
    rig.run()
    named = "SELECT count(*)::int FROM information_schema.columns WHERE column_name = '__tracked'"
    assert rig.rows(named) == [(0,)]
    assert rig.rows(GRANTED) == [("SELECT",)]


def test_tracked_column_has_its_name_in_the_target_and_a_change_of_its_name_is_followed(rig: SwitchRig) -> None:
    amount = "Amount owed"
    columns = (ColumnSettings("Amount", target=amount),)
    configure(rig, None, "Amount", columns=columns)
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    shown = f'SELECT "{amount}", __tracked FROM shop.orders_history WHERE "Id" = 1 ORDER BY __lsn'
    assert rig.rows(shown) == [(10, True), (11, True)]
    comment = "SELECT col_description('shop.orders_history'::regclass, attnum) FROM pg_attribute"
    expected = f"Whether the version before had another {amount}, or there was no row (track)."
    named = "WHERE attrelid = 'shop.orders_history'::regclass AND attname = '__tracked'"
    assert rig.rows(f"{comment} {named}") == [(expected,)]


@pytest.mark.parametrize(
    ("track", "columns", "message"),
    [
        (("amount",), (), "track: there is no captured column amount in this spelling"),
        (("Amount",), (ColumnSettings("Amount", is_dropped=True),), "track: the target has no column Amount"),
    ],
)
def test_column_that_cannot_be_tracked_is_named(
    rig: SwitchRig, track: tuple[str, ...], columns: tuple[ColumnSettings, ...], message: str
) -> None:
    configure(rig, None, *track, columns=columns)
    with pytest.raises(TableNotPlannableError, match=re.escape(message)):
        rig.open()
