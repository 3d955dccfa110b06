"""``StreamBeats``: the heartbeat table of a database whose changes are streamed."""

from __future__ import annotations

from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName
from floodmark.core.source.beats import Beat, insert_beat, make_beats
from floodmark.core.source.scripts import bracket_table, literal
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, connect
from floodmark.sources.sqlserver.sql_files import read_sql


class StreamBeats:
    """``sync.ports.beats.Beats``, with one connection to the database per call."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_beat(self, table: TableName) -> Beat:
        name = bracket_table(table)
        with self._connect() as session:
            [(object_id,)] = session.fetch("SELECT OBJECT_ID(?, N'U')", (name,))
            if object_id is None:
                raise ConfigError(
                    str(table), "the heartbeat table does not exist, or the login may not see it.", _script(table)
                )
            rows = session.fetch(read_sql("read_stream_beat").format(table=name, literal=literal(name)[1:]))
        if not rows:
            raise ConfigError(str(table), "the heartbeat table has no row with id 1.", insert_beat(table))
        number, age_seconds, may_write = rows[0]
        return Beat(number, max(float(age_seconds), 0.0), bool(may_write))

    def write_beat(self, table: TableName) -> None:
        with self._connect() as session:
            session.fetch_sets(read_sql("write_stream_beat").format(table=bracket_table(table)))

    def _connect(self) -> SourceSession:
        return connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS)


def _script(table: TableName) -> str:
    return " ".join(make_beats(table))
