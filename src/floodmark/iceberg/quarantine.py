"""The gate of a lake: rules that Spark evaluates on staged rows, and the rows that break them.

They wait next to the catalog, in the form that PostgreSQL's warehouse gives them, and come to ``floodmark.quarantine``
in the transaction that publishes their window: quarantine has no row of a window that was given up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import time
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException, ArithmeticException, DateTimeException, NumberFormatException
from pyspark.sql import SparkSession
from sqlglot import exp

from floodmark.core.errors import ConfigError, DataQualityError
from floodmark.core.plan import LoadKind, TablePlan, WindowPlan, is_replay_lane
from floodmark.core.position import name_positions
from floodmark.core.schema import (
    COMMITTED_COLUMN,
    DELETED_COLUMN,
    LOAD_COLUMN,
    OPERATION_COLUMN,
    POSITION_COLUMN,
    UNSTORABLE_COLUMN,
    VALID_FROM_COLUMN,
    TableName,
    keep_column,
    quote,
)
from floodmark.core.settings import OnFailure, Rule, Style
from floodmark.iceberg.lake import HELD_ROWS, UNPUBLISHED
from floodmark.iceberg.staging import count_rows, parquet_schema
from floodmark.iceberg.tables import as_timestamp, lake_name, spark_name
from floodmark.postgres.session import WarehouseConnection, open_transaction, source_parameters
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.gate import (
    KEY_RULE,
    broken_rows,
    key_rules,
    nullable_key_columns,
    reads_target,
    settled_by_a_window,
    stopped,
    too_large,
)
from floodmark.postgres.warehouse.history import read_kept_since
from floodmark.postgres.warehouse.merge import (
    DELETE_OPERATION,
    EXAMPLES,
    Merge,
    in_bound,
    same_key,
    tombstone_key,
)
from floodmark.postgres.warehouse.release import wrong_value
from floodmark.postgres.warehouse.staging import staged_columns
from floodmark.postgres.warehouse.targets import OWN_TYPES, column_types, list_relations

# ruff: noqa: S608  (names are quoted, and values bound)

_LOG = logging.getLogger(__name__)
_RULES = "__rules"
"""The column with the names of the rules that a row breaks; NULL in a row that settles those of its key."""
_IS_OPEN = "__open"
_ROWS = "floodmark_rows"
_BATCH_ROWS = 1_000
_OF_A_VALUE = (ArithmeticException, DateTimeException, NumberFormatException)


# --------------------------------------------------------------------------------------------------------------------
# The evaluation by Spark.


@dataclass(frozen=True, slots=True)
class GatedRows:
    """The staged rows of a table behind the gate."""

    files: Sequence[Path]
    """The rows to be merged."""
    aside: Sequence[Path] = ()
    """Those that broke a rule."""
    warned: int = 0
    """Violations of rules that only warn."""
    has_waiting: bool = False
    """Whether rows of the table wait in quarantine."""

    @property
    def quarantined(self) -> int:
        """Return the number of rows that broke a rule."""
        return count_rows(self.aside)


@dataclass(frozen=True)
class LakeGate:
    """The gate for one table of a window."""

    session: SparkSession
    ledger: WarehouseConnection
    plan: WindowPlan
    planned: TablePlan
    merge: Merge
    folder: Path
    """An empty folder for the rows."""
    catalog: str = UNPUBLISHED
    """The catalog in which the table is merged."""

    def apply(self, files: Sequence[Path]) -> GatedRows:
        """Set the rows aside that break rules. files: those of all rows, of which there are some.

        The staged rows are a view of the session, with the name of the staging table.
        Raises DataQualityError for a rule that stops the run, ConfigError for one that cannot be evaluated.
        """
        # A load of the whole table leaves no value out, and settles all rows that wait, without their keys.
        waiting = not _reads_all(self.planned) and self._open_waiting()
        is_recovered = waiting and self._recover_kept_values(files)
        if is_recovered and is_replay_lane(self.plan.lane):
            files = self._drop_set_aside()
            if not files:
                return GatedRows(())
        rules = (*key_rules(self.planned), *self.planned.settings.rules)
        broken = broken_rows(self.planned.with_rules(rules), self.merge)
        counts = self._count(broken)
        for rule, rows in counts.items():
            if rows and rule.on_failure is OnFailure.STOP:
                of_rule = f"FROM {self._rows(broken)} WHERE {_in_spark(broken[rule])} ORDER BY 1 LIMIT {EXAMPLES}"
                at = self.session.sql(f"SELECT DISTINCT s.{POSITION_COLUMN} {of_rule}").collect()
                raise stopped(self.planned, rule, name_positions(bytes(value) for (value,) in at))
        found = {rule: broken[rule] for rule in broken if counts[rule] and rule.on_failure is OnFailure.QUARANTINE}
        aside = self._set_aside(found) if found else []
        if found or is_recovered or self._has_keyless_deletes():
            files = self._keep(found)
        warned = sum(counts[rule] for rule in counts if rule.on_failure is OnFailure.WARN)
        return GatedRows(files, aside, warned, waiting)

    def find_deleted(self) -> str:
        """Return the query for the places of staged events that may be of versions deleted for their age; "" for none.

        The rule is that of ``postgres.warehouse.history.may_be_deleted``: an event is from before the time for which
        versions are kept, and its version, or a later one of its key, began before that time too.
        """
        days = self.planned.settings.keep_versions
        if not self.planned.is_history or days is None:
            return ""
        with open_transaction(self.ledger, str(self.planned.source)) as session:
            since = as_timestamp(read_kept_since(session, days))
        is_old = f"s.{LOAD_COLUMN} IS NOT NULL AND s.{COMMITTED_COLUMN} < {since}"
        if not self.session.sql(f"SELECT 1 FROM {self._view} AS s WHERE {is_old} LIMIT 1").collect():
            return ""
        places = ", ".join(map(spark_name, self._place))
        later = " UNION ALL ".join(
            f"SELECT {places} FROM {lake_name(each, self.catalog)} WHERE {VALID_FROM_COLUMN} < {since}"
            for each in list_relations([self.planned])
        )
        return (
            f"SELECT {', '.join(f's.{spark_name(name)}' for name in self._place)} FROM {self._view} AS s "
            f"LEFT SEMI JOIN ({later}) AS v ON {_same(self.planned.in_target.key, 'v')} "
            f"AND (v.{LOAD_COLUMN} > s.{LOAD_COLUMN} "
            f"OR (v.{LOAD_COLUMN} = s.{LOAD_COLUMN} AND v.{POSITION_COLUMN} >= s.{POSITION_COLUMN})) WHERE {is_old}"
        )

    def pass_over_deleted(self, files: Sequence[Path]) -> Sequence[Path]:
        """Let the events of ``find_deleted`` have no load, so that none is merged.

        files: those of all rows. Return those of the same rows; the view has them.
        """
        if not (deleted := self.find_deleted()):
            return files
        found = self.write(
            "passed",
            f"SELECT s.* EXCEPT ({LOAD_COLUMN}), "
            f"CASE WHEN d.{POSITION_COLUMN} IS NULL THEN s.{LOAD_COLUMN} END AS {LOAD_COLUMN} "
            f"FROM {self._view} AS s LEFT JOIN ({deleted}) AS d ON {_same(self._place, 'd')}",
        )
        self.session.read.parquet(*map(str, found)).createOrReplaceTempView(self.merge.staging.name)
        return found

    def drop_deleted(self, files: Sequence[Path]) -> tuple[Sequence[Path], Sequence[Path]]:
        """Return the files of the rows without the events of ``find_deleted``, and those with the places of these.

        files: those of all rows. The view has the rows without them, where there are any.
        """
        if not (deleted := self.find_deleted()) or not (gone := self.write("deleted", deleted)):
            return files, ()
        left = f"SELECT s.* FROM {self._view} AS s LEFT ANTI JOIN ({deleted}) AS d ON {_same(self._place, 'd')}"
        if files := self.write("left", left):
            self.session.read.parquet(*map(str, files)).createOrReplaceTempView(self.merge.staging.name)
        return files, gone

    def hold(self, rows: GatedRows) -> None:
        """Hold the rows that broke rules, and those that settle the ones of their keys, until they are published."""
        settled = self.write("settled", self._settled()) if rows.has_waiting and rows.files else []
        if rows.aside or settled:
            with open_transaction(self.ledger, str(self.planned.source)) as session:
                hold_rows(session, self.plan, self.planned, self.merge, [*rows.aside, *settled])

    def drop_empty_deletes(self, rows: GatedRows) -> GatedRows:
        """Leave out the deletes that find no row, as net changes have them: after ``hold``, which lets them settle.

        They are of rows that came and went between two windows, or may never have passed the filter. No earlier version
        of such a key can come any more, but one of a history that waits in quarantine.
        """
        planned = self.planned
        if not (
            rows.files and planned.feed.delivers_net and (planned.is_history or planned.settings.where is not None)
        ):
            return rows
        key = planned.in_target.key
        is_delete = f"s.{OPERATION_COLUMN} = {DELETE_OPERATION}"
        is_living = f" AND NOT t.{DELETED_COLUMN}" if planned.is_history else ""
        empty = (
            f"SELECT s.* FROM {self._view} AS s "
            f"LEFT ANTI JOIN {lake_name(planned.target, self.catalog)} AS t ON {_same(key, 't')}{is_living}"
        )
        if planned.is_history and rows.has_waiting:
            empty += f" LEFT ANTI JOIN {self._waiting} AS q ON {_same(key, 'q')} AND q.{_IS_OPEN}"
        if not self.session.sql(f"{empty} WHERE {is_delete} LIMIT 1").collect():
            return rows
        kept = f"SELECT s.* FROM {self._view} AS s LEFT ANTI JOIN ({empty}) AS e ON {_same(key, 'e')} AND {is_delete}"
        files = self.write("found", kept)
        if files:
            self.session.read.parquet(*map(str, files)).createOrReplaceTempView(self.merge.staging.name)
        return replace(rows, files=files)

    def write(self, name: str, statement: str) -> list[Path]:
        """Write the rows of a query. Return their files."""
        self.session.sql(statement).write.parquet(str(self.folder / name))
        return [path for path in sorted((self.folder / name).glob("*.parquet")) if count_rows([path])]

    def _rows(self, broken: Mapping[Rule, exp.Expression]) -> str:
        """Return the staged rows for FROM, with those of the target where a rule reads them."""
        return f"{self._view} AS s {self._target if reads_target(self.merge, broken) else ''}"

    @property
    def _target(self) -> str:
        return f"LEFT JOIN {lake_name(self.planned.target, self.catalog)} AS t ON {_in_spark(same_key(self.merge))}"

    @property
    def _place(self) -> tuple[str, ...]:
        """Return the columns that an event of a history has alone."""
        return (*self.planned.in_target.key, LOAD_COLUMN, POSITION_COLUMN)

    @property
    def _view(self) -> str:
        return spark_name(self.merge.staging.name)

    def _count(self, broken: Mapping[Rule, exp.Expression]) -> dict[Rule, int]:
        if not broken:
            return {}
        subject = str(self.planned.source)
        names = ", ".join(rule.name for rule in broken if rule.name != KEY_RULE)
        what = f"one of its rules ({names}) cannot be evaluated by Spark"
        counts = ", ".join(f"count_if({_in_spark(condition)})" for condition in broken.values())
        try:
            [found] = self.session.sql(f"SELECT {counts} FROM {self._rows(broken)}").collect()
        except AnalysisException as error:
            raise ConfigError(subject, f"{what}.", "The log of the load has Spark's message.", str(error)) from None
        except _OF_A_VALUE as error:
            raise ConfigError(subject, f"{what} on a value of the window ({type(error).__name__}).") from None
        return dict(zip(broken, map(int, found), strict=True))

    def _set_aside(self, found: Mapping[Rule, exp.Expression]) -> list[Path]:
        names = ", ".join(
            f"CASE WHEN {_in_spark(each)} THEN {_in_spark(exp.Literal.string(rule.name))} END"
            for rule, each in found.items()
        )
        return self.write(
            "aside",
            f"SELECT s.*, array_compact(array({names})) AS {_RULES} FROM {self._rows(found)} "
            f"WHERE {_in_spark(exp.or_(*found.values()))}",
        )

    def _keep(self, found: Mapping[Rule, exp.Expression]) -> list[Path]:
        """Write the rows that break no rule, and let the view have no others."""
        gone = [f"({_in_spark(each)})" for each in found.values()]
        gone += [self._is_keyless_delete] if nullable_key_columns(self.planned) else []
        condition = f"WHERE NOT ({' OR '.join(gone)})" if gone else ""
        files = self.write("kept", f"SELECT s.* FROM {self._rows(found)} {condition}")
        if files:
            self.session.read.parquet(*map(str, files)).createOrReplaceTempView(self.merge.staging.name)
        return files

    @property
    def _is_keyless_delete(self) -> str:
        nulls = " OR ".join(f"s.{spark_name(name)} IS NULL" for name in nullable_key_columns(self.planned))
        return f"(s.{OPERATION_COLUMN} = {DELETE_OPERATION} AND ({nulls}))"

    def _has_keyless_deletes(self) -> bool:
        """Return whether deletes have no key. No row of the target has it either."""
        if not nullable_key_columns(self.planned):
            return False
        [(rows,)] = self.session.sql(
            f"SELECT count(*) FROM {self._view} AS s WHERE {self._is_keyless_delete}"
        ).collect()
        if rows:
            _LOG.warning("%s: %s deletes have a key that is NULL, as no row of the target.", self.planned.source, rows)
        return bool(rows)

    def _recover_kept_values(self, files: Sequence[Path]) -> bool:
        """Let LOBs that changes left out have the values of changes in quarantine. Return whether there is a LOB.

        Otherwise a row that corrects a quarantined one would keep the LOB from before both.
        """
        kept = {name: f"s.{spark_name(keep_column(name))}" for name in self.merge.optional}
        if (
            not kept
            or not self.session.sql(
                f"SELECT 1 FROM {self._view} AS s WHERE {' OR '.join(kept.values())} LIMIT 1"
            ).collect()
        ):
            return False
        all_rows = f"{self.merge.staging.name}_read"
        self.session.read.parquet(*map(str, files)).createOrReplaceTempView(all_rows)
        columns = {name: f"s.{spark_name(name)}" for name in parquet_schema(self.planned).names}
        rows = f"{spark_name(all_rows)} AS s {self._target}"
        keys = ", ".join(map(spark_name, self.merge.key))
        for place, (name, is_kept) in enumerate(kept.items()):
            found, value = f"r{place}", spark_name(name)
            rows += (
                f" LEFT JOIN (SELECT {keys}, max({POSITION_COLUMN}) AS at, max_by({value}, {POSITION_COLUMN}) AS value "
                f"FROM {self._waiting} WHERE NOT coalesce({spark_name(keep_column(name))}, false) GROUP BY {keys}) "
                f"AS {found} ON {self._has_key(found)} AND {is_kept} AND s.{OPERATION_COLUMN} <> {DELETE_OPERATION} "
                f"AND {found}.at <= s.{POSITION_COLUMN}"
            )
            is_newer = f"({found}.at IS NOT NULL AND (t.{POSITION_COLUMN} IS NULL OR t.{POSITION_COLUMN} < {found}.at))"
            columns[name] = f"CASE WHEN {is_newer} THEN {found}.value ELSE {columns[name]} END"
            columns[keep_column(name)] = f"({is_kept} AND NOT {is_newer})"
        selected = ", ".join(f"{value} AS {spark_name(name)}" for name, value in columns.items())
        self.session.sql(f"SELECT {selected} FROM {rows}").createOrReplaceTempView(self.merge.staging.name)
        return True

    def _drop_set_aside(self) -> list[Path]:
        """Leave out the changes of a replay without a LOB whose row waits as a whole, in a newer version.

        Return the files of the others.

        The target lacks such a row, because each of its versions that had the LOB was set aside.
        """
        kept = " OR ".join(f"s.{spark_name(keep_column(name))}" for name in self.merge.optional)
        keys = ", ".join(f"s.{spark_name(name)}" for name in self.merge.key)
        target = lake_name(self.planned.target, self.catalog)
        is_newer = f"q.{POSITION_COLUMN} > s.{POSITION_COLUMN}"
        aside = (
            f"SELECT {keys} FROM {self._view} AS s LEFT ANTI JOIN {target} AS t ON {_in_spark(same_key(self.merge))} "
            f"LEFT SEMI JOIN {self._waiting} AS q ON {self._has_key('q')} AND {is_newer} "
            f"WHERE s.{OPERATION_COLUMN} <> {DELETE_OPERATION} AND ({kept})"
        )
        needed = f"SELECT s.* FROM {self._view} AS s LEFT ANTI JOIN ({aside}) AS q ON {self._has_key('q')}"
        files = self.write("needed", needed)
        if files:
            self.session.read.parquet(*map(str, files)).createOrReplaceTempView(self.merge.staging.name)
        return files

    def _settled(self) -> str:
        keys = ", ".join(f"s.{spark_name(name)}" for name in dict.fromkeys([*self.merge.key, POSITION_COLUMN]))
        return (
            f"SELECT DISTINCT {keys} FROM {self._view} AS s JOIN {self._waiting} AS q ON {self._has_key('q')} "
            f"AND q.{POSITION_COLUMN} <= s.{POSITION_COLUMN} WHERE q.{_IS_OPEN}"
        )

    def _has_key(self, alias: str) -> str:
        return _same(self.merge.key, alias)

    @property
    def _waiting(self) -> str:
        return spark_name(f"{self.merge.staging.name}_waiting")

    def _open_waiting(self) -> bool:
        """Let a view have the rows in quarantine that were not merged. Return whether there are any."""
        with open_transaction(self.ledger, str(self.planned.source)) as session:
            found = _read_waiting(session, self.planned, self.merge)
        if found is None:
            return False
        pq.write_table(found, self.folder / "waiting.parquet")
        view = self.session.read.parquet(str(self.folder / "waiting.parquet"))
        view.createOrReplaceTempView(f"{self.merge.staging.name}_waiting")
        return True


def _same(key: Sequence[str], alias: str) -> str:
    return " AND ".join(f"{alias}.{spark_name(name)} = s.{spark_name(name)}" for name in key)


def _in_spark(condition: exp.Expression) -> str:
    return str(condition.sql(dialect="spark"))


def _reads_all(planned: TablePlan) -> bool:
    """Return whether a load reads every row of a table: rows that wait are overtaken by it."""
    return planned.kind is LoadKind.FIRST_LOAD and not planned.where and not planned.keeps_unread


# --------------------------------------------------------------------------------------------------------------------
# The rows in the ledger's database.


def _types(planned: TablePlan) -> dict[str, str]:
    """Return the columns of staged rows with the types of PostgreSQL's warehouse."""
    load = [LOAD_COLUMN] if planned.keeps_changes else []
    own = (POSITION_COLUMN, OPERATION_COLUMN, *staged_columns(planned), *load)
    kept = (name for name in parquet_schema(planned).names if name not in {*column_types(planned), *own})
    return (
        column_types(planned)
        | {name: OWN_TYPES[name] for name in own}
        | {UNSTORABLE_COLUMN: "text", **dict.fromkeys(kept, "boolean")}
    )


def _create_rows(session: psycopg.Connection, types: Mapping[str, str]) -> None:
    columns = ", ".join(f"{quote(name)} {kind}" for name, kind in types.items())
    session.execute(f"CREATE TEMPORARY TABLE {_ROWS} ({columns}) ON COMMIT DROP".encode())


def _read_waiting(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> pa.Table | None:
    """Return keys, positions and LOBs of the rows in quarantine that were not merged; None where there are none."""
    named = {"target_schema": planned.target.schema, "target_name": planned.target.name}
    is_of_table = "target_schema = %(target_schema)s AND target_name = %(target_name)s"
    is_not_merged = f"{is_of_table} AND (settled_at IS NULL OR outcome = 'discarded')"
    [(found,)] = session.execute(
        f"SELECT EXISTS (SELECT FROM floodmark.quarantine WHERE {is_not_merged})", named
    ).fetchall()
    if not found:
        return None
    # The key of a log and of a history has the position.
    names = list(dict.fromkeys([*merge.key, *merge.optional, *map(keep_column, merge.optional), POSITION_COLUMN]))
    types = _types(planned)
    _create_rows(session, {name: types[name] for name in names})
    position = "jsonb_build_object('__lsn', lsn::bytea)"
    rows = session.execute(
        f"SELECT made.*, settled_at IS NULL FROM floodmark.quarantine CROSS JOIN LATERAL "
        f"jsonb_populate_record(NULL::{_ROWS}, row_data || {position}) AS made WHERE {is_not_merged}",
        named,
    ).fetchall()
    session.execute(f"DROP TABLE {_ROWS}")
    schema = parquet_schema(planned).append(pa.field(LOAD_COLUMN, pa.int64()))
    values = list(zip(*rows, strict=True))
    columns = {name: _arrow(values[place], schema.field(name).type) for place, name in enumerate(names)}
    return pa.table(columns | {_IS_OPEN: pa.array(values[-1], pa.bool_())})


def stage_waiting(session: psycopg.Connection, planned: TablePlan, merge: Merge, named: Mapping[str, Any]) -> pa.Table:
    """Return the newest row in quarantine of each key, as it is now, in the columns of staged rows.

    named: the parameters of ``settle_older``, which is done before. The caller's transaction is to be rolled back.
    Raises OperatorError for a value that does not have the type of its column.
    """
    types = _types(planned)
    _create_rows(session, types)
    session.execute(read_sql("settle_older"), named)
    values = {"key": list(merge.key), "columns": list(column_types(planned)), "is_replaced": False}
    try:
        session.execute(read_sql("stage_newest").format(staging=_ROWS), {**named, **values})
    except psycopg.DataError as error:  # its message may quote the value
        raise wrong_value(planned, error) from None
    schema = parquet_schema(planned)
    if planned.keeps_changes:
        schema = schema.append(pa.field(LOAD_COLUMN, pa.int64()))
    rows = session.execute(f"SELECT {', '.join(map(quote, schema.names))} FROM {_ROWS}").fetchall()
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table([_arrow(found, field.type) for found, field in zip(columns, schema, strict=True)], schema=schema)


def waiting_state(session: psycopg.Connection, target: TableName) -> str | None:
    """Return what differs after any change of the rows of a target that wait in quarantine; None where none waits."""
    [(state,)] = session.execute(
        "SELECT md5(string_agg(quarantine_id || ' ' || xmin::text, ',' ORDER BY quarantine_id)) "
        "FROM floodmark.quarantine WHERE (target_schema, target_name) = (%s, %s) AND settled_at IS NULL",
        [target.schema, target.name],
    ).fetchall()
    return str(state) if state else None


def _arrow(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Return values of PostgreSQL as a reader delivers them."""
    found = [str(value).upper() if isinstance(value, UUID) else value for value in values]
    if any(isinstance(value, time) for value in found):
        return pa.array(found, pa.time64("us")).cast(kind)
    return pa.array(found, kind)


def hold_rows(
    session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge, files: Sequence[Path]
) -> None:
    """Store rows that break rules, and those that settle the ones of their keys, until their window is published."""
    _create_rows(session, _types(planned) | {_RULES: "text[]"})
    try:
        for path in files:
            with pq.ParquetFile(path) as file:
                columns = ", ".join(map(quote, file.schema_arrow.names))
                with session.cursor() as cursor, cursor.copy(f"COPY {_ROWS} ({columns}) FROM STDIN".encode()) as copy:
                    for batch in file.iter_batches(_BATCH_ROWS):
                        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                            copy.write_row(row)
        named = {"target_schema": planned.target.schema, "target_name": planned.target.name}
        of_table = "target_schema = %(target_schema)s AND target_name = %(target_name)s"
        session.execute(f"DELETE FROM {HELD_ROWS} WHERE {of_table}", named)
        key = in_bound(tombstone_key(merge))
        session.execute(
            f"INSERT INTO {HELD_ROWS} (target_schema, target_name, window_id, rule, key, lsn, row_data) "
            f"SELECT %(target_schema)s, %(target_name)s, %(window_id)s, rule, {key}, s.{POSITION_COLUMN}, "
            f"CASE WHEN rule IS NOT NULL THEN to_jsonb(s.*) - '{_RULES}' END "
            f"FROM {_ROWS} AS s LEFT JOIN LATERAL unnest(s.{_RULES}) AS rule ON true",
            named | {"window_id": plan.window_id},
        )
    except psycopg.errors.ProgramLimitExceeded as error:
        raise too_large(planned, _first_rule(planned)) from error
    except psycopg.DataError as error:  # its message may quote the value
        raise DataQualityError(
            str(planned.source),
            "a row of the window broke a rule, and quarantine, which is in PostgreSQL, cannot hold one of its values: "
            f"such as a text with the character NUL ({type(error).__name__}).",
            "Nothing of the table was merged. Correct the row at the source, or let the rule warn "
            "(on_failure: warn): the next run reads it again.",
        ) from None


def _first_rule(planned: TablePlan) -> Rule:
    rules = (*planned.settings.rules, *key_rules(planned))
    return next(rule for rule in rules if rule.on_failure is OnFailure.QUARANTINE)


_IS_HELD = """n.target_schema = %(target_schema)s AND n.target_name = %(target_name)s AND n.window_id = %(window_id)s"""
_SAME_CHANGE = """q.target_schema = n.target_schema AND q.target_name = n.target_name AND q.rule = n.rule
  AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended(n.key, 0) AND q.key = n.key AND q.lsn = n.lsn"""
_DELETE_EARLIER = f"DELETE FROM floodmark.quarantine AS q USING {HELD_ROWS} AS n WHERE {_IS_HELD} AND {_SAME_CHANGE}"
_QUARANTINE = f"""
INSERT INTO floodmark.quarantine
  (pipeline, source_schema, source_name, target_schema, target_name, window_id, rule, key, lsn, row_data)
SELECT %(pipeline)s, %(source_schema)s, %(source_name)s, target_schema, target_name, window_id, rule, key, lsn, row_data
FROM {HELD_ROWS} AS n
WHERE {_IS_HELD} AND rule IS NOT NULL AND NOT EXISTS (SELECT FROM floodmark.quarantine AS q WHERE {_SAME_CHANGE})
"""
_SETTLE = f"""
UPDATE floodmark.quarantine AS q
SET settled_at = now(), settled_by = %(by)s,
    outcome = CASE WHEN q.lsn = n.lsn AND %(is_merged)s THEN 'released' ELSE 'overtaken' END
FROM {HELD_ROWS} AS n
WHERE {_IS_HELD} AND n.rule IS NULL AND q.settled_at IS NULL
  AND q.target_schema = n.target_schema AND q.target_name = n.target_name
  AND jsonb_hash_extended(q.key, 0) = jsonb_hash_extended(n.key, 0) AND q.key = n.key AND q.lsn <= n.lsn
"""


def publish_held(session: psycopg.Connection, plan: WindowPlan, by: str = "", *, is_merged: bool = True) -> None:
    """Move the rows that a window holds to quarantine, and settle those that it corrects or overtakes.

    by: the operator, where it is a release. is_merged: the target has the rows that settle others.
    """
    if session.execute(f"SELECT to_regclass('{HELD_ROWS}')").fetchone() == (None,):
        return  # The window was merged by a version without them.
    rows = session.execute(
        f"SELECT DISTINCT target_schema, target_name FROM {HELD_ROWS} WHERE window_id = %s", [plan.window_id]
    ).fetchall()
    for planned in plan.tables:
        target = {"target_schema": planned.target.schema, "target_name": planned.target.name}
        named: dict[str, Any] = settled_by_a_window(planned) | source_parameters(planned.source)
        named |= {"is_merged": is_merged} | ({"by": by} if by else {})
        named |= {"pipeline": plan.pipeline, "window_id": plan.window_id, "load_window_id": plan.window_id}
        if _reads_all(planned) and planned.settings.style is Style.CURRENT:
            session.execute(read_sql("lower_quarantine"), target | {"to_lsn": plan.rows_at(planned)})
        if tuple(target.values()) in rows:
            if planned.kind is LoadKind.FIRST_LOAD:
                session.execute(_DELETE_EARLIER, named)
            session.execute(_QUARANTINE, named)
            session.execute(_SETTLE, named)
            session.execute(f"DELETE FROM {HELD_ROWS} AS n WHERE {_IS_HELD}", named)
        if _reads_all(planned):
            session.execute(read_sql("settle_older"), named)
