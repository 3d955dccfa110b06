"""The ledger on a real PostgreSQL: windows, attempts, compare-and-set, and several writers at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from warehouse_shop import DELETE, INSERT, ORDERS, PIPELINE, UPDATE, Row, Shop, changes, first_load, instance

from floodmark.core.definition import NAMING_KEY
from floodmark.core.errors import (
    ConfigError,
    OperatorError,
    WarehouseAdminError,
    WatermarkConflictError,
    WindowBusyError,
)
from floodmark.core.patterns import Listed, ListedTable
from floodmark.core.plan import MemberRead, QuarantinedMessage, TableCounts, WindowState, load_lane, replay_lane
from floodmark.core.position import Interval
from floodmark.core.schema import TableName
from floodmark.core.settings import Deletes, OnFailure, Rule
from floodmark.core.snapshot import DatabaseIdentity, Validity, Verdict
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.ledger.status import PostgresAlertLedger, PostgresStatusLedger
from floodmark.postgres.session import WarehouseConnection
from lsns import lsn
from table_plans import with_settings

NOON = datetime(2026, 5, 1, 12)


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    return Shop(database, ledger)


@contextmanager
def session(shop: Shop) -> Iterator[psycopg.Connection]:
    with psycopg.connect(shop.connection.conninfo(), autocommit=True) as opened:
        yield opened


def test_ledger_is_made_once_by_many_at_the_same_time(database: WarehouseConnection) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: PostgresLedger(database).ensure_schema(), range(8)))
    assert PostgresLedger(database).read_tables("shop") == {}


def test_ledger_of_a_newer_floodmark_is_left_alone(shop: Shop) -> None:
    with session(shop) as opened:
        opened.execute("INSERT INTO floodmark.ledger_version (version) VALUES (99)")
    with pytest.raises(ConfigError, match=r"version 99.*Upgrade Floodmark"):
        shop.ledger.ensure_schema()


@pytest.mark.parametrize("value", [b"\0" * 10, b"\1" * 9, b"\1" * 11, b""])
def test_watermark_is_ten_bytes_and_never_zero(shop: Shop, value: bytes) -> None:
    shop.run(first_load(), 10, [])
    with session(shop) as opened, pytest.raises(psycopg.errors.CheckViolation, match="lsn_is_a_position"):
        opened.execute("UPDATE floodmark.tables SET watermark = %s", [value])


def test_opened_window_is_found_again_as_it_was_planned(shop: Shop) -> None:
    rules = (Rule("r", "Amount > 0", OnFailure.STOP),)
    plan = shop.ledger.open_window(PIPELINE, lsn(10), [first_load(rules=rules)], NOON)
    unfinished = shop.ledger.unfinished_window(PIPELINE)
    assert unfinished is not None
    assert (unfinished.plan, unfinished.state) == (plan, WindowState.PLANNED)
    assert shop.ledger.read_window(plan.window_id) == unfinished
    assert shop.ledger.unfinished_window("other") is None


def test_second_window_of_a_pipeline_is_refused_while_one_is_unfinished(shop: Shop) -> None:
    shop.ledger.open_window(PIPELINE, lsn(10), [first_load()])
    with pytest.raises(WatermarkConflictError, match="another run has an unfinished window"):
        shop.ledger.open_window(PIPELINE, lsn(11), [first_load()])


def test_ledger_of_version_3_is_upgraded_and_keeps_its_windows(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    plan = shop.ledger.open_window(PIPELINE, lsn(20), [changes(10, 20)])
    with session(shop) as opened:
        opened.execute("DROP INDEX floodmark.one_unfinished_window_per_lane")
        opened.execute("ALTER TABLE floodmark.windows DROP COLUMN lane")
        opened.execute(
            "CREATE UNIQUE INDEX one_unfinished_window_per_pipeline ON floodmark.windows (pipeline)"
            " WHERE state <> 'advanced'"
        )
        opened.execute("UPDATE floodmark.ledger_version SET version = 3")
    shop.ledger.ensure_schema()
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].watermark == lsn(10)
    assert [window.plan for window in shop.ledger.list_unfinished(PIPELINE)] == [plan]
    shop.ledger.open_window(PIPELINE, lsn(20), [], lane="load dbo.Other")
    with pytest.raises(WatermarkConflictError, match="unfinished window"):
        shop.ledger.open_window(PIPELINE, lsn(20), [])


def test_ledger_of_version_4_is_upgraded_and_runs_on(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    with session(shop) as opened:
        for table in ("tables", "window_tables"):
            opened.execute(f"ALTER TABLE floodmark.{table} DROP COLUMN read_lsn, DROP COLUMN read_lsn_at")
        opened.execute("ALTER TABLE floodmark.alerts DROP COLUMN outcome")
        opened.execute("UPDATE floodmark.ledger_version SET version = 4")
    shop.ledger.ensure_schema()
    plan = shop.ledger.begin_load(shop.ledger.open_window(PIPELINE, lsn(20), [changes(10, 20)]).window_id).plan
    shop.ledger.record_reads(plan, {ORDERS: 0}, NOON, lsn(20), NOON)
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].watermark == lsn(10)
    assert PostgresAlertLedger(shop.connection).list_open() == []


def test_verdicts_of_a_ledger_of_version_5_get_their_new_name(shop: Shop) -> None:
    validity = Validity(ORDERS, Verdict.NOT_CAPTURED_YET, "the capture job has not read the log yet.")
    shop.ledger.record_verdicts(PIPELINE, [validity])
    with session(shop) as opened:
        opened.execute("UPDATE floodmark.verdicts SET verdict = 'not_harvested_yet'")
        opened.execute("DELETE FROM floodmark.ledger_version WHERE version > 5")
        opened.execute("UPDATE floodmark.ledger_version SET version = 5")
    status = PostgresStatusLedger(shop.connection).read_status(PIPELINE, "shop")
    assert status.tables == {}
    with session(shop) as opened:
        assert opened.execute("SELECT verdict FROM floodmark.verdicts").fetchall() == [("not_captured_yet",)]


@pytest.mark.parametrize(("names", "naming"), [(None, "keep"), ('{"Id": "id"}', "snake_case")])
def test_definition_of_a_table_of_a_ledger_of_version_16_is_its_naming(
    shop: Shop, names: str | None, naming: str
) -> None:
    shop.run(first_load(), 10, [])
    with session(shop) as opened:
        opened.execute("UPDATE floodmark.tables SET column_names = %s", [names])
        opened.execute("ALTER TABLE floodmark.tables DROP COLUMN definition")
        opened.execute("DELETE FROM floodmark.ledger_version WHERE version > 16")
        opened.execute("UPDATE floodmark.ledger_version SET version = 16")
    shop.ledger.ensure_schema()
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].definition == {NAMING_KEY: {"naming": naming}}


def test_ledger_of_version_17_gets_the_receipts_of_forgotten_keys(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    with session(shop) as opened:
        opened.execute("DROP TABLE floodmark.forgotten")
        opened.execute("DELETE FROM floodmark.ledger_version WHERE version > 17")
        opened.execute("INSERT INTO floodmark.ledger_version (version) VALUES (17) ON CONFLICT DO NOTHING")
    shop.ledger.ensure_schema()
    assert shop.ledger.list_forgotten(PIPELINE) == {}


@pytest.mark.parametrize("version", [6, 13])
def test_tombstones_of_an_older_ledger_are_kept_and_still_win(shop: Shop, version: int) -> None:
    shop.run(first_load(Deletes.HARD), 10, [Row(1, INSERT, 10), Row(-1, INSERT, 10)])
    shop.run(changes(10, 20, Deletes.HARD), 20, [Row(1, DELETE, 20)])
    with session(shop) as opened:
        opened.execute("DROP INDEX floodmark.tombstones_by_key_hash")
        if version == 6:
            opened.execute("DROP INDEX floodmark.quarantine_by_key_hash")
            opened.execute("ALTER TABLE floodmark.tombstones ADD PRIMARY KEY (target_schema, target_name, key)")
            opened.execute("CREATE INDEX quarantine_by_key ON floodmark.quarantine (target_schema, target_name, key)")
        else:
            opened.execute(
                "CREATE UNIQUE INDEX one_tombstone_per_key ON floodmark.tombstones"
                " (target_schema, target_name, jsonb_hash_extended(key, 0), jsonb_hash_extended(key, 1))"
            )
        opened.execute("DELETE FROM floodmark.ledger_version WHERE version > %s", [version])
        opened.execute("UPDATE floodmark.ledger_version SET version = %s", [version])
    shop.ledger.ensure_schema()
    shop.set_watermark(10)
    assert shop.run(changes(10, 20, Deletes.HARD), 20, [Row(1, UPDATE, 15)]).inserted_rows == 0
    shop.set_watermark(20)
    shop.run(changes(20, 30, Deletes.HARD), 30, [Row(1, DELETE, 30), Row(-1, DELETE, 25)])
    with session(shop) as opened:
        found = opened.execute("SELECT key, lsn FROM floodmark.tombstones ORDER BY key").fetchall()
        assert found == [([-1], lsn(25).value), ([1], lsn(30).value)]
        indexes = "SELECT indexname FROM pg_indexes WHERE tablename IN ('tombstones', 'quarantine') ORDER BY 1"
        assert opened.execute(indexes).fetchall() == [
            ("open_quarantine",),
            ("quarantine_by_key_hash",),
            ("quarantine_pkey",),
            ("tombstones_by_key_hash",),
            ("tombstones_by_lsn",),
        ]


def test_messages_in_quarantine_of_a_ledger_of_version_12_stay_and_have_no_topic(shop: Shop) -> None:
    def quarantine(*messages: QuarantinedMessage) -> None:
        shop.ledger.record_reads(plan, {}, members={ORDERS: [MemberRead("0", None, quarantined=messages)]})

    plan = shop.begin(replace(first_load(), feed=replace(instance(), has_members=True)), 10)
    quarantine(QuarantinedMessage("5", "no JSON", b"old"))
    with session(shop) as opened:
        # The key goes with its column.
        opened.execute("ALTER TABLE floodmark.quarantined_messages DROP COLUMN topic")
        opened.execute("ALTER TABLE floodmark.quarantined_messages ADD PRIMARY KEY (pipeline, member, place)")
        opened.execute("DELETE FROM floodmark.ledger_version WHERE version > 12")
        opened.execute("UPDATE floodmark.ledger_version SET version = 12")
    shop.ledger.ensure_schema()
    new = QuarantinedMessage("5", "no JSON", b"new", "hub")
    quarantine(new)
    quarantine(new)
    assert shop.rows("SELECT topic, member, place, body FROM floodmark.quarantined_messages ORDER BY topic") == [
        {"topic": "", "member": "0", "place": "5", "body": b"old"},
        {"topic": "hub", "member": "0", "place": "5", "body": b"new"},
    ]


def test_tables_of_a_ledger_of_version_13_stay_and_know_no_side_table(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    with session(shop) as opened:
        opened.execute("ALTER TABLE floodmark.tables DROP COLUMN instance_store_id")
        opened.execute("DELETE FROM floodmark.ledger_version WHERE version > 13")
        opened.execute("UPDATE floodmark.ledger_version SET version = 13")
    shop.ledger.ensure_schema()
    identity = shop.ledger.read_tables(PIPELINE)[ORDERS].identity
    assert (identity, identity and identity.store_id) == (instance().identity, 0)
    feed = replace(instance(), identity=replace(instance().identity, store_id=7))
    shop.run(replace(changes(10, 20), feed=feed), 20, [])
    identity = shop.ledger.read_tables(PIPELINE)[ORDERS].identity
    assert identity is not None
    assert identity.store_id == 7


def test_ledger_of_version_15_gets_the_tables_of_patterns(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    with session(shop) as opened:
        opened.execute("DROP TABLE floodmark.pattern_tables")
        opened.execute("DELETE FROM floodmark.ledger_version WHERE version > 15")
        opened.execute("INSERT INTO floodmark.ledger_version VALUES (15) ON CONFLICT DO NOTHING")
    # Status and the like may be the first to ask.
    assert shop.ledger.list_pattern_tables(PIPELINE) == []
    shop.ledger.ensure_schema()
    listed = [ListedTable(ORDERS, "dbo.*", Listed.TAKEN), ListedTable(TableName("dbo", "Log"), "dbo.*", Listed.NEW)]
    for each in (listed, listed[:1]):
        shop.ledger.record_pattern_tables(PIPELINE, each)
        assert set(shop.ledger.list_pattern_tables(PIPELINE)) == set(each)
    assert shop.ledger.list_pattern_tables("other") == []


def test_roles_of_a_ledger_of_version_13_need_no_other_rights_after_the_upgrade(shop: Shop) -> None:
    """The owner of the ledger upgrades it. Rights on all tables of a schema are rights on those of that moment."""
    with session(shop) as opened:
        opened.execute("DROP VIEW floodmark.target_marks")
        columns = ("target_mark", "target_columns", "target_window_id", "instance_store_id")
        opened.execute(f"ALTER TABLE floodmark.tables {', '.join(f'DROP COLUMN {name}' for name in columns)}")
        opened.execute("UPDATE floodmark.ledger_version SET version = 13")
        for role in ("loader", "reader"):
            opened.execute(f"DROP ROLE IF EXISTS {role}")
            opened.execute(f"CREATE ROLE {role} LOGIN")
        opened.execute("CREATE SCHEMA shop AUTHORIZATION loader")
        opened.execute("GRANT ALL ON SCHEMA floodmark_staging TO loader")
        opened.execute("GRANT USAGE ON SCHEMA floodmark TO loader, reader")
        opened.execute("GRANT ALL ON ALL TABLES IN SCHEMA floodmark TO loader")
        opened.execute("GRANT SELECT ON ALL TABLES IN SCHEMA floodmark TO reader")
    shop.ledger.ensure_schema()
    loader, reader = (replace(shop.connection, user=role) for role in ("loader", "reader"))
    loading = Shop(loader, PostgresLedger(loader))
    loading.run(first_load(), 10, [Row(1, INSERT, 10)])
    loading.run(changes(10, 20), 20, [Row(2, INSERT, 15)])
    assert PostgresLedger(reader).read_tables(PIPELINE)[ORDERS].watermark == lsn(20)
    # The files of the target were written again: the reader may not read its rows, and does without.
    with session(shop) as opened:
        opened.execute("CLUSTER shop.orders USING orders_pkey")
    assert PostgresLedger(reader).read_tables(PIPELINE)[ORDERS].target_fault == ""
    with session(shop) as opened:
        opened.execute("REVOKE SELECT ON floodmark.tables FROM reader")
    with pytest.raises(WarehouseAdminError, match="permission denied"):
        PostgresLedger(reader).read_tables(PIPELINE)


FOLLOWED = DatabaseIdentity("SQL1", "Shop", "6f9619ff-8b86-d011-b42d-00c04fc964ff", None)


def test_ledger_of_version_7_follows_no_database_until_one_is_recorded(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    with session(shop) as opened:
        opened.execute("DROP TABLE floodmark.followed_databases")
        opened.execute("DELETE FROM floodmark.ledger_version WHERE version > 7")
        opened.execute("UPDATE floodmark.ledger_version SET version = 7")
    shop.ledger.ensure_schema()
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].database is None
    shop.ledger.record_database(PIPELINE, None, FOLLOWED)
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].database == FOLLOWED


def test_recorded_database_is_replaced_only_where_it_is_known_or_nothing_was_read_from_it(shop: Shop) -> None:
    moved = replace(FOLLOWED, server="SQL2", group_id="6f9619ff-8b86-d011-b42d-00c04fc96400")
    other = replace(FOLLOWED, guid=None, database="Other")
    shop.ledger.record_database(PIPELINE, None, other)
    shop.ledger.record_database(PIPELINE, None, FOLLOWED)
    assert shop.ledger.read_database(PIPELINE) == FOLLOWED
    assert shop.ledger.read_database("another") is None
    shop.run(first_load(), 10, [])
    for known in (None, other):
        shop.ledger.record_database(PIPELINE, known, other)
        assert shop.ledger.read_database(PIPELINE) == FOLLOWED
    shop.ledger.record_database(PIPELINE, FOLLOWED, moved)
    assert shop.ledger.read_database(PIPELINE) == moved
    shop.ledger.confirm_database(PIPELINE, other, "operator")
    assert shop.ledger.read_database(PIPELINE) == other
    assert shop.rows("SELECT confirmed_by FROM floodmark.followed_databases") == [{"confirmed_by": "operator"}]


def test_lanes_of_a_pipeline_have_an_unfinished_window_each(shop: Shop) -> None:
    other = with_settings(first_load(), source=TableName("dbo", "Other"), target=TableName("shop", "other"))
    main = shop.ledger.open_window(PIPELINE, lsn(10), [first_load()])
    lane = load_lane(other.source)
    load = shop.ledger.open_window(PIPELINE, lsn(10), [other], lane=lane)
    assert load.lane == lane
    found = shop.ledger.unfinished_window(PIPELINE), shop.ledger.unfinished_window(PIPELINE, lane)
    assert [window.plan for window in found if window] == [main, load]
    assert [window.plan for window in shop.ledger.list_unfinished(PIPELINE)] == [main, load]
    with pytest.raises(WatermarkConflictError, match="unfinished window"):
        shop.ledger.open_window(PIPELINE, lsn(11), [other], lane=lane)


def test_table_that_is_reloaded_is_refused_to_windows_and_replays(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    load = replace(first_load(), watermark=lsn(10))
    window = shop.ledger.open_window(PIPELINE, lsn(20), [load], lane=load_lane(ORDERS)).window_id
    held = f"window {window} on lane load dbo.Orders is unfinished and holds the table"
    with pytest.raises(WindowBusyError, match=held):
        shop.ledger.open_window(PIPELINE, lsn(20), [changes(10, 20)])
    with pytest.raises(WindowBusyError, match=held):
        shop.ledger.advance_quiet(PIPELINE, lsn(20), {ORDERS: lsn(10)})
    interval = Interval(lsn(5), lsn(10))
    with pytest.raises(WatermarkConflictError, match=f"window {window} is reloading it"):
        shop.ledger.open_window(PIPELINE, lsn(10), [changes(10, 20)], lane=replay_lane(interval))


def test_of_many_runs_that_open_a_window_at_once_one_wins(shop: Shop) -> None:
    def attempt(_: int) -> bool:
        try:
            PostgresLedger(shop.connection).open_window(PIPELINE, lsn(10), [first_load()])
        except WatermarkConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 1


def test_plan_made_on_a_watermark_that_has_moved_is_refused(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    shop.run(changes(10, 20), 20, [])
    with pytest.raises(WatermarkConflictError, match=rf"dbo\.Orders: its watermark is {lsn(20)}, not {lsn(10)}"):
        shop.ledger.open_window(PIPELINE, lsn(30), [changes(10, 30)])
    assert shop.ledger.unfinished_window(PIPELINE) is None


def test_table_that_was_loaded_cannot_change_its_target(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    moved = with_settings(changes(10, 20), target=TableName("shop", "elsewhere"))
    with pytest.raises(ConfigError, match=r"its target was shop\.orders and is now shop\.elsewhere"):
        shop.ledger.open_window(PIPELINE, lsn(20), [moved])


def test_target_of_another_table_is_refused(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    other = with_settings(first_load(), source=TableName("dbo", "Other"))
    words = r"dbo\.Other: another table already uses the target shop\.orders: dbo\.Orders of "
    with pytest.raises(ConfigError, match=words + r"pipeline shop\. Choose another target\.$"):
        shop.ledger.open_window("second", lsn(20), [other])
    with pytest.raises(ConfigError, match=words + r"the same pipeline\. Choose another target\.$"):
        shop.ledger.open_window(PIPELINE, lsn(20), [other])


def test_target_of_a_renamed_pipeline_is_refused_with_the_way_back(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    words = r"shop\.orders: dbo\.Orders of pipeline shop\. .* former name of this pipeline: floodmark rename shop "
    with pytest.raises(ConfigError, match=words):
        shop.ledger.open_window("renamed", lsn(20), [first_load()])


def test_first_load_publishes_watermark_and_identity(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].watermark is None
    shop.merge(plan)
    shop.finish(plan)
    state = shop.ledger.read_tables(PIPELINE)[ORDERS]
    assert (state.watermark, state.identity, state.consistent) == (lsn(10), instance().identity, False)


def test_table_is_consistent_after_a_window_that_ends_after_the_read_of_the_first_load(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    shop.ledger.record_reads(plan, {ORDERS: 0}, NOON)
    shop.merge(plan)
    shop.finish(plan)
    for to, minutes, consistent in ((20, -1, False), (30, 1, True), (40, 2, True)):
        opened = shop.ledger.open_window(PIPELINE, lsn(to), [changes(to - 10, to)], NOON + timedelta(minutes=minutes))
        current = shop.ledger.begin_load(opened.window_id).plan
        shop.warehouse.prepare_window(current)
        shop.merge(current)
        shop.finish(current)
        assert shop.ledger.read_tables(PIPELINE)[ORDERS].consistent is consistent


@pytest.mark.parametrize("stage", ["planned", "merged"])
def test_watermark_does_not_move_before_the_checks_have_passed(shop: Shop, stage: str) -> None:
    plan = shop.begin(first_load(), 10)
    if stage == "merged":
        shop.merge(plan)
    with pytest.raises(OperatorError, match=f"is {stage}, not checked"):
        shop.ledger.advance(plan.window_id)
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].watermark is None


def test_window_that_is_not_merged_cannot_be_marked_checked(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    with pytest.raises(OperatorError, match="not been merged"):
        shop.ledger.mark_checked(plan.window_id)


def test_advance_by_many_at_once_moves_the_watermark_once(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    shop.stage(plan, [Row(1, INSERT, 10)])
    shop.merge(plan)
    shop.ledger.mark_checked(plan.window_id)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: PostgresLedger(shop.connection).advance(plan.window_id), range(4)))
    assert results == [{ORDERS: TableCounts(staged_rows=1, inserted_rows=1)}] * 4
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].watermark == lsn(10)


def test_advance_refuses_a_watermark_that_another_caller_moved(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    plan = shop.begin(changes(10, 20), 20)
    shop.merge(plan)
    shop.ledger.mark_checked(plan.window_id)
    shop.set_watermark(15)
    with pytest.raises(WatermarkConflictError, match=rf"its watermark is {lsn(15)}; window 2 was planned on {lsn(10)}"):
        shop.ledger.advance(plan.window_id)
    assert shop.ledger.read_window(plan.window_id).state is WindowState.CHECKED


def test_quiet_stretch_moves_watermarks_without_a_window(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    shop.ledger.advance_quiet(PIPELINE, lsn(20), {ORDERS: lsn(10)}, NOON)
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].watermark == lsn(20)
    with pytest.raises(WatermarkConflictError, match="no longer"):
        shop.ledger.advance_quiet(PIPELINE, lsn(30), {ORDERS: lsn(10)})


@pytest.mark.parametrize("tables", [1, 50])
def test_run_without_changes_takes_the_same_statements_for_any_number_of_tables(
    shop: Shop, tables: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [TableName("dbo", f"T{number:02d}") for number in range(tables)]
    loads = [with_settings(first_load(), source=name, target=TableName("t", name.name)) for name in names]
    window = shop.ledger.open_window(PIPELINE, lsn(10), loads)
    shop.ledger.leave_out(window.window_id, names)
    shop.set_watermark(10)
    sent: list[object] = []
    execute = psycopg.Cursor.execute

    def noted(cursor: psycopg.Cursor[Any], statement: Any, *rest: Any, **named: Any) -> psycopg.Cursor[Any]:
        sent.append(statement)
        return execute(cursor, statement, *rest, **named)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    validities = [Validity(name, Verdict.READY, "changes.", "", lsn(10), None, lsn(20)) for name in names]
    shop.ledger.record_verdicts(PIPELINE, validities)
    identities = {load.source: load.feed.identity for load in loads}
    shop.ledger.advance_quiet(PIPELINE, lsn(20), dict.fromkeys(names, lsn(10)), NOON, identities)
    monkeypatch.undo()
    assert {state.watermark for state in shop.ledger.read_tables(PIPELINE).values()} == {lsn(20)}
    with session(shop) as opened:
        (recorded,) = opened.execute("SELECT count(*) FROM floodmark.verdicts WHERE verdict = 'ready'").fetchone() or ()
    assert recorded == tables
    assert len([each for each in sent if "floodmark.tables" in str(each) or "floodmark.verdicts" in str(each)]) == 3
    assert len(sent) < 12


def test_quiet_stretch_names_the_table_that_another_run_has_moved(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    other = TableName("dbo", "Zebra")
    with pytest.raises(WatermarkConflictError, match=rf"dbo\.Zebra.*no longer {lsn(10)}"):
        shop.ledger.advance_quiet(PIPELINE, lsn(20), {ORDERS: lsn(10), other: lsn(10)}, NOON)
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].watermark == lsn(10)


def test_quiet_stretch_is_refused_while_a_window_is_unfinished(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    shop.begin(changes(10, 20), 20)
    with pytest.raises(WatermarkConflictError, match="window 2 is not finished"):
        shop.ledger.advance_quiet(PIPELINE, lsn(20), {ORDERS: lsn(10)})
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].watermark == lsn(10)


def test_unfinished_window_takes_the_rules_of_today(shop: Shop) -> None:
    plan = shop.ledger.open_window(PIPELINE, lsn(10), [first_load()])
    rules = (Rule("r", "Amount > 0", OnFailure.WARN),)
    changed = shop.ledger.replace_rules(plan.window_id, {ORDERS: rules})
    assert changed.tables[0].settings.rules == rules
    assert shop.ledger.read_window(plan.window_id).plan == changed


def test_read_of_a_merged_window_is_not_recorded(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    shop.merge(plan)
    with pytest.raises(WatermarkConflictError, match="another load has already merged this window"):
        shop.ledger.record_reads(plan, {ORDERS: 5})


def test_read_of_an_overtaken_load_is_not_recorded(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    later = shop.ledger.begin_load(plan.window_id).plan
    shop.ledger.record_reads(later, {ORDERS: 0}, NOON)
    with pytest.raises(WatermarkConflictError, match="attempt 1, and attempt 2 has begun"):
        shop.ledger.record_reads(plan, {ORDERS: 0}, NOON - timedelta(hours=1))


def test_load_of_a_merged_window_begins_no_attempt(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    shop.merge(plan)
    opened = shop.ledger.begin_load(plan.window_id)
    assert (opened.plan.attempt, opened.state) == (plan.attempt, WindowState.MERGED)


def test_load_that_is_at_work_keeps_others_out_and_nobody_once_it_is_gone(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    other = PostgresLedger(shop.connection)
    with shop.ledger.hold_load(plan.window_id):
        with (
            pytest.raises(WindowBusyError, match=r"another load of it is running \(from .*, since 20"),
            other.hold_load(1),
        ):
            pytest.fail("two loads at once")
        with other.hold_load(plan.window_id + 1):
            pass
    with pytest.raises(RuntimeError, match="killed"), shop.ledger.hold_load(plan.window_id):
        raise RuntimeError("killed")
    with other.hold_load(plan.window_id):
        pass


def test_hold_that_is_lost_does_not_end_the_load(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    with shop.ledger.hold_load(plan.window_id), session(shop) as opened:
        opened.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")


def test_unknown_window_is_an_error_that_names_it(shop: Shop) -> None:
    with pytest.raises(OperatorError, match="window 77: the ledger has no such window"):
        shop.ledger.read_window(77)


def test_verdict_keeps_the_time_since_when_it_is_given(shop: Shop) -> None:
    def record(verdict: Verdict) -> dict[str, object]:
        shop.ledger.record_verdicts(PIPELINE, [Validity(ORDERS, verdict, "cause", "hint", newest=lsn(3))])
        return shop.rows("SELECT verdict, since, seen_at FROM floodmark.verdicts")[0]

    first, second, third = record(Verdict.READY), record(Verdict.READY), record(Verdict.EXPIRED)
    assert first["since"] == second["since"] != second["seen_at"]
    assert (third["verdict"], third["since"]) == ("expired", third["seen_at"])
