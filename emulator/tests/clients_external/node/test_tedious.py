"""node's tedious, unmodified, driven through ``tedious_shell.mjs``."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator_process import Emulator

_HERE = Path(__file__).parent


# declared type, literal, tedious' name of the type on the wire, what it makes of the value (decimals are doubles there)
TYPES: list[tuple[str, str, str, object]] = [
    ("bit", "1", "BitN", True),
    ("tinyint", "255", "IntN", 255),
    ("smallint", "-32768", "IntN", -32768),
    ("int", "-2147483648", "IntN", -2147483648),
    ("bigint", "9223372036854775807", "IntN", "9223372036854775807"),
    ("decimal(18,2)", "-123456789.99", "DecimalN", -123456789.99),
    ("numeric(38,10)", "12345.0123456789", "NumericN", 12345.0123456789),
    ("money", "-1234.5678", "MoneyN", -1234.5678),
    ("smallmoney", "214748.3647", "MoneyN", 214748.3647),
    ("real", "1.5", "FloatN", 1.5),
    ("float", "-1.7976931348623157E308", "FloatN", -1.7976931348623157e308),
    ("date", "'0001-01-01'", "Date", {"at": "0001-01-01T00:00:00.000Z"}),
    ("time(6)", "'23:59:59.987'", "Time", {"at": "1970-01-01T23:59:59.987Z"}),
    ("datetime2(7)", "'9999-12-31 23:59:59.987'", "DateTime2", {"at": "9999-12-31T23:59:59.987Z"}),
    ("datetimeoffset(6)", "'2024-02-29 12:30:00.5 -03:30'", "DateTimeOffset", {"at": "2024-02-29T16:00:00.500Z"}),
    ("datetime", "'1753-01-01 23:59:59.997'", "DateTimeN", {"at": "1753-01-01T23:59:59.997Z"}),
    ("smalldatetime", "'2079-06-06 23:59'", "DateTimeN", {"at": "2079-06-06T23:59:00.000Z"}),
    ("char(5)", "'abc'", "Char", "abc  "),
    ("varchar(20)", "'Größe €'", "VarChar", "Größe €"),
    ("varchar(max)", "replicate(cast('ü' as varchar(max)), 9000)", "VarChar", "ü" * 9000),
    ("nchar(4)", "N'日本'", "NChar", "日本  "),
    ("nvarchar(20)", "N'naïve 🌊'", "NVarChar", "naïve 🌊"),
    ("nvarchar(max)", "replicate(cast(N'é' as nvarchar(max)), 5000)", "NVarChar", "é" * 5000),
    ("binary(4)", "0x0001FEFF", "Binary", {"hex": "0001feff"}),
    ("varbinary(10)", "0x", "VarBinary", {"hex": ""}),
    ("varbinary(max)", "0x" + "00FF" * 5000, "VarBinary", {"hex": "00ff" * 5000}),
    (
        "uniqueidentifier",
        "'12345678-9ABC-DEF0-1234-56789ABCDEF0'",
        "UniqueIdentifier",
        "12345678-9ABC-DEF0-1234-56789ABCDEF0",
    ),
    ("xml", "N'<a>é</a>'", "Xml", "<a>é</a>"),
    ("text", "'old text'", "Text", "old text"),
    ("ntext", "N'old é'", "NText", "old é"),
    ("image", "0x89504E47", "Image", {"hex": "89504e47"}),
]


class Tedious:
    """One node process with one connection."""

    def __init__(self, emulator: Emulator, database: str, **options: Any) -> None:
        node = shutil.which("node")
        assert node, "these tests need node"
        self._process = subprocess.Popen(
            [node, str(_HERE / "tedious_shell.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._where = {"host": emulator.host, "port": emulator.port, "user": emulator.user, "database": database}
        self._where |= {"password": emulator.password, "ca": str(emulator.ca_file)}
        self.options = {"encrypt": True, "rowCollectionOnRequestCompletion": False} | options

    def connect(self, **changes: Any) -> Any:
        return self("connect", self._where | {"options": self.options} | changes)

    def __call__(self, operation: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([operation, *arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def rows(self, text: str) -> Any:
        answer = self("batch", text)
        assert answer["errors"] == []
        return answer["sets"][0]["rows"]

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def tedious(emulator: Emulator, clients_database: str) -> Iterator[Tedious]:
    client = Tedious(emulator, clients_database)
    assert client.connect() == {}
    yield client
    client.end()


def test_the_certificate_is_verified_when_it_is_known_and_only_then(emulator: Emulator, clients_database: str) -> None:
    client = Tedious(emulator, clients_database)
    assert "certificate" in client.connect(ca=None)["error"]["message"]
    client.end()


@pytest.mark.parametrize("encrypt", [True, False, "strict"])
@pytest.mark.parametrize("packet_size", [512, 32767])
def test_tedious_logs_in_with_and_without_tls_in_packets_of_any_size(
    emulator: Emulator, clients_database: str, encrypt: object, packet_size: int
) -> None:
    client = Tedious(emulator, clients_database, encrypt=encrypt, packetSize=packet_size, serverName="localhost")
    assert client.connect() == {}
    text = "é" * 40_000
    answer = client("sql", "SELECT @t AS t, DB_NAME() AS d", {"t": ["NVarChar", text]})
    assert answer["sets"][0]["rows"] == [[text, clients_database]]
    client.end()


def test_a_refused_login_says_so(emulator: Emulator, clients_database: str) -> None:
    client = Tedious(emulator, clients_database)
    refused = client.connect(password="wrong")["error"]
    assert (refused["number"], refused["message"]) == ("ELOGIN", "Login failed for user 'sa'.")
    client.end()


def test_every_type_comes_back_as_it_went_in(tedious: Tedious) -> None:
    columns = ", ".join(f"c{i} {declared} NULL" for i, (declared, _, _, _) in enumerate(TYPES))
    tedious("batch", f"CREATE TABLE #types (Id int NOT NULL, {columns})")
    tedious("batch", f"INSERT INTO #types VALUES (1, {', '.join(literal for _, literal, _, _ in TYPES)})")
    tedious("batch", "INSERT INTO #types (Id) VALUES (2)")
    [result] = tedious("batch", "SELECT * FROM #types ORDER BY Id")["sets"]
    assert [kind for _, kind in result["columns"][1:]] == [kind for _, _, kind, _ in TYPES]
    full, empty = result["rows"]
    assert full[1:] == [value for _, _, _, value in TYPES]
    assert empty[1:] == [None] * len(TYPES)


@pytest.mark.parametrize(
    ("kind", "value", "declared", "back"),
    [
        ("Int", -5, "int", -5),
        ("BigInt", "9223372036854775807", "bigint", "9223372036854775807"),
        ("TinyInt", 255, "tinyint", 255),
        ("Bit", True, "bit", True),
        ("NVarChar", "naïve 🌊", "nvarchar(20)", "naïve 🌊"),
        ("VarChar", "Größe €", "varchar(20)", "Größe €"),
        ("NVarChar", "", "nvarchar(20)", ""),
        ("Float", 0.1, "float", 0.1),
        ("VarBinary", "00ff", "varbinary(10)", {"hex": "00ff"}),
        (
            "UniqueIdentifier",
            "12345678-9ABC-DEF0-1234-56789ABCDEF0",
            "uniqueidentifier",
            "12345678-9ABC-DEF0-1234-56789ABCDEF0",
        ),
        ("DateTime2", "2024-02-29T12:30:00.123Z", "datetime2(3)", {"at": "2024-02-29T12:30:00.123Z"}),
        ("DateTimeOffset", "2024-02-29T12:30:00.123Z", "datetimeoffset(3)", {"at": "2024-02-29T12:30:00.123Z"}),
        ("Date", "2024-02-29T00:00:00Z", "date", {"at": "2024-02-29T00:00:00.000Z"}),
        ("Int", None, "int", None),
        ("NVarChar", None, "nvarchar(20)", None),
        ("VarBinary", "ab" * 9000, "varbinary(max)", {"hex": "ab" * 9000}),
    ],
)
def test_a_parameter_arrives_as_it_was_given(
    tedious: Tedious, kind: str, value: object, declared: str, back: object
) -> None:
    answer = tedious("sql", f"SELECT CAST(@p AS {declared}) AS p", {"p": [kind, value]})
    assert answer["errors"] == []
    assert answer["sets"][0]["rows"] == [[back]]


def test_a_decimal_parameter_has_its_precision_and_scale(tedious: Tedious) -> None:
    given = {"p": ["Decimal", 12.345, {"precision": 10, "scale": 2}]}
    assert tedious("sql", "SELECT @p AS p", given)["sets"][0]["rows"] == [[12.35]]


def test_a_prepared_statement_runs_again_and_again(tedious: Tedious) -> None:
    assert tedious("prepare", "SELECT @a + 1 AS a, @b AS b", {"a": "Int", "b": "NVarChar"}) == {"prepared": True}
    for number in (1, 2, 3):
        assert tedious("execute", {"a": number, "b": "é"})["rows"] == [[number + 1, "é"]]
    assert tedious("execute", {"a": None, "b": None})["rows"] == [[None, None]]
    assert "error" not in tedious("unprepare")
    assert tedious("prepare", "SELECT @a + 1 AS a", {"a": "Int"}) == {"prepared": True}
    assert tedious("execute", {"a": 2147483647})["error"]["number"] == 8115
    assert tedious("execute", {"a": 1})["rows"] == [[2]]


def test_several_results_and_counts_come_in_one_batch(tedious: Tedious) -> None:
    answer = tedious("batch", "SELECT 1 AS a; SELECT N'zwei' AS b, 2 AS c WHERE 1 = 0; PRINT 'x'; SELECT 3 AS d")
    assert [(names(result), result["rows"]) for result in answer["sets"]] == [
        (["a"], [[1]]),
        (["b", "c"], []),
        (["d"], [[3]]),
    ]


def names(result: Any) -> list[str]:
    return [name for name, _ in result["columns"]]


def test_a_procedure_gives_results_output_parameters_and_a_status(tedious: Tedious) -> None:
    tedious(
        "batch",
        "CREATE OR ALTER PROCEDURE dbo.TediousProc @x int, @name nvarchar(20) OUTPUT, @sum decimal(10,2) = NULL OUTPUT"
        " AS SELECT @x AS x; SET @name = CONCAT(@x, N'!'); SET @sum = @x / 4.0; RETURN 7",
    )
    answer = tedious("call", "dbo.TediousProc", {"x": ["Int", 5]}, {"name": "NVarChar", "sum": "Float"})
    assert answer["sets"][0]["rows"] == [[5]]
    assert answer["outputs"] == {"name": "5!", "sum": 1.25}
    assert answer["status"] == 7
    missing = tedious("call", "dbo.TediousProc", {})["error"]
    assert missing["number"] == 201


def test_an_error_has_number_class_state_line_and_procedure(tedious: Tedious) -> None:
    tedious("batch", "CREATE OR ALTER PROCEDURE dbo.TediousFails AS\nSELECT 1 AS a\nRAISERROR(N'mine', 15, 3)")
    error = tedious("batch", "\n\nEXEC dbo.TediousFails")["error"]
    assert error == {
        "number": 50000,
        "message": "mine",
        "class": 15,
        "state": 3,
        "line": 3,
        "procedure": "TediousFails",
    }
    assert tedious("batch", "SELECT\n1/0")["error"]["line"] == 1
    assert tedious.rows("SELECT 1 AS a") == [[1]]


def test_transactions_nest_save_and_roll_back(tedious: Tedious) -> None:
    tedious("batch", "CREATE TABLE #t (a int)")
    assert tedious("begin", "SNAPSHOT") == {}
    tedious("batch", "INSERT INTO #t VALUES (1)")
    assert tedious("save", "here") == {}
    tedious("batch", "INSERT INTO #t VALUES (2)")
    assert tedious("rollback", "here") == {}
    assert tedious.rows("SELECT a, @@TRANCOUNT AS n FROM #t") == [[1, 1]]
    assert tedious("begin") == {}
    assert tedious.rows("SELECT @@TRANCOUNT AS n") == [[2]]
    assert tedious("commit") == {}
    assert tedious("rollback") == {}
    assert tedious.rows("SELECT COUNT(*) AS n, @@TRANCOUNT AS t FROM #t") == [[0, 0]]


def test_a_request_is_cancelled_while_its_rows_come(tedious: Tedious) -> None:
    many = "WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT i FROM n"
    answer = tedious("cancelAfter", f"{many} OPTION (MAXRECURSION 0)", 3)
    assert answer["error"]["number"] == "ECANCEL"
    assert len(answer["sets"][0]["rows"]) < 300_000
    assert tedious.rows("SELECT 1 AS a") == [[1]]


def test_a_reset_connection_forgets_its_tables_options_and_transaction(tedious: Tedious, clients_database: str) -> None:
    tedious("batch", "CREATE TABLE #t (a int); SET DATEFIRST 1; BEGIN TRANSACTION; USE master")
    assert tedious("reset") == {}
    assert tedious.rows("SELECT DB_NAME(), @@TRANCOUNT, @@DATEFIRST") == [[clients_database, 0, 7]]
    assert tedious("batch", "SELECT * FROM #t")["error"]["number"] == 208


def test_rows_are_loaded_in_bulk(tedious: Tedious) -> None:
    tedious(
        "batch", "CREATE TABLE #load (a int NOT NULL, b nvarchar(20) NULL, c datetime2(3) NULL, d varbinary(max) NULL)"
    )
    columns = [
        ["a", "Int", {"nullable": False}],
        ["b", "NVarChar", {"length": 20, "nullable": True}],
        ["c", "DateTime2", {"scale": 3, "nullable": True}],
    ]
    rows = [[i, f"é{i}" if i % 2 else None, None] for i in range(2000)]
    assert tedious("bulk", "#load", columns, rows)["rowCount"] == 2000
    assert tedious.rows("SELECT COUNT(*), COUNT(b), MAX(a), MAX(b), COUNT(c) FROM #load") == [
        [2000, 1000, 1999, "é999", 0]
    ]
    again = tedious("bulk", "#load", columns[1:], [["no a", None]])
    assert again["error"]["number"] == 515
    assert tedious.rows("SELECT COUNT(*) FROM #load") == [[2000]]
