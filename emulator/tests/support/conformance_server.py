"""A server under test, driven by python-tds: everything a statement sends back, with numbers, severities and types.

The server is the emulator of the test session or, where FLOODMARK_TEST_MSSQL names one, a real SQL Server: JSON such as
``{"host": "db", "port": 1433, "user": "sa", "password": "…", "ca_file": "…"}`` or ``mssql://sa:…@db:1433``. Its login
must be sysadmin; every database that is made is dropped again.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import pytds

from emulator_process import Emulator

VARIABLE = "FLOODMARK_TEST_MSSQL"
_PASSWORD = "Reader-1-Password"
_numbers = itertools.count(1)
_TYPES = {
    36: "uniqueidentifier",
    48: "tinyint",
    52: "smallint",
    56: "int",
    127: "bigint",
    50: "bit",
    104: "bit",
    61: "datetime",
    58: "smalldatetime",
    231: "nvarchar",
    239: "nchar",
    167: "varchar",
    175: "char",
    165: "varbinary",
    173: "binary",
    106: "decimal",
    108: "numeric",
    99: "ntext",
    35: "text",
    34: "image",
    62: "float",
    59: "real",
    60: "money",
    122: "smallmoney",
    40: "date",
    41: "time",
    42: "datetime2",
    43: "datetimeoffset",
    241: "xml",
    98: "sql_variant",
}
_SIZED = {
    38: {1: "tinyint", 2: "smallint", 4: "int", 8: "bigint"},
    109: {4: "real", 8: "float"},
    110: {4: "smallmoney", 8: "money"},
    111: {4: "smalldatetime", 8: "datetime"},
}
_WITH_LENGTH = frozenset({"nvarchar", "nchar", "varchar", "char", "varbinary", "binary"})
_MAX = 65_535

Row = dict[str, Any]


@dataclass(frozen=True)
class Message:
    """An ERROR or INFO token."""

    number: int
    severity: int
    state: int
    text: str
    procedure: str


@dataclass(frozen=True)
class Result:
    """A result set. ``types``: as COLMETADATA declares them, such as ``nvarchar(128)``, ``nvarchar(max)``, ``bit``."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    @property
    def dicts(self) -> list[Row]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass
class Reply:
    """All that one batch sent back."""

    results: list[Result] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    @property
    def errors(self) -> list[Message]:
        return [message for message in self.messages if message.severity > 10]

    @property
    def infos(self) -> list[Message]:
        return [message for message in self.messages if message.severity <= 10]


class Client:
    """One login's connection."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._reply = Reply()
        self._type_ids: list[int] = []
        session = driver._main_session if hasattr(driver, "_main_session") else driver.cursor()._session
        self._listen(session)

    def _listen(self, session: Any) -> None:
        """The driver forgets messages and keeps no type ids: note both as they come."""
        process, find = session.process_msg, session._tds.type_factory.get_type_serializer

        def process_message(marker: int) -> None:
            process(marker)
            m = session.messages[-1]
            self._reply.messages.append(Message(m["msgno"], m["severity"], m["state"], m["message"], m["proc_name"]))

        def find_serializer(type_id: int) -> Any:
            self._type_ids.append(type_id)
            return find(type_id)

        session.process_msg = process_message
        session._tds.type_factory.get_type_serializer = find_serializer

    def send(self, sql: str) -> Reply:
        """Run a batch to its end, whatever it says."""
        self._reply = Reply()
        with self._driver.cursor() as cursor:
            step: Callable[[], Any] = lambda: cursor.execute(sql) or True  # noqa: E731
            while True:
                try:
                    if not step():
                        break
                    if cursor.description:
                        self._take_result(cursor)
                except pytds.Error:
                    if not self._reply.errors:
                        raise
                step = cursor.nextset
        return self._reply

    def _take_result(self, cursor: Any) -> None:
        names = tuple(column[0] for column in cursor.description)
        ids = self._type_ids[-len(names) :]
        types = tuple(_type_text(i, column) for i, column in zip(ids, cursor.description, strict=True))
        result = Result(names, types, [])
        self._reply.results.append(result)
        result.rows.extend(tuple(row) for row in cursor.fetchall())

    def run(self, *batches: str) -> None:
        """Batches that must succeed."""
        for sql in batches:
            self._succeed(sql)

    def result(self, sql: str) -> Result:
        """The last result set of a batch that must succeed."""
        return self._succeed(sql).results[-1]

    def query(self, sql: str) -> list[Row]:
        return self.result(sql).dicts

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.result(sql).rows

    def scalar(self, expression: str) -> Any:
        return self.rows(f"SELECT {expression}")[0][0]

    def error(self, sql: str) -> Message:
        """The first error of a batch that must fail."""
        errors = self.send(sql).errors
        assert errors, f"no error from: {sql}"
        return errors[0]

    def close(self) -> None:
        self._driver.close()

    def _succeed(self, sql: str) -> Reply:
        reply = self.send(sql)
        assert not reply.errors, f"{reply.errors} from: {sql}"
        return reply


def _type_text(type_id: int, column: Any) -> str:
    size = int(column[3] or 0)
    name = _SIZED[type_id][size] if type_id in _SIZED else _TYPES[type_id]
    if name in _WITH_LENGTH:
        return f"{name}(max)" if size in (-1, _MAX) or size == _MAX // 2 else f"{name}({size})"
    if name in ("decimal", "numeric"):
        return f"{name}({column[4]},{column[5]})"
    return name


@dataclass(frozen=True)
class Server:
    """Where it listens and who its administrator is."""

    host: str
    port: int
    user: str
    password: str
    ca_file: str | None = None
    is_emulator: bool = False

    def connect(self, database: str, user: str = "", password: str = "") -> Client:
        driver = pytds.connect(
            self.host,
            database,
            user or self.user,
            password or self.password,
            port=self.port,
            autocommit=True,
            timeout=120,
            cafile=self.ca_file,
            validate_host=False,
            disable_connect_retry=True,
        )
        return Client(driver)


def server_under_test(emulator: Callable[[], Emulator]) -> Server:
    """The server that the variable names, otherwise the emulator (which is then started)."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        running = emulator()
        return Server(running.host, running.port, running.user, running.password, is_emulator=True)
    if text.startswith("{"):
        found = json.loads(text)
        return Server(
            found["host"], int(found.get("port", 1433)), found["user"], found["password"], found.get("ca_file")
        )
    url = urlsplit(text)
    return Server(url.hostname or "", url.port or 1433, unquote(url.username or ""), unquote(url.password or ""))


@dataclass
class Source:
    """A database of its own with CDC; ``admin`` is sysadmin in it. The log is scanned when ``scan`` is called."""

    server: Server
    name: str
    admin: Client
    logins: list[str] = field(default_factory=list)
    is_job_stopped: bool = False

    def enable(self, table: str, **options: str) -> Reply:
        """sp_cdc_enable_table of a dbo table, and a scan; option values are T-SQL text."""
        arguments = {"source_schema": "N'dbo'", "source_name": f"N'{table}'", "role_name": "NULL", **options}
        text = ", ".join(f"@{name} = {value}" for name, value in arguments.items())
        enabling = f"EXEC sys.sp_cdc_enable_table {text}"
        if self.server.is_emulator and not self.is_job_stopped:
            # In one transaction: the emulator's Agent starts no process for a job that is stopped already.
            enabling = f"BEGIN TRAN; {enabling}; EXEC sys.sp_cdc_stop_job; COMMIT"
            self.is_job_stopped = True
        reply = self.admin.send(enabling)
        assert not reply.errors, reply.errors
        self.stop_job()
        self.scan()
        return reply

    def stop_job(self) -> None:
        if not self.is_job_stopped:
            self.is_job_stopped = True
            self.admin.send("EXEC sys.sp_cdc_stop_job N'capture'")

    def scan(self) -> None:
        self.admin.run("EXEC sys.sp_cdc_scan")

    def changes(self, instance: str) -> list[Row]:
        """The change table in full order."""
        return self.admin.query(
            f"SELECT * FROM cdc.[{instance}_CT] ORDER BY [__$start_lsn], [__$command_id], [__$seqval], [__$operation]"
        )

    def log_in(self, *grants: str, user: str = "") -> Client:
        """A new login and user of this database with rights such as ``SELECT ON dbo.t``."""
        login = user or f"reader_{self.name}_{len(self.logins) + 1}"
        self.logins.append(login)
        self.admin.run(
            f"CREATE LOGIN [{login}] WITH PASSWORD = '{_PASSWORD}', CHECK_POLICY = OFF",
            f"CREATE USER [{login}] FOR LOGIN [{login}]",
            *(f"GRANT {right} TO [{login}]" for right in grants),
        )
        return self.server.connect(self.name, login, _PASSWORD)


@contextmanager
def new_database(server: Server, *, with_cdc: bool = True) -> Iterator[Source]:
    name = f"Conformance{os.getpid()}_{next(_numbers)}"
    master = server.connect("master")
    master.run(f"CREATE DATABASE [{name}]")
    source = Source(server, name, server.connect(name))
    try:
        if with_cdc:
            source.admin.run("EXEC sys.sp_cdc_enable_db")
        yield source
    finally:
        source.admin.close()
        master.run(f"ALTER DATABASE [{name}] SET SINGLE_USER WITH ROLLBACK IMMEDIATE")
        master.run(f"DROP DATABASE [{name}]", *(f"DROP LOGIN [{login}]" for login in source.logins))
        master.close()


def shape(rows: list[Row], *columns: str) -> list[tuple[Any, ...]]:
    """Operation, mask in hex, then the named columns."""
    return [
        (row["__$operation"], row["__$update_mask"] and row["__$update_mask"].hex().upper(), *(row[c] for c in columns))
        for row in rows
    ]


def text_of(lsn: bytes) -> str:
    """An LSN as a T-SQL literal."""
    return f"0x{lsn.hex().upper()}"
