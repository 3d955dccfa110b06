"""The merge of a history of a lake by Spark: the newest versions in the target, the ended ones in a table of their own.

The rule is that of ``postgres.warehouse.history``: all but the events follows from the neighbours of a version. The new
versions are written to files once. Then ended ones are appended, or merged where an event is late, and at last the
newest ones. A lake has no primary key, so that a merge that begins again first gives up what it has left in ``next``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from floodmark.core.plan import LoadKind, TableCounts, WindowPlan
from floodmark.core.schema import (
    COMMITTED_COLUMN,
    DELETED_COLUMN,
    ENDED_COLUMNS,
    HISTORY_COLUMNS,
    KEEP_PREFIX,
    KEPT_COLUMN,
    LOAD_COLUMN,
    LOADED_AT_COLUMN,
    NEXT_LOAD_COLUMN,
    NEXT_POSITION_COLUMN,
    OPERATION_COLUMN,
    POSITION_COLUMN,
    VALID_FROM_COLUMN,
    VALID_TO_COLUMN,
    WINDOW_COLUMN,
    keep_column,
)
from floodmark.iceberg.merge import StagedTable, merge_table, open_empty_view, refuse_renewed, snapshot_properties
from floodmark.iceberg.staging import count_rows
from floodmark.iceberg.tables import lake_name, spark_name
from floodmark.postgres.warehouse.merge import DELETE_OPERATION
from floodmark.postgres.warehouse.staging import kept_columns

# ruff: noqa: S608  (names are quoted by ``spark_name``)

_IS_NEW = KEEP_PREFIX
"""A column of the files of versions: no version of before is the same. No column of a source has this name."""
_PLACE = f"{LOAD_COLUMN}, {POSITION_COLUMN}"
_OWN_PLACE = (LOAD_COLUMN, POSITION_COLUMN)
_WRITTEN = (WINDOW_COLUMN, LOADED_AT_COLUMN)


def merge_style(session: SparkSession, plan: WindowPlan, table: StagedTable, folder: Path) -> TableCounts:
    """Merge the staged rows of a table by its style, and return what became of them.

    folder: for files of the merge. What other tables of the style need is in ``merge.merge_table``.
    """
    if not table.planned.is_history:
        return merge_table(session, plan, table)
    if table.planned.kind is LoadKind.FIRST_LOAD:
        return _merge_load(session, plan, table, folder)
    return _merge_events(session, plan, table, folder)


def _merge_events(session: SparkSession, plan: WindowPlan, table: StagedTable, folder: Path) -> TableCounts:
    """Merge a window of changes. A table without any is not touched."""
    rows, versions = table.rows, _Versions(session, plan, table)
    counts = TableCounts(
        staged_rows=count_rows(rows.files) + rows.quarantined,
        quarantined_rows=rows.quarantined,
        warned_rows=rows.warned,
    )
    if not rows.files:
        return counts
    is_late = bool(table.newest) and bool(session.sql(versions.late_events()).collect())
    inserted = updated = deleted = 0
    if made := versions.write(folder, versions.chain(is_late=is_late)):
        counted = ", ".join(f"count_if({OPERATION_COLUMN} = {number})" for number in (2, 4, DELETE_OPERATION))
        [(inserted, updated, deleted)] = session.sql(f"SELECT {counted} FROM {versions.made} WHERE {_IS_NEW}").collect()
    counts = replace(
        counts,
        inserted_rows=inserted,
        updated_rows=updated,
        deleted_rows=deleted,
        unchanged_rows=count_rows(rows.files) - inserted - updated - deleted,
    )
    if made:
        with snapshot_properties(session, plan, counts):
            ended = f"SELECT {versions.ended_columns} FROM {versions.made} WHERE {NEXT_POSITION_COLUMN} IS NOT NULL"
            versions.end(ended, is_late=is_late)
            versions.replace_newest(f"SELECT * FROM {versions.made} WHERE {NEXT_POSITION_COLUMN} IS NULL")
    return counts


def _merge_load(session: SparkSession, plan: WindowPlan, table: StagedTable, folder: Path) -> TableCounts:
    """Merge all rows of a table: one that differs from the newest version of its key is a version, and ends that one.

    So is the end of a row that the load did not find, unless it broke a rule.
    """
    planned, rows = table.planned, table.rows
    if table.newest:
        refuse_renewed(planned)
    if not rows.files:
        open_empty_view(session, plan, table.index)
    versions = _Versions(session, plan, table)
    made = versions.write(folder, versions.differences())
    inserted = updated = swept = 0
    if made:
        is_gone = f"{OPERATION_COLUMN} = {DELETE_OPERATION}"
        counted = f"count_if({_IS_NEW}), count_if(NOT {_IS_NEW} AND NOT {is_gone}), count_if({is_gone})"
        [(inserted, updated, swept)] = session.sql(f"SELECT {counted} FROM {versions.made}").collect()
    staged = count_rows(rows.files)
    counts = TableCounts(
        staged_rows=staged + rows.quarantined,
        inserted_rows=inserted,
        updated_rows=updated,
        unchanged_rows=staged - inserted - updated,
        quarantined_rows=rows.quarantined,
        warned_rows=rows.warned,
        swept_rows=swept,
    )
    if made:
        with snapshot_properties(session, plan, counts):
            if table.newest:
                versions.end(versions.ended_by_load(), is_late=False)
            versions.replace_newest(f"SELECT * FROM {versions.made}")
    return counts


@dataclass(frozen=True)
class _Versions:
    """The statements about one history."""

    session: SparkSession
    plan: WindowPlan
    table: StagedTable

    @cached_property
    def view(self) -> str:
        """The staged rows. Those that the newest load has read have no load."""
        return spark_name(self.table.merge.staging.name)

    @cached_property
    def made(self) -> str:
        """The versions that were written."""
        return spark_name(f"{self.table.merge.staging.name}_made")

    @cached_property
    def target(self) -> str:
        return lake_name(self.table.planned.target, self.table.catalog)

    @cached_property
    def versions(self) -> str:
        return lake_name(self.table.planned.ended_versions.target, self.table.catalog)

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key at the source."""
        return self.table.planned.in_target.key

    @cached_property
    def stored(self) -> tuple[str, ...]:
        """The columns of both tables without Floodmark's own; those that the source lacks are NULL in new versions."""
        of_versions = set(self.session.table(self.versions).columns)
        found = [name for name in self.session.table(self.target).columns if name in of_versions]
        return tuple(name for name in found if name not in HISTORY_COLUMNS)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The stored columns without the key."""
        return tuple(name for name in self.stored if name not in self.key)

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """The columns that a change may leave out, and those of which NULL in a delete is not the last value."""
        lobs, merge = kept_columns(self.table.planned), self.table.merge
        of_deletes = self.values if merge.deletes_have_keys_only else merge.not_null
        return (*lobs, *(name for name in self.values if name in of_deletes and name not in lobs))

    @property
    def newest_columns(self) -> str:
        return _list((*self.stored, *HISTORY_COLUMNS))

    @property
    def ended_columns(self) -> str:
        return _list((*self.stored, *HISTORY_COLUMNS, *ENDED_COLUMNS))

    def write(self, folder: Path, statement: str) -> bool:
        """Write the versions that a query finds, for both tables. Return whether there are any."""
        at = folder / "versions"
        self.session.sql(statement).write.parquet(str(at))
        files = [path for path in sorted(at.glob("*.parquet")) if count_rows([path])]
        if files:
            self.session.read.parquet(*map(str, files)).createOrReplaceTempView(f"{self.table.merge.staging.name}_made")
        return bool(files)

    def late_events(self) -> str:
        """Return the query for a staged event that is a version of the target, or comes before one."""
        return (
            f"SELECT 1 FROM {self.view} AS s JOIN {self.target} AS t ON {_same(self.key, 's', 't')} "
            f"WHERE {_not_before('t', _OWN_PLACE, _places('s'))} LIMIT 1"
        )

    def chain(self, *, is_late: bool) -> str:
        """Return the query for the staged events and the versions next to them, as both tables have to have them.

        is_late: the ended versions are read that reach beyond an event. Where no event is late, all of a key follow its
        newest version, and there are none. The first version of a key that is near has its stored values, also those
        that its change had left out. A stored ``__valid_from`` is the highest time up to its version.
        """
        own = f"{LOAD_COLUMN}, {POSITION_COLUMN}, {OPERATION_COLUMN}, {COMMITTED_COLUMN}, {KEPT_COLUMN}"
        own += f", {WINDOW_COLUMN}, {LOADED_AT_COLUMN}, {_IS_NEW}"
        by_place = f"PARTITION BY {_list(self.key)} ORDER BY {_PLACE}"
        until = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        owners = "".join(
            f", count(CASE WHEN NOT array_contains({KEPT_COLUMN}, {_literal(name)}) THEN 1 END) "
            f"OVER ({by_place} {until}) AS {spark_name(keep_column(name))}"
            for name in dict.fromkeys(map(self._owned_as, self.kept))
        )
        return f"""
WITH {self._near(is_late=is_late)},
events AS ({self._staged_events(is_late=is_late)} UNION ALL {self._near_events}),
chained AS (
    SELECT {_list(self.stored)}, {own},
        lead({LOAD_COLUMN}) OVER ({by_place}) AS {NEXT_LOAD_COLUMN},
        lead({POSITION_COLUMN}) OVER ({by_place}) AS {NEXT_POSITION_COLUMN},
        max(coalesce({VALID_FROM_COLUMN}, {COMMITTED_COLUMN})) OVER ({by_place} {until}) AS {VALID_FROM_COLUMN}{owners}
    FROM events
)
SELECT {", ".join(map(self._healed, self.stored))}, {own}, {OPERATION_COLUMN} = {DELETE_OPERATION} AS {DELETED_COLUMN},
    {VALID_FROM_COLUMN}, {NEXT_LOAD_COLUMN}, {NEXT_POSITION_COLUMN},
    lead({VALID_FROM_COLUMN}) OVER ({by_place}) AS {VALID_TO_COLUMN}
FROM chained"""

    def _near(self, *, is_late: bool) -> str:
        """Return the staged events ``s``, the first of each key ``lo``, and the versions ``near`` that may be next."""
        columns = _list((*self.stored, *HISTORY_COLUMNS), "t")
        lowest = ", ".join(f"min({name}) AS {name}" for name in _OWN_PLACE)
        return f"""s AS (SELECT * FROM {self.view} WHERE {LOAD_COLUMN} IS NOT NULL),
lo AS (SELECT {_list(self.key)}, {lowest} FROM s GROUP BY {_list(self.key)}),
near AS (
    SELECT {columns} FROM lo JOIN {self.target} AS t ON {_same(self.key, "lo", "t")}
    {self._near_ended(columns) if is_late else ""}
)"""

    def _staged_events(self, *, is_late: bool) -> str:
        values = "".join(f"{self._staged(name)} AS {spark_name(name)}, " for name in self.stored)
        rows = f"s LEFT JOIN near AS t ON {self._same_event}" if is_late else "s"
        is_new = f"t.{POSITION_COLUMN} IS NULL" if is_late else "true"
        return f"""
    SELECT {values} s.{LOAD_COLUMN}, s.{POSITION_COLUMN}, CAST(s.{OPERATION_COLUMN} AS int) AS {OPERATION_COLUMN},
        s.{COMMITTED_COLUMN}, {self._left_out_by_staged} AS {KEPT_COLUMN},
        CAST(NULL AS timestamp) AS {VALID_FROM_COLUMN}, CAST({self.plan.window_id} AS bigint) AS {WINDOW_COLUMN},
        current_timestamp() AS {LOADED_AT_COLUMN}, {is_new} AS {_IS_NEW}
    FROM {rows}"""

    @property
    def _near_events(self) -> str:
        """Return the query of the versions near that no staged event is: a staged one may know more."""
        own = (*_OWN_PLACE, OPERATION_COLUMN, COMMITTED_COLUMN, KEPT_COLUMN, VALID_FROM_COLUMN, *_WRITTEN)
        return f"""
    SELECT {_list((*self.stored, *own), "t")}, false AS {_IS_NEW}
    FROM near AS t LEFT ANTI JOIN s ON {self._same_event}
"""

    def differences(self) -> str:
        """Return the query for the rows of a load that differ from the newest versions, and those that it did not find.

        Each is the version that it makes. ``_IS_NEW``: the key had no living row.
        """
        planned, view = self.table.planned, self.view
        at = f"(SELECT coalesce(max({COMMITTED_COLUMN}), current_timestamp()) FROM {view})"
        is_gone = f"s.{POSITION_COLUMN} IS NULL"
        had_none = f"(t.{POSITION_COLUMN} IS NULL OR t.{DELETED_COLUMN})"
        swept = "false" if planned.keeps_unread else f"NOT t.{DELETED_COLUMN}{self._is_not_aside}"
        values = ", ".join(
            f"CASE WHEN {is_gone} THEN t.{spark_name(name)} ELSE {self._staged(name)} END AS {spark_name(name)}"
            for name in self.values
        )
        return f"""
SELECT {"".join(f"coalesce(s.{name}, t.{name}) AS {name}, " for name in map(spark_name, self.key))}
    {values + "," if values else ""}
    CAST({self.plan.window_id} AS bigint) AS {LOAD_COLUMN}, {_binary(self.table.merge.rows_at)} AS {POSITION_COLUMN},
    CASE WHEN {is_gone} THEN {DELETE_OPERATION} ELSE 2 END AS {OPERATION_COLUMN}, {is_gone} AS {DELETED_COLUMN},
    {at} AS {COMMITTED_COLUMN}, CAST(array() AS array<string>) AS {KEPT_COLUMN},
    greatest({at}, t.{VALID_FROM_COLUMN}) AS {VALID_FROM_COLUMN},
    CAST({self.plan.window_id} AS bigint) AS {WINDOW_COLUMN}, current_timestamp() AS {LOADED_AT_COLUMN},
    {had_none} AND NOT {is_gone} AS {_IS_NEW}
FROM {self.target} AS t FULL JOIN {view} AS s ON {_same(self.key, "s", "t")}{self._join_aside}
WHERE CASE WHEN {is_gone} THEN {swept} WHEN {had_none} THEN true ELSE {self._differs} END"""

    def ended_by_load(self) -> str:
        """Return the query for the newest versions that those of a load end."""
        return (
            f"SELECT {_list((*self.stored, *HISTORY_COLUMNS), 't')}, m.{LOAD_COLUMN}, m.{POSITION_COLUMN}, "
            f"m.{VALID_FROM_COLUMN} FROM {self.target} AS t JOIN {self.made} AS m ON {_same(self.key, 'm', 't')}"
        )

    def end(self, ended: str, *, is_late: bool) -> None:
        """Add ended versions, which a query finds, or replace those that are there and differ."""
        if not is_late:
            if self.session.sql(f"{ended} LIMIT 1").collect():
                self.session.sql(f"INSERT INTO {self.versions} ({self.ended_columns}) {ended}")
            return
        row_key = (*self.key, *_OWN_PLACE)
        compared = [name for name in (*self.values, *HISTORY_COLUMNS, *ENDED_COLUMNS) if name not in row_key]
        [(load, lsn)] = self.session.sql(
            f"SELECT min({LOAD_COLUMN}), min({POSITION_COLUMN}) FROM {self.made} "
            f"WHERE {NEXT_POSITION_COLUMN} IS NOT NULL"
        ).collect()
        if lsn is None:
            return
        # The bounds let Iceberg leave out files.
        on = f"{_same(row_key, 't', 's')} AND t.{LOAD_COLUMN} >= {load} AND t.{POSITION_COLUMN} >= {_binary(lsn)}"
        columns = (*self.stored, *HISTORY_COLUMNS, *ENDED_COLUMNS)
        self.session.sql(_merge(self.versions, ended, on, compared, columns))

    def replace_newest(self, newest: str) -> None:
        """Let the target have versions, which a query finds, as the newest ones of their keys."""
        rows = f"SELECT {self.newest_columns} FROM ({newest})"
        if not self.table.newest:
            self.session.sql(f"INSERT INTO {self.target} ({self.newest_columns}) {rows}")
            return
        compared = (*self.values, *HISTORY_COLUMNS)
        on = _same(self.key, "t", "s")
        self.session.sql(_merge(self.target, rows, on, compared, (*self.stored, *HISTORY_COLUMNS)))

    @property
    def _same_event(self) -> str:
        return _same((*self.key, *_OWN_PLACE), "s", "t")

    def _near_ended(self, near: str) -> str:
        """Return the query of the ended versions that reach beyond an event. The literals let Iceberg leave out files.

        Positions of another load are not compared with them: a restore lowers positions.
        """
        [(load, lsn)] = self.session.sql(
            f"SELECT min({LOAD_COLUMN}), min({POSITION_COLUMN}) FROM {self.view} WHERE {LOAD_COLUMN} IS NOT NULL"
        ).collect()
        reach = _not_before("t", ENDED_COLUMNS[:2], _places("lo"))
        bounds = _not_before("t", ENDED_COLUMNS[:2], (str(load), _binary(lsn))) if lsn is not None else "false"
        return (
            f"UNION ALL SELECT {near} FROM lo JOIN {self.versions} AS t ON {_same(self.key, 'lo', 't')} "
            f"WHERE {reach} AND {bounds}"
        )

    def _staged(self, name: str) -> str:
        return f"s.{spark_name(name)}" if name in self.table.merge.columns else "NULL"

    @property
    def _left_out_by_staged(self) -> str:
        """Return the array of the columns that a staged change left out."""
        found = ", ".join(f"CASE WHEN {self._left_out(name)} THEN {_literal(name)} END" for name in self.kept)
        return f"array_compact(CAST(array({found}) AS array<string>))"

    def _left_out(self, name: str) -> str:
        """Return the condition for a staged change that has no value of a column."""
        is_delete = f"s.{OPERATION_COLUMN} = {DELETE_OPERATION}"
        has_key_only = is_delete if self.table.merge.deletes_have_keys_only else "false"
        if name in kept_columns(self.table.planned):
            return f"s.{spark_name(keep_column(name))} OR {has_key_only}"
        return f"{is_delete} AND {self._staged(name)} IS NULL OR {has_key_only}"

    def _owned_as(self, name: str) -> str:
        """Return the column that versions leave out where they leave out this one: deletes leave all out at once."""
        lobs = kept_columns(self.table.planned)
        if not self.table.merge.deletes_have_keys_only or name in lobs:
            return name
        return next(each for each in self.values if each not in lobs)

    def _healed(self, name: str) -> str:
        """Return the value of the nearest version up to this one that has it."""
        if name not in self.kept:
            return spark_name(name)
        place = f"PARTITION BY {_list((*self.key, keep_column(self._owned_as(name))))} ORDER BY {_PLACE}"
        return f"first_value({spark_name(name)}) OVER ({place}) AS {spark_name(name)}"

    @property
    def _differs(self) -> str:
        """Return the condition that a staged row has other values than that of the target."""
        compared = [name for name in self.values if name in self.table.merge.columns]
        return _is_other(compared)

    @property
    def _join_aside(self) -> str:
        """Return the join with the keys of the rows that broke a rule, which the load has read."""
        if not self.table.rows.aside:
            return ""
        name = f"{self.table.merge.staging.name}_aside"
        self.session.read.parquet(*map(str, self.table.rows.aside)).createOrReplaceTempView(name)
        keys = f"SELECT DISTINCT {_list(self.key)}, true AS {_IS_NEW} FROM {spark_name(name)}"
        return f" LEFT JOIN ({keys}) AS a ON {_same(self.key, 'a', 't')}"

    @property
    def _is_not_aside(self) -> str:
        return f" AND a.{_IS_NEW} IS NULL" if self.table.rows.aside else ""


def _places(alias: str) -> tuple[str, str]:
    return f"{alias}.{LOAD_COLUMN}", f"{alias}.{POSITION_COLUMN}"


def _not_before(alias: str, columns: Sequence[str], place: Sequence[str]) -> str:
    """Return the condition that a place, as two columns of a table have it, is another one or comes after it."""
    (load, lsn), (other_load, other_lsn) = (f"{alias}.{name}" for name in columns), place
    return f"({load} > {other_load} OR ({load} = {other_load} AND {lsn} >= {other_lsn}))"


def _merge(into: str, rows: str, on: str, compared: Sequence[str], columns: Sequence[str]) -> str:
    """Return the MERGE of rows into a table. compared: the columns that are set, where one that is no mark differs."""
    values = ", ".join(f"{spark_name(name)} = s.{spark_name(name)}" for name in compared)
    is_other = _is_other([name for name in compared if name not in _WRITTEN])
    return (
        f"MERGE INTO {into} AS t USING ({rows}) AS s ON {on} "
        f"WHEN MATCHED AND {is_other} THEN UPDATE SET {values} "
        f"WHEN NOT MATCHED THEN INSERT ({_list(columns)}) VALUES ({_list(columns, 's')})"
    )


def _is_other(names: Iterable[str]) -> str:
    same = " AND ".join(f"s.{spark_name(name)} <=> t.{spark_name(name)}" for name in names)
    return f"NOT ({same})" if same else "false"


def _list(names: Iterable[str], alias: str = "") -> str:
    return ", ".join(f"{alias}.{spark_name(name)}" if alias else spark_name(name) for name in names)


def _same(names: Iterable[str], one: str, other: str) -> str:
    return " AND ".join(f"{one}.{spark_name(name)} = {other}.{spark_name(name)}" for name in names)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _binary(value: bytes) -> str:
    return f"X'{bytes(value).hex()}'"
