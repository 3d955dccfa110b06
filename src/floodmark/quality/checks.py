"""The checks of a window: plain SQL derived from schema, rules and counts, its answers, and the front page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from html import escape
from itertools import groupby
from typing import Any
from urllib.parse import quote as url_quote

from sqlalchemy import URL, Connection, NullPool, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from floodmark.core.errors import (
    ConfigError,
    FloodmarkBugError,
    FloodmarkError,
    TargetRefusedError,
    WarehouseUnavailableError,
    WatermarkConflictError,
)
from floodmark.core.plan import TableCounts, TablePlan, WindowPlan
from floodmark.core.schema import (
    DELETED_COLUMN,
    LEDGER_SCHEMA,
    LOADED_AT_COLUMN,
    OLD_IMAGES,
    OPERATION_COLUMN,
    WINDOW_COLUMN,
    TableName,
    quote,
    quote_table,
)
from floodmark.core.settings import OnFailure, Rule
from floodmark.quality.unmerged import select_gaps, select_unmerged
from floodmark.sync.ports import CheckedRows
from floodmark.sync.rules import DIALECT, bind_rule

# ruff: noqa: S608  (names are quoted by core.naming, and Great Expectations takes no bound values)

_LOG = logging.getLogger(__name__)

# --------------------------------------------------------------------------------------------------------------------
# The checks of a window as plain SQL, derived from each table's schema, its rules and the ledger's counts.
#
# This module defines the checks and their queries. ``great_expectations`` runs them and writes the report;
# ``sync.rules`` parses rules.
#
# Every query starts from the rows of the window (its staging table), so the cost of a check depends on the size of the
# window, not on that of the table.


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


def select_rows_of_window(plan: WindowPlan, table: TablePlan, staged: TableName | None) -> str:
    """Return the condition on a row of the target that the window has a row with its key."""
    return f"EXISTS ({_staged_duplicate(table, staged)})" if staged else f"{quote(WINDOW_COLUMN)} = {plan.window_id}"


def is_no_delete(table: TablePlan, alias: str = "") -> str:
    """Return the condition on a row of the target that the source has not deleted it, or that it has new values."""
    if table.is_snapshot:
        return "TRUE"
    prefix = f"{alias}." if alias else ""
    is_alive = f"NOT {prefix}{quote(DELETED_COLUMN)}"
    old = ", ".join(map(str, OLD_IMAGES))
    return f"{prefix}{quote(OPERATION_COLUMN)} NOT IN ({old})" if table.is_log else is_alive


def build_batches(
    plan: WindowPlan, index: int, counts: TableCounts, freshness_seconds: float, opened: CheckedRows
) -> list[Batch]:
    """Return the checks of table ``index`` of the plan: its staged rows, and the target's rows with the same keys.

    Where the staged rows are gone, the checks read the target's rows that have the window's number.
    """
    table = plan.tables[index]
    name = f"{plan.pipeline}.{table.target.schema}.{table.target.name}"
    staged = opened.staged
    rows = select_rows_of_window(plan, table, staged)
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
    checks = tuple(_staged_checks(table, counts, has_tombstones=opened.has_tombstones))
    return [Batch(f"{name}.staged", table.source, str(table.source), staged_sql, checks, staged), target]


def _staged_checks(table: TablePlan, counts: TableCounts, *, has_tombstones: bool) -> list[Check]:
    # Rows that broke a rule were moved from staging to quarantine.
    rows = counts.staged_rows - counts.quarantined_rows
    staged = f"SELECT * FROM {BATCH}"
    checks = [
        Check(
            "staged_row_count",
            RowCount(rows),
            f"staging holds the {rows} rows that the ledger counted "
            f"({counts.staged_rows} staged, {counts.quarantined_rows} of them in quarantine)",
        ),
        Check(
            "every_staged_row_merged",
            NoRows(select_unmerged(table, staged, has_tombstones=has_tombstones)),
            "every staged row is in the target at its log position or a later one",
        ),
    ]
    if table.is_history:
        gaps = NoRows(select_gaps(table, staged))
        checks.append(Check("every_ended_version_has_its_next", gaps, "no version is missing between two"))
    return checks


def _staged_duplicate(table: TablePlan, staged: TableName) -> str:
    key = table.target_key
    same_key = " AND ".join(f"staged.{quote(column)} = target.{quote(column)}" for column in key)
    return f"SELECT 1 FROM {quote_table(staged)} AS staged WHERE {same_key}"


def _key_checks(table: TablePlan) -> list[Check]:
    key = table.target_key
    checks = [Check("key_not_null", NotNull(column), f"key column {column} is never NULL") for column in key]
    return [*checks, Check("key_unique", Unique(key), f"no two rows share the key ({', '.join(key)})")]


def _rule_checks(plan: WindowPlan, table: TablePlan) -> list[Check]:
    return [
        Check(
            rule.name,
            NoneMeets(
                f"{quote(WINDOW_COLUMN)} = {plan.window_id} AND {is_no_delete(table)} "
                f"AND ({_condition(table, rule)}) IS FALSE",
                table.target_key,
            ),
            f"no row of this window breaks {rule.sql} (rule {rule.name}, on failure {rule.on_failure.value})",
            Severity.WARNING if rule.on_failure is OnFailure.WARN else Severity.CRITICAL,
            declared=True,
        )
        for rule in table.settings.rules
    ]


def _condition(table: TablePlan, rule: Rule) -> str:
    columns = [column.name for column in table.in_target.stored_columns]
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
            table.target_key,
        ),
        f"rows are in the warehouse within {freshness_seconds:.0f} seconds of the moment the window was opened",
        Severity.WARNING,
    )


def _list(alias: str, columns: tuple[str, ...]) -> str:
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + quote(column) for column in columns)


# --------------------------------------------------------------------------------------------------------------------
# The answers to the checks of a window, by plain SQL over one connection.
#
# Most windows pass: one statement asks all checks. Where its answer is not a plain yes, each check is asked alone, and
# an error of one is a finding about its table. The report of such a window is written by ``great_expectations``.


_BATCHES = 50
"""The number of batches that one statement checks."""
LOCK_TIMEOUT_SECONDS = 30
"""The time that a check waits for a lock, such as that of an ALTER TABLE whose transaction is open."""
# As for the merge: a few changes of a large target are found by its key, not by reading all of it. A check of a large
# window takes longer than the limit that a role may have for its statements.
_SETTINGS = "SET random_page_cost = 1.1; SET statement_timeout = 0"
_CONNECTION_LOST = ("08", "57P")
_LOCK_NOT_AVAILABLE = "55P03"
_NO_SUCH_TABLE = "42P01"
# The warehouse ended the statement, for reasons other than its text: no resources, canceled, a file that is damaged.
_ENDED = ("53", "57", "58", "XX")


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check that failed."""

    batch: Batch
    check: Check
    seen: str
    """The result, as a text for a message."""

    def __str__(self) -> str:
        return f"{self.batch.table}: {self.check.name}: expected that {self.check.description}; found {self.seen}"


@dataclass(frozen=True, slots=True)
class UnansweredCheck:
    """A check that could not be evaluated."""

    batch: Batch
    error: FloodmarkError


def errors_by_table(
    results: Iterable[FailedCheck | UnansweredCheck],
    refuse: Callable[[TableName, Sequence[FailedCheck]], FloodmarkError],
) -> dict[TableName, FloodmarkError]:
    """Log the warnings, and return the error about each table that fails. refuse: makes one of its failed checks."""
    critical: dict[TableName, list[FailedCheck]] = {}
    errors: dict[TableName, FloodmarkError] = {}
    for result in results:
        if isinstance(result, UnansweredCheck):
            errors.setdefault(result.batch.source, result.error)
        elif result.check.severity is Severity.WARNING:
            _LOG.warning("%s", result)
        else:
            critical.setdefault(result.batch.source, []).append(result)
    return {source: refuse(source, found) for source, found in critical.items()} | errors


def find_failed(url: URL, batches: Sequence[Batch]) -> list[FailedCheck | UnansweredCheck]:
    """Return the checks that failed or could not be evaluated.

    Raises WarehouseUnavailableError if the connection is lost, WatermarkConflictError if another run has finished the
    window.
    """
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            # Without parameters the driver sends a query as it is.
            plain = connection.execution_options(no_parameters=True)
            plain.exec_driver_sql(f"{_SETTINGS}; SET lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
            return [] if _all_pass(plain, batches) else list(_ask_each(plain, batches))
    except SQLAlchemyError as error:
        words = " ".join(str(error).partition("\n")[0].split())
        raise WarehouseUnavailableError("warehouse", "the connection was lost during the checks.", "", words) from error


def _all_pass(connection: Connection, batches: Sequence[Batch]) -> bool:
    """Return whether every check passes. False where one cannot be evaluated."""
    groups = [batches[first : first + _BATCHES] for first in range(0, len(batches), _BATCHES)]
    try:
        return not any(connection.exec_driver_sql(select_failed(some)).first() for some in groups)
    except DBAPIError as error:
        if _is_lost(error):
            raise
        return False


def _ask_each(connection: Connection, batches: Sequence[Batch]) -> Iterator[FailedCheck | UnansweredCheck]:
    """Ask each check alone. A table with a locked target is asked once: each of its checks would wait again."""
    locked = set()
    for batch in batches:
        for check in batch.checks:
            if batch.source in locked:
                continue
            try:
                found = int(connection.exec_driver_sql(_count(check, batch)).scalar_one())
            except DBAPIError as error:
                if _is_lost(error):
                    raise
                if _sqlstate(error) == _LOCK_NOT_AVAILABLE:
                    locked.add(batch.source)
                yield UnansweredCheck(batch, _unanswered(connection, batch, check, error))
            else:
                if found != (check.what.rows if isinstance(check.what, RowCount) else 0):
                    against = "" if isinstance(check.what, RowCount) else " against it"
                    yield FailedCheck(batch, check, f"{found} {'row' if found == 1 else 'rows'}{against}")


def _count(check: Check, batch: Batch) -> str:
    rows = batch.sql if isinstance(check.what, RowCount) else _rows_of(check.what.rows, batch)
    return f"SELECT count(*) FROM ({rows}) AS found"


def _unanswered(connection: Connection, batch: Batch, check: Check, error: DBAPIError) -> FloodmarkError:
    """Return the error about a check without an answer. Raises the one that concerns all tables."""
    source, state = str(batch.source), _sqlstate(error)
    # The message of a data exception quotes a value, and a function of a user may raise any words.
    has_values = state.startswith(("22", "P0"))
    detail = type(error.orig).__name__ if has_values else " ".join(str(error.orig).partition("\n")[0].split())
    if state == _NO_SUCH_TABLE and batch.staged and not _exists(connection, quote_table(batch.staged)):
        raise WatermarkConflictError(source, "another run has finished the window meanwhile.", "Run again.")
    if state == _LOCK_NOT_AVAILABLE:
        return TargetRefusedError(
            source,
            f"check {check.name} waited {LOCK_TIMEOUT_SECONDS} s for a lock on {batch.table}.",
            "Another session holds a lock that no reader passes, such as that of ALTER TABLE: end its transaction. The "
            "next run checks the table again.",
        )
    if state.startswith(_ENDED):
        return TargetRefusedError(
            source,
            f"the warehouse ended check {check.name} ({state}).",
            "The log has its message. The next run checks the table again.",
            detail,
        )
    if check.declared:
        return ConfigError(source, f"rule {check.name} cannot be evaluated.", "Correct its sql.", detail)
    return FloodmarkBugError(source, f"check {check.name} cannot be evaluated ({state}).", "", detail)


def _exists(connection: Connection, relation: str) -> bool:
    literal = relation.replace("'", "''")
    return bool(connection.exec_driver_sql(f"SELECT to_regclass('{literal}') IS NOT NULL").scalar_one())


def _sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def _is_lost(error: DBAPIError) -> bool:
    return error.connection_invalidated or not _sqlstate(error) or _sqlstate(error).startswith(_CONNECTION_LOST)


def select_failed(batches: Sequence[Batch]) -> str:
    """Return the query that has a row where a check of a batch does not pass."""
    return f"{' UNION ALL '.join(f'SELECT 1 WHERE {_fails(batch)}' for batch in batches)} LIMIT 1"


def _fails(batch: Batch) -> str:
    """Return the condition that a check of a batch does not pass. Counts of the same rows share one scan.

    Failed rows are counted: for EXISTS, PostgreSQL plans to find one row soon, and takes minutes to find none.
    """
    counted = [fails for check in batch.checks if (fails := _fails_by_count(check))]
    conditions = [
        f"(SELECT count(*) > 0 FROM ({_rows_of(check.what, batch)}) AS failed)"
        for check in batch.checks
        if isinstance(check.what, NoRows)
    ]
    if counted:
        conditions.insert(0, f"(SELECT {' OR '.join(counted)} FROM ({batch.sql}) AS batch)")
    return f"({' OR '.join(conditions)}) IS NOT FALSE"


def _fails_by_count(check: Check) -> str:
    match check.what:
        case NotNull(column):
            return f"count(*) FILTER (WHERE {quote(column)} IS NULL) > 0"
        case Unique(columns):
            return f"count(*) <> count(DISTINCT ({', '.join(map(quote, columns))}))"
        case RowCount(rows):
            return f"count(*) <> {rows:d}"
        case NoneMeets(condition):
            return f"count(*) FILTER (WHERE {condition}) > 0"
        case NoRows():
            return ""


def _rows_of(what: NoRows, batch: Batch) -> str:
    return what.sql.replace(BATCH, f"({batch.sql}) AS batch")


# --------------------------------------------------------------------------------------------------------------------
# The front page of the data docs: the checked windows, the findings, and a link to the page of each check.
#
# It is one file without external scripts, fonts or styles, so that it can be read on a closed network, as are the pages
# of windows without findings. The pages of the others are made by Great Expectations.


PAGE_STYLE = """<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid #8884; vertical-align: top; }
th { font-weight: 600; } td.number { text-align: right; } ul { margin: 0; padding-left: 1.1rem; }
.passed { color: #1a7f37; } .warned { color: #9a6700; } .failed { color: #cf222e; font-weight: 600; }
small { opacity: .75; }
@media (max-width: 46rem) {
  body { margin: 1rem auto; overflow-wrap: anywhere; }
  table, tbody, tr, td { display: block; } thead, th { display: none; } tr { margin-bottom: .7rem; }
  td, td.number { text-align: left; border: 0; padding: .1rem .4rem; } td.number::after { content: " checks"; }
}
</style>"""
"""The style of the pages, without anything from the web."""


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """The result of one suite over one batch."""

    pipeline: str
    window_id: int
    checked_at: datetime
    name: str
    checks: int
    failures: tuple[str, ...]
    """One sentence per failed critical check."""
    warnings: tuple[str, ...]
    """One sentence per other failed check."""
    page: str
    """The relative path of the page."""

    @property
    def verdict(self) -> str:
        """The result: passed, warned or failed."""
        return "failed" if self.failures else "warned" if self.warnings else "passed"


def render_index(batches: Iterable[CheckedBatch]) -> str:
    """Return the page, the newest window first."""
    ordered = sorted(batches, key=lambda b: b.name)
    ordered.sort(key=_when, reverse=True)
    sections = "".join(_section(list(group)) for _, group in groupby(ordered, key=_when))
    return (
        f"{_head('Floodmark: data quality')}"
        "<h1>Floodmark: data quality</h1><p>Each window is checked after it is merged and before its watermark moves. "
        "When a check of a table fails, its watermark does not move.</p>"
        f"{sections or '<p>No window has been checked yet.</p>'}</body></html>\n"
    )


def render_passed(
    pipeline: str, window_id: int, checked_at: datetime, descriptions: Mapping[str, Sequence[str]]
) -> str:
    """Return the page of a window that passed every check. descriptions: of the checks, by the name of their rows."""
    return render_window(
        pipeline, window_id, checked_at, descriptions, 'Every check <span class="passed">passed</span>.'
    )


def render_window(
    pipeline: str, window_id: int, checked_at: datetime, descriptions: Mapping[str, Sequence[str]], outcome: str
) -> str:
    """Return a page about a window. descriptions: a line for each check, by the name of its rows. outcome: HTML."""
    title = f"Pipeline {escape(pipeline)}, window {window_id}"
    sections = "".join(
        f"<h2>{escape(name)}</h2><ul>{''.join(f'<li>{escape(each)}</li>' for each in checks)}</ul>"
        for name, checks in descriptions.items()
    )
    return (
        f"{_head(title)}<h1>{title}</h1><p>Checked at {checked_at:%Y-%m-%d %H:%M:%S} UTC. "
        f"{outcome}</p>{sections}</body></html>\n"
    )


def _head(title: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{PAGE_STYLE}</head><body>'
    )


def to_json(batch: CheckedBatch) -> dict[str, object]:
    """Return the result for a file of JSON."""
    return asdict(batch) | {"checked_at": batch.checked_at.isoformat()}


def from_json(found: dict[str, Any]) -> CheckedBatch:
    """Return the result that ``to_json`` wrote."""
    lists = {name: tuple(found[name]) for name in ("failures", "warnings")}
    return CheckedBatch(**{**found, **lists, "checked_at": datetime.fromisoformat(found["checked_at"])})


def _when(batch: CheckedBatch) -> tuple[datetime, str, int]:
    return batch.checked_at, batch.pipeline, batch.window_id


def _section(batches: Sequence[CheckedBatch]) -> str:
    first = batches[0]
    rows = "".join(_row(batch) for batch in batches)
    return (
        f"<h2>Pipeline {escape(first.pipeline)}, window {first.window_id} "
        f"<small>{first.checked_at:%Y-%m-%d %H:%M:%S} UTC</small></h2>"
        "<table><thead><tr><th>Rows</th><th>Checks</th><th>Result</th><th>Found</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _row(batch: CheckedBatch) -> str:
    found = "".join(f"<li>{escape(text)}</li>" for text in (*batch.failures, *batch.warnings))
    return (
        f'<tr><td><a href="{url_quote(batch.page)}">{escape(batch.name)}</a></td><td class="number">{batch.checks}</td>'
        f'<td class="{batch.verdict}">{batch.verdict}</td><td>{f"<ul>{found}</ul>" if found else ""}</td></tr>'
    )
