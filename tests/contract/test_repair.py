"""Gaps on a real ledger and warehouse: a table leaves the windows, is reloaded and swept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from repair_runner import REPAIR, Runner, small_runner
from small_source import NOON, SmallSource, settings
from warehouse_shop import INSERT, ORDERS, PIPELINE, UPDATE, Row, changes, first_load, instance

from floodmark.core.errors import (
    InstanceReplacedError,
    NotCapturedYetError,
    OperatorError,
    SourceRewoundError,
    WindowExpiredError,
)
from floodmark.core.plan import WindowState, load_lane
from floodmark.core.position import NoPosition
from floodmark.core.recovery import repair_key
from floodmark.core.settings import Deletes, OnFailure, Rule
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.open_window import open_window
from lsns import lsn


@pytest.fixture
def runner(database: WarehouseConnection, ledger: PostgresLedger) -> Runner:
    return small_runner(database, ledger)


@contextmanager
def replaced(source: SmallSource, **shown: Any) -> Iterator[None]:
    """The capture instance is another one of the same name."""
    made = instance()
    identity = replace(made.identity, object_id=43)
    source.seen = {"feed": replace(made, identity=identity, start=lsn(source.position)), **shown}
    yield
    source.seen = {}


@pytest.mark.parametrize("deletes", list(Deletes))
def test_expired_table_is_reloaded_and_rows_that_are_gone_are_swept(runner: Runner, deletes: Deletes) -> None:
    chosen = REPAIR | {"deletes": deletes}
    runner.run(**chosen)
    runner.expire()
    old = runner.shop.target()
    assert runner.run(**chosen).window_id is None
    assert runner.verdict()[0] == "repairing"
    assert runner.shop.target() == old
    runner.source.write(3, 33)
    assert runner.load(**chosen).window_id == 2
    runner.run(**chosen)
    assert runner.equal()
    assert runner.watermark() == runner.source.position
    (row,) = runner.shop.rows("SELECT swept_rows, deleted_rows FROM floodmark.window_tables WHERE window_id = 2")
    assert row == {"swept_rows": 1, "deleted_rows": 0}
    marked = runner.shop.rows('SELECT __op FROM shop.orders WHERE "Id" = 2 AND __deleted')
    tombstones = runner.shop.rows("SELECT key FROM floodmark.tombstones")
    assert (marked, tombstones) == (([{"__op": 1}], []) if deletes is Deletes.SOFT else ([], [{"key": [2]}]))


@pytest.mark.parametrize("deletes", list(Deletes))
def test_rows_whose_keys_differ_in_their_sign_alone_are_swept(runner: Runner, deletes: Deletes) -> None:
    for key in (-1, -2):
        runner.source.write(key, key)
    runner.run(deletes=deletes)
    for key in (-1, 1, -2, 2):
        runner.source.write(key, None)
    runner.source.oldest = runner.source.position
    runner.source.idle()
    runner.reload(deletes=deletes)
    runner.run(deletes=deletes)
    assert runner.equal()


def test_load_that_an_older_ledger_could_not_finish_is_finished_after_its_upgrade(runner: Runner) -> None:
    runner.source.write(-1, -1)
    runner.run(deletes=Deletes.HARD)
    for key in (-1, 1):
        runner.source.write(key, None)
    runner.planner(deletes=Deletes.HARD).open_reload(ORDERS)
    with psycopg.connect(runner.shop.connection.conninfo()) as session:
        session.execute(
            "CREATE UNIQUE INDEX one_tombstone_per_key ON floodmark.tombstones"
            " (target_schema, target_name, jsonb_hash_extended(key, 0), jsonb_hash_extended(key, 1))"
        )
        session.execute("UPDATE floodmark.ledger_version SET version = 13")
    runner.run(deletes=Deletes.HARD)
    assert runner.verdict()[0] == "repairing"
    runner.reload(deletes=Deletes.HARD)
    runner.run(deletes=Deletes.HARD)
    assert runner.verdict()[0] == "caught_up"
    assert runner.equal()


def test_gap_is_kept_with_its_lsns_and_closed_by_the_load(runner: Runner) -> None:
    runner.run(**REPAIR)
    before = runner.source.position
    runner.expire()
    runner.run(**REPAIR)
    gap = "SELECT verdict, after_lsn, to_lsn, window_id, repaired_at IS NULL AS is_open FROM floodmark.gaps"
    lost = {"verdict": "expired", "after_lsn": lsn(before).value, "to_lsn": lsn(runner.source.oldest).value}
    assert runner.shop.rows(gap) == [lost | {"window_id": None, "is_open": True}]
    runner.load(**REPAIR)
    assert runner.shop.rows(gap) == [lost | {"window_id": 2, "is_open": False}]


def test_repair_that_ends_while_a_run_reads_a_snapshot_leaves_no_open_gap(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.run(**REPAIR)
    runner.expire()
    runner.run(**REPAIR)  # opens the load
    read_snapshot, loaded = runner.source.read_snapshot, list[bool]()

    def read_slowly(*arguments: Any, **named: Any) -> Any:
        seen = read_snapshot(*arguments, **named)
        if not loaded:
            loaded.append(True)
            runner.load(**REPAIR)
        return seen

    monkeypatch.setattr(runner.source, "read_snapshot", read_slowly)
    runner.run(**REPAIR)
    assert runner.shop.rows("SELECT * FROM floodmark.gaps WHERE repaired_at IS NULL") == []
    assert runner.reported.open == {}


def test_repair_whose_beginning_was_not_reported_is_reported_by_the_next_run(runner: Runner) -> None:
    runner.run(**REPAIR)
    runner.expire()
    runner.run(**REPAIR)
    runner.reported.open.clear()  # as after a death between the opening of the window and the alert
    runner.run(**REPAIR)
    (alert,) = runner.reported.open.values()
    assert alert.event_key == repair_key(PIPELINE, ORDERS)
    assert "expired" in alert.what
    runner.load(**REPAIR)
    assert (runner.reported.open, runner.reported.ended) == ({}, [repair_key(PIPELINE, ORDERS)])


def test_repair_is_reported_when_it_begins_and_when_it_is_done(runner: Runner) -> None:
    runner.run(**REPAIR)
    runner.expire()
    for _ in range(2):
        runner.run(**REPAIR)
    (alert,) = runner.reported.open.values()
    assert (alert.kind, alert.subject, alert.table) == ("repair", PIPELINE, ORDERS)
    assert "expired: changes after the watermark" in alert.what
    assert f"floodmark reload {PIPELINE} dbo.Orders" in alert.do
    runner.load(**REPAIR)
    assert (runner.reported.open, runner.reported.ended) == ({}, [repair_key(PIPELINE, ORDERS)])


def test_without_the_policy_a_gap_fails_the_run_and_a_reload_mends_it(runner: Runner) -> None:
    runner.run()
    runner.expire()
    with pytest.raises(WindowExpiredError):
        runner.run()
    assert runner.load().window_id is None
    runner.reload()
    runner.run()
    assert runner.equal()
    assert [row["verdict"] for row in runner.shop.rows("SELECT verdict FROM floodmark.gaps")] == ["expired"]


def test_window_whose_changes_expire_before_they_are_read_is_finished_without_the_table(runner: Runner) -> None:
    runner.run(**REPAIR)
    runner.source.write(1, 11)
    planned = open_window(settings(**REPAIR), runner.source, runner.shop.ledger)
    runner.expire()
    assert runner.run(**REPAIR).window_id is None
    with pytest.raises(OperatorError, match="no such window"):
        runner.shop.ledger.read_window(planned.window_id or 0)
    runner.load(**REPAIR)
    assert runner.equal()


def test_replaced_instance_is_repaired_once_the_new_one_is_captured(runner: Runner) -> None:
    runner.run(**REPAIR)
    runner.source.write(1, 11)
    with replaced(runner.source, oldest=NoPosition.NULL):
        runner.run(**REPAIR)
        assert runner.load(**REPAIR).window_id is None
        assert "The repair waits: the capture job has not processed" in runner.verdict()[1]
        with pytest.raises(NotCapturedYetError):
            runner.reload(**REPAIR)
    with replaced(runner.source):
        runner.run(**REPAIR)
        runner.load(**REPAIR)
        identity = runner.shop.ledger.read_tables(PIPELINE)[ORDERS].identity
        assert identity is not None
        assert identity.object_id == 43
        assert runner.equal()
    with pytest.raises(InstanceReplacedError):
        runner.run()


@pytest.mark.parametrize("deletes", list(Deletes))
def test_rewound_source_wins_over_what_the_target_has_of_the_lost_time(runner: Runner, deletes: Deletes) -> None:
    chosen = REPAIR | {"deletes": deletes}
    runner.run(**chosen)
    point = runner.source.position
    runner.source.write(1, 100)
    runner.source.write(2, None)
    runner.source.write(3, None)
    runner.source.write(7, 70)
    runner.source.write(8, 80)
    runner.run(**chosen)
    for _ in range(20):
        runner.source.idle()
    runner.source.write(4, 400)
    runner.source.write(5, None)
    runner.source.write(8, None)
    runner.run(**chosen)
    assert runner.equal()
    lost_to = runner.watermark()
    runner.source.restore(point)
    runner.source.write(2, None)
    runner.run(**chosen)
    runner.load(**chosen)
    assert runner.equal()
    assert runner.watermark() == runner.source.position < lost_to
    (gap,) = runner.shop.rows("SELECT verdict, after_lsn, to_lsn FROM floodmark.gaps")
    assert gap == {"verdict": "ahead_of_source", "after_lsn": lsn(point + 1).value, "to_lsn": lsn(lost_to).value}
    # All of it far below what the target had: every row must take it, living, dead and never seen.
    for key, amount in ((1, 12), (2, 22), (3, None), (4, 42), (5, 52), (7, 72), (8, 82)):
        runner.source.write(key, amount)
    runner.run(**chosen)
    assert runner.equal()
    highest = runner.shop.rows("SELECT max(__lsn) AS lsn FROM shop.orders")[0]["lsn"]
    assert highest <= lsn(runner.source.position).value


def test_rewound_source_without_the_policy_stops_the_run(runner: Runner) -> None:
    runner.run()
    runner.source.restore(runner.source.position - 2)
    with pytest.raises(SourceRewoundError, match=r"dbo\.Orders: ahead_of_source"):
        runner.run()


def test_repair_whose_own_changes_expire_begins_again(runner: Runner) -> None:
    runner.run(**REPAIR)
    runner.expire()
    runner.run(**REPAIR)
    first = runner.planner(**REPAIR).open_pending().window_id
    runner.source.write(2, 22)
    runner.expire()
    second = runner.load(**REPAIR).window_id
    assert first is not None
    assert second is not None
    assert second > first
    assert runner.equal()
    assert len(runner.shop.rows("SELECT FROM floodmark.gaps")) == 1


def test_row_that_a_rule_keeps_out_of_the_load_is_not_swept(runner: Runner) -> None:
    chosen = {"rules": (Rule("small", "Amount < 1000", OnFailure.QUARANTINE),)}
    runner.run(**chosen)
    runner.source.write(1, 5000)
    runner.source.write(2, None)
    runner.reload(**chosen)
    assert {key: int(row[0]) for key, row in runner.shop.target().items()} == {1: 10, 3: 30, 4: 40, 5: 50}


def test_table_becomes_consistent_again_after_a_window_that_ends_after_the_load(runner: Runner) -> None:
    runner.run(**REPAIR)
    runner.expire()
    runner.run(**REPAIR)
    runner.load(**REPAIR)
    assert not runner.shop.ledger.read_tables(PIPELINE)[ORDERS].consistent
    runner.source.write(1, 1)
    runner.source.write(1, 2)
    runner.run(**REPAIR)
    assert runner.shop.ledger.read_tables(PIPELINE)[ORDERS].consistent


def test_table_that_was_read_after_the_clock_was_set_back_becomes_consistent_after_that_much_more(
    runner: Runner,
) -> None:
    runner.source.clock_back_seconds = 2.0
    runner.run()
    runner.source.clock_back_seconds = 0.0
    for key, consistent in ((1, False), (2, False), (3, True)):
        runner.source.write(key, 0)
        runner.run()
        assert runner.shop.ledger.read_tables(PIPELINE)[ORDERS].consistent is consistent


@pytest.mark.parametrize("where", ["", "Id > 5"])
def test_source_that_is_restored_to_before_what_a_load_has_read_is_noticed_until_the_table_is_consistent(
    runner: Runner, where: str
) -> None:
    runner.run()
    runner.source.write(6, 60)
    runner.run()
    opened = runner.planner().open_reload(ORDERS, where)
    point = runner.source.position
    runner.source.write(7, 70)  # after L0, and read all the same
    runner.finish(opened)
    runner.source.restore(point)
    runner.source.write(1, 11)
    runner.source.write(2, 22)
    with pytest.raises(SourceRewoundError, match="restored"):
        runner.run()
    runner.reload()
    runner.run()
    assert runner.equal()


def test_source_that_is_restored_to_after_what_a_consistent_table_has_read_goes_on(runner: Runner) -> None:
    runner.run()
    runner.source.write(6, 60)
    runner.run()
    runner.source.write(7, 70)
    point = runner.source.position
    runner.source.write(8, 80)
    runner.source.restore(point)
    runner.source.write(1, 11)
    runner.run()
    assert runner.equal()


def test_killed_repair_goes_on_with_the_chunks_that_are_missing(runner: Runner) -> None:
    runner.run(**REPAIR)
    runner.expire()
    runner.run(**REPAIR)
    plan = runner.shop.ledger.begin_load(2).plan
    runner.shop.warehouse.prepare_window(plan)
    chunks = runner.stager.read_chunk_bounds(plan, 0)
    assert len(chunks) == 2
    before = runner.stager.chunks_read
    runner.load(**REPAIR)
    assert runner.stager.chunks_read - before == 3
    assert runner.shop.ledger.read_window(2).state is WindowState.ADVANCED


def test_rows_above_the_load_are_lowered_even_where_they_stay(runner: Runner) -> None:
    """A row of the lost time that is in quarantine now must take what the source does from now on."""
    shop, rules = runner.shop, (Rule("small", "Amount < 1000", OnFailure.QUARANTINE),)
    shop.run(first_load(rules=rules), 10, [Row(1, INSERT, 10, 1)])
    shop.run(changes(10, 90, rules=rules), 90, [Row(1, UPDATE, 80, 2)])
    reload = replace(first_load(rules=rules), watermark=lsn(90), is_reload=True)
    opened = shop.ledger.open_window(PIPELINE, lsn(20), [reload], NOON, load_lane(ORDERS))
    plan = shop.ledger.begin_load(opened.window_id).plan
    shop.warehouse.prepare_window(plan)
    shop.stage(plan, [Row(1, INSERT, 20, 5000)])
    counts = shop.merge(plan)
    assert (counts.quarantined_rows, counts.swept_rows) == (1, 0)
    shop.finish(plan)
    shop.run(changes(20, 30, rules=rules), 30, [Row(1, UPDATE, 25, 3)])
    assert shop.target()[1][0] == 3
    with psycopg.connect(shop.connection.conninfo()) as session:
        assert session.execute("SELECT count(*) FROM floodmark.gaps").fetchone() == (0,)
