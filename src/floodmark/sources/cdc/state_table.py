"""The table in which the CDC Control Task of SSIS keeps its states, dbo.cdc_states by default."""

from __future__ import annotations

from floodmark.core.errors import OperatorError
from floodmark.core.schema import TableName
from floodmark.core.source.scripts import bracket_table
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, connect
from floodmark.sources.sqlserver.sql_files import read_sql


def read_state(at: SqlServerConnection, table: TableName, name: str | None = None) -> str:
    """Return the state with a name, or the only one. Raises OperatorError where there is not one such state."""
    with connect(at, subject=str(table), query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        ((*found,),) = session.fetch_sets(read_sql("find_state_table"), (bracket_table(table),))
        if not found:
            raise OperatorError(
                str(table),
                f"database {at.database} has no such table with the columns name and state, or the login may not see "
                "it.",
                "Correct the name, grant SELECT on the table, or give the state as a file.",
            )
        spelled = bracket_table(TableName(*found[0]))
        (rows,) = session.fetch_sets(read_sql("read_states").format(table=spelled))
    states = {str(row[0]): str(row[1] or "") for row in rows}
    if name is None and len(states) == 1:
        return next(iter(states.values()))
    if name is None or name not in states:
        what = "it has no state" if name is None and not states else "it has several states"
        what = what if name is None else f"it has no state {name}"
        raise OperatorError(
            str(table), f"{what}.", f"Choose one (--state-name): {', '.join(sorted(states))}." if states else ""
        )
    return states[name]
