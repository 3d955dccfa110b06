"""The release of rows from quarantine: a window of its own, merged and finished in one transaction.

The newest row of each key is staged again with its present values, and goes through the same gate and the same
merge as every other. A change that the target already has a later one of is not staged: the guard of the merge would
refuse it. So is one from before the newest load of the whole table. That load has read every row as it was later, and
a row that was gone by then has left no tombstone where it was never in the target.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.types.json import Jsonb
from sqlglot import exp

from floodmark.core.errors import OperatorError
from floodmark.core.plan import LoadKind, TableCounts, TablePlan, WindowPlan, release_lane
from floodmark.core.plan_json import plan_to_json
from floodmark.core.recovery import Release, release_rules
from floodmark.core.schema import TableName, keep_column, quote_table
from floodmark.core.settings import TableSettings, UnstorablePolicy
from floodmark.postgres.ledger.schema import (
    WrittenTarget,
    ensure_schema,
    opened_window,
    record_targets,
    refuse_loads,
    refuse_lost_targets,
)
from floodmark.postgres.session import open_transaction, query, source_parameters
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.gate import apply_rules, key_rules, recover_kept_values, settle_merged, text_rules
from floodmark.postgres.warehouse.history import may_be_deleted
from floodmark.postgres.warehouse.merge import (
    Merge,
    count_merge,
    in_bound,
    merge_of,
    same_key,
    staged,
    table,
    tombstone_key,
)
from floodmark.postgres.warehouse.staging import create_staging
from floodmark.postgres.warehouse.targets import LockLimit, column_types, lock_targets
from floodmark.postgres.warehouse.warehouse import constraint_refused, run_merge

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection

_NO_INTERVAL = {"after_lsn": None, "margin_seconds": None}


class PostgresQuarantine:
    """The rows in quarantine. It holds no session: each method is one transaction of its own."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def release(self, pipeline: str, table: TableSettings, by: str) -> Release:
        """Merge the rows of a table that break no rule any more, by the rules and the policy for texts in ``table``.

        Of each key only the newest row is merged, and only where the target has no later change of it.
        Raises OperatorError for a table that no window has merged, or whose rows belong to members;
        WatermarkConflictError while the table is reloaded; TargetRefusedError for a constraint that Floodmark did not
        create.
        """
        ensure_schema(self._at)
        with open_transaction(self._at, str(table.source)) as session:
            last = last_plan(session, pipeline, table.source)
            planned = plan_release(last, table)
            planned = planned.with_rules((*key_rules(planned), *text_rules(planned), *planned.settings.rules))
            # After the lock no load of the whole table can be merged: it waits for the same lock.
            lock_targets(session, [planned.target])
            lane = release_lane(planned.source)
            refuse_loads(session, pipeline, lane, [planned.source])
            refuse_lost_targets(session, replace(last, tables=(planned,)))
            opened = query(
                session,
                "open_window",
                pipeline=pipeline,
                lane=lane,
                to_lsn=last.to.value,
                to_lsn_at=last.to_at,
                lag_seconds=None,
            )[0]
            plan = replace(last, window_id=opened["window_id"], tables=(planned,), lane=lane, attempt=0)
            with LockLimit(session, self._at, lane) as limit, limit.table(planned):
                return _Release(session, plan, planned, merge_of(plan, 0, has_tombstones=True), by).run()

    def discard(self, pipeline: str, table: TableName, rule: str | None, by: str) -> int:
        """Settle the rows of a table without a merge. rule: only of this one. Return the number of entries."""
        ensure_schema(self._at)
        with open_transaction(self._at, str(table)) as session:
            named = {"pipeline": pipeline, "rule": rule, "by": by, **source_parameters(table)}
            return session.execute(read_sql("discard_rows"), named).rowcount


@dataclass(frozen=True)
class _Release:
    session: psycopg.Connection
    plan: WindowPlan
    planned: TablePlan
    merge: Merge
    by: str

    def run(self) -> Release:
        self._stage()
        self._settle("settle_overtaken")
        recover_kept_values(self.session, self.planned, self.merge, column_types(self.planned))
        gate = apply_rules(self.session, self.plan, self.planned, self.merge)
        self._drop_incomplete()
        counted = count_merge(self.session, self.merge)
        counted = run_merge(self.session, self.planned, self.merge, counted)
        try:
            self.session.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.IntegrityError as error:
            raise constraint_refused(self.planned, error) from error
        settle_merged(self.session, self.merge, self._target() | {"by": self.by})
        self.session.execute(f"DROP TABLE {quote_table(self.merge.staging)}")
        window_id = None
        if counted.staged:
            unchanged = counted.staged - counted.inserted - counted.updated
            counts = TableCounts(
                staged_rows=counted.staged,
                inserted_rows=counted.inserted,
                updated_rows=counted.updated,
                unchanged_rows=unchanged,
                warned_rows=gate.warned,
            )
            record_release(self.session, self.plan, counts)
            record_targets(self.session, self.plan, [WrittenTarget(self.planned, counted.written > 0)])
            window_id = self.plan.window_id
        else:
            query(self.session, "drop_window", window_id=self.plan.window_id)
        return replace(
            read_outcome(self.session, self.planned.target, gate.quarantined),
            window_id=window_id,
            inserted_rows=counted.inserted,
            updated_rows=counted.updated,
        )

    def _stage(self) -> None:
        source = self.planned.source
        load_id = newest_load(self.session, self.plan.pipeline, source)
        named = self._target() | {"by": self.by, "load_window_id": load_id}
        self.session.execute(read_sql("settle_older"), named)
        self.session.execute(create_staging(self.plan, 0, load_id))
        values = {
            "key": list(self.merge.key),
            "columns": list(column_types(self.planned)),
            "is_replaced": self.planned.settings.unstorable is UnstorablePolicy.REPLACE,
        }
        try:
            self.session.execute(self._filled("stage_newest"), self._target() | values)
        except psycopg.DataError as error:  # its message may quote the value
            raise wrong_value(self.planned, error) from None

    def _drop_incomplete(self) -> None:
        """Remove rows from staging whose changes left out a LOB that neither target nor quarantine has."""
        if not self.merge.optional:
            return
        kept = [exp.func("COALESCE", staged(keep_column(name)), exp.false()) for name in self.merge.optional]
        absent = exp.not_(
            exp.Exists(this=exp.select("1").from_(table(self.merge.target, "t")).where(same_key(self.merge)))
        )
        dropped = exp.delete(table(self.merge.staging, "s")).where(exp.and_(exp.or_(*kept), absent))
        self.session.execute(dropped.sql(dialect="postgres"))

    def _settle(self, statement: str) -> None:
        self.session.execute(self._filled(statement), self._target() | {"by": self.by})

    def _filled(self, statement: str) -> str:
        merge = self.merge
        # An INSERT names its table without an alias.
        staging = quote_table(merge.staging) if statement == "stage_newest" else in_bound(table(merge.staging, "s"))
        return read_sql(statement).format(
            staging=staging,
            target=in_bound(table(merge.target, "t")),
            same_key=in_bound(same_key(merge)),
            key=in_bound(tombstone_key(merge)),
            deleted=may_be_deleted(self.planned).replace("%", "%%"),
        )

    def _target(self) -> dict[str, Any]:
        return {"target_schema": self.planned.target.schema, "target_name": self.planned.target.name}


def last_plan(
    session: psycopg.Connection, pipeline: str, source: TableName, so: str = "nothing of it is in quarantine"
) -> WindowPlan:
    """Return the plan of the newest merged window with a table. Raises OperatorError, with what follows, for none."""
    found = query(session, "newest_plan", pipeline=pipeline, **source_parameters(source))
    if not found:
        raise OperatorError(str(source), f"no window has merged it yet, so {so}.")
    return opened_window(found[0]).plan


def plan_release(last: WindowPlan, settings: TableSettings) -> TablePlan:
    """Return the table as it was last merged, with the rules of the configuration, of which none stops a release.

    Raises OperatorError for rows of members.
    """
    planned = next(each for each in last.tables if each.source == settings.source)
    if planned.feed.member_column and not planned.is_log:
        raise OperatorError(
            str(settings.source),
            f"its rows belong to members ({planned.feed.member_column}), which are also read one by one as a whole: a "
            "row in quarantine may be of a member that no longer has it.",
            "Correct the row where it comes from, or reload the table.",
        )
    used = replace(planned.settings, unstorable=settings.unstorable)
    planned = replace(planned, settings=used, kind=LoadKind.CHANGES, interval=None, is_reload=False, where="")
    return planned.with_rules(release_rules(settings.rules))


def wrong_value(planned: TablePlan, error: psycopg.DataError) -> OperatorError:
    """Return the error about a row in quarantine that was not corrected to a value of its column. It shows no value."""
    return OperatorError(
        str(planned.source),
        f"a value in quarantine does not have the type of its column in {planned.target}.",
        "Nothing was released. Correct the value in floodmark.quarantine, or discard the row.",
        type(error).__name__,
    )


def newest_load(session: psycopg.Connection, pipeline: str, source: TableName) -> int:
    """Return the window of the newest load of a whole table; 0 for none."""
    for row in query(session, "list_whole_loads", pipeline=pipeline):
        if TableName(row["source_schema"], row["source_name"]) == source:
            return int(row["window_id"])
    return 0


def record_release(session: psycopg.Connection, plan: WindowPlan, counts: TableCounts) -> None:
    """Write the window of a release, which is open, to the ledger as one that is finished. No watermark moves."""
    [planned] = plan.tables
    named: dict[str, Any] = {"window_id": plan.window_id, **source_parameters(planned.source)}
    query(session, "store_plan", window_id=plan.window_id, plan=Jsonb(plan_to_json(plan)))
    query(session, "open_window_table", **named, kind=planned.kind.value, **_NO_INTERVAL)
    query(session, "record_counts", **named | asdict(counts))
    for step in ("mark_merged", "mark_checked", "mark_advanced"):
        query(session, step, window_id=plan.window_id)


def read_outcome(session: psycopg.Connection, target: TableName, broken_rows: int) -> Release:
    """Return what the transaction has settled of the rows of a target, and what stays.

    broken_rows: rows that still break a rule.
    """
    named = {"target_schema": target.schema, "target_name": target.name}
    rows = query(session, "count_outcomes", **named)
    settled = {
        outcome: sum(row["rows"] for row in rows if row["outcome"] == outcome) for outcome in ("released", "overtaken")
    }
    remaining = {row["rule"]: row["rows"] for row in rows if row["outcome"] is None}
    keys = session.execute(read_sql("count_open_keys"), named).fetchone()
    return Release(settled["released"], settled["overtaken"], remaining, (keys[0] if keys else 0) - broken_rows)
