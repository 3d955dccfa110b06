"""The right to erasure: one key of a table is deleted from every place of the warehouse that holds rows or keys.

It is one transaction, under the locks of a merge and of the opening of windows: no window of the table is merged or
planned meanwhile, and none may be unfinished. The next window begins at the watermark, and no replay begins before it,
so that no older change brings the key back. So no tombstone is needed, which would have the key.

Values are bound, and are in no message of an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.types.json import Jsonb

from floodmark.core.columns import masks_of
from floodmark.core.errors import ConfigError, OperatorError, TargetRefusedError, WindowBusyError, command_line
from floodmark.core.plan import TablePlan, WindowPlan, finishing_command, release_lane, staging_table
from floodmark.core.position import read_position
from floodmark.core.recovery import Forgotten
from floodmark.core.schema import (
    DELETED_COLUMN,
    LOG_KEY,
    OPERATION_COLUMN,
    STAGING_SCHEMA,
    TableName,
    quote,
    quote_table,
)
from floodmark.postgres.ledger.schema import ensure_schema
from floodmark.postgres.session import open_transaction, query, source_parameters
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.release import last_plan
from floodmark.postgres.warehouse.targets import LockLimit, column_types, list_relations, lock_targets, read_columns

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection


class PostgresEraser:
    """The deletion of keys. It holds no session: each call is one transaction of its own."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def forget(
        self,
        pipeline: str,
        source: TableName,
        key: Mapping[str, str],
        by: str,
        read_secret: Callable[[str], str],
        *,
        is_dry_run: bool = False,
    ) -> Forgotten:
        """Delete all that the warehouse has of a key, and write a receipt without it. Return what was deleted.

        key: texts by the names of the columns at the source. read_secret: reads that of a connection, for a key that is
        masked. is_dry_run: take everything back at the end. Raises
        ConfigError for a key that the table cannot have, OperatorError for a table that no window has merged or whose
        next window reads older changes, WindowBusyError for a table with an unfinished window, TargetRefusedError for a
        constraint that Floodmark did not create.
        """
        ensure_schema(self._at)
        with open_transaction(self._at, str(source)) as session:
            plan = last_plan(session, pipeline, source, "the warehouse has no row of it")
            index = next(number for number, table in enumerate(plan.tables) if table.source == source)
            planned = plan.tables[index]
            # In the order of a merge: it has the lock of the target when it writes to the row of the table.
            lock_targets(session, [planned.target])
            _refuse_windows(session, pipeline, source)
            with LockLimit(session, self._at, release_lane(source)) as limit, limit.table(planned):
                deletion = _Deletion(session, plan, index, _bind_key(session, planned, key, read_secret))
                try:
                    with session.transaction():  # a savepoint
                        found = deletion.run(by)
                        session.execute("SET CONSTRAINTS ALL IMMEDIATE")
                        if is_dry_run:
                            raise psycopg.Rollback
                except psycopg.IntegrityError as error:
                    raise _kept(planned, error) from None
                if is_dry_run:
                    return replace(found, receipt=None)
                deletion.analyze()
        return found


def _refuse_windows(session: psycopg.Connection, pipeline: str, source: TableName) -> None:
    """Lock the table, so that no window of it is opened, and raise where one would bring the key back."""
    named = {"pipeline": pipeline, **source_parameters(source)}
    query(session, "lock_table", **named)
    for row in query(session, "find_unfinished_window", **named):
        where = f" on lane {row['lane']}" if row["lane"] else ""
        raise WindowBusyError(
            str(source),
            f"window {row['window_id']}{where} is unfinished, and may have rows of the key.",
            f"Nothing was forgotten. If no run works on it, finish it: {finishing_command(pipeline, row['lane'])}.",
        )
    for row in query(session, "read_read_position", **named):
        read, watermark = row["read_lsn"], row["watermark"]
        if read is not None and (watermark is None or watermark < read):
            raise OperatorError(
                str(source),
                f"its rows were read up to {read_position(read)}, and the next window begins before, at "
                f"{read_position(watermark) if watermark else 'the beginning'}: it might bring the key back.",
                f"Nothing was forgotten. Run the pipeline first: {command_line('run', pipeline)}.",
            )


# --------------------------------------------------------------------------------------------------------------------
# The key, from texts to values of the types that the target has.


@dataclass(frozen=True, slots=True)
class _KeyPart:
    """A column of the key with the value that is forgotten."""

    column: str
    """Its name in the target."""
    value: str
    """Its value as SQL: a parameter in a type without a length, which would cut it."""


@dataclass(frozen=True, slots=True)
class _Key:
    parts: tuple[_KeyPart, ...]
    values: Mapping[str, str]
    """The texts of the parameters."""


def _bind_key(
    session: psycopg.Connection, planned: TablePlan, key: Mapping[str, str], read_secret: Callable[[str], str]
) -> _Key:
    """Return the key, whose values are proven to have the types of the target. Raises ConfigError, without a value."""
    subject, names = str(planned.source), planned.feed.table.key
    if not names:
        raise ConfigError(
            subject,
            f"its target is a {planned.settings.style.value} without a key of the source, and no key can be forgotten.",
            "docs/recipes.md, Forget a person, says what to delete by hand.",
        )
    if set(key) != set(names):
        raise ConfigError(
            subject,
            f"its key is {', '.join(names)}, and the values are of {', '.join(sorted(key)) or 'no column'}.",
            "Give one value for each column of the key, by its name at the source.",
        )
    key = _masked(planned, key, read_secret)
    found = read_columns(session, [planned.target]).get(planned.target, {})
    types = {**column_types(planned), **{name: column.type_name for name, column in found.items()}}
    parts, values = [], {}
    for number, (name, column) in enumerate(zip(names, planned.in_target.key, strict=True)):
        kind = without_length(types[column])
        value = values[f"key_{number}"] = _storable(subject, name, key[name], kind)
        parts.append(_KeyPart(column, f"%(key_{number})s::{kind}"))
        try:
            with session.transaction():  # a savepoint
                session.execute(f"SELECT %s::{kind}", [value])
        except psycopg.DataError:  # its message has the value
            raise ConfigError(subject, f"the value of {name} is no {kind}, the type that the target has.") from None
    return _Key(tuple(parts), values)


def _masked(planned: TablePlan, key: Mapping[str, str], read_secret: Callable[[str], str]) -> dict[str, str]:
    """Return the key with hashes in place of the values that the target does not have."""
    # pyarrow and numpy take half a second to import, and only a masked key needs the mapping.
    from floodmark.sync.columns import ColumnMap, find_mask_key  # noqa: PLC0415

    hidden, conn_id = masks_of(planned.settings).keys() & key.keys(), planned.settings.mask_key_conn_id
    if not hidden or conn_id is None:
        return dict(key)
    columns, masked = ColumnMap(planned, find_mask_key(planned, {conn_id: read_secret(conn_id)})), dict(key)
    for name in hidden:
        try:
            masked[name] = columns.hash_key(name, key[name])
        except ValueError:  # its message has the value
            kind = planned.feed.table.column(name).declared_type
            raise ConfigError(str(planned.source), f"the value of {name} is no {kind}, as the source has it.") from None
    return masked


def without_length(type_name: str) -> str:
    """Return a type of PostgreSQL that takes every value of the type, and cuts or rounds none."""
    bare = re.sub(r"\([\d, ]+\)", "", type_name)
    return {"character": "bpchar", "bit": "bit varying"}.get(bare, bare)


def _storable(subject: str, name: str, text: str, kind: str) -> str:
    try:
        is_text = "\0" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise ConfigError(
            subject,
            f"the value of {name} has a character that PostgreSQL cannot store.",
            "Such a row is in quarantine alone, with U+FFFD in the place of the character: give the value so.",
        )
    if kind != "bytea":
        return text
    if not text.startswith(("0x", "\\x")):
        raise ConfigError(subject, f"the value of {name} is no binary value, such as 0x00FF.")
    return f"\\x{text[2:]}"


# --------------------------------------------------------------------------------------------------------------------
# The places. ``docs/recipes.md`` lists them.


@dataclass(frozen=True)
class _Deletion:
    session: psycopg.Connection
    plan: WindowPlan
    index: int
    key: _Key

    @cached_property
    def planned(self) -> TablePlan:
        return self.plan.tables[self.index]

    @cached_property
    def named(self) -> dict[str, Any]:
        target = {"target_schema": self.planned.target.schema, "target_name": self.planned.target.name}
        return {"pipeline": self.plan.pipeline, **source_parameters(self.planned.source), **target, **self.key.values}

    @cached_property
    def relations(self) -> Sequence[TableName]:
        """The target and the ended versions, where they exist."""
        wanted = list_relations([self.planned])
        found = read_columns(self.session, wanted)
        return [relation for relation in wanted if relation in found]

    def run(self, by: str) -> Forgotten:
        """Delete the key everywhere, and write the receipt."""
        still_exists = self._exists()
        counts: dict[str, int] = {"target": 0}
        for relation in self.relations:
            count, newest = self._delete(f"{quote_table(relation)} AS t", self._has_key, "t.__window_id")
            if relation == self.planned.target:
                counts["target"] = count
                statement = read_sql("lower_target_window").format(target=_bound(quote_table(relation)))
                self.session.execute(statement, self.named | {"window_id": newest})
            else:
                counts["versions"] = count
        counts["tombstones"], _ = self._delete("floodmark.tombstones AS d", self._is_tombstone)
        counts["quarantine"], _ = self._delete("floodmark.quarantine AS q", self._is_in_quarantine, "q.window_id")
        counts["staging_tables"] = self._drop_left_staging()
        counts["load_bounds"] = self.session.execute(read_sql("clear_bounds"), self.named).rowcount
        has_condition = (
            "planned -> 'source' = jsonb_build_array(%(source_schema)s::text, %(source_name)s::text)"
            " AND coalesce(planned ->> 'where', '') NOT IN ('', 'forgotten')"
        )
        clear = read_sql("clear_conditions").format(has_condition=has_condition)
        counts["load_conditions"] = self.session.execute(clear, self.named).rowcount
        unread = query(self.session, "count_messages_of_table", **self.named)[0]["messages"]
        receipt = query(self.session, "record_forgotten", **self.named, by=by, counts=Jsonb(counts))
        return Forgotten(counts, still_exists, unread, receipt[0]["forgotten_id"])

    def analyze(self) -> None:
        """Take new samples of the tables for the planner's statistics, which have values of rows."""
        for relation in self.relations:
            self.session.execute(f"ANALYZE {quote_table(relation)}")
        self.session.execute(read_sql("analyze_ledger"))

    def _exists(self) -> bool:
        """Return whether the newest row of the key is no deleted one."""
        if self.planned.target not in self.relations:
            return False
        exists, order = f"NOT t.{quote(DELETED_COLUMN)}", ""
        if self.planned.is_log:
            exists = f"t.{quote(OPERATION_COLUMN)} <> 1"
            order = "ORDER BY " + ", ".join(f"t.{quote(name)} DESC" for name in LOG_KEY)
        target = _bound(quote_table(self.planned.target))
        found = self.session.execute(
            f"SELECT {exists} FROM {target} AS t WHERE {self._has_key} {order} LIMIT 1",  # noqa: S608  (quoted)
            self.key.values,
        ).fetchone()
        return found == (True,)

    def _delete(self, relation: str, condition: str, window_id: str = "0") -> tuple[int, int]:
        """Delete the rows for which a condition is true. Return their number, and the highest number of a window."""
        statement = read_sql("delete_forgotten")
        statement = statement.format(relation=_bound(relation), condition=condition, window_id=window_id)
        count, newest = self.session.execute(statement, self.named).fetchone() or (0, None)
        return count, newest or 0

    @cached_property
    def _has_key(self) -> str:
        return " AND ".join(f"t.{_bound(quote(part.column))} = {part.value}" for part in self.key.parts)

    @cached_property
    def _is_tombstone(self) -> str:
        key = f"jsonb_build_array({', '.join(part.value for part in self.key.parts)})"
        return (
            "d.target_schema = %(target_schema)s AND d.target_name = %(target_name)s"
            f" AND jsonb_hash_extended(d.key, 0) = jsonb_hash_extended({key}, 0) AND d.key = {key}"
        )

    @cached_property
    def _is_in_quarantine(self) -> str:
        """Return the condition for an entry of the key, by the key or by the row, of which an operator may change one.

        The key of an entry of a log is the place of the change. Its row has the names of before, where a load has
        renamed columns since: then any value of it may be that of the key.
        """
        same_row, same_key = [], []
        for place, part in enumerate(self.key.parts):
            name = _bound("'" + part.column.replace("'", "''") + "'")
            value = f"to_jsonb({part.value})"
            named = f"q.row_data -> {name} = {value}"
            anywhere = f"EXISTS (SELECT FROM jsonb_each(q.row_data) AS e WHERE e.value = {value})"
            same_row.append(f"({named} OR NOT q.row_data ? {name} AND {anywhere})" if self.planned.is_log else named)
            same_key.append(f"q.key -> {place} = {value}")
        either = [f"({' AND '.join(each)})" for each in ([same_row] if self.planned.is_log else [same_row, same_key])]
        of_table = (
            "(q.pipeline = %(pipeline)s AND q.source_schema = %(source_schema)s AND q.source_name = %(source_name)s"
            " OR q.target_schema = %(target_schema)s AND q.target_name = %(target_name)s)"
        )
        return f"{of_table} AND ({' OR '.join(either)})"

    def _drop_left_staging(self) -> int:
        """Drop the staging tables that loads of the table have left behind. Return their number."""
        name = staging_table(self.plan, self.index).name
        named = {"schema": STAGING_SCHEMA, "suffix": name[name.rindex("_") :], "pipeline": self.plan.pipeline}
        found = query(self.session, "list_left_staging", **named)
        for row in found:
            self.session.execute(f"DROP TABLE {quote_table(TableName(STAGING_SCHEMA, row['tablename']))}")
        return len(found)


def _bound(text: str) -> str:
    """Return SQL for a statement with parameters, where psycopg treats % as a placeholder."""
    return text.replace("%", "%%")


def _kept(planned: TablePlan, error: psycopg.IntegrityError) -> TargetRefusedError:
    """Return the error about a constraint, without its detail, which has values."""
    diag = error.diag
    what = f"constraint {diag.constraint_name}" if diag.constraint_name else "a trigger"
    return TargetRefusedError(
        str(planned.source),
        f"{what} of {diag.schema_name or planned.target.schema}.{diag.table_name or planned.target.name} refused the "
        "deletion.",
        "Nothing was forgotten. Floodmark does not create such objects: delete the rows that refer to the key first.",
    )
