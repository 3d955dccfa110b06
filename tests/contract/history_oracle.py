"""The conditions at the end of a history: of rows, quarantine and windows, also after a replay and a release."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from history_source import BAD, TARGETS, HistoryTable, Key, State
from random_history import RandomHistory, row_key
from warehouse_shop import DELETE, INSERT, PIPELINE, UPDATE

from floodmark.core.errors import WindowExpiredError
from floodmark.core.plan import MAIN_LANE, is_load_lane
from floodmark.core.position import Interval, Lsn
from floodmark.core.schema import TableName, keep_column
from floodmark.core.settings import Deletes
from floodmark.postgres.ledger.schema import opened_window
from lsns import lsn, number_of

_LEFT_OUT = "left out by the change"


def check_end(history: RandomHistory) -> None:
    """Raise AssertionError for a row that is lost, doubled, or neither in the target nor in quarantine."""
    check_windows(history)
    check_reads(history)
    check_tables(history)
    replay_older_half(history)
    check_tables(history)
    release_all(history)
    check_tables(history, is_released=True)


def check_tables(history: RandomHistory, *, is_released: bool = False) -> None:
    for name, table in history.source.tables.items():
        check_rows(history, name, table, is_released=is_released)
        check_deleted(history, name, table)


def check_windows(history: RandomHistory) -> None:
    """Every window is published or given up, and nothing is left in staging."""
    states = history.rows("SELECT window_id, state FROM floodmark.windows WHERE state <> 'advanced'")
    assert states == [], f"unfinished windows: {states}"
    assert set(history.merged.values()) <= {1}, "a window was merged twice"
    verdicts = history.rows(
        "SELECT source_name, verdict FROM floodmark.verdicts WHERE verdict NOT IN ('ready', 'caught_up')"
    )
    assert history.ledger.list_stopped(PIPELINE) == [], f"stopped: {verdicts}"
    history.warehouse.drop_staging(0)  # as the next window would do with what given up windows have left
    staged = history.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'floodmark_staging'")
    assert staged == [], f"left in staging: {staged}"


def check_reads(history: RandomHistory) -> None:
    """Each change was read by one window that was published, or jumped over by a load of the whole table."""
    if history.happened["restore"] or history.happened["windows forgotten"]:
        return
    counts = {
        (row["window_id"], row["source_name"]): row["read_rows"]
        for row in history.rows("SELECT * FROM floodmark.window_tables")
    }
    windows = history.rows("SELECT * FROM floodmark.windows ORDER BY window_id")
    plans = [plan for plan in (opened_window(row).plan for row in windows) if _moves_watermarks(plan.lane)]
    for name, table in history.source.tables.items():
        planned = [(plan, each) for plan in plans for each in plan.tables if each.source == name]
        moved = [(each.watermark, plan.to) for plan, each in planned]
        assert moved[0][0] is None
        assert all(later is not None and later >= to for (_, to), (later, _) in pairwise(moved)), f"{name}: {moved}"
        loads = [(each.watermark, plan.to) for plan, each in planned if each.interval is None]
        jumped = sum(
            any((after is None or lsn(change.lsn) > after) and lsn(change.lsn) <= to for after, to in loads)
            for change in table.log
        )
        read = sum(counts[plan.window_id, name.name] for plan, each in planned if each.interval is not None)
        assert read == len(table.log) - jumped, f"{name}: {read} of {len(table.log)} changes read, {jumped} jumped over"


def _moves_watermarks(lane: str) -> bool:
    return lane == MAIN_LANE or is_load_lane(lane)


def check_rows(history: RandomHistory, name: TableName, table: HistoryTable, *, is_released: bool) -> None:
    """Each row of the source is in the target as it is, or in quarantine as the rule says; no other row is alive.

    is_released: everything in quarantine that was not discarded is in the target.
    """
    rows = history.target(name)
    alive = {row_key(name, row): row for row in rows if not row["__deleted"]}
    assert len({row_key(name, row) for row in rows}) == len(rows), f"{name}: a key twice in the target"
    entries = _quarantined(history, name, ("discarded",) if is_released else (None, "discarded"))
    for key, state in table.rows.items():
        row = alive.get(key)
        breaks, is_set_aside = state.amount >= BAD, name in history.set_aside
        if row is not None and _state(row) == state:
            is_allowed = not breaks or name in history.let_through or is_released
            assert is_allowed, f"{name} {key}: {state} breaks the rule, and is in the target"
            changed_at = max(change.lsn for change in table.log if change.key == key)
            position = number_of(Lsn(row["__lsn"]))
            # A load may read a change early; a rule that came since then sets aside the change itself.
            assert changed_at <= position or (breaks and is_set_aside), f"{name} {key}: has position {position}"
            assert position <= history.source.position
            assert row["__op"] in (INSERT, UPDATE)
            continue
        assert breaks and is_set_aside, f"{name} {key}: {state} at the source, {row} in the target"
        found = [each for each in entries.get(key, []) if each in (state, State(state.amount, _LEFT_OUT))]
        assert found, f"{name} {key}: {state} neither in target nor quarantine {entries.get(key)}"
        if row is not None:
            # The row as it was before the one in quarantine. Its LOB may be of a later change: a load has read that
            # change early, the window with it set it aside, and a replay has merged an older change without the LOB.
            amounts = {version.amount for version in table.versions[key]}
            assert _state(row).amount in amounts, f"{name} {key}: {row} in the target was never at the source"
            is_allowed = _state(row).amount < BAD or name in history.let_through or is_released
            assert is_allowed, f"{name} {key}: {row} breaks the rule"
    gone = set(alive) - set(table.rows)
    assert not gone, f"{name}: {gone} are alive in the target, and deleted at the source"


def check_deleted(history: RandomHistory, name: TableName, table: HistoryTable) -> None:
    """Each key that the target has had alive, and that the source has deleted, is marked, or has a tombstone."""
    deleted = history.had[name] - set(table.rows)
    rows = {row_key(name, row): row for row in history.target(name)}
    if history.settings_of(name).deletes is Deletes.SOFT:
        for key in deleted:
            assert key in rows and rows[key]["__deleted"], f"{name} {key}: the deleted row is not marked"
            assert rows[key]["__op"] == DELETE
            assert _state(rows[key]).amount in {state.amount for state in table.versions[key]}, f"{name}: {rows[key]}"
        return
    assert not any(row["__deleted"] for row in rows.values())
    found = history.rows(
        "SELECT key, count(*) AS number FROM floodmark.tombstones WHERE (target_schema, target_name) = (%s, %s)"
        " GROUP BY key",
        TARGETS[name].schema,
        TARGETS[name].name,
    )
    keys = {tuple(row["key"]): row["number"] for row in found}
    assert set(keys.values()) <= {1}, f"{name}: tombstones {keys}"
    assert deleted <= set(keys), f"{name}: no tombstones of {deleted - set(keys)}"


def replay_older_half(history: RandomHistory) -> None:
    """Merge the older half of the changes again: nothing may change, as the newer half has been merged before."""
    low = min(table.oldest for table in history.source.tables.values())
    middle = (low + history.source.position) // 2
    if low <= middle:
        history.replay_again(Interval(lsn(low - 1), lsn(middle)), WindowExpiredError)


def release_all(history: RandomHistory) -> None:
    """Release what is in quarantine as if there were no rules."""
    for table in history.choices.tables:
        if not _quarantined(history, table.source, (None,)):
            continue
        settings = replace(table, rules=())
        history.expect(partial(history.release_rows, settings=settings))


def _state(row: dict[str, Any]) -> State:
    return State(int(row["Amount"]), row["Notes"])


def _quarantined(history: RandomHistory, name: TableName, outcomes: Collection[str | None]) -> dict[Key, list[State]]:
    """Return the rows in quarantine with one of the outcomes, by key. None: the row is open."""
    found: dict[Key, list[State]] = {}
    statement = "SELECT key, row_data, outcome FROM floodmark.quarantine WHERE source_name = %s"
    for row in history.rows(statement, name.name):
        if row["outcome"] in outcomes:
            data = row["row_data"]
            notes = _LEFT_OUT if data[keep_column("Notes")] else data["Notes"]
            found.setdefault(tuple(row["key"]), []).append(State(int(data["Amount"]), notes))
    return found
