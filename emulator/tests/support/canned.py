"""A server whose sessions answer a few fixed batches: what the wire does can then be tested apart from the engine.

Run as a process of its own (bulk clients hold the interpreter lock while they wait): prints its port and CA file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import psutil
import pyarrow as pa

from emulator_process import Emulator
from sqlserver_emulator.collations import DEFAULT_COLLATION
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import (
    ArrowBatch,
    Column,
    Command,
    DatabaseChanged,
    ErrorRaised,
    Event,
    Info,
    ResultStart,
    ReturnStatus,
    ReturnValue,
    Rows,
    RowsArrow,
    StatementDone,
    TransactionAction,
    TransactionChanged,
)
from sqlserver_emulator.external_logins import ExternalLogins
from sqlserver_emulator.release import SQL_SERVER_2022
from sqlserver_emulator.server.certificate import provide_certificate
from sqlserver_emulator.server.handshake import TlsContexts
from sqlserver_emulator.server.limits import Limits
from sqlserver_emulator.server.listener import EmulatorServer, listen
from sqlserver_emulator.session import RpcArgument
from sqlserver_emulator.types import BIGINT, INT, NVARCHAR_MAX, TsqlType

PASSWORD = "Canned-1"
EAST = timezone(timedelta(hours=5, minutes=30))
ALL_TYPES: dict[str, tuple[TsqlType, object]] = {
    "c_bit": (TsqlType("bit"), True),
    "c_tinyint": (TsqlType("tinyint"), 255),
    "c_smallint": (TsqlType("smallint"), -32768),
    "c_int": (INT, -2147483648),
    "c_bigint": (BIGINT, 9223372036854775807),
    "c_decimal5": (TsqlType("decimal", precision=5, scale=2), Decimal("-999.99")),
    "c_decimal19": (TsqlType("decimal", precision=19, scale=4), Decimal("123456789012345.6789")),
    "c_decimal28": (TsqlType("numeric", precision=28, scale=0), Decimal("9999999999999999999999999999")),
    "c_decimal38": (TsqlType("decimal", precision=38, scale=10), Decimal("-1234567890123456789012345678.0123456789")),
    "c_money": (TsqlType("money"), Decimal("-922337203685477.5808")),
    "c_smallmoney": (TsqlType("smallmoney"), Decimal("214748.3647")),
    "c_real": (TsqlType("real"), 1.5),
    "c_float": (TsqlType("float", precision=53), -1.7976931348623157e308),
    "c_date": (TsqlType("date"), date(9999, 12, 31)),
    "c_time": (TsqlType("time", scale=6), time(23, 59, 59, 999999)),
    "c_datetime2": (TsqlType("datetime2", scale=6), datetime(1, 1, 1, 0, 0, 0, 1)),
    "c_datetimeoffset": (TsqlType("datetimeoffset", scale=6), datetime(2024, 2, 29, 1, 2, 3, 4, EAST)),
    "c_datetime": (TsqlType("datetime"), datetime(1753, 1, 1, 23, 59, 59, 997000)),
    "c_smalldatetime": (TsqlType("smalldatetime"), datetime(2079, 6, 6, 23, 59)),
    "c_char": (TsqlType("char", 5), "abc  "),
    "c_varchar": (TsqlType("varchar", 20), "Größe €"),
    "c_varchar_max": (TsqlType("varchar", -1), "ü" * 9000),
    "c_nchar": (TsqlType("nchar", 4), "日本  "),
    "c_nvarchar": (TsqlType("nvarchar", 20), "naïve 🌊"),
    "c_nvarchar_max": (NVARCHAR_MAX, "🌊" * 5000),
    "c_sysname": (TsqlType("sysname", 128), "dbo"),
    "c_binary": (TsqlType("binary", 4), b"\x00\x01\xfe\xff"),
    "c_varbinary": (TsqlType("varbinary", 10), b""),
    "c_varbinary_max": (TsqlType("varbinary", -1), bytes(range(256)) * 40),
    "c_rowversion": (TsqlType("rowversion"), b"\x00\x00\x00\x00\x00\x00\x07\xd1"),
    "c_uniqueidentifier": (TsqlType("uniqueidentifier"), UUID("12345678-9abc-def0-1234-56789abcdef0")),
    "c_xml": (TsqlType("xml"), "<a>é</a>"),
    "c_text": (TsqlType("text"), "old text"),
    "c_ntext": (TsqlType("ntext"), "old 🌊"),
    "c_image": (TsqlType("image"), b"\x89PNG"),
}
EXTREMES = tuple(value for _type, value in ALL_TYPES.values())
MANY_ROWS = 200_000


def columns(*types: TsqlType) -> tuple[Column, ...]:
    return tuple(Column(f"c{i}", type_) for i, type_ in enumerate(types))


class CannedSession:
    """The batches that it knows are the methods named ``batch_…``; anything else is answered with error 102."""

    session_id = 51
    collation = DEFAULT_COLLATION

    def __init__(self, login: str, database: str) -> None:
        self.login = login
        self.database = database
        self.in_transaction = False
        self._cancelled = threading.Event()

    def run_batch(self, text: str) -> Iterator[Event]:
        self._cancelled.clear()
        for statement in filter(None, (part.strip() for part in text.split(";"))):
            words = statement.lower().split()
            handler = getattr(self, "batch_" + "_".join(words[:2]), None) or getattr(self, f"batch_{words[0]}", None)
            if handler is None:
                yield ErrorRaised(SqlServerError(102, f"Incorrect syntax near '{words[0]}'.", severity=15))
                yield StatementDone(failed=True)
                return
            yield from handler(statement)

    def batch_set(self, _text: str) -> Iterator[Event]:
        yield StatementDone(Command.SET)

    def batch_use(self, text: str) -> Iterator[Event]:
        old, self.database = self.database, text.split()[1].strip("[]")
        yield DatabaseChanged(old, self.database)
        yield StatementDone()

    def batch_begin(self, _text: str) -> Iterator[Event]:
        yield from self.begin_transaction()

    def batch_commit(self, _text: str) -> Iterator[Event]:
        yield from self.commit_transaction()

    def batch_rollback(self, _text: str) -> Iterator[Event]:
        yield from self.rollback_transaction()

    def batch_print(self, text: str) -> Iterator[Event]:
        yield Info(0, text[6:])
        yield StatementDone()

    def batch_select_types(self, _text: str) -> Iterator[Event]:
        yield ResultStart(tuple(Column(name, type_) for name, (type_, _value) in ALL_TYPES.items()))
        yield Rows([EXTREMES, (None,) * len(EXTREMES)])
        yield StatementDone(Command.SELECT, 2)

    def batch_select_numbers(self, text: str) -> Iterator[Event]:
        count = int(text.split()[2])
        yield ResultStart(columns(INT))
        yield Rows([(i,) for i in range(count)])
        yield StatementDone(Command.SELECT, count)

    def batch_select_many(self, _text: str) -> Iterator[Event]:
        yield ResultStart(columns(INT, NVARCHAR_MAX))
        for start in range(0, MANY_ROWS, 1000):
            if self._cancelled.is_set():
                return
            yield Rows([(i, f"row {i} " + "x" * 50) for i in range(start, start + 1000)])
        yield StatementDone(Command.SELECT, MANY_ROWS)

    def batch_select_arrow(self, _text: str) -> Iterator[Event]:
        yield ResultStart(columns(BIGINT, TsqlType("nvarchar", 20)))
        texts = [None if i % 3 == 0 else f"ü{i}" for i in range(50_000)]
        yield RowsArrow(pa.record_batch([pa.array(range(50_000), pa.int64()), pa.array(texts)], names=["a", "b"]))
        yield StatementDone(Command.SELECT, 50_000)

    def batch_wait(self, _text: str) -> Iterator[Event]:
        """WAITFOR without end, until it is cancelled."""
        self._cancelled.wait(60)
        yield from ()

    def batch_insert(self, _text: str) -> Iterator[Event]:
        yield StatementDone(Command.INSERT, 1)

    def batch_crash(self, _text: str) -> Iterator[Event]:
        yield ResultStart(columns(INT))
        raise RuntimeError("a bug in the engine")

    def batch_fatal(self, _text: str) -> Iterator[Event]:
        yield ErrorRaised(SqlServerError(596, "Cannot continue the execution.", severity=21))
        yield StatementDone(failed=True)

    def run_procedure(self, name: str, arguments: Sequence[RpcArgument]) -> Iterator[Event]:
        """Every procedure returns its own name, and its arguments as one row and one OUTPUT value each."""
        if name.lower() in ("sp_executesql", "sp_prepexec"):
            arguments = arguments[2 if name.lower() == "sp_executesql" else 3 :]
        if arguments:
            yield ResultStart(tuple(Column(a.name or f"p{i}", a.type) for i, a in enumerate(arguments)))
            yield Rows([tuple(argument.value for argument in arguments)])
            yield StatementDone(Command.SELECT, 1)
        yield ReturnStatus(7)
        if name.lower() == "sp_prepexec":
            yield ReturnValue(0, "", INT, 1)
        for i, argument in enumerate(arguments):
            if argument.output:
                yield ReturnValue(i, argument.name, argument.type, argument.value)

    def load_bulk(self, types: Sequence[TsqlType], batches: Iterator[ArrowBatch]) -> Iterator[Event]:
        """The rows are counted and thrown away."""
        yield StatementDone(Command.INSERT, sum(batch.num_rows for batch in batches))

    def begin_transaction(self, name: str = "", isolation: int = 0) -> Iterator[Event]:
        self.in_transaction = True
        yield TransactionChanged(TransactionAction.BEGUN, 77)
        yield StatementDone(Command.BEGIN_TRANSACTION)

    def commit_transaction(self, name: str = "") -> Iterator[Event]:
        self.in_transaction = False
        yield TransactionChanged(TransactionAction.COMMITTED, 77)
        yield StatementDone(Command.COMMIT_TRANSACTION)

    def rollback_transaction(self, name: str = "") -> Iterator[Event]:
        self.in_transaction = False
        yield TransactionChanged(TransactionAction.ROLLED_BACK, 77)
        yield StatementDone(Command.ROLLBACK_TRANSACTION)

    def save_transaction(self, name: str) -> Iterator[Event]:
        yield StatementDone()

    def reset(self) -> list[Event]:
        ended: list[Event] = [TransactionChanged(TransactionAction.ROLLED_BACK, 77)] if self.in_transaction else []
        self.in_transaction = False
        return ended

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self._cancelled.set()


class CannedFactory:
    external_logins = ExternalLogins()
    read_only_route = None
    product = SQL_SERVER_2022

    def open_session(
        self, *, login: str, password: str | None, database: str, application: str, encrypted: bool = False
    ) -> CannedSession:
        if (login, password) != ("sa", PASSWORD):
            raise SqlServerError(18456, f"Login failed for user '{login}'.", severity=14)
        if database not in ("", "master", "Canned"):
            text = f'Cannot open database "{database}" requested by the login. The login failed.'
            raise SqlServerError(4060, text, severity=11)
        return CannedSession(login, database or "master")


@contextmanager
def running_canned_server(tls_dir: Path, log: Path | None = None, **limits: float) -> Iterator[Emulator]:
    """The server in a process of its own. ``limits``: fields of Limits; ``log``: where its stderr goes.

    Give it the TLS folder of the shared emulator: a driver in this process reads its file of trusted CAs only once.
    """
    command = [sys.executable, __file__, str(tls_dir), json.dumps(limits)]
    with ExitStack() as opened:
        stderr = opened.enter_context(log.open("wb")) if log is not None else None
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert process.stdin and process.stdout
        opened.enter_context(process)
        ready = json.loads(process.stdout.readline())
        port, ca_file = ready["port"], Path(ready["ca_file"])
        yield Emulator("127.0.0.1", port, "sa", PASSWORD, ca_file, ("Canned",), psutil.Process(process.pid))
        process.stdin.close()
        assert process.wait(20) == 0


def main() -> None:
    files = provide_certificate(Path(sys.argv[1]), "127.0.0.1")
    limits = Limits(**json.loads(sys.argv[2]))
    with EmulatorServer(CannedFactory(), TlsContexts.load(files), listen("127.0.0.1", 0), limits) as server:
        print(json.dumps({"port": server.port, "ca_file": str(files.ca_file)}), flush=True)
        sys.stdin.read()  # until the test closes the pipe


if __name__ == "__main__":
    main()
