"""Rows of a lake that break rules, their release, and logs: as the same windows leave them in PostgreSQL."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lake_rig import SMALL, LakeRig, quarantined
from warehouse_contract import one
from warehouse_rig import WarehouseRig
from warehouse_shop import COLUMNS, DELETE, INSERT, ORDERS, UPDATE, Row, changes, first_load, instance, staged_batch

from floodmark.core.errors import (
    ConfigError,
    DataQualityError,
    OperatorError,
    TargetLostError,
    TargetRefusedError,
    WatermarkConflictError,
    WindowBusyError,
)
from floodmark.core.plan import TableCounts, TablePlan, load_lane
from floodmark.core.recovery import Release
from floodmark.core.schema import SourceColumn
from floodmark.core.settings import Deletes, OnFailure, Rule, Style, TableSettings
from floodmark.iceberg.metadata import read_lake
from floodmark.iceberg.release import LakeQuarantine, ReleasedRows, ReleaseRows
from floodmark.postgres.session import open_transaction
from floodmark.postgres.warehouse.release import PostgresQuarantine
from lsns import lsn
from table_plans import with_settings

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


# --------------------------------------------------------------------------------------------------------------------
# Quarantine: what the same windows leave there, and in the target, is that of PostgreSQL.


GOOD = Rule("good", "\"Notes\" <> 'bad'", OnFailure.QUARANTINE)
CHEAP = Rule("cheap", '"Amount" < 50', OnFailure.WARN)


def test_rows_that_break_a_rule_go_where_postgresql_has_them(rig: LakeRig) -> None:
    other, deletes, rules = rig.in_postgres(), Deletes.SOFT, (SMALL, GOOD, CHEAP)

    def run(table: TablePlan, to: int, *rows: Row, lane: str = "") -> None:
        counts = [each.run(table, to, rows, lane) for each in (rig, other)]
        assert counts[0] == counts[1]
        assert rig.visible() == other.visible()
        assert quarantined(rig) == quarantined(other)

    def window(after: int, *rows: Row) -> None:
        run(changes(after, after + 10, deletes, rules), after + 10, *rows)

    run(
        first_load(deletes, rules),
        10,
        *(Row(1, INSERT, 10, 5, notes="n"), Row(2, INSERT, 10, 500, notes="n"), Row(3, INSERT, 10, 60, notes="n")),
    )
    assert [row[:2] for row in quarantined(rig)] == [("small", [2])]
    # The target keeps the row of before. One row breaks two rules, and a delete none.
    window(10, Row(1, UPDATE, 11, 500, notes="m"), Row(4, INSERT, 12, 500, notes="bad"), Row(9, DELETE, 13, 500))
    assert rig.visible()[1] == (Decimal("5.00"), None, "n")
    # Each leaves out the text of the change before, which is in quarantine. One key never was in the target.
    window(20, Row(1, UPDATE, 21, 7, keep=True), Row(4, UPDATE, 22, 6, keep=True), Row(2, DELETE, 23))
    assert rig.visible()[1] == (Decimal("7.00"), None, "m")
    window(30, Row(4, UPDATE, 31, 6, notes="good"), Row(5, INSERT, 32, 900))
    assert [row[4] for row in quarantined(rig) if row[1] == [4]] == ["overtaken"] * 3
    # All rows of the window, then none of them again.
    window(40, Row(1, UPDATE, 41, 800, notes="o"))
    for at, to in ((50, 60), (60, 60)):
        load = replace(first_load(deletes, rules), is_reload=True, watermark=lsn(at))
        run(load, to, Row(1, INSERT, to, 800, notes="o"), Row(6, INSERT, to, 7, notes="p"), lane="load dbo.Orders")
        assert sorted(rig.visible()) == [1, 6]
    some = replace(load, is_reload=False, where="Id = 1")
    run(some, 60, Row(1, INSERT, 60, 8, notes="q"), lane="load dbo.Orders")
    assert {row[4] for row in quarantined(rig)} == {"overtaken", "released"}
    run(load, 60, Row(6, INSERT, 60, 700), lane="load dbo.Orders")
    assert sorted(rig.visible()) == [6]


def test_quarantine_has_the_rows_of_published_windows_alone(rig: LakeRig) -> None:
    rig.run(first_load(rules=(SMALL,)), 10, one())
    plan = rig.open(changes(10, 20, rules=(SMALL,)), to=20)
    rig.stage(plan, [Row(1, UPDATE, 15, 500), Row(2, INSERT, 16, 5)])
    counts = rig.warehouse.merge_window(plan)
    assert rig.warehouse.merge_window(plan) == counts
    assert quarantined(rig) == []
    # The load was killed, and the next one reads other rows.
    plan = rig.prepare(plan.window_id)
    staged = rig.stage(plan, [Row(2, INSERT, 16, 500), Row(3, INSERT, 17, 5, notes="n")])
    rig.merge(plan, staged.rows)
    rig.check(plan)
    assert quarantined(rig) == []
    rig.publish(plan)
    assert [row[:2] for row in quarantined(rig)] == [("small", [2])]
    rig.publish(plan)
    assert (len(quarantined(rig)), sorted(rig.visible())) == (1, [1, 3])
    rig.ledger.advance(plan.window_id)
    given_up = rig.open(changes(20, 30, rules=(SMALL,)), to=30)
    rig.stage(given_up, [Row(4, INSERT, 25, 500)])
    rig.merge(given_up)
    rig.ledger.drop_merged(given_up.window_id)
    rig.run(changes(20, 40, rules=(SMALL,)), 40, [Row(4, INSERT, 35, 5, notes="n")])
    assert len(quarantined(rig)) == 1
    with open_transaction(rig.at) as session:
        [(held,)] = session.execute(
            "SELECT count(*) FROM floodmark_lake.lake_quarantine WHERE target_name = %s", [rig.target.name]
        ).fetchall()
    assert held == 0


def test_rows_without_a_key_go_to_quarantine_and_their_deletes_nowhere(rig: LakeRig) -> None:
    feed = instance((SourceColumn("Id", "int", 1), *COLUMNS[1:]))
    rows = [replace(row, id=None) for row in (Row(0, INSERT, 10, 5), Row(0, INSERT, 10, 5))]
    other = rig.in_postgres()
    for each in (rig, other):
        counts = each.run(replace(first_load(), feed=feed), 10, [*one(), *rows])
        assert (counts.staged_rows, counts.inserted_rows, counts.quarantined_rows) == (3, 1, 2)
        gone = [replace(Row(0, DELETE, 15), id=None), Row(1, UPDATE, 16, 6, notes="n")]
        assert each.run(replace(changes(10, 20), feed=feed), 20, gone).staged_rows == 1
    assert quarantined(rig) == quarantined(other)
    assert rig.visible() == other.visible()


@pytest.mark.parametrize(
    ("sql", "notes", "words"),
    [
        ('100 / "Amount" > 1', "n", r"one of its rules \(r\) cannot be evaluated by Spark on a value of the window"),
        ("date_trunk(\"Notes\") > ''", "n", r"one of its rules \(r\) cannot be evaluated by Spark\."),
        ('"Amount" > 0', "\0", "cannot hold one of its values: such as a text with the character NUL"),
    ],
)
def test_row_that_a_rule_or_quarantine_cannot_take_refuses_the_table(
    rig: LakeRig, sql: str, notes: str, words: str
) -> None:
    plan = rig.open(first_load(rules=(Rule("r", sql, OnFailure.QUARANTINE),)), to=10)
    rig.stage(plan, [Row(1, INSERT, 10, 0, notes=notes)])
    with pytest.raises((ConfigError, DataQualityError), match=words) as refused:
        rig.merge(plan)
    assert refused.value.subject == str(ORDERS)
    assert rig.visible() == {}


# --------------------------------------------------------------------------------------------------------------------
# The release of rows.


def release(rig: WarehouseRig, *rules: Rule) -> Release:
    """Release the rows of the target, by rules. The number of the window is left out."""
    settings = TableSettings(ORDERS, rig.target, rules=rules)
    if isinstance(rig, LakeRig):
        found = LakeQuarantine(rig.lake, lambda: None).release(rig.pipeline, settings, "anna")
    else:
        found = PostgresQuarantine(rig.ledger._at).release(rig.pipeline, settings, "anna")
    assert (found.window_id is None) == (found.inserted_rows + found.updated_rows == 0)
    return replace(found, window_id=None)


def change_quarantine(rig: WarehouseRig, change: str, *values: Any) -> None:
    with open_transaction(rig.ledger._at) as session:
        session.execute(f"UPDATE floodmark.quarantine SET {change} AND pipeline = %s", [*values, rig.pipeline])


def correct(rig: WarehouseRig, key: int, values: str) -> None:
    """Correct the values of a row as an operator does."""
    change_quarantine(rig, "row_data = row_data || %s::jsonb WHERE key = jsonb_build_array(%s::int)", values, key)


def test_release_merges_what_it_merges_in_postgresql(rig: LakeRig) -> None:
    rules, both = (SMALL, GOOD), (rig, rig.in_postgres())

    def run(table: TablePlan, to: int, *rows: Row) -> None:
        counts = [each.run(table, to, rows) for each in both]
        assert counts[0] == counts[1]

    def release_both(*left: Rule) -> Release:
        found = [release(each, *left) for each in both]
        assert found[0] == found[1]
        assert rig.visible() == both[1].visible()
        assert quarantined(rig) == quarantined(both[1])
        return found[0]

    with pytest.raises(OperatorError, match="no window has merged it"):
        release(rig)
    bad = (Row(2, INSERT, 10, 500, notes="two"), Row(3, INSERT, 10, 600, notes="bad"), Row(4, INSERT, 10, 400))
    run(first_load(rules=rules), 10, Row(1, INSERT, 10, 5, notes="n"), *bad)
    # Two leave the text out: that of one is in quarantine, and nothing has that of the other.
    kept = (Row(2, UPDATE, 12, 700, keep=True), Row(8, UPDATE, 13, 800, keep=True))
    run(changes(10, 20, rules=rules), 20, Row(1, UPDATE, 11, 500, 3, notes="m"), *kept)
    assert release_both(*rules).remaining == {"good": 1, "small": 6}
    for each in both:
        correct(each, 1, '{"Amount": 7.5}')
        correct(each, 4, '{"Amount": 500, "Notes": "bad"}')
    assert release_both(*rules).updated_rows == 1
    assert rig.visible() == {1: (Decimal("7.50"), 3, "m")}
    assert release_both() == Release(5, 1, {"small": 1}, 1, inserted_rows=3)
    assert rig.visible()[2] == (Decimal("700.00"), None, "two")
    assert rig.visible()[3] == (Decimal("600.00"), None, "bad")
    # As an earlier version left them open. Later changes of theirs are in the target.
    run(changes(20, 30), 30, Row(2, DELETE, 21), Row(3, UPDATE, 22, 6, notes="n"))
    for each in both:
        change_quarantine(each, "settled_at = NULL, settled_by = NULL, outcome = NULL WHERE key IN ('[2]', '[3]')")
    assert release_both() == Release(0, 4, {"small": 1}, 1)
    [table] = read_lake(rig.lake.catalog, [rig.target])
    assert [table.snapshot_at(lsn(at))[1] for at in (10, 25, 30)] == [str(lsn(at)) for at in (10, 10, 30)]
    for each in both:
        correct(each, 8, '{"Amount": "secret"}')
        with pytest.raises(OperatorError, match="does not have the type") as refused:
            release(each)
        assert "secret" not in str(refused.value)


def test_release_is_published_whole_or_not_at_all(
    rig: LakeRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.run(first_load(rules=(SMALL,)), 10, [*one(), Row(2, INSERT, 10, 500, notes="n")])
    quarantine, settings = LakeQuarantine(rig.lake, lambda: None), TableSettings(ORDERS, rig.target)
    folders = (tmp_path / str(number) for number in itertools.count())

    def begin() -> tuple[ReleaseRows, ReleasedRows]:
        found = quarantine.read_rows(rig.pipeline, settings, "anna")
        assert found is not None
        return found, quarantine.merge_rows(found, next(folders))

    def is_as_before(*keys: int) -> bool:
        return (sorted(rig.visible()), [row[4] for row in quarantined(rig)]) == (list(keys), [None])

    # Killed before the merge, and after it.
    quarantine.read_rows(rig.pipeline, settings, "anna")
    found, merged = begin()
    assert is_as_before(1)
    assert rig.ledger.list_unfinished(rig.pipeline) == []
    # Its publication ends before its last statement.
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("floodmark.iceberg.release.read_outcome", lambda *_: 1 / 0)
        quarantine.publish(found, merged, "anna")
    assert is_as_before(1)
    correct(rig, 2, '{"Amount": 501}')
    with pytest.raises(WatermarkConflictError, match="in quarantine were changed while they were released"):
        quarantine.publish(found, merged, "anna")
    # Another one has begun.
    later = begin()
    with pytest.raises(WatermarkConflictError, match="was written to while rows were released"):
        quarantine.publish(found, merged, "anna")
    # A window comes to `next`, and is published.
    plan = rig.open(changes(10, 20, rules=(SMALL,)), to=20)
    staged = rig.stage(plan, [Row(3, INSERT, 15, 5, notes="n")])
    rig.merge(plan, staged.rows)
    with pytest.raises(WindowBusyError, match=f"window {plan.window_id} .* is unfinished"):
        quarantine.read_rows(rig.pipeline, settings, "anna")
    with pytest.raises(WindowBusyError, match=f"window {plan.window_id} .* is unfinished"):
        quarantine.publish(*later, "anna")
    rig.finish(plan)
    with pytest.raises(WatermarkConflictError, match="was written to while rows were released"):
        quarantine.publish(*later, "anna")
    assert is_as_before(1, 3)

    again = with_settings(replace(first_load(), is_reload=True, watermark=lsn(20)), target=rig.target)
    reloaded = rig.ledger.open_window(rig.pipeline, lsn(30), [again], lane=load_lane(ORDERS)).window_id
    with pytest.raises(WatermarkConflictError, match=f"window {reloaded} is reloading it"):
        release(rig)
    rig.ledger.leave_out(reloaded, [ORDERS])
    assert release(rig) == Release(1, inserted_rows=1)
    assert rig.visible()[2] == (Decimal("501.00"), None, "n")
    assert release(rig) == Release()
    rig.run(changes(20, 30), 30, [Row(2, UPDATE, 25, 6, notes="o")])
    assert rig.visible()[2] == (Decimal("6.00"), None, "o")
    change_quarantine(rig, "settled_at = NULL, outcome = NULL WHERE true")
    rig.sql("DROP TABLE {}")
    with pytest.raises(TargetLostError, match="does not exist, and was loaded before"):
        release(rig)


# --------------------------------------------------------------------------------------------------------------------
# Logs.


def log_batch(*rows: Row, load: bool = False) -> pa.RecordBatch:
    """Return rows as a worker hands them to the sink of a log, each at its own place."""
    batch = staged_batch(rows).drop_columns(["__keep_Notes"])
    own = {
        "__command_id": pa.array([0] * len(rows), pa.int32()),
        "__seq": pa.array([row.id.to_bytes(10) for row in rows], pa.binary()),
        "__changed": pa.array([["Amount"] if row.op == UPDATE else None for row in rows], pa.list_(pa.string())),
        "__committed_at": pa.array([None if load else AT for _ in rows], pa.timestamp("us", tz="UTC")),
    }
    return pa.RecordBatch.from_arrays([*batch.columns, *own.values()], names=[*batch.schema.names, *own])


AT = datetime(2026, 11, 27, 5, 21, 47, 123456, tzinfo=UTC)
BEFORE, LOADED = 3, 0


def log_rows(rig: WarehouseRig) -> list[tuple[Any, ...]]:
    """Return the rows of a log in its order, with the numbers of its loads from one."""
    rows = [dict(row) for row in rig.read(rig.target)]
    loads = sorted({row["__load"] for row in rows})
    own = ("__command_id", "__op", "Id", "Amount", "Disc%", "Notes")
    return sorted(
        (
            (
                loads.index(row["__load"]),
                bytes(row["__lsn"]),
                bytes(row["__seq"]),
                row["__changed"] and list(row["__changed"]),
                row["__committed_at"] and row["__committed_at"].astimezone(UTC),
                *(row[name] for name in own),
            )
            for row in rows
        ),
        key=lambda row: (*row[:3], row[6]),
    )


def test_log_has_every_change_once_as_in_postgresql(rig: LakeRig) -> None:
    """Also after a reload, a change that comes again, and rows that break a rule."""
    other = rig.in_postgres()

    def as_log(table: TablePlan) -> TablePlan:
        return with_settings(table, style=Style.LOG, before_images=True, rules=(SMALL,))

    def run(table: TablePlan, to: int, batch: pa.RecordBatch, lane: str = "") -> TableCounts:
        counts = [each.run(as_log(table), to, batch, lane) for each in (rig, other)]
        assert counts[0] == counts[1]
        assert log_rows(rig) == log_rows(other)
        return counts[0]

    run(first_load(), 10, log_batch(Row(1, LOADED, 10, 5, notes="n"), Row(2, LOADED, 10, 500), load=True))
    changed = (Row(1, BEFORE, 15, 500), Row(1, UPDATE, 15, 6, notes="m"), Row(3, INSERT, 16, 700), Row(1, DELETE, 17))
    assert run(changes(10, 20), 20, log_batch(*changed)).quarantined_rows == 1
    counts = run(changes(20, 30), 30, log_batch(Row(1, DELETE, 17), Row(4, INSERT, 25, 8)))
    assert (counts.inserted_rows, counts.unchanged_rows) == (1, 1)
    again = replace(first_load(), is_reload=True, watermark=lsn(30))
    run(again, 40, log_batch(Row(4, LOADED, 40, 8), load=True), lane="load dbo.Orders")
    run(changes(40, 50), 50, log_batch(Row(4, UPDATE, 45, 9)))
    assert [row[3] for row in quarantined(rig) if row[0] == "small"] != []
    assert [(row[0], row[3]["Id"], row[4]) for row in quarantined(rig)] == [
        (row[0], row[3]["Id"], row[4]) for row in quarantined(other)
    ]
    later = (Row(5, INSERT, 55, 500, notes="n"), Row(5, UPDATE, 56, 501, notes="m"), Row(6, INSERT, 57, 6))
    run(changes(50, 60), 60, log_batch(*later))
    released = [release(each) for each in (rig, other)]
    assert released[0] == released[1]
    assert (released[0].released, released[0].inserted_rows) == (2, 2)
    assert log_rows(rig) == log_rows(other)
    with pytest.raises(TargetRefusedError, match="of the lake is a log"):
        rig.open(changes(60, 70), to=70)


def test_log_of_another_ledger_is_refused(rig: LakeRig) -> None:
    log = with_settings(first_load(), style=Style.LOG)
    rig.run(log, 10, log_batch(Row(1, LOADED, 10, 5), load=True))
    with open_transaction(rig.at) as session:
        session.execute("DELETE FROM floodmark.tables WHERE target_name = %s", [rig.target.name])
        change = "UPDATE floodmark_lake.lake_tables SET window_id = 1000000 WHERE target_name = %s"
        session.execute(change, [rig.target.name])
    with pytest.raises(TargetRefusedError, match="has rows that no window of the ledger brought"):
        replace(rig, pipeline=f"{rig.pipeline}_again", reported={}).open(log, to=20)


def test_column_with_a_name_of_a_log_is_refused(rig: LakeRig) -> None:
    columns = (*COLUMNS, SourceColumn("__seq", "int", 6))
    log = with_settings(replace(first_load(), feed=instance(columns)), style=Style.LOG)
    with pytest.raises(TargetRefusedError, match="column __seq has the name that is reserved in a log"):
        rig.open(log, to=10)
