"""Server cursors under msodbcsql18, asked for through the driver manager as a C program does."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
from collections.abc import Iterator
from typing import Any

import pytest

from client_body import DATABASE, run
from drivers import DRIVERS, odbc_library
from emulator_process import Emulator, trust

SUCCESS, SUCCESS_WITH_INFO, NO_DATA = 0, 1, 100
ENVIRONMENT, CONNECTION, STATEMENT = 1, 2, 3
ODBC_VERSION, VERSION_3 = 200, 3
CURSOR_TYPE, ROW_ARRAY_SIZE, ROWS_FETCHED = 6, 27, 26
FORWARD_ONLY, KEYSET, DYNAMIC, STATIC = 0, 1, 2, 3
NEXT, FIRST, LAST, PRIOR, ABSOLUTE, RELATIVE = 1, 2, 3, 4, 5, 6
C_LONG = -16


class Odbc:
    """One statement of the driver manager's interface; every call that fails raises with the driver's words."""

    def __init__(self, connection_string: str) -> None:
        self._library = ctypes.CDLL(ctypes.util.find_library("odbc") or "libodbc.so.2")
        self._environment = self._allocate(ENVIRONMENT, None)
        self._call(ENVIRONMENT, self._environment, "SQLSetEnvAttr", ODBC_VERSION, ctypes.c_void_p(VERSION_3), 0)
        self._connection = self._allocate(CONNECTION, self._environment)
        text = connection_string.encode()
        nothing = ctypes.c_void_p()
        arguments = (nothing, text, ctypes.c_short(len(text)), nothing, ctypes.c_short(0), nothing, ctypes.c_ushort(0))
        self._call(CONNECTION, self._connection, "SQLDriverConnect", *arguments)
        self.statement = self._allocate(STATEMENT, self._connection)

    def _allocate(self, kind: int, parent: ctypes.c_void_p | None) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        answer = self._library.SQLAllocHandle(ctypes.c_short(kind), parent, ctypes.byref(handle))
        assert answer in (SUCCESS, SUCCESS_WITH_INFO)
        return handle

    def _call(self, kind: int, handle: ctypes.c_void_p, name: str, *arguments: Any) -> int:
        answer = ctypes.c_short(getattr(self._library, name)(handle, *arguments)).value
        if answer not in (SUCCESS, SUCCESS_WITH_INFO, NO_DATA):
            raise RuntimeError(f"{name}: {self._words(kind, handle)}")
        return answer

    def _words(self, kind: int, handle: ctypes.c_void_p) -> str:
        state, text, number = ctypes.create_string_buffer(6), ctypes.create_string_buffer(1024), ctypes.c_int()
        self._library.SQLGetDiagRec(
            ctypes.c_short(kind),
            handle,
            ctypes.c_short(1),
            state,
            ctypes.byref(number),
            text,
            ctypes.c_short(1024),
            None,
        )
        return text.value.decode(errors="replace")

    def set(self, attribute: int, value: object) -> None:
        self._call(STATEMENT, self.statement, "SQLSetStmtAttr", attribute, value, 0)

    def get(self, attribute: int) -> int:
        value = ctypes.c_ulong()
        self._call(STATEMENT, self.statement, "SQLGetStmtAttr", attribute, ctypes.byref(value), 0, None)
        return value.value

    def execute(self, text: str) -> None:
        data = text.encode()
        self._call(STATEMENT, self.statement, "SQLExecDirect", data, len(data))

    def bind(self, column: int, target: Any, indicators: Any) -> None:
        number = ctypes.c_ushort(column)
        self._call(STATEMENT, self.statement, "SQLBindCol", number, ctypes.c_short(C_LONG), target, 4, indicators)

    def fetch(self, direction: int, offset: int = 0) -> bool:
        arguments = (ctypes.c_short(direction), ctypes.c_long(offset))
        return self._call(STATEMENT, self.statement, "SQLFetchScroll", *arguments) != NO_DATA

    def columns(self) -> int:
        count = ctypes.c_short()
        self._call(STATEMENT, self.statement, "SQLNumResultCols", ctypes.byref(count))
        return count.value

    def close(self) -> None:
        self._library.SQLFreeHandle(ctypes.c_short(STATEMENT), self.statement)
        self._library.SQLDisconnect(self._connection)
        self._library.SQLFreeHandle(ctypes.c_short(CONNECTION), self._connection)
        self._library.SQLFreeHandle(ctypes.c_short(ENVIRONMENT), self._environment)


@pytest.fixture
def odbc(server: Emulator) -> Iterator[Odbc]:
    if reason := DRIVERS["pyodbc"].why_not():
        pytest.skip(reason)
    with contextlib.closing(server.connect_pymssql(DATABASE, autocommit=True)) as admin:
        run(admin, "DROP TABLE IF EXISTS dbo.Scrolled CREATE TABLE dbo.Scrolled (Id int PRIMARY KEY)")
        run(admin, "INSERT INTO dbo.Scrolled SELECT value FROM GENERATE_SERIES(1, 10)")
    trust(server.ca_file)
    text = (
        f"DRIVER={odbc_library()};SERVER=tcp:{server.host},{server.port};DATABASE={DATABASE};"
        f"UID={server.user};PWD={{{server.password}}};Encrypt=yes"
    )
    with contextlib.closing(Odbc(text)) as odbc:
        yield odbc


@pytest.mark.parametrize("kind", [STATIC, KEYSET, DYNAMIC])
def test_a_rowset_is_fetched_in_every_direction(odbc: Odbc, kind: int) -> None:
    size = 3
    odbc.set(CURSOR_TYPE, ctypes.c_void_p(kind))
    odbc.set(ROW_ARRAY_SIZE, ctypes.c_void_p(size))
    fetched = ctypes.c_ulong()
    odbc.set(ROWS_FETCHED, ctypes.byref(fetched))
    odbc.execute("SELECT Id FROM dbo.Scrolled ORDER BY Id")
    assert odbc.columns() == 1
    values, indicators = (ctypes.c_int * size)(), (ctypes.c_long * size)()
    odbc.bind(1, values, indicators)

    def rows(direction: int, offset: int = 0) -> list[int]:
        return list(values[: fetched.value]) if odbc.fetch(direction, offset) else []

    assert rows(NEXT) == [1, 2, 3]
    assert rows(NEXT) == [4, 5, 6]
    assert rows(PRIOR) == [1, 2, 3]
    assert rows(LAST) == [8, 9, 10]
    assert rows(FIRST) == [1, 2, 3]
    assert rows(RELATIVE, 4) == [5, 6, 7]
    assert rows(NEXT) == [8, 9, 10]
    assert rows(NEXT) == []
    if kind != DYNAMIC:
        assert rows(ABSOLUTE, 9) == [9, 10]
        assert rows(ABSOLUTE, -4) == [7, 8, 9]


def test_the_driver_learns_that_its_cursor_is_static(odbc: Odbc) -> None:
    odbc.set(CURSOR_TYPE, ctypes.c_void_p(KEYSET))
    odbc.execute("SELECT Id FROM dbo.Scrolled ORDER BY Id")
    assert odbc.get(CURSOR_TYPE) == STATIC


def test_an_error_is_reported_in_the_servers_words(odbc: Odbc) -> None:
    odbc.set(CURSOR_TYPE, ctypes.c_void_p(STATIC))
    with pytest.raises(RuntimeError, match=r"Invalid object name 'dbo\.Missing'"):
        odbc.execute("SELECT Id FROM dbo.Missing")
