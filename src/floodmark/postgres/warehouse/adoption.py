"""The adoption of targets that another tool has loaded: Floodmark's columns are added, and the watermark is set.

One transaction does both. PostgreSQL stores the value of a new column for all existing rows once, so that no row is
written, however large the table is. A column that is missing or too narrow is refused, and not added or widened as in
a run: the values that the other tool has not stored would be missing for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from floodmark.core.errors import ConfigError
from floodmark.core.plan import TableCounts, TablePlan, WindowPlan, import_lane
from floodmark.core.schema import (
    COMMITTED_COLUMN,
    DELETED_COLUMN,
    KEPT_COLUMN,
    LOAD_COLUMN,
    LOADED_AT_COLUMN,
    OPERATION_COLUMN,
    POSITION_COLUMN,
    VALID_FROM_COLUMN,
    WINDOW_COLUMN,
    quote,
    quote_table,
)
from floodmark.core.settings import Style
from floodmark.postgres.ledger.schema import WrittenTarget, record_targets
from floodmark.postgres.ledger.steps import finish_table, insert_window, mark_merged
from floodmark.postgres.session import open_transaction, query, source_parameters
from floodmark.postgres.warehouse.targets import (
    LOCK_SECONDS,
    NULLABLE_COLUMNS,
    OWN_TYPES,
    TargetColumn,
    column_types,
    floodmark_columns,
    list_relations,
    lock_targets,
    read_columns,
    type_holds,
)
from floodmark.postgres.warehouse.views import ensure_with_view, read_views
from floodmark.sync.ports import RowsAge

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection

_INSERT = 2


class PostgresAdoption:
    """The adoption of a target that another tool has filled. It holds no session."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def check_adoption(self, plan: TablePlan) -> None:
        """Raise ConfigError where the plan's target cannot be adopted, naming all its columns that do not fit.

        plan: of a first load. Values that the target has lost, because a column is missing or too narrow, would be
        missing for good.
        """
        with open_transaction(self._at, str(plan.source)) as session:
            _check(session, plan)

    def adopt(self, pipeline: str, plan: TablePlan, age: RowsAge) -> int:
        """Add Floodmark's columns to the plan's target, and set its watermark. Return the window that records it.

        Raises as ``check_adoption``, WatermarkConflictError where the table has a watermark, and WindowBusyError where
        a window of the pipeline holds it. Nothing is written then.
        """
        with open_transaction(self._at, str(plan.source)) as session:
            session.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS:g}s'")
            window = insert_window(session, pipeline, import_lane(plan.source), age.at, [plan])
            lock_targets(session, [plan.target])
            _check(session, plan)
            _add_columns(session, window, plan, age)
            if plan.is_history:
                found, views = read_columns(session, list_relations([plan])), read_views(session, [plan])
                ensure_with_view(session, window, plan, found, views.get(plan.target))
            _finish(session, window, plan, age)
        return window.window_id


def _check(session: psycopg.Connection, plan: TablePlan) -> None:
    found = read_columns(session, [plan.target]).get(plan.target, {})
    if not found:
        raise _not_adopted(
            plan,
            "does not exist",
            "Name the table that has the rows (target in pipelines.yaml). Where there is none, run the pipeline: it "
            "loads the table.",
        )
    if plan.is_history and read_columns(session, [plan.ended_versions.target]):
        problem = f"is to be a history, whose ended versions belong in {plan.ended_versions.target}, which exists"
        raise _not_adopted(plan, problem, "Rename or drop that table.")
    if plan.settings.style not in (Style.CURRENT, Style.HISTORY):
        problem = f"has rows that were merged, so it cannot be adopted as a {plan.settings.style.value}"
        raise _not_adopted(plan, problem, "Use style: current or history.")
    if other := [column.name for column in plan.settings.columns if column.is_other]:
        problem = f"may have other values of {', '.join(other)}, which columns of the table masks, casts or leaves out"
        raise _not_adopted(plan, problem, "Name another target, and run the pipeline, which loads it.")
    if plan.settings.where is not None:
        problem = "may have rows that where does not let pass"
        raise _not_adopted(plan, problem, "Name another target, and run the pipeline, which loads it.")
    named = {"schema": plan.target.schema, "name": plan.target.name}
    (relation,) = query(session, "read_relation", **named)
    if not relation["is_table"]:
        raise _not_adopted(plan, "is no table", "Name the table that has the rows (target in pipelines.yaml).")
    if not relation["is_owned"]:
        raise _not_adopted(
            plan,
            "belongs to another user, so its columns cannot be changed",
            f"ALTER TABLE {quote_table(plan.target)} OWNER TO the user of the warehouse connection.",
        )
    if problems := list(_list_problems(plan, found)):
        raise _not_adopted(
            plan,
            f"does not have the shape that Floodmark expects: {'; '.join(problems)}",
            "Correct the table where no value is lost by it, or rename or drop it and run the pipeline, which loads "
            "the table from the source.",
        )


def _list_problems(plan: TablePlan, found: Mapping[str, TargetColumn]) -> Iterator[str]:
    if own := [name for name in floodmark_columns(plan) if name in found]:
        yield f"it has {', '.join(own)}, which are the names of Floodmark's own columns"
    folded, wanted = {name.casefold(): name for name in found}, column_types(plan)
    for name, type_name in wanted.items():
        if name in found:
            if not type_holds(found[name].type_name, type_name):
                yield f"column {name} is {found[name].type_name}, expected {type_name}"
        else:
            other = folded.get(name.casefold())
            yield f"column {name} ({type_name}) is missing" + (f", there is {other}" if other else "")
    key = {name for name, column in found.items() if column.in_key}
    if key != set(plan.in_target.key):
        its = f"({', '.join(sorted(key))})" if key else "missing"
        yield f"the primary key is {its}, expected ({', '.join(plan.in_target.key)})"
    for name, column in found.items():
        if name not in wanted and name not in floodmark_columns(plan) and not column.filled_by_itself:
            yield f"column {name} is NOT NULL, has no default, and does not come from the source"


def _add_columns(session: psycopg.Connection, window: WindowPlan, plan: TablePlan, age: RowsAge) -> None:
    """Add Floodmark's columns with the values of the existing rows, which new rows do not get.

    The rows of a history are versions that the window made, as those of a load.
    """
    values = {
        POSITION_COLUMN: f"'\\x{window.rows_at(plan).hex()}'",
        OPERATION_COLUMN: str(_INSERT),
        WINDOW_COLUMN: str(window.window_id),
        LOADED_AT_COLUMN: "now()",
        DELETED_COLUMN: "false",
    }
    if plan.is_history:
        begins = sql.Literal(age.begins_at).as_string(session)
        values |= {LOAD_COLUMN: str(window.window_id), KEPT_COLUMN: "'{}'"}
        values |= dict.fromkeys((COMMITTED_COLUMN, VALID_FROM_COLUMN), begins)
    types = {name: OWN_TYPES[name] + ("" if name in NULLABLE_COLUMNS else " NOT NULL") for name in values}
    added = (f"ADD COLUMN {quote(name)} {types[name]} DEFAULT {value}" for name, value in values.items())
    dropped = (f"ALTER COLUMN {quote(name)} DROP DEFAULT" for name in values)
    for changes in (added, dropped):
        session.execute(f"ALTER TABLE {quote_table(plan.target)} {', '.join(changes)}")


def _finish(session: psycopg.Connection, window: WindowPlan, plan: TablePlan, age: RowsAge) -> None:
    """Take the window through all steps of a first load that has read no row itself."""
    query(
        session,
        "record_reads",
        window_id=window.window_id,
        **source_parameters(plan.source),
        read_rows=0,
        read_finished_at=age.read_finished_at,
        read_lsn=age.read_to and age.read_to.value,
        read_lsn_at=age.read_to_at,
    )
    mark_merged(session, window, {plan.source: TableCounts()})
    record_targets(session, window, [WrittenTarget(plan, has_written=True)])
    query(session, "mark_checked", window_id=window.window_id)
    finish_table(session, window, plan)
    query(session, "mark_advanced", window_id=window.window_id)


def _not_adopted(plan: TablePlan, problem: str, hint: str) -> ConfigError:
    return ConfigError(str(plan.source), f"the target {plan.target} {problem}.", hint)
