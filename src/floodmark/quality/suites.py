"""The checks of a window as plain SQL, derived from each table's schema, its rules and the ledger's counts.

This module defines the checks and their queries. ``great_expectations`` runs them and writes the report;
``config.rules`` parses rules.

Every query starts from the rows of the window (its staging table), so the cost of a check depends on the size of the
window, not on that of the table.
"""
# ruff: noqa: S608  (names are quoted by core.naming, and Great Expectations takes no bound values)

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from floodmark.config.rules import DIALECT, bind_rule
from floodmark.core.errors import ConfigError
from floodmark.core.naming import (
    DELETED_COLUMN,
    LEDGER_SCHEMA,
    LOADED_AT_COLUMN,
    LSN_COLUMN,
    OPERATION_COLUMN,
    WINDOW_COLUMN,
    quote,
    quote_table,
)
from floodmark.core.policies import Deletes, OnFailure, Rule
from floodmark.core.schema import TableName
from floodmark.core.window.plan import TableCounts, TablePlan, WindowPlan
from floodmark.sync.ports.warehouse import CheckedRows

BATCH = "\0"
"""The placeholder in a query for the query of the batch. No name and no text of PostgreSQL can contain it."""

_DELETE = 1


class Severity(Enum):
    """The effect of a failed check."""

    CRITICAL = "critical"
    """The run stops before the watermark moves."""
    WARNING = "warning"
    """The failure is reported, and the run continues."""


@dataclass(frozen=True, slots=True)
class NotNull:
    """A column that must not be NULL."""

    column: str

    @property
    def rows(self) -> NoRows:
        """The same as a query."""
        return NoRows(f"SELECT {quote(self.column)} FROM {BATCH} WHERE {quote(self.column)} IS NULL")


@dataclass(frozen=True, slots=True)
class Unique:
    """One column, or several columns together, without duplicates."""

    columns: tuple[str, ...]

    @property
    def rows(self) -> NoRows:
        """The same as a query."""
        key = _list("", self.columns)
        return NoRows(f"SELECT {key} FROM {BATCH} GROUP BY {key} HAVING count(*) > 1")


@dataclass(frozen=True, slots=True)
class RowCount:
    """The expected number of rows."""

    rows: int


@dataclass(frozen=True, slots=True)
class NoRows:
    """A query over BATCH that must return no row."""

    sql: str

    @property
    def rows(self) -> NoRows:
        """The query itself."""
        return self


@dataclass(frozen=True, slots=True)
class NoneMeets:
    """A condition that no row of the batch may meet."""

    condition: str
    key: tuple[str, ...]
    """The columns that show which rows do."""

    @property
    def rows(self) -> NoRows:
        """The same as a query."""
        return NoRows(f"SELECT {_list('', self.key)} FROM {BATCH} WHERE {self.condition}")


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a batch."""

    name: str
    """One word for the error message."""
    what: NotNull | Unique | RowCount | NoneMeets | NoRows
    description: str
    """The expectation, for the report."""
    severity: Severity = Severity.CRITICAL
    declared: bool = False
    """The check is a rule of the configuration."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Checks over the rows of one query."""

    name: str
    """The name in the report."""
    source: TableName
    """The table at the source."""
    table: str
    """The name in messages."""
    sql: str
    checks: tuple[Check, ...]
    staged: TableName | None = None
    """The staging table that the query reads."""


def build_batches(
    plan: WindowPlan, index: int, counts: TableCounts, freshness_seconds: float, opened: CheckedRows
) -> list[Batch]:
    """Return the checks of table ``index`` of the plan: its staged rows, and the target's rows with the same keys.

    Where the staged rows are gone, the checks read the target's rows that have the window's number.
    """
    table = plan.tables[index]
    name = f"{plan.pipeline}.{table.target.schema}.{table.target.name}"
    staged = opened.staged
    rows = f"EXISTS ({_staged_duplicate(table, staged)})" if staged else f"{quote(WINDOW_COLUMN)} = {plan.window_id}"
    target = Batch(
        f"{name}.target",
        table.source,
        str(table.target),
        f"SELECT target.* FROM {quote_table(opened.target)} AS target WHERE {rows}",
        (*_key_checks(table), *_rule_checks(plan, table), _freshness_check(plan, table, freshness_seconds)),
        staged,
    )
    if staged is None:
        return [target]
    staged_sql = f"SELECT * FROM {quote_table(staged)}"
    checks = tuple(_staged_checks(table, counts))
    return [Batch(f"{name}.staged", table.source, str(table.source), staged_sql, checks, staged), target]


def _staged_checks(table: TablePlan, counts: TableCounts) -> list[Check]:
    # Rows that broke a rule were moved from staging to quarantine.
    rows = counts.staged_rows - counts.quarantined_rows
    return [
        Check(
            "staged_row_count",
            RowCount(rows),
            f"staging holds the {rows} rows that the ledger counted "
            f"({counts.staged_rows} staged, {counts.quarantined_rows} of them in quarantine)",
        ),
        Check(
            "every_staged_row_merged",
            NoRows(_unmerged_rows(table)),
            "every staged row is in the target at its log position or a later one",
        ),
    ]


def _unmerged_rows(table: TablePlan) -> str:
    """Return the query of staged rows that are not in the target. A staged delete needs no row there."""
    key = table.feed.table.key
    on = " AND ".join(f"target.{quote(column)} = staged.{quote(column)}" for column in key)
    missing = f"target.{quote(key[0])} IS NULL"
    older = f"target.{quote(LSN_COLUMN)} < staged.{quote(LSN_COLUMN)}"
    is_delete = f"staged.{quote(OPERATION_COLUMN)} = {_DELETE}"
    return (
        f"SELECT {_list('staged', key)} FROM (SELECT * FROM {BATCH}) AS staged "
        f"LEFT JOIN {quote_table(table.target)} AS target ON {on} "
        f"WHERE {older} OR ({missing} AND NOT {is_delete}{_unless_deleted_later(table)})"
    )


def _unless_deleted_later(table: TablePlan) -> str:
    """Return the condition for hard deletes that no later delete has removed the row and written a tombstone."""
    if table.deletes is not Deletes.HARD:
        return ""
    key = _list("staged", table.feed.table.key)
    return (
        f" AND NOT EXISTS (SELECT 1 FROM {LEDGER_SCHEMA}.tombstones AS tombstone "
        f"WHERE tombstone.target_schema = '{_literal(table.target.schema)}' "
        f"AND tombstone.target_name = '{_literal(table.target.name)}' "
        f"AND tombstone.key = jsonb_build_array({key}) "
        f"AND tombstone.lsn >= staged.{quote(LSN_COLUMN)})"
    )


def _staged_duplicate(table: TablePlan, staged: TableName) -> str:
    key = table.feed.table.key
    same_key = " AND ".join(f"staged.{quote(column)} = target.{quote(column)}" for column in key)
    return f"SELECT 1 FROM {quote_table(staged)} AS staged WHERE {same_key}"


def _key_checks(table: TablePlan) -> list[Check]:
    key = table.feed.table.key
    checks = [Check("key_not_null", NotNull(column), f"key column {column} is never NULL") for column in key]
    return [*checks, Check("key_unique", Unique(key), f"no two rows share the key ({', '.join(key)})")]


def _rule_checks(plan: WindowPlan, table: TablePlan) -> list[Check]:
    return [
        Check(
            rule.name,
            NoneMeets(
                f"{quote(WINDOW_COLUMN)} = {plan.window_id} AND NOT {quote(DELETED_COLUMN)} "
                f"AND ({_condition(table, rule)}) IS FALSE",
                table.feed.table.key,
            ),
            f"no row of this window breaks {rule.sql} (rule {rule.name}, on failure {rule.on_failure.value})",
            Severity.WARNING if rule.on_failure is OnFailure.WARN else Severity.CRITICAL,
            declared=True,
        )
        for rule in table.rules
    ]


def _condition(table: TablePlan, rule: Rule) -> str:
    columns = [column.name for column in table.feed.table.stored_columns]
    try:
        return str(bind_rule(rule.sql, columns).sql(dialect=DIALECT))
    except ValueError as error:
        raise ConfigError(str(table.source), f"rule {rule.name}: {error}.", "Correct its sql.") from None


def _freshness_check(plan: WindowPlan, table: TablePlan, freshness_seconds: float) -> Check:
    """Return the check of freshness. It only warns: otherwise a window delayed by an outage would stay unpublished."""
    return Check(
        "fresh",
        NoneMeets(
            f"{quote(WINDOW_COLUMN)} = {plan.window_id} AND {quote(LOADED_AT_COLUMN)} > "
            f"(SELECT opened_at + interval '{freshness_seconds:.0f} seconds' FROM {LEDGER_SCHEMA}.windows "
            f"WHERE window_id = {plan.window_id})",
            table.feed.table.key,
        ),
        f"rows are in the warehouse within {freshness_seconds:.0f} seconds of the moment the window was opened",
        Severity.WARNING,
    )


def _list(alias: str, columns: tuple[str, ...]) -> str:
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + quote(column) for column in columns)


def _literal(text: str) -> str:
    return text.replace("'", "''")
