"""The marks and the verdicts of members in the ledger. Part of ``PostgresLedger``.

A statement is about all members of a table: there may be thousands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg

from floodmark.core.errors import OperatorError
from floodmark.core.plan import (
    LoadKind,
    MemberRead,
    QuarantinedMessages,
    TablePlan,
    WindowPlan,
    member_name,
)
from floodmark.core.schema import TableName
from floodmark.core.snapshot import MemberMark, Validity, Verdict
from floodmark.core.verdicts import LEFT_OUT
from floodmark.postgres.session import open_transaction, query, source_parameters
from floodmark.postgres.sql import read_sql

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection


class MemberRecords:
    """The part of ``PostgresLedger`` for members. It holds no session: each method is one transaction of its own."""

    _at: WarehouseConnection

    def list_stopped_members(self, pipeline: str) -> Sequence[tuple[TableName, Validity]]:
        """Return the verdicts of the last loads that leave a member out, each with the table that it is a member of."""
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "list_stopped_members", pipeline=pipeline, stops=[each.value for each in LEFT_OUT])
        found = []
        for row in rows:
            table = TableName(row["source_schema"], row["source_name"])
            name = member_name(table, row["member"])
            found.append((table, Validity(name, Verdict(row["verdict"]), row["cause"], row["hint"])))
        return found

    def count_quarantined_messages(self, pipeline: str) -> QuarantinedMessages:
        """Return how many messages of the pipeline are in quarantine, by reason."""
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "count_quarantined_messages", pipeline=pipeline)
        return QuarantinedMessages(tuple((row["reason"], row["messages"]) for row in rows))

    def list_marks(self, pipeline: str) -> Mapping[TableName, Sequence[MemberMark]]:
        """Return the marks of the members of each table that has members."""
        with open_transaction(self._at, pipeline) as session:
            return _list_marks(session, pipeline)

    def seconds_since_change(self, pipeline: str, source: TableName) -> float | None:
        """Return how long ago the newest window that brought a change of a table, or loaded it, was published.

        None while there is no such window.
        """
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "seconds_since_change", pipeline=pipeline, **source_parameters(source))
        return rows[0]["seconds"] if rows else None

    def forget_mark(self, pipeline: str, source: TableName, member: str) -> None:
        """Let the next window read all rows of a member. Raises OperatorError for one that no load has examined."""
        with open_transaction(self._at, pipeline) as session:
            named = {"pipeline": pipeline, **source_parameters(source), "member": member}
            if not session.execute(read_sql("forget_mark"), named).rowcount:
                raise OperatorError(
                    str(member_name(source, member)),
                    f"no run of {pipeline} has seen it.",
                    "Check its name: that of its file without the extension.",
                )


def with_marks(session: psycopg.Connection, plan: WindowPlan) -> WindowPlan:
    """Return a plan with the marks of its members."""
    if not any(table.feed.has_members for table in plan.tables):
        return plan
    marks = _list_marks(session, plan.pipeline)
    tables = tuple(
        replace(table, marks=tuple(marks.get(table.source, ()))) if table.feed.has_members else table
        for table in plan.tables
    )
    return replace(plan, tables=tables)


def _list_marks(session: psycopg.Connection, pipeline: str) -> dict[TableName, list[MemberMark]]:
    marks: dict[TableName, list[MemberMark]] = {}
    for row in query(session, "list_marks", pipeline=pipeline):
        name = TableName(row["source_schema"], row["source_name"])
        marks.setdefault(name, []).append(MemberMark(row["member"], row["mark"]))
    return marks


def record_members(
    session: psycopg.Connection, plan: WindowPlan, members: Mapping[TableName, Sequence[MemberRead]]
) -> None:
    """Record the verdicts on members, and the marks for the end of the window. Those of an earlier attempt end."""
    for table in plan.tables:
        if not table.feed.has_members:
            continue
        reads, named = members.get(table.source, ()), source_parameters(table.source)
        query(session, "drop_window_members", window_id=plan.window_id, **named)
        if not reads:
            continue
        names = [read.member for read in reads]
        query(
            session,
            "record_members",
            pipeline=plan.pipeline,
            **named,
            members=names,
            verdicts=[read.verdict and read.verdict.value for read in reads],
            causes=[read.cause for read in reads],
            hints=[read.hint for read in reads],
        )
        _quarantine(session, plan, table.source, reads)
        befores, afters = [read.before for read in reads], [read.after for read in reads]
        query(
            session,
            "store_window_members",
            window_id=plan.window_id,
            **named,
            members=names,
            befores=befores,
            afters=afters,
        )


def _quarantine(session: psycopg.Connection, plan: WindowPlan, source: TableName, reads: Sequence[MemberRead]) -> None:
    """Keep the messages that could not be read. They stay, also where the attempt is repeated."""
    found = [(read.member, each) for read in reads for each in read.quarantined]
    if found:
        query(
            session,
            "quarantine_messages",
            pipeline=plan.pipeline,
            window_id=plan.window_id,
            **source_parameters(source),
            topics=[each.topic for _, each in found],
            members=[member for member, _ in found],
            places=[each.place for _, each in found],
            reasons=[each.reason for _, each in found],
            bodies=[each.body for _, each in found],
        )


def advance_members(session: psycopg.Connection, plan: WindowPlan, table: TablePlan) -> None:
    """Move the marks of a table whose watermark moves in the same transaction."""
    source = source_parameters(table.source)
    named = {"window_id": plan.window_id, **source}
    query(session, "advance_members", pipeline=plan.pipeline, **named)
    query(session, "drop_window_members", **named)
    if table.kind is LoadKind.FIRST_LOAD and table.ends:
        members = [end.member for end in table.ends]
        query(session, "drop_other_members", pipeline=plan.pipeline, **source, members=members)
