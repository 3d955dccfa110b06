"""The gate between staging and target: declared rules, evaluated on the values that the target would get.

A row that is read again, by a replay or by another load at the same position, is stored in quarantine once. Deletes are
not evaluated. A LOB that the change row left out is evaluated with the target's value, or, where the change with the
value is in quarantine, with the value from there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlglot import exp

from floodmark.core.errors import ConfigError, DataQualityError, command_line
from floodmark.core.plan import LoadKind, TablePlan, WindowPlan, value_columns
from floodmark.core.schema import (
    OLD_IMAGES,
    OPERATION_COLUMN,
    PART_COLUMN,
    POSITION_COLUMN,
    UNSTORABLE_COLUMN,
    keep_column,
    quote,
    quote_table,
)
from floodmark.core.settings import OnFailure, Rule, UnstorablePolicy
from floodmark.core.types import Kind
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.merge import (
    DELETE_OPERATION,
    Merge,
    equal_keys,
    in_bound,
    is_delete,
    leaves_out,
    left_join,
    list_positions,
    same_key,
    staged,
    table,
    target,
    tombstone_key,
)
from floodmark.sync.rules import bind_rule, columns_of

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Rows about a table that earlier windows have left outside of its target."""

    has_tombstones: bool
    """A tombstone may have a higher position than a staged row, which only happens in a replay."""
    has_quarantine: bool
    """Quarantine has a row of the target, also a settled one."""
    has_waiting: bool
    """A row in quarantine waits for a decision."""


def find_leftovers(session: psycopg.Connection, plan: WindowPlan) -> Sequence[Leftovers]:
    """Return the leftovers of the tables of a plan, in their order: one question before the merge of many tables.

    The targets must be locked. The merge of a table leaves nothing for another one.
    """
    above = [table.interval.after if table.interval else plan.to for table in plan.tables]
    named = {
        "pipeline": plan.pipeline,
        "source_schemas": [table.source.schema for table in plan.tables],
        "source_names": [table.source.name for table in plan.tables],
        "target_schemas": [table.target.schema for table in plan.tables],
        "target_names": [table.target.name for table in plan.tables],
        "above_lsns": [each.value for each in above],
    }
    return [Leftovers(*row) for row in session.execute(read_sql("find_leftovers"), named)]


KEY_RULE = "key_is_not_null"
TEXT_RULE = "text_can_be_stored"


def key_rules(planned: TablePlan) -> tuple[Rule, ...]:
    """Return the rule for a key that can be NULL: nothing can be merged by NULL, so such rows go to quarantine."""
    nullable = nullable_key_columns(planned)
    condition = " AND ".join(f"{quote(name)} IS NOT NULL" for name in nullable)
    return (Rule(KEY_RULE, condition, OnFailure.QUARANTINE),) if nullable else ()


def nullable_key_columns(planned: TablePlan) -> list[str]:
    """Return the columns of the key that can be NULL, where rows are merged by it."""
    table = planned.in_target
    if planned.is_log or planned.is_snapshot:
        return []
    return [name for name in table.key if table.column(name).nullable]


def text_rules(planned: TablePlan) -> tuple[Rule, ...]:
    """Return the rule for rows with a text that cannot be stored (``warehouse.sink``)."""
    is_text = any(
        column.type.kind is Kind.TEXT for column in value_columns(planned.in_target, planned.settings.temporal)
    )
    return (Rule(TEXT_RULE, f"{quote(UNSTORABLE_COLUMN)} IS NULL", OnFailure.QUARANTINE),) if is_text else ()


def drop_unknown_deletes(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> int:
    """Remove from staging the deletes of keys that the target never had. Return their number."""
    dropped = _drop_keyless_deletes(session, planned, merge)
    if planned.is_history and planned.feed.delivers_net:
        return dropped + _drop_empty_deletes(session, planned, merge)
    return dropped + _drop_filtered_deletes(session, planned, merge)


def _drop_keyless_deletes(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> int:
    """Remove from staging the deletes of rows whose key was NULL or cannot be stored: no target has them.

    Return their number. A log keeps them.
    """
    if merge.is_log:
        return 0
    unknown = [f"{quote(name)} IS NULL" for name in nullable_key_columns(planned)]
    unknown += [f"{quote(UNSTORABLE_COLUMN)} IS NOT NULL"] if text_rules(planned) else []
    if not unknown:
        return 0
    staging = quote_table(merge.staging)
    dropped = session.execute(
        f"DELETE FROM {staging} WHERE __op = {DELETE_OPERATION} AND ({' OR '.join(unknown)})"  # noqa: S608  (quoted)
    ).rowcount
    if dropped:
        _LOG.warning(
            "%s: %s deletes have a key that no row of the target has: it is NULL, or cannot be stored.",
            planned.source,
            dropped,
        )
    return dropped


def _drop_filtered_deletes(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> int:
    """Remove from staging the deletes of keys that the target does not have: of rows that may never have passed.

    Return their number.

    Such a source delivers the newest state of each key, so that no older window can bring the row: it needs no
    tombstone. A row of the key that waits in quarantine is settled first, as by a delete that is merged.
    """
    if planned.settings.where is None or not planned.feed.delivers_net:
        return 0
    deletes = exp.select("*").from_(table(merge.staging, "s")).where(is_delete()).subquery("s")
    _settle(session, merge, deletes, settled_by_a_window(planned))
    known = exp.Exists(this=exp.select("1").from_(table(merge.target, "t")).where(same_key(merge)))
    dropped = exp.delete(table(merge.staging, "s")).where(exp.and_(is_delete(), exp.not_(known)))
    return session.execute(dropped.sql(dialect="postgres")).rowcount


def _drop_empty_deletes(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> int:
    """Remove from the staging of a history the deletes of keys that have no row to delete. Return their number.

    Net changes of the source have them for a row that came and went between two windows, or that may never have passed
    the filter. No earlier version of the key can come any more, unless it waits in quarantine.
    """
    key = planned.in_target.key
    statement = read_sql("drop_empty_deletes").format(
        staging=in_bound(table(merge.staging, "s")),
        target=in_bound(table(merge.target, "t")),
        same_key=in_bound(exp.and_(*(exp.EQ(this=target(name), expression=staged(name)) for name in key))),
        key=in_bound(exp.func("JSONB_BUILD_ARRAY", *map(staged, key))),
    )
    named = {"target_schema": planned.target.schema, "target_name": planned.target.name}
    return session.execute(statement, named).rowcount


def refuse_keyless_deletes(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> None:
    """Raise DataQualityError naming the columns of the key that are NULL in staged deletes."""
    nulls = ", ".join(f"bool_or({quote(name)} IS NULL)" for name in merge.key)
    found = session.execute(
        f"SELECT {nulls} FROM {quote_table(merge.staging)} WHERE __op = {DELETE_OPERATION}"  # noqa: S608  (quoted)
    ).fetchone()
    columns = [name for name, is_null in zip(merge.key, found or (), strict=True) if is_null]
    raise DataQualityError(
        str(planned.source),
        f"deletes of the window have no key: {' and '.join(columns)} is NULL in them, but NOT NULL at the source.",
        "Nothing was merged: it is not known which rows were deleted. Reload the table "
        f"({command_line('reload', 'PIPELINE', planned.source)}).",
    )


@dataclass(frozen=True, slots=True)
class GateCounts:
    """The rows of a window that broke rules."""

    quarantined: int = 0
    """Rows that were moved to quarantine."""
    warned: int = 0
    """Violations of rules that only warn."""


def apply_rules(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge) -> GateCounts:
    """Move broken rows from staging to quarantine, by the rules of the table.

    Raises DataQualityError for a broken rule that stops the run, or a broken row that quarantine cannot hold;
    ConfigError for a rule that cannot be evaluated.
    """
    if not planned.settings.rules:
        return GateCounts()
    broken = broken_rows(planned, merge)
    counts = _count_broken(session, planned, merge, broken)
    for rule, rows in counts.items():
        if rows and rule.on_failure is OnFailure.STOP:
            of_rule = join_target(merge, exp.select().from_(table(merge.staging, "s"))).where(broken[rule].copy())
            raise stopped(planned, rule, list_positions(session, of_rule))
    quarantining = [rule for rule, rows in counts.items() if rows and rule.on_failure is OnFailure.QUARANTINE]
    for rule in quarantining:
        if planned.kind is LoadKind.FIRST_LOAD:
            # They are stored again under this window: the sweep finds the rows that the load has read by their window.
            session.execute(_delete_earlier(planned, merge, rule).sql(dialect="postgres"))
        try:
            session.execute(_quarantine(plan, planned, merge, rule, broken[rule]).sql(dialect="postgres"))
        except psycopg.errors.ProgramLimitExceeded as error:
            raise too_large(planned, rule) from error
    quarantined = 0
    if quarantining:
        rows_in = exp.select(exp.column("ctid", "s")).from_(table(merge.staging, "s"))
        rows_in = join_target(merge, rows_in).where(exp.or_(*(broken[rule] for rule in quarantining)))
        removed = exp.delete(table(merge.staging, "g")).where(exp.column("ctid", "g").isin(rows_in))
        quarantined = session.execute(removed.sql(dialect="postgres")).rowcount
    warned = sum(rows for rule, rows in counts.items() if rule.on_failure is OnFailure.WARN)
    return GateCounts(quarantined, warned)


def recover_kept_values(session: psycopg.Connection, planned: TablePlan, merge: Merge, types: dict[str, str]) -> None:
    """Fill a LOB that was left out from quarantine, where the change with its value is in quarantine.

    Otherwise a row that corrects a quarantined one would keep the LOB from before both. A text that cannot be stored
    still cannot: the row goes to quarantine too.
    """
    if not merge.optional:
        return
    names = {"target_schema": planned.target.schema, "target_name": planned.target.name}
    statement = read_sql("recover_kept_value")
    is_replaced = planned.settings.unstorable is UnstorablePolicy.REPLACE
    for name in merge.optional:
        session.execute(
            statement.format(
                staging=in_bound(table(merge.staging, "s")),
                target=in_bound(table(merge.target, "t")),
                key=in_bound(tombstone_key(merge)),
                same_key=in_bound(same_key(merge)),
                column=in_bound(exp.to_identifier(name, quoted=True)),
                type=types[name],
                keep=in_bound(exp.to_identifier(keep_column(name), quoted=True)),
            ),
            {**names, "column": name, "keep": keep_column(name), "is_replaced": is_replaced},
        )


def drop_set_aside(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> int:
    """Remove from the staging of a replay the changes that left a LOB out and whose row is in quarantine as a whole.

    The target lacks such a row, because each of its versions that had the LOB was set aside. A newer version than the
    change is in quarantine, so the change is not needed. Return the number of changes.
    """
    if not merge.optional:
        return 0
    statement = read_sql("drop_set_aside").format(
        staging=in_bound(table(merge.staging, "s")),
        target=in_bound(table(merge.target, "t")),
        key=in_bound(tombstone_key(merge)),
        same_key=in_bound(same_key(merge)),
        leaves_out=in_bound(leaves_out(merge)),
    )
    named = {"target_schema": planned.target.schema, "target_name": planned.target.name}
    dropped = session.execute(statement, named).rowcount
    if dropped:
        _LOG.info("%s: %s replayed changes are of rows with a newer version in quarantine.", planned.source, dropped)
    return dropped


_BY_A_WINDOW = "floodmark"
"""Who settled a row in quarantine that a window has corrected or overtaken."""


def settle_quarantine(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge) -> None:
    """Settle the rows in quarantine that no longer wait: the window merged them, or a later change of them."""
    named = settled_by_a_window(planned)
    if planned.kind is LoadKind.FIRST_LOAD and not planned.where and not planned.keeps_unread:
        # The load has read every row: one that still breaks a rule is in quarantine under this window.
        session.execute(read_sql("settle_older"), named | {"load_window_id": plan.window_id})
    settle_merged(session, merge, named)


def settled_by_a_window(planned: TablePlan) -> dict[str, Any]:
    """Return the parameters of the statements that settle rows of a table."""
    return {"target_schema": planned.target.schema, "target_name": planned.target.name, "by": _BY_A_WINDOW}


def settle_merged(session: psycopg.Connection, merge: Merge, named: Mapping[str, Any]) -> None:
    """Settle the rows in quarantine that the rows in staging, which have been merged, are or overtake."""
    _settle(session, merge, table(merge.staging, "s"), named)


def _settle(session: psycopg.Connection, merge: Merge, rows: exp.Expression, named: Mapping[str, Any]) -> None:
    statement = read_sql("settle_released").format(staging=in_bound(rows), key=in_bound(tombstone_key(merge)))
    session.execute(statement, named)


def broken_rows(planned: TablePlan, merge: Merge) -> dict[Rule, exp.Expression]:
    """Return the condition of each rule of a table that a staged row breaks it. Raises ConfigError for a wrong rule."""
    return {rule: _broken(planned, merge, rule) for rule in planned.settings.rules}


def _broken(planned: TablePlan, merge: Merge, rule: Rule) -> exp.Expression:
    """Return the condition that a staged row has new values and breaks the rule; NULL passes."""
    try:
        condition = bind_rule(rule.sql, (*merge.columns, UNSTORABLE_COLUMN))
    except ValueError as error:
        raise ConfigError(str(planned.source), f"rule {rule.name}: {error}.") from None
    for column in list(condition.find_all(exp.Column)):
        value: exp.Expression = staged(column.name)
        if column.name in merge.optional:
            value = exp.Case(
                ifs=[exp.If(this=staged(keep_column(column.name)), true=target(column.name))], default=value
            )
        if column is condition:
            condition = value
        else:
            column.replace(value)
    is_old = staged(OPERATION_COLUMN).isin(*OLD_IMAGES)
    return exp.and_(exp.not_(is_old), exp.Is(this=exp.paren(condition), expression=exp.false()))


def join_target(merge: Merge, rows: exp.Select) -> exp.Select:
    """Return staged rows with those of the target that have their keys."""
    return left_join(rows, table(merge.target, "t"), same_key(merge))


def build_broken_count(merge: Merge, broken: Mapping[Rule, exp.Expression]) -> exp.Select:
    """Return the query for the number of staged rows that break each rule."""
    counts = [exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=b.copy())) for b in broken.values()]
    rows = exp.select(*counts).from_(table(merge.staging, "s"))
    return join_target(merge, rows) if reads_target(merge, broken) else rows


def reads_target(merge: Merge, broken: Mapping[Rule, exp.Expression]) -> bool:
    """Return whether a rule has a column whose value may be that of the target."""
    return any(name in merge.optional for condition in broken.values() for name in columns_of(condition))


def _count_broken(
    session: psycopg.Connection, planned: TablePlan, merge: Merge, broken: dict[Rule, exp.Expression]
) -> dict[Rule, int]:
    try:
        found = session.execute(build_broken_count(merge, broken).sql(dialect="postgres")).fetchone()
    except (psycopg.ProgrammingError, psycopg.DataError) as error:
        raise _not_evaluated(planned, broken, error) from error
    return dict(zip(broken, found or (), strict=True))


def _not_evaluated(planned: TablePlan, rules: Iterable[Rule], error: psycopg.Error) -> ConfigError:
    names = ", ".join(rule.name for rule in rules if rule.name not in (KEY_RULE, TEXT_RULE))
    what = f"one of its rules ({names}) cannot be evaluated"
    if isinstance(error, psycopg.DataError):  # its message may quote the value that could not be converted
        return ConfigError(str(planned.source), f"{what} on a value of the window ({type(error).__name__}).")
    return ConfigError(str(planned.source), f"{what}: {(error.diag.message_primary or '').rstrip('.')}.")


def _quarantine(plan: WindowPlan, planned: TablePlan, merge: Merge, rule: Rule, broken: exp.Expression) -> exp.Insert:
    # Without the star, the name is that of a column before it is that of a table.
    row = exp.func("TO_JSONB", exp.Column(this=exp.Star(), table=exp.to_identifier("s")))
    values: dict[str, exp.Expression] = {
        "pipeline": exp.Literal.string(plan.pipeline),
        "source_schema": exp.Literal.string(planned.source.schema),
        "source_name": exp.Literal.string(planned.source.name),
        "target_schema": exp.Literal.string(planned.target.schema),
        "target_name": exp.Literal.string(planned.target.name),
        "window_id": exp.Literal.number(plan.window_id),
        "rule": exp.Literal.string(rule.name),
        "key": tombstone_key(merge),
        "lsn": staged(POSITION_COLUMN),
        "row_data": exp.Sub(this=row, expression=exp.Literal.string(PART_COLUMN)),
    }
    rows = join_target(merge, exp.select(*values.values()).from_(table(merge.staging, "s"))).where(broken.copy())
    rows = rows.where(exp.not_(exp.Exists(this=_select_earlier(planned, merge, rule))))
    return exp.insert(rows, exp.table_("quarantine", "floodmark"), columns=list(values))


def _delete_earlier(planned: TablePlan, merge: Merge, rule: Rule) -> exp.Delete:
    """Return the statement that deletes the rows that an earlier load at the same position stored for the rule."""
    staged_again = exp.select("1").from_(table(merge.staging, "s")).where(_is_same_change(planned, merge, rule))
    return exp.delete(exp.table_("quarantine", "floodmark", alias="q")).where(exp.Exists(this=staged_again))


def _select_earlier(planned: TablePlan, merge: Merge, rule: Rule) -> exp.Select:
    """Return the query for the row of quarantine that is the same change and rule as the staged row."""
    quarantine = exp.table_("quarantine", "floodmark", alias="q")
    return exp.select("1").from_(quarantine).where(_is_same_change(planned, merge, rule))


def _is_same_change(planned: TablePlan, merge: Merge, rule: Rule) -> exp.Expression:
    equal: dict[str, exp.Expression] = {
        "target_schema": exp.Literal.string(planned.target.schema),
        "target_name": exp.Literal.string(planned.target.name),
        "rule": exp.Literal.string(rule.name),
        "lsn": staged(POSITION_COLUMN),
    }
    same = equal_keys(exp.column("key", "q"), tombstone_key(merge))
    return exp.and_(same, *(exp.EQ(this=exp.column(name, "q"), expression=value) for name, value in equal.items()))


def stopped(planned: TablePlan, rule: Rule, at: str) -> DataQualityError:
    """Return the error about a rule that stops the run. at: positions of some rows that break it."""
    return DataQualityError(
        str(planned.source),
        f"rows of the window broke rule {rule.name} ({rule.sql}).",
        "Nothing of the table was merged; the log of the load says where some were changed. Correct the data at the "
        "source, or change the rule (or its on_failure): the next run reads the rows again, and the correction with "
        "them.",
        f"such as at {at}",
    )


def too_large(planned: TablePlan, rule: Rule) -> DataQualityError:
    """Return the error about a row that quarantine cannot hold."""
    instead = "set unstorable: replace" if rule.name == TEXT_RULE else "let the rule warn (on_failure: warn)"
    return DataQualityError(
        str(planned.source),
        f"a row of the window broke rule {rule.name}, and is too large for quarantine, which holds 255 MB of a row.",
        f"Nothing of the table was merged. Shorten the row at the source, or {instead}: the next run reads it again.",
    )
