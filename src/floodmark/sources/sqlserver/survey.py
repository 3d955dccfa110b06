"""The survey of a database: its tables, their sizes and their keys."""

from __future__ import annotations

from floodmark.core.schema import TableName
from floodmark.core.source.survey import Survey, SurveyedTable
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import connect
from floodmark.sources.sqlserver.sql_files import read_sql


def survey_database(at: SqlServerConnection) -> Survey:
    """Return the database of a connection. Raises SourceUnavailableError, SourceLoginError."""
    with connect(at) as session:
        databases, tables, columns = session.fetch_sets(read_sql("list_user_tables"))
    keys: dict[int, list[str]] = {}
    for object_id, column in columns:
        keys.setdefault(object_id, []).append(column)
    ((database, has_cdc),) = databases
    found = tuple(
        SurveyedTable(
            TableName(schema, name),
            None if rows is None else int(rows),
            tuple(keys.get(object_id, ())),
            has_cdc=bool(is_tracked),
        )
        for schema, name, object_id, is_tracked, rows in tables
    )
    return Survey(database, has_cdc=bool(has_cdc), tables=found)
