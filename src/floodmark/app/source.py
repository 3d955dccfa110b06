"""The decisions of the operator about names: which database a source is, and which pipeline was renamed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.app.tables import find_table_settings
from floodmark.core.errors import ConfigError, OperatorError
from floodmark.wiring.pipelines import wire_ledger, wire_source

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.core.schema import TableName
    from floodmark.core.source.database import DatabaseIdentity


@dataclass(frozen=True, slots=True)
class FollowedDatabase:
    """The database of a pipeline, before and after a confirmation."""

    pipeline: str
    before: DatabaseIdentity | None
    now: DatabaseIdentity


def reload_member(app: AppContext, pipeline: str, table: str, member: str) -> None:
    """Let the next run of a pipeline read all rows of a member of a table, and sweep those that it no longer has.

    Raises ConfigError for an unknown pipeline or table, OperatorError for a member that no run has examined.
    """
    source = next((each.source for each in app.config.settings(pipeline).tables if str(each.source) == table), None)
    if source is None:
        raise ConfigError(pipeline, f"it has no table {table}.", "Write it as in pipelines.yaml.")
    ledger = wire_ledger(app.config).windows()
    ledger.ensure_schema()
    ledger.forget_mark(pipeline, source, member)


def rename_pipeline(app: AppContext, name: str, to: str) -> Sequence[TableName]:
    """Give all that the ledger has of a pipeline the name that it has in the configuration now. Return its tables.

    Raises ConfigError where the configuration has the old name, or not the new one, and what the ledger raises.
    """
    if to not in app.config.pipelines:
        raise ConfigError(to, "there is no such pipeline.", f"There are: {', '.join(sorted(app.config.pipelines))}.")
    if name in app.config.pipelines:
        raise ConfigError(name, "the configuration still has this pipeline.", "Rename it in pipelines.yaml first.")
    ledger = wire_ledger(app.config).windows()
    ledger.ensure_schema()
    return ledger.rename_pipeline(name, to)


def rename_target(app: AppContext, pipeline: str, table: str) -> tuple[TableName, TableName]:
    """Give the ledger the target that a table has in the configuration now. Return the one before, and this one.

    Raises ConfigError for an unknown pipeline or table, and what the ledger raises.
    """
    settings = find_table_settings(app, pipeline, table)
    ledger = wire_ledger(app.config).windows()
    ledger.ensure_schema()
    return ledger.rename_target(pipeline, settings.source, settings.target), settings.target


def confirm_database(app: AppContext, source: str, by: str) -> Sequence[FollowedDatabase]:
    """Let all pipelines of a source follow the database that its connection leads to. by: the operator who decided.

    Raises ConfigError for an unknown source, OperatorError where the source does not say which database it is.
    """
    if source not in app.config.sources:
        raise ConfigError(source, "there is no such source.", f"There are: {', '.join(sorted(app.config.sources))}.")
    found = wire_source(app.config, source).snapshots().read_snapshot([]).identity
    if found is None:
        raise OperatorError(source, "the server does not show which database it is.")
    ledger = wire_ledger(app.config).windows()
    ledger.ensure_schema()
    confirmed = []
    for pipeline in app.pipelines_of(source):
        before = ledger.read_database(pipeline)
        if before != found:
            ledger.confirm_database(pipeline, found, by)
        confirmed.append(FollowedDatabase(pipeline, before, found))
    return confirmed
