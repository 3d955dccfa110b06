"""A pipeline over edge databases ends with the rows of its devices, and says which devices it cannot read."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from compact_tracking import ChangeTracking, PurgeType, access, ship_copy
from fleet_rig import ORDERS, PIPELINE, FleetRig, fleet_settings
from floodmark.core.errors import CdcNotEnabledError, SourceUnavailableError
from floodmark.core.settings import Deletes, OnGap
from floodmark.core.snapshot import Verdict
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.compact import reader
from floodmark.sources.compact.reader import CompactReader
from floodmark.sources.compact.source import read_fleet_facts
from floodmark.sync.window import OpenResult

_LOG = logging.getLogger(__name__)


@pytest.fixture
def rig(tmp_path: Path, database: WarehouseConnection) -> FleetRig:
    folder = tmp_path / "devices"
    folder.mkdir()
    return FleetRig(folder, database, fleet_settings())


def test_first_rows_and_changes_of_two_devices_arrive(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id, amount, note) VALUES (1, 1.5, 'one'), (2, 2.5, NULL), (3, 3, 'three')")
    rig.make("van-2", "INSERT INTO orders (id, amount, note) VALUES (1, 10, 'other')")
    assert rig.sync() == {}
    assert rig.differing() == []
    assert [row[:2] for row in rig.living()] == [("van-1", 1), ("van-1", 2), ("van-1", 3), ("van-2", 1)]
    rig.run("van-1", "UPDATE orders SET amount = 9 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    rig.run("van-2", "UPDATE orders SET id = 7", "INSERT INTO orders (id, note) VALUES (8, 'new')")
    assert rig.sync() == {}
    assert rig.differing() == []
    assert [row[:2] for row in rig.living()] == [("van-1", 1), ("van-1", 3), ("van-2", 7), ("van-2", 8)]
    deleted = rig.rows("SELECT __device, id, amount FROM edge.orders WHERE __deleted ORDER BY 1")
    assert [row[:2] for row in deleted] == [("van-1", 2), ("van-2", 1)]


def test_a_new_device_is_read_while_others_go_on(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    assert rig.sync() == {}
    rig.run("van-1", "INSERT INTO orders (id) VALUES (2)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1), (5)")
    assert rig.sync() == {}
    assert rig.differing() == []


def test_a_device_that_is_away_is_no_incident_and_continues_when_it_is_back(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    rig.sync()
    away = rig.path("van-2").rename(rig.folder.parent / "away")
    rig.run("van-1", "DELETE FROM orders")
    assert rig.sync() == {}
    assert [row[0] for row in rig.living()] == ["van-2"]
    away.rename(rig.path("van-2"))
    rig.run("van-2", "UPDATE orders SET note = 'back'")
    assert rig.sync() == {}
    assert rig.differing() == []


def _restore(rig: FleetRig) -> None:
    copy = rig.back_up("van-1")
    rig.run("van-1", "INSERT INTO orders (id, note) VALUES (3, 'lost')", "DELETE FROM orders WHERE id = 1")
    rig.sync()
    rig.put_back("van-1", copy)
    rig.run("van-1", *(f"INSERT INTO orders (id, note) VALUES ({number}, 'new')" for number in range(4, 9)))


def _replace(rig: FleetRig) -> None:
    rig.remove("van-1")
    rig.make("van-1", "INSERT INTO orders (id, note) VALUES (2, 'of another device')")


def _begin_again(rig: FleetRig) -> None:
    with closing(sqlite3.connect(rig.path("van-1"), isolation_level=None)) as file:
        ChangeTracking(file).disable_tracking("orders")
        file.execute("DELETE FROM orders WHERE id = 2")
        ChangeTracking(file).enable_tracking("orders")


def _purge(rig: FleetRig) -> None:
    with closing(sqlite3.connect(rig.path("van-1"), isolation_level=None)) as file:
        file.execute("DELETE FROM orders WHERE id = 2")
        tracking = ChangeTracking(file)
        tracking.take_anchor()
        tracking.purge_tombstone_table_data("orders", PurgeType.CSN_BASED, tracking.get_last_committed_csn() + 1)


GAPS = [
    (_restore, Verdict.AHEAD_OF_SOURCE),
    (_replace, Verdict.INSTANCE_REPLACED),
    (_begin_again, Verdict.INSTANCE_REPLACED),
    (_purge, Verdict.EXPIRED),
]


@pytest.mark.parametrize(("happen", "verdict"), GAPS)
def test_a_device_whose_changes_are_lost_is_left_out_until_it_is_read_again(
    rig: FleetRig, happen: Callable[[FleetRig], None], verdict: Verdict
) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1), (2)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    rig.sync()
    happen(rig)
    rig.run("van-2", "INSERT INTO orders (id) VALUES (2)")
    before = [row for row in rig.living() if row[0] == "van-1"]
    assert rig.sync() == {"van-1": verdict}
    assert [row for row in rig.living() if row[0] == "van-1"] == before
    assert [row[:2] for row in rig.living() if row[0] == "van-2"] == [("van-2", 1), ("van-2", 2)]
    assert rig.sync() == {"van-1": verdict}
    rig.ledger.forget_mark(PIPELINE, ORDERS, "van-1")
    assert rig.sync() == {}
    assert rig.differing() == []
    rig.run("van-1", "UPDATE orders SET note = 'on'")
    assert rig.sync() == {}
    assert rig.differing() == []


@pytest.mark.parametrize(("happen", "verdict"), GAPS)
@pytest.mark.parametrize("deletes", list(Deletes))
def test_a_repaired_device_ends_with_its_rows_in_the_same_window(
    rig: FleetRig, happen: Callable[[FleetRig], None], verdict: Verdict, deletes: Deletes
) -> None:
    rig.settings = fleet_settings(on_gap=OnGap.REPAIR, deletes=deletes)
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1), (2)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    rig.sync()
    happen(rig)
    assert rig.sync() == {}
    assert rig.differing() == []
    rig.run("van-1", "DELETE FROM orders")
    assert rig.sync() == {}
    assert [row[0] for row in rig.living()] == ["van-2"]


def _damage(rig: FleetRig) -> None:
    rig.run("van-1", "PRAGMA wal_checkpoint(TRUNCATE)")
    content = rig.path("van-1").read_bytes()
    for end in ("-wal", "-shm"):
        Path(f"{rig.path('van-1')}{end}").unlink(missing_ok=True)
    rig.path("van-1").write_bytes(content[: len(content) // 2])


def _no_database(rig: FleetRig) -> None:
    rig.remove("van-1")
    rig.path("van-1").write_bytes(b"this is no database" * 500)


def _untrack(rig: FleetRig) -> None:
    with closing(sqlite3.connect(rig.path("van-1"), isolation_level=None)) as file:
        ChangeTracking(file).disable_tracking("orders")


def _drop_trigger(rig: FleetRig) -> None:
    with closing(sqlite3.connect(rig.path("van-1"), isolation_level=None)) as file:
        [name, *_] = [
            row[0]
            for row in file.execute("SELECT name FROM sqlite_master WHERE tbl_name = 'orders' AND type = 'trigger'")
        ]
        file.execute(f'DROP TRIGGER "{name}"')


def _misfit(rig: FleetRig) -> None:
    rig.run("van-1", "UPDATE orders SET amount = 'a lot' WHERE id = 1")


@pytest.mark.parametrize(
    ("happen", "verdict"),
    [
        (_damage, Verdict.DAMAGED),
        (_no_database, Verdict.DAMAGED),
        (_untrack, Verdict.INSTANCE_MISSING),
        (_drop_trigger, Verdict.INSTANCE_MISSING),
        (_misfit, Verdict.REFUSED),
    ],
)
@pytest.mark.parametrize("on_gap", list(OnGap))
def test_a_device_that_cannot_be_read_keeps_its_rows_and_stops_no_other(
    rig: FleetRig, happen: Callable[[FleetRig], None], verdict: Verdict, on_gap: OnGap
) -> None:
    rig.settings = fleet_settings(on_gap=on_gap)
    rig.make("van-1", "INSERT INTO orders (id, amount) VALUES (1, 1), (2, 2)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    rig.sync()
    before = [row for row in rig.living() if row[0] == "van-1"]
    happen(rig)
    rig.run("van-2", "DELETE FROM orders")
    assert rig.sync() == {"van-1": verdict}
    assert rig.living() == before
    [(cause, hint)] = rig.rows("SELECT cause, hint FROM floodmark.members WHERE verdict IS NOT NULL")
    assert cause.endswith(".")
    assert hint.endswith(".")
    assert "a lot" not in cause


_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def _endless_view_of_the_tracked_tables(rig: FleetRig) -> None:
    rig.run(
        "van-1",
        "DROP VIEW __sysOCSTrackedObjects",
        f"CREATE VIEW __sysOCSTrackedObjects AS {_ENDLESS} SELECT 'a' || i AS __sysTName, 0 AS __sysTrackType FROM n",
    )


def _endless_view_for_a_table_of_the_tracking(rig: FleetRig) -> None:
    rig.run(
        "van-1",
        "DROP VIEW __sysOCSTrackedObjects",
        "DROP VIEW __sysOCSDeletedRows",
        "ALTER TABLE __ct_tables RENAME TO kept",
        f"CREATE VIEW __CT_TABLES AS {_ENDLESS} SELECT i AS id, 'a' || i AS name, kept.* FROM n, kept",
    )


def _endless_trigger(rig: FleetRig) -> None:
    rig.run(
        "van-1",
        "CREATE TABLE more (i)",
        "CREATE TRIGGER t AFTER INSERT ON __ct_receipts BEGIN"
        f" INSERT INTO more SELECT * FROM ({_ENDLESS} SELECT i FROM n WHERE i < 0); END",
    )


def _endless_values(rig: FleetRig) -> None:
    """A row of some bytes whose generated columns have 100 MB."""
    rig.run("van-1", "ALTER TABLE orders ADD COLUMN long TEXT AS (hex(zeroblob(50000000)))")


def _forged_key(rig: FleetRig) -> None:
    rig.run("van-1", "UPDATE __ct_tables SET key_columns = 'secret'")


def _no_counters(rig: FleetRig) -> None:
    rig.run("van-1", "DELETE FROM __ct_state")


@pytest.mark.parametrize(
    ("happen", "stopped"),
    [
        (_endless_view_of_the_tracked_tables, {}),
        (_endless_view_for_a_table_of_the_tracking, {"van-1": Verdict.DAMAGED}),
        (_endless_trigger, {"van-1": Verdict.DAMAGED}),
        (_endless_values, {"van-1": Verdict.DAMAGED}),
        (_forged_key, {"van-1": Verdict.DAMAGED}),
        (_no_counters, {"van-1": Verdict.DAMAGED}),
    ],
)
def test_no_file_of_a_device_keeps_the_others_waiting(
    rig: FleetRig,
    happen: Callable[[FleetRig], None],
    stopped: dict[str, Verdict],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "DEADLINE_SECONDS", 1.0)
    for device in ("van-1", "van-2"):
        rig.make(device, "INSERT INTO orders (id) VALUES (1)")
    rig.sync()
    rig.run("van-1", "INSERT INTO orders (id) VALUES (2)")
    rig.run("van-2", "INSERT INTO orders (id) VALUES (2)")
    happen(rig)
    began = time.monotonic()
    assert rig.sync() == stopped
    assert time.monotonic() - began < 30
    assert [row[:2] for row in rig.living() if row[0] == "van-2"] == [("van-2", 1), ("van-2", 2)]
    assert len([row for row in rig.living() if row[0] == "van-1"]) == (1 if stopped else 2)
    facts = read_fleet_facts(rig.fleet, [ORDERS])
    assert "van-2" not in facts.unreadable
    causes = [cause for (cause,) in rig.rows("SELECT cause FROM floodmark.members WHERE verdict IS NOT NULL")]
    assert "secret" not in "".join(causes)


def test_a_locked_device_is_read_by_the_next_run(rig: FleetRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_LOCK_SECONDS", 0.1)
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    with closing(sqlite3.connect(rig.path("van-1"), isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO orders (id) VALUES (2)")
        assert rig.sync() == {"van-1": Verdict.REFUSED}
        writer.execute("COMMIT")
    assert rig.sync() == {}
    assert rig.differing() == []


def test_verification_does_not_wait_for_a_locked_device(rig: FleetRig) -> None:
    for device in ("van-1", "van-2"):
        rig.make(device, "INSERT INTO orders (id) VALUES (1)")
    rig.run("van-1", "PRAGMA journal_mode = DELETE")
    rig.sync()
    with closing(sqlite3.connect(rig.path("van-1"), isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SourceUnavailableError, match="device van-1 could not be read: the device kept its file"):
            rig.differing()
    assert rig.differing() == []


def test_a_device_with_a_column_of_the_warehouse_stops_no_other(rig: FleetRig) -> None:
    for device in ("van-1", "van-2"):
        rig.make(device, "INSERT INTO orders (id) VALUES (1)")
    rig.sync()
    rig.run("van-1", "ALTER TABLE orders ADD COLUMN __Device TEXT", "INSERT INTO orders (id) VALUES (2)")
    rig.run("van-2", "INSERT INTO orders (id) VALUES (2)")
    assert rig.sync() == {"van-1": Verdict.NOT_PLANNABLE}
    assert [row[:2] for row in rig.living()] == [("van-1", 1), ("van-2", 1), ("van-2", 2)]
    ((cause, hint),) = rig.rows("SELECT cause, hint FROM floodmark.members WHERE verdict IS NOT NULL")
    assert (cause, hint) == (
        "it has a column __device, the name of the warehouse's own column.",
        "Rename the column on the device.",
    )


def test_two_files_of_one_name_are_refused(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    shutil.copy(rig.path("van-1"), rig.folder / "van-1.sqlite")
    assert rig.sync() == {"van-1": Verdict.NOT_PLANNABLE}
    assert [row[0] for row in rig.living()] == ["van-2"]


def test_a_fleet_without_files_is_an_incident(rig: FleetRig) -> None:
    with pytest.raises(CdcNotEnabledError, match="there is no file of a device in"):
        rig.sync()
    rig.folder.rmdir()
    with pytest.raises(CdcNotEnabledError, match="Check that the folder is mounted"):
        rig.sync()


def test_devices_of_two_versions_have_the_columns_of_both(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id, note) VALUES (1, 'old')")
    rig.make(
        "van-2",
        "INSERT INTO orders (id, weight) VALUES (1, 2.5)",
        table="CREATE TABLE orders (id INTEGER PRIMARY KEY NOT NULL, weight REAL)",
    )
    assert rig.sync() == {}
    rows = rig.rows("SELECT __device, note, weight FROM edge.orders ORDER BY 1")
    assert rows == [("van-1", "old", None), ("van-2", None, 2.5)]
    assert rig.differing() == []


def test_a_device_with_another_key_is_left_out(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    rig.make("van-2", table="CREATE TABLE orders (id INTEGER NOT NULL, note TEXT NOT NULL, PRIMARY KEY (note, id))")
    assert rig.sync() == {"van-2": Verdict.NOT_PLANNABLE}
    [(cause,)] = rig.rows("SELECT cause FROM floodmark.members WHERE verdict IS NOT NULL")
    assert cause == "its key is (note, id), and that of other devices (id)."


def test_a_device_may_be_chosen_to_be_read_again_while_a_window_is_on_its_way(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    rig.sync()
    rig.run("van-1", "INSERT INTO orders (id) VALUES (2)")
    opened = rig.open()
    rig.load(opened)
    rig.ledger.forget_mark(PIPELINE, ORDERS, "van-1")
    rig.publish(opened)
    assert rig.rows("SELECT mark FROM floodmark.members") == [(None,)]
    assert rig.sync() == {}
    assert rig.differing() == []


@pytest.mark.parametrize("ending", ["read", "merged"])
def test_a_run_that_dies_between_its_steps_is_finished_by_the_next(rig: FleetRig, ending: str) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1), (2)")
    for _ in range(3):
        rig.run("van-1", "UPDATE orders SET note = 'again'")
        opened = rig.open()
        if ending == "merged":
            rig.load(opened)
        else:
            _read_only(rig, opened)
        rig.run("van-1", "DELETE FROM orders WHERE id = 1", "INSERT INTO orders (id) VALUES (1)")
        rig.run("van-1", "INSERT INTO orders (note) VALUES ('more')", "DELETE FROM orders WHERE id = 2")
        assert rig.sync() == {}
        assert rig.sync() == {}
        assert rig.differing() == []


def _read_only(rig: FleetRig, opened: OpenResult) -> None:
    """The first half of a load: receipts are written, rows are read, nothing is recorded."""
    assert opened.window_id is not None
    plan = rig.ledger.begin_load(opened.window_id).plan
    [table] = plan.tables
    assert table.interval is not None
    assert list(CompactReader(table, rig.fleet, plan.end).read(table.interval))


def test_a_killed_load_that_still_reads_does_not_end_the_next_one(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    rig.sync()
    rig.run("van-1", "INSERT INTO orders (id) VALUES (2)")
    opened = rig.open()
    assert opened.window_id is not None
    plan = rig.ledger.begin_load(opened.window_id).plan
    [late] = plan.tables
    assert late.interval is not None
    rig.load(opened)
    assert list(CompactReader(late, rig.fleet, plan.end).read(late.interval))
    rig.publish(opened)
    rig.run("van-1", "INSERT INTO orders (id) VALUES (3)")
    assert rig.sync() == {}
    assert rig.differing() == []


def test_what_all_consumers_have_is_purged_on_the_device(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1), (2), (3)")
    rig.sync()
    for number in (1, 2, 3):
        rig.run("van-1", f"DELETE FROM orders WHERE id = {number}")
        assert rig.sync() == {}
    with closing(sqlite3.connect(rig.path("van-1"))) as file:
        assert file.execute("SELECT count(*) FROM __sysOCSDeletedRows").fetchone()[0] < 3
    assert rig.differing() == []


def test_nothing_is_written_to_a_device_without_changes(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    rig.sync()

    def contents() -> list[bytes]:
        return [rig.path(f"van-{number}").read_bytes() for number in (1, 2)]

    before = contents()
    rig.run("van-2", "DELETE FROM orders")
    assert rig.sync() == {}
    assert rig.sync() == {}
    assert contents()[0] == before[0]
    assert contents()[1] != before[1]
    assert rig.differing() == []


def test_no_window_is_opened_while_no_device_has_anything_new(rig: FleetRig) -> None:
    for device in ("van-1", "van-2"):
        rig.make(device, "INSERT INTO orders (id) VALUES (1)")
    assert rig.open().window_id is not None
    rig.sync()
    quiet = rig.open()
    assert quiet.window_id is None
    assert "no table has a change" in quiet.reason
    assert quiet.to == rig.ledger.read_tables(PIPELINE)[ORDERS].watermark
    for happen in (
        lambda: rig.run("van-2", "UPDATE orders SET note = 'changed'"),
        lambda: rig.make("van-3"),
        lambda: rig.put_back("van-1", rig.back_up("van-3")),
        lambda: rig.ledger.forget_mark(PIPELINE, ORDERS, "van-1"),
    ):
        happen()
        assert rig.open().window_id is not None
        rig.sync()
    assert rig.open().window_id is None
    rig.path("van-2").rename(rig.folder.parent / "away")
    assert rig.open().window_id is None


def test_shipped_copies_are_read_from_a_read_only_folder(rig: FleetRig, tmp_path: Path) -> None:
    device = tmp_path / "device.db"
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    rig.path("van-1").rename(device)
    rig.is_shipped = True

    def ship() -> None:
        ship_copy(device, rig.path("van-1"), "floodmark")

    ship()
    assert rig.sync() == {}
    assert rig.open().window_id is None
    with closing(sqlite3.connect(device, isolation_level=None)) as file:
        file.execute("UPDATE orders SET note = 'changed'")
    for _ in range(3):
        ship()
    assert rig.sync() == {}
    assert rig.living() == [("van-1", 1, None, "changed")]
    assert rig.differing() == []


def test_many_devices_are_read_in_one_window(rig: FleetRig) -> None:
    devices = [f"van-{number:04}" for number in range(int(os.environ.get("FLOODMARK_DEVICES", "20")))]
    rows = ", ".join(f"({number}, {number}, 'first')" for number in range(100))
    rig.make(devices[0], f"INSERT INTO orders (id, amount, note) VALUES {rows}")
    rig.run(devices[0], "PRAGMA wal_checkpoint(TRUNCATE)")
    # Clones of one file have its name inside, and are devices of their own by their file names.
    for device in devices[1:]:
        shutil.copy(rig.path(devices[0]), rig.path(device))
    assert rig.sync() == {}
    for number, device in enumerate(devices):
        rig.run(device, f"UPDATE orders SET amount = {number} WHERE id < 40", "DELETE FROM orders WHERE id >= 90")
    opened = rig.open()
    began = time.monotonic()
    rig.load(opened)
    loaded = time.monotonic()
    rig.publish(opened)
    _LOG.info("%s devices: load %.1f s, publish %.1f s.", len(devices), loaded - began, time.monotonic() - loaded)
    assert rig.rows("SELECT count(*) FROM edge.orders WHERE NOT __deleted") == [(90 * len(devices),)]
    assert rig.rows("SELECT count(*) FROM edge.orders WHERE __deleted") == [(10 * len(devices),)]
    assert rig.differing() == []
