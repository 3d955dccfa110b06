"""The merge of a history: the newest version of each key in the target, and the ended ones in a table of their own.

A history is the set of all events, one for each key and commit. All else in a row follows from its neighbours, and is
computed in the statement that brings an event. So windows may be merged in any order, again, and overlapping.

A load of the whole table is a set of events at the position where it began. Versions are ordered by load and position:
a restore of the source lowers positions, and the load after it has a higher number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from floodmark.core.naming import versions_name
from floodmark.core.plan import LoadKind, TablePlan, WindowPlan
from floodmark.core.schema import (
    DELETED_COLUMN,
    ENDED_COLUMNS,
    HISTORY_COLUMNS,
    KEEP_PREFIX,
    LOAD_COLUMN,
    LOADED_AT_COLUMN,
    POSITION_COLUMN,
    WINDOW_COLUMN,
    TableName,
    keep_column,
    quote,
    quote_table,
)
from floodmark.postgres.session import open_transaction, query, source_parameters
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.gate import settled_by_a_window
from floodmark.postgres.warehouse.merge import Merge, MergeCounts
from floodmark.postgres.warehouse.staging import kept_columns
from floodmark.postgres.warehouse.targets import list_relations, read_columns, try_lock_target
from floodmark.postgres.warehouse.views import shared_columns

if TYPE_CHECKING:
    from floodmark.core.settings import TableSettings
    from floodmark.postgres.session import WarehouseConnection


def merge_history(session: psycopg.Connection, planned: TablePlan, merge: Merge, counted: MergeCounts) -> MergeCounts:
    """Merge the staged rows into the target and its ended versions. Return their counts. Raises psycopg.Error."""
    names = _read_names(session, planned, merge)
    values: dict[str, object] = {
        "window_id": merge.window_id,
        "load_lsn": merge.rows_at,
        "sweeps": not planned.keeps_unread,
        "target_schema": planned.target.schema,
        "target_name": planned.target.name,
    }
    if planned.kind is LoadKind.FIRST_LOAD:
        inserted, updated, swept = _one(session, "merge_loaded", names.of_load(), values)
        return replace(counted, inserted=inserted, updated=updated, swept=swept, written=inserted + updated + swept)
    is_late, leaves_out, has_several = _one(session, "has_late_events", names.of_both(), values)
    if is_late or leaves_out or has_several:
        of_events = names.of_events(is_late=bool(is_late), heals=bool(is_late or leaves_out))
        inserted, updated, deleted, written = _one(session, "merge_events", of_events, values)
    else:
        # A join in place of chains: half of the time, or less.
        of_next = names.of_next()
        session.execute(_filled("end_newest", of_next), values)
        session.execute(_filled("merge_newest", of_next), values)
        inserted, updated, deleted, written = _one(session, "count_events", of_next, values)
    return replace(counted, inserted=inserted, updated=updated, deleted=deleted, written=written)


def pass_over_loaded(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge) -> None:
    """Take those of the events of a history out of the merge that the newest load of the whole table has read."""
    if not planned.is_history:
        return
    statement = read_sql("pass_over_loaded").format(staging=quote_table(merge.staging))
    session.execute(statement, {"load_lsn": read_load_position(session, plan, planned)})


def read_load_position(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan) -> bytes:
    """Return the position of the newest load of a whole table, which has read all changes up to it."""
    whole = query(session, "list_whole_loads", pipeline=plan.pipeline)
    sources = {TableName(row["source_schema"], row["source_name"]): row["to_lsn"] for row in whole}
    return bytes(sources[planned.source])


# --------------------------------------------------------------------------------------------------------------------
# A window of a fleet brings net changes since the marks of devices, or all rows of a device. It may read again what an
# earlier window brought: after a check that failed, a reload, or a restore of the device. So a version is a difference
# that a window found (ADR 111).


def settle_of_members(
    session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge, members: Sequence[str]
) -> None:
    """Settle the versions in quarantine that a window of a fleet overtakes. They cannot be released.

    members: the devices that were read as a whole.
    """
    if not (planned.is_history and planned.feed.member_column):
        return
    names = {"staging": quote_table(merge.staging), "key": _list(planned.in_target.key, "s")}
    of_window = {"window_id": plan.window_id, "members": list(members)}
    session.execute(_filled("settle_of_members", names), settled_by_a_window(planned) | of_window)


def match_members(
    session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge, members: Sequence[str]
) -> int:
    """Compare the staged rows of a fleet with the newest versions, and stage the deletes of rows that are gone.

    members: the devices that were read as a whole. Return the number of deletes.
    """
    if not (planned.is_history and planned.feed.member_column and planned.kind is LoadKind.CHANGES):
        return 0
    names = _read_names(session, planned, merge).of_members()
    values: dict[str, object] = {
        "target_schema": planned.target.schema,
        "target_name": planned.target.name,
        "window_id": plan.window_id,
        "lsn": merge.rows_at,
        "members": list(members),
    }
    session.execute(_filled("match_newest", names), values)
    return session.execute(_filled("stage_gone", names), values).rowcount if members else 0


# --------------------------------------------------------------------------------------------------------------------
# Versions that ended long ago are deleted (``keep_versions``), and none of them comes again.
#
# The oldest version that a key has left rests on one that was deleted, from which its LOBs may have come. So neither a
# change from before that one is merged, nor that one again. Where this version begins within the time that is kept,
# the version before it ended within that time, and was not deleted.


AT_MOST = 100_000
"""The number of versions of a table that one run deletes."""


class PostgresVersions:
    """The ended versions of histories. It holds no session: each call is one transaction of its own."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def delete_old(self, pipeline: str, table: TableSettings) -> int:
        """Delete the oldest ended versions of a table, where its windows are finished. Return their number.

        While another session merges into the target nothing is deleted: the next run does it.
        """
        versions = versions_name(table.target)
        if table.keep_versions is None:
            return 0
        since = _kept_since(table.keep_versions)
        with open_transaction(self._at, str(table.source)) as session:
            if not (read_columns(session, [versions]) and try_lock_target(session, table.target)):
                return 0
            if query(session, "find_unfinished_window", pipeline=pipeline, **source_parameters(table.source)):
                return 0
            names = {"versions": quote_table(versions), "at_most": AT_MOST, "kept_since": since}
            return session.execute(read_sql("delete_old_versions").format(**names)).rowcount


def pass_over_deleted(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> None:
    """Take those of the events of a history out of the merge that may be of versions deleted for their age."""
    if planned.is_history and planned.settings.keep_versions is not None:
        statement = read_sql("pass_over_deleted")
        session.execute(statement.format(staging=f"{quote_table(merge.staging)} AS s", deleted=may_be_deleted(planned)))


def may_be_deleted(planned: TablePlan) -> str:
    """Return the condition that a staged event ``s`` may be of a version that was deleted, or follow one.

    The times of the versions of a key never fall, so that any later one of before answers for the first.
    """
    if not planned.is_history or planned.settings.keep_versions is None:
        return "false"
    since = _kept_since(planned.settings.keep_versions)
    key = _same(planned.in_target.key, "v", "s")
    later = " OR ".join(
        f"EXISTS (SELECT FROM {quote_table(relation)} AS v WHERE {key}"
        f" AND (v.__load, v.__lsn) >= (s.__load, s.__lsn) AND v.__valid_from < {since})"
        for relation in list_relations([planned])
    )
    return f"s.__load IS NOT NULL AND s.__committed_at < {since} AND ({later})"


def _kept_since(days: int) -> str:
    return f"now() - make_interval(days => {days:d})"


def read_kept_since(session: psycopg.Connection, days: int) -> datetime:
    """Return the moment before which versions must have ended to be deleted, by the clock of PostgreSQL."""
    [(since,)] = session.execute(f"SELECT {_kept_since(days)}".encode()).fetchall()
    assert isinstance(since, datetime)  # noqa: S101  (a timestamptz)
    return since


def _one(
    session: psycopg.Connection, statement: str, names: Mapping[str, str], values: Mapping[str, object]
) -> tuple[int, ...]:
    found = session.execute(_filled(statement, names), values).fetchone()
    assert found is not None  # noqa: S101  (it has aggregates alone)
    return tuple(found)


def _filled(statement: str, names: Mapping[str, str]) -> str:
    return read_sql(statement).format(**{name: text.replace("%", "%%") for name, text in names.items()})


_OWN_EVENT = (LOAD_COLUMN, POSITION_COLUMN)
_WRITTEN = (WINDOW_COLUMN, LOADED_AT_COLUMN)


def _read_names(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> _Names:
    columns = shared_columns(planned, read_columns(session, list_relations([planned]))).items()
    return _Names(planned, merge, tuple(name for name, column in columns if not column.is_generated))


@dataclass(frozen=True)
class _Names:
    """The names of one table in the statements, quoted."""

    planned: TablePlan
    merge: Merge
    columns: tuple[str, ...]
    """The columns that both tables have, Floodmark's own among them."""

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key at the source."""
        return self.planned.in_target.key

    @cached_property
    def stored(self) -> tuple[str, ...]:
        """The columns without Floodmark's own; those that the source no longer has are NULL in new versions."""
        return tuple(name for name in self.columns if name not in HISTORY_COLUMNS)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The stored columns without the key."""
        return tuple(name for name in self.stored if name not in self.key)

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """The columns that a change may leave out, and those of which NULL in a delete is not the last value."""
        lobs = kept_columns(self.planned)
        of_deletes = self.values if self.merge.deletes_have_keys_only else self.merge.not_null
        return (*lobs, *(name for name in self.values if name in of_deletes and name not in lobs))

    @cached_property
    def of_deletes(self) -> tuple[str, ...]:
        """The columns that deletes leave out, all at once, and no other change."""
        lobs = kept_columns(self.planned)
        return tuple(name for name in self.values if name not in lobs) if self.merge.deletes_have_keys_only else ()

    def of_both(self) -> dict[str, str]:
        """Return the names that all statements have."""
        return {
            "staging": quote_table(self.merge.staging),
            "target": quote_table(self.planned.target),
            "versions": quote_table(self.planned.ended_versions.target),
            "key": _list(self.key),
            "columns": _list(self.stored),
            "own": _list(HISTORY_COLUMNS),
            "ended_own": _list(ENDED_COLUMNS),
            "set_newest": _assigned((*self.values, *HISTORY_COLUMNS)),
            "leaves_out": " OR ".join(dict.fromkeys(map(self._left_out, self.kept))) or "false",
        }

    def of_events(self, *, is_late: bool, heals: bool) -> dict[str, str]:
        """Return the names for a window of changes. is_late: the ended versions are read that reach beyond an event.

        Where no event is late, all of a key follow its newest version, and there are none. heals: values that were left
        out are those of the versions before. This takes a pass over all versions for each column, and one for all
        columns that deletes alone leave out.
        """
        near = _list((*self.stored, *HISTORY_COLUMNS), "t")
        newest = (*self.values, *(name for name in HISTORY_COLUMNS if name not in _WRITTEN))
        ended = (*(name for name in newest if name not in _OWN_EVENT), *ENDED_COLUMNS)
        kept = self.kept if heals else ()
        names = {
            "near": near,
            "near_ended": self._near_ended(near) if is_late else "",
            "staged": ", ".join(f"{self._staged(name)} AS {quote(name)}" for name in self.stored),
            "staged_kept": self._kept(kept),
            "same_event": _same((*self.key, *_OWN_EVENT), "s", "t"),
            "owners": "".join(f",\n        {_owner(name)}" for name in dict.fromkeys(map(self._owned_as, kept))),
            "healed": ", ".join(self._healed(name) if name in kept else quote(name) for name in self.stored),
            "set_ended": _assigned((*ended, *_WRITTEN)),
        }
        for form, compared in (("ended", ended), ("newest", newest)):
            names |= {f"old_{form}": _list(compared, "t"), f"new_{form}": _list(compared, "excluded")}
        return self.of_both() | names

    def of_next(self) -> dict[str, str]:
        """Return the names for a window in which each event follows the newest version of its key, with all values."""
        changed = (*self.values, *HISTORY_COLUMNS, *ENDED_COLUMNS)
        return self.of_both() | {
            "near": _list((*self.stored, *HISTORY_COLUMNS), "t"),
            "same_key": _same(self.key, "s", "t"),
            "set_ended": _assigned(name for name in changed if name not in _OWN_EVENT),
            "set_values": "".join(f"{quote(name)} = {self._staged(name)}, " for name in self.values),
            "inserted": ", ".join(map(self._staged, self.stored)),
        }

    def of_load(self) -> dict[str, str]:
        """Return the names for a load of the whole table."""
        # The row of the target is next to that of the load, under names that no column of a source has.
        was = {name: f"{KEEP_PREFIX}{number}" for number, name in enumerate((*self.values, *HISTORY_COLUMNS))}
        places = ", ".join(f"t.{quote(name)}" for name in self.key)
        return self.of_both() | {
            "same_key": _same(self.key, "s", "t"),
            "load_key": ", ".join(f"coalesce(s.{quote(name)}, t.{quote(name)}) AS {quote(name)}" for name in self.key),
            "load_values": "".join(
                f"CASE WHEN s.__lsn IS NULL THEN t.{quote(name)} ELSE {self._staged(name)} END AS {quote(name)}, "
                for name in self.values
            ),
            "load_old": ", ".join(f"t.{quote(name)} AS {alias}" for name, alias in was.items()),
            "row_key": places,
            "differs": self._differs(),
            "columns_old": ", ".join(was.get(name, quote(name)) for name in self.stored),
            "own_old": ", ".join(was[name] for name in HISTORY_COLUMNS),
            "deleted_old": was[DELETED_COLUMN],
        }

    def of_members(self) -> dict[str, str]:
        """Return the names for the comparison of a window of a fleet with the newest versions."""
        keeps = [quote(keep_column(name)) for name in kept_columns(self.planned)]
        return {
            "staging": quote_table(self.merge.staging),
            "target": quote_table(self.planned.target),
            "member": quote(self.planned.feed.member_column),
            "key": _list(self.key),
            "row_key": _list(self.key, "t"),
            "same_key": _same(self.key, "s", "t"),
            "keeps": "".join(f"{name}, " for name in keeps),
            "kept": "false, " * len(keeps),
            "differs": self._differs(),
        }

    def _differs(self) -> str:
        """Return the condition that a staged row has other values than that of the target."""
        compared = tuple(name for name in self.values if name in self.merge.columns)
        return f"({_list(compared, 's')}) IS DISTINCT FROM ({_list(compared, 't')})" if compared else "false"

    def _near_ended(self, near: str) -> str:
        """Return the query of the ended versions that reach beyond an event. The last condition is for an index."""
        versions = quote_table(self.planned.ended_versions.target)
        return (
            f"UNION ALL SELECT {near} FROM lo JOIN {versions} AS t USING ({_list(self.key)})"  # noqa: S608  (quoted)
            " WHERE (t.__next_load, t.__next_lsn) >= (lo.__load, lo.__lsn)"
            " AND (t.__next_load, t.__next_lsn) >= ((SELECT min(__load) FROM lo), (SELECT min(__lsn) FROM lo))"
        )

    def _staged(self, name: str) -> str:
        return f"s.{quote(name)}" if name in self.merge.columns else "NULL"

    def _left_out(self, name: str) -> str:
        """Return the condition for a staged change that has no value of a column."""
        keyed = ["s.__op = 1"] if self.merge.deletes_have_keys_only else []
        if name in kept_columns(self.planned):
            return " OR ".join([f"s.{quote(keep_column(name))}", *keyed])
        return keyed[0] if keyed else f"s.__op = 1 AND {self._staged(name)} IS NULL"

    def _kept(self, names: Iterable[str]) -> str:
        """Return the array of the columns that a staged change left out."""
        found = ", ".join(f"CASE WHEN {self._left_out(name)} THEN {_literal(name)} END" for name in names)
        return f"array_remove(ARRAY[{found}]::text[], NULL)"

    def _owned_as(self, name: str) -> str:
        """Return the column that versions leave out where they leave out this one."""
        return self.of_deletes[0] if name in self.of_deletes else name

    def _healed(self, name: str) -> str:
        """Return the value of the nearest version up to this one that has it."""
        place = f"PARTITION BY {_list((*self.key, keep_column(self._owned_as(name))))} ORDER BY __load, __lsn"
        return f"first_value({quote(name)}) OVER ({place}) AS {quote(name)}"


def _list(names: Iterable[str], alias: str = "") -> str:
    return ", ".join(f"{alias}.{quote(name)}" if alias else quote(name) for name in names)


def _same(names: Iterable[str], one: str, other: str) -> str:
    return " AND ".join(f"{one}.{quote(name)} = {other}.{quote(name)}" for name in names)


def _assigned(names: Iterable[str]) -> str:
    return ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in names)


def _owner(name: str) -> str:
    """Return the number of versions up to one that have a value: versions that left it out have that of the last."""
    return f"count(*) FILTER (WHERE {_literal(name)} <> ALL (__kept)) OVER w AS {quote(keep_column(name))}"


def _literal(text: str) -> str:
    return sql.Literal(text).as_string(None)
