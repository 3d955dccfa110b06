"""Histories and logs of fleets: what windows of net changes and of whole devices bring to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet_rig import ORDERS, PIPELINE, FleetRig, fleet_settings
from floodmark.core.errors import OperatorError, TableNotPlannableError, TargetRefusedError
from floodmark.core.position import Version
from floodmark.core.settings import ColumnSettings, Deletes, Mask, OnFailure, OnGap, Rule, Style
from floodmark.core.snapshot import Verdict
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.sync.filters import parse_filter

VERSIONS = (
    "SELECT __device, id, __op, amount::text, note, __deleted FROM edge.orders_history ORDER BY 1, 2, __load, __lsn"
)
ENTRIES = "SELECT __device, id, __op, amount::text, note FROM edge.orders ORDER BY __load, __lsn, 1, 2"
CHEAP = (Rule("cheap", "amount < 100", OnFailure.QUARANTINE),)


def rig_of(folder: Path, database: WarehouseConnection, **settings: Any) -> FleetRig:
    folder.mkdir(exist_ok=True)
    return FleetRig(folder, database, fleet_settings(**settings))


@pytest.fixture
def rig(tmp_path: Path, database: WarehouseConnection, ledger: PostgresLedger) -> FleetRig:
    made = rig_of(tmp_path / "devices", database, style=Style.HISTORY)
    made.make("van-1", "INSERT INTO orders (id, amount, note) VALUES (1, 1, 'a'), (2, 2, 'b')")
    made.make("van-2", "INSERT INTO orders (id, amount, note) VALUES (1, 10, 'x')")
    return made


def test_newest_state_of_a_row_in_each_window_is_a_version(rig: FleetRig) -> None:
    rig.sync()
    rig.run(
        "van-1",
        "UPDATE orders SET amount = 5 WHERE id = 1",
        "UPDATE orders SET amount = 6 WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
        "INSERT INTO orders (id, amount, note) VALUES (3, 3, NULL)",
        "INSERT INTO orders (id, amount, note) VALUES (4, 4, 'gone')",
        "DELETE FROM orders WHERE id = 4",
    )
    rig.sync()
    rig.run("van-1", "INSERT INTO orders (id, amount, note) VALUES (2, 20, 'B')")
    rig.sync()
    assert rig.rows(VERSIONS) == [
        ("van-1", 1, 2, "1.00", "a", False),
        ("van-1", 1, 4, "6.00", "a", False),
        ("van-1", 2, 2, "2.00", "b", False),
        ("van-1", 2, 1, "2.00", "b", True),
        ("van-1", 2, 2, "20.00", "B", False),
        ("van-1", 3, 2, "3.00", None, False),
        ("van-2", 1, 2, "10.00", "x", False),
    ]
    assert rig.rows("SELECT __kept FROM edge.orders_history WHERE __deleted") == [(["amount", "note"],)]
    assert rig.differing() == []


def test_row_with_the_values_that_it_had_brings_no_version(rig: FleetRig) -> None:
    rig.sync()
    before = rig.rows(VERSIONS)
    rig.run("van-1", "UPDATE orders SET amount = 7 WHERE id = 1", "UPDATE orders SET amount = 1 WHERE id = 1")
    opened = rig.open()
    rig.load(opened)
    rig.publish(opened)
    assert rig.rows(VERSIONS) == before
    counted = "SELECT read_rows, staged_rows, unchanged_rows FROM floodmark.window_tables"
    assert rig.rows(f"{counted} WHERE window_id = {opened.window_id}") == [(1, 1, 1)]


@pytest.mark.parametrize("is_asked", [False, True])
def test_device_that_is_read_as_a_whole_again_brings_what_differs(
    tmp_path: Path, rig: FleetRig, database: WarehouseConnection, is_asked: bool
) -> None:
    rig.sync()
    before = rig.rows("SELECT __window_id FROM edge.orders WHERE __device = 'van-2'")
    if is_asked:
        rig.run("van-1", "UPDATE orders SET note = 'A' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
        rig.run("van-1", "INSERT INTO orders (id, amount, note) VALUES (3, 3, 'c')")
        rig.ledger.forget_mark(PIPELINE, ORDERS, "van-1")
    else:
        rig = rig_of(tmp_path / "devices", database, style=Style.HISTORY, on_gap=OnGap.REPAIR)
        rig.remove("van-1")
        rig.make("van-1", "INSERT INTO orders (id, amount, note) VALUES (1, 1, 'A'), (3, 3, 'c')")
    rig.sync()
    assert rig.rows(VERSIONS)[:-1] == [
        ("van-1", 1, 2, "1.00", "a", False),
        ("van-1", 1, 4, "1.00", "A", False),
        ("van-1", 2, 2, "2.00", "b", False),
        ("van-1", 2, 1, "2.00", "b", True),
        ("van-1", 3, 2, "3.00", "c", False),
    ]
    assert rig.rows("SELECT __window_id FROM edge.orders WHERE __device = 'van-2'") == before
    columns = "staged_rows, inserted_rows, updated_rows, deleted_rows, unchanged_rows, swept_rows"
    counted = f"SELECT {columns} FROM floodmark.window_tables ORDER BY window_id DESC LIMIT 1"
    assert rig.rows(counted) == [(3, 1, 1, 1, 0, 0)]
    assert rig.differing() == []


def test_window_that_a_check_refused_is_read_again_without_new_versions(rig: FleetRig) -> None:
    rig.sync()
    rig.run("van-1", "UPDATE orders SET amount = 5 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    rig.run("van-1", "INSERT INTO orders (id, amount, note) VALUES (3, 3, 'c')")
    opened = rig.open()
    rig.load(opened)
    found = rig.rows(VERSIONS)
    assert opened.window_id is not None
    rig.ledger.drop_merged(opened.window_id)
    rig.run("van-1", "DELETE FROM orders WHERE id = 3")
    rig.sync()
    assert rig.rows(VERSIONS) == [*found[:-1], ("van-1", 3, 1, "3.00", "c", True), found[-1]]
    assert rig.differing() == []


def test_times_are_those_of_the_windows(rig: FleetRig) -> None:
    rig.sync()
    rig.run("van-1", "UPDATE orders SET amount = 5 WHERE id = 1")
    rig.sync()
    found = rig.rows("SELECT __lsn, __committed_at, __valid_from FROM edge.orders_history")
    assert len(found) == 4
    for lsn, at, valid_from in found:
        assert at == valid_from
        assert abs(at - datetime.now(UTC)) < timedelta(minutes=5)
        assert Version(bytes(lsn)).number == round(at.timestamp() * 1000)


def test_version_in_quarantine_is_settled_by_the_next_of_its_row(
    tmp_path: Path, rig: FleetRig, database: WarehouseConnection
) -> None:
    rig = rig_of(tmp_path / "devices", database, style=Style.HISTORY, rules=CHEAP)
    rig.sync()
    rig.run(
        "van-1",
        "UPDATE orders SET amount = 700 WHERE id = 1",
        "INSERT INTO orders (id, amount, note) VALUES (7, 701, 'new')",
    )
    rig.run("van-2", "INSERT INTO orders (id, amount, note) VALUES (8, 702, 'new')")
    rig.sync()
    waiting = "SELECT key ->> 1, outcome FROM floodmark.quarantine ORDER BY 1"
    assert rig.rows(waiting) == [("1", None), ("7", None), ("8", None)]
    with pytest.raises(OperatorError, match="its rows belong to members"):
        PostgresQuarantine(database).release(PIPELINE, rig.settings.tables[0], "anna")
    before = rig.rows(VERSIONS)
    rig.run("van-1", "UPDATE orders SET amount = 1 WHERE id = 1", "DELETE FROM orders WHERE id = 7")
    rig.sync()
    assert rig.rows(VERSIONS) == before
    assert rig.rows(waiting) == [("1", "overtaken"), ("7", "overtaken"), ("8", None)]
    rig.run("van-2", "DELETE FROM orders WHERE id = 8")
    rig.ledger.forget_mark(PIPELINE, ORDERS, "van-2")
    rig.sync()
    assert rig.rows(waiting)[-1] == ("8", "overtaken")
    assert rig.rows(VERSIONS) == before


def test_row_in_quarantine_of_a_device_that_is_read_as_a_whole_is_not_deleted(
    tmp_path: Path, rig: FleetRig, database: WarehouseConnection
) -> None:
    rig = rig_of(tmp_path / "devices", database, style=Style.HISTORY, rules=CHEAP)
    rig.sync()
    before = rig.rows(VERSIONS)
    rig.run("van-1", "UPDATE orders SET amount = 700 WHERE id = 1")
    rig.ledger.forget_mark(PIPELINE, ORDERS, "van-1")
    rig.sync()
    assert rig.rows(VERSIONS) == before
    assert rig.rows("SELECT key ->> 1, outcome FROM floodmark.quarantine") == [("1", None)]


def test_target_that_another_ledger_has_filled_is_refused(rig: FleetRig) -> None:
    rig.sync()
    for statement in ("window_tables", "windows", "tables", "members"):
        rig.execute(f"DELETE FROM floodmark.{statement}")
    with pytest.raises(TargetRefusedError, match="has rows that no window of the ledger brought"):
        rig.sync()


def test_new_column_has_no_value_in_the_versions_before_it(rig: FleetRig) -> None:
    rig.sync()
    rig.run("van-1", "ALTER TABLE orders ADD COLUMN extra INTEGER", "UPDATE orders SET extra = 5 WHERE id = 1")
    rig.sync()
    rig.run("van-1", "DELETE FROM orders WHERE id = 1")
    rig.sync()
    found = "SELECT extra FROM edge.orders_history WHERE __device = 'van-1' AND id = 1 ORDER BY __lsn"
    assert rig.rows(found) == [(None,), (5,), (5,)]


def test_log_has_an_entry_for_each_key_and_window(tmp_path: Path, rig: FleetRig, database: WarehouseConnection) -> None:
    rig = rig_of(tmp_path / "devices", database, style=Style.LOG)
    rig.sync()
    rig.run(
        "van-1",
        "UPDATE orders SET amount = 5 WHERE id = 1",
        "UPDATE orders SET amount = 6 WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
        "INSERT INTO orders (id, amount, note) VALUES (3, 3, NULL)",
        "INSERT INTO orders (id, amount, note) VALUES (4, 4, 'gone')",
        "DELETE FROM orders WHERE id = 4",
    )
    rig.sync()
    loaded = [("van-1", 1, 0, "1.00", "a"), ("van-1", 2, 0, "2.00", "b"), ("van-2", 1, 0, "10.00", "x")]
    changes = [
        ("van-1", 1, 4, "6.00", "a"),
        ("van-1", 2, 1, None, None),
        ("van-1", 3, 2, "3.00", None),
        ("van-1", 4, 1, None, None),
    ]
    assert rig.rows(ENTRIES) == [*loaded, *changes]
    rig.ledger.forget_mark(PIPELINE, ORDERS, "van-2")
    rig.sync()
    assert rig.rows(ENTRIES) == [*loaded, *changes, ("van-2", 1, 0, "10.00", "x")]
    times = "SELECT DISTINCT __op = 0, __committed_at IS NULL, __changed IS NULL FROM edge.orders"
    assert sorted(rig.rows(times)) == [(False, False, True), (True, True, True)]


def test_log_without_the_rows_of_the_table_has_changes_alone(
    tmp_path: Path, rig: FleetRig, database: WarehouseConnection
) -> None:
    rig = rig_of(tmp_path / "devices", database, style=Style.LOG, snapshot=False)
    rig.sync()
    rig.run("van-1", "UPDATE orders SET amount = 5 WHERE id = 1")
    rig.make("van-3", "INSERT INTO orders (id, amount, note) VALUES (1, 1, 'a')")
    rig.sync()
    assert rig.rows(ENTRIES) == [("van-1", 1, 4, "5.00", "a")]


def test_entry_in_quarantine_is_released_to_its_place(
    tmp_path: Path, rig: FleetRig, database: WarehouseConnection
) -> None:
    rig = rig_of(tmp_path / "devices", database, style=Style.LOG, rules=CHEAP)
    rig.sync()
    rig.run("van-1", "UPDATE orders SET amount = 700 WHERE id = 1")
    rig.sync()
    rig.run("van-1", "UPDATE orders SET amount = 7 WHERE id = 1")
    rig.sync()
    rig.settings = fleet_settings(style=Style.LOG)
    PostgresQuarantine(database).release(PIPELINE, rig.settings.tables[0], "anna")
    assert [row[3] for row in rig.rows(ENTRIES) if row[:2] == ("van-1", 1)] == ["1.00", "700.00", "7.00"]


def test_what_a_device_does_not_know_is_refused(rig: FleetRig) -> None:
    for style, settings, cause in (
        (Style.SNAPSHOT, {}, "only changes that change data capture has recorded begin the reads of a snapshot"),
        (Style.LOG, {"before_images": True}, "before_images: true, and a device keeps no row before an update"),
    ):
        rig.settings = fleet_settings(style=style, **settings)
        with pytest.raises(TableNotPlannableError, match=f"style: {style.value}, but {cause}"):
            rig.sync()


def filtered(where: str, **settings: Any) -> dict[str, Any]:
    return {"where": parse_filter(where), **settings}


@pytest.mark.parametrize("deletes", Deletes)
def test_rows_enter_and_leave_the_filter_of_a_target(
    tmp_path: Path, rig: FleetRig, database: WarehouseConnection, deletes: Deletes
) -> None:
    rig = rig_of(tmp_path / "devices", database, **filtered("amount >= 2 AND __device <> 'van-3'", deletes=deletes))
    rig.make("van-3", "INSERT INTO orders (id, amount, note) VALUES (1, 10, 'no')")
    rig.sync()
    rows = rig.rows("SELECT __device, id, note FROM edge.orders ORDER BY 1, 2")
    assert rows == [("van-1", 2, "b"), ("van-2", 1, "x")]
    rig.run("van-1", "UPDATE orders SET amount = 3 - amount", "INSERT INTO orders (id, note) VALUES (3, 'never')")
    rig.sync()
    assert [row[:2] for row in rig.living()] == [("van-1", 1), ("van-2", 1)]
    assert rig.differing() == []
    found = {row[0] for row in rig.rows("SELECT note FROM edge.orders")}
    assert found == ({"a", "x", "b"} if deletes is Deletes.SOFT else {"a", "x"})


def test_row_that_leaves_the_filter_is_a_deleted_version_with_its_last_values_that_passed(
    tmp_path: Path, rig: FleetRig, database: WarehouseConnection
) -> None:
    rig = rig_of(tmp_path / "devices", database, **filtered("amount >= 2", style=Style.HISTORY))
    rig.sync()
    rig.run("van-1", "UPDATE orders SET amount = 1, note = 'hidden' WHERE id = 2")
    rig.sync()
    rig.run("van-1", "UPDATE orders SET note = 'hidden too' WHERE id = 2")
    rig.sync()
    rig.ledger.forget_mark(PIPELINE, ORDERS, "van-1")
    rig.sync()
    rig.run("van-1", "UPDATE orders SET amount = 4, note = 'B' WHERE id = 2")
    rig.sync()
    assert rig.rows(VERSIONS)[:-1] == [
        ("van-1", 2, 2, "2.00", "b", False),
        ("van-1", 2, 1, "2.00", "b", True),
        ("van-1", 2, 2, "4.00", "B", False),
    ]


@pytest.mark.parametrize(
    "column",
    [
        ColumnSettings("note", is_dropped=True),
        ColumnSettings("note", mask=Mask.REDACT),
        ColumnSettings("note", "remark", mask=Mask.LAST4),
    ],
    ids=["dropped", "masked", "renamed"],
)
def test_filter_reads_the_values_of_the_source(
    tmp_path: Path, rig: FleetRig, database: WarehouseConnection, column: ColumnSettings
) -> None:
    rig = rig_of(tmp_path / "devices", database, **filtered("note <> 'b'", columns=(column,)))
    rig.sync()
    rig.run("van-2", "INSERT INTO orders (id, amount, note) VALUES (2, 1, 'b'), (3, 1, 'c'), (4, 1, NULL)")
    rig.run("van-1", "UPDATE orders SET note = 'b' WHERE id = 1", "UPDATE orders SET note = 'a' WHERE id = 2")
    rig.sync()
    living = "SELECT __device, id FROM edge.orders WHERE NOT __deleted ORDER BY 1, 2"
    assert rig.rows(living) == [("van-1", 2), ("van-2", 1), ("van-2", 3)]
    assert rig.differing() == []


def test_device_whose_column_has_another_type_for_the_filter_is_left_out(
    tmp_path: Path, rig: FleetRig, database: WarehouseConnection
) -> None:
    rig = rig_of(tmp_path / "devices", database, **filtered("amount >= 2"))
    text = "CREATE TABLE orders (id INTEGER PRIMARY KEY NOT NULL, amount TEXT, note TEXT)"
    rig.make("van-3", "INSERT INTO orders (id, amount) VALUES (1, 'much')", table=text)
    assert rig.sync() == {"van-3": Verdict.NOT_PLANNABLE}
    assert [row[:2] for row in rig.living()] == [("van-1", 2), ("van-2", 1)]
    ((cause,),) = rig.rows("SELECT cause FROM floodmark.members WHERE member = 'van-3'")
    assert cause == "the filter compares amount, which is nvarchar, with 2."


def test_filter_of_a_log_is_refused(rig: FleetRig) -> None:
    rig.settings = fleet_settings(**filtered("amount >= 2", style=Style.LOG))
    with pytest.raises(TableNotPlannableError, match="style: log, but where, and nothing shows whether a row"):
        rig.sync()
