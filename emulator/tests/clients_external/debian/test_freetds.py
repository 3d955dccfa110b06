"""FreeTDS' own programs from Debian, unmodified: ``tsql`` (its library below DB-Library and ODBC) and ``bsqldb``."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator_process import Emulator

SECONDS = 60
# declared type, literal, what tsql prints (FreeTDS 1.3 prints dates in a form of its own)
TYPES = [
    ("bit", "1", "1"),
    ("tinyint", "255", "255"),
    ("smallint", "-32768", "-32768"),
    ("int", "-2147483648", "-2147483648"),
    ("bigint", "9223372036854775807", "9223372036854775807"),
    ("decimal(18,2)", "-9999999999999999.99", "-9999999999999999.99"),
    ("numeric(38,10)", "1234567890123456789012345678.0123456789", "1234567890123456789012345678.0123456789"),
    ("money", "-922337203685477.5808", "-922337203685477.5808"),
    ("real", "1.5", "1.5"),
    ("float", "-0.5", "-0.5"),
    ("char(5)", "'abc'", "abc  "),
    ("varchar(20)", "'Größe €'", "Größe €"),
    ("varchar(max)", "replicate(cast('ü' as varchar(max)), 9000)", "ü" * 9000),
    ("nchar(4)", "N'日本'", "日本  "),
    ("nvarchar(20)", "N'naïve 🌊'", "naïve 🌊"),
    ("nvarchar(max)", "replicate(cast(N'é' as nvarchar(max)), 5000)", "é" * 5000),
    ("binary(4)", "0x0001FEFF", "0001feff"),
    ("varbinary(max)", "0x" + "00FF" * 5000, "00ff" * 5000),
    ("uniqueidentifier", "'12345678-9ABC-DEF0-1234-56789ABCDEF0'", "12345678-9ABC-DEF0-1234-56789ABCDEF0"),
    ("xml", "N'<a>é</a>'", "<a>é</a>"),
    ("text", "'old text'", "old text"),
    ("ntext", "N'old é'", "old é"),
    ("image", "0x89504E47", "89504e47"),
    ("date", "'2024-02-29'", "Feb 29 2024 12:00AM"),
    ("datetime2(7)", "'9999-12-31 23:59:59.5'", "Dec 31 9999 11:59PM"),
    ("datetime", "'2024-02-29 23:59:59.997'", "Feb 29 2024 11:59PM"),
    ("int", "NULL", "NULL"),
    ("nvarchar(10)", "NULL", "NULL"),
]
Program = Callable[..., str]


@pytest.fixture
def run(emulator: Emulator, clients_database: str, tmp_path: Path) -> Program:
    """Run a program on a script; what it prints, on both streams."""
    configuration = tmp_path / "freetds.conf"

    def run(program: str, script: str, *, version: str = "7.4", encryption: str = "require", ca_file: str = "") -> str:
        assert shutil.which(program), f"these tests need {program} of Debian's package freetds-bin"
        ca = (
            f"ca file = {ca_file or emulator.ca_file}\ncheck certificate hostname = no\n"
            if encryption == "require"
            else ""
        )
        configuration.write_text(
            f"[emulator]\nhost = {emulator.host}\nport = {emulator.port}\ntds version = {version}\n"
            f"encryption = {encryption}\nclient charset = UTF-8\n{ca}"
        )
        where = ["-S", "emulator", "-U", emulator.user, "-P", emulator.password, "-D", clients_database]
        quiet = ["-q", "-h"] if program == "bsqldb" else ["-o", "fhq"]
        done = subprocess.run(
            [program, *where, *quiet],
            input=script,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, "FREETDSCONF": str(configuration), "LC_ALL": "C.UTF-8"},
        )
        return done.stdout + done.stderr

    return run


@pytest.mark.parametrize(
    ("version", "encryption"),
    [("7.0", "off"), *itertools.product(["7.1", "7.2", "7.3", "7.4"], ["off", "request", "require"])],
)
def test_tsql_speaks_every_version_with_and_without_tls(
    run: Program, clients_database: str, version: str, encryption: str
) -> None:
    printed = run("tsql", "SELECT 1 AS a, N'é' AS b, DB_NAME()\nGO\n", version=version, encryption=encryption)
    assert printed.split() == ["1", "é", clients_database]


def test_an_unknown_certificate_is_refused(run: Program) -> None:
    printed = run("tsql", "SELECT 1\nGO\n", ca_file="/etc/ssl/certs/ca-certificates.crt")
    assert "There was a problem connecting to the server" in printed


@pytest.mark.parametrize(("declared", "literal", "shown"), TYPES, ids=[f"{one[0]} {one[1][:10]}" for one in TYPES])
def test_tsql_prints_every_type(run: Program, declared: str, literal: str, shown: str) -> None:
    script = f"CREATE TABLE #t (v {declared} NULL)\nGO\nINSERT INTO #t VALUES ({literal})\nGO\nSELECT v FROM #t\nGO\n"
    assert run("tsql", script).splitlines()[0] == shown


def test_tsql_goes_on_after_an_error(run: Program) -> None:
    printed = run("tsql", "SELECT 1\nSELECT 2/0\nGO\nSELECT * FROM dbo.Missing\nGO\nPRINT N'hällo'\nSELECT 3\nGO\n")
    assert "Msg 8134 (severity 16, state 1) from sqlserver-emulator Line 2:" in printed
    assert "Msg 208 (severity 16, state 1) from sqlserver-emulator Line 1:" in printed
    assert "Invalid object name 'dbo.Missing'." in printed
    assert [line for line in printed.splitlines() if line in ("1", "hällo", "3")] == ["1", "3", "hällo"]


def test_tsql_runs_a_script_of_batches(run: Program) -> None:
    script = """
IF OBJECT_ID('dbo.FreeTds') IS NOT NULL DROP TABLE dbo.FreeTds
GO
CREATE TABLE dbo.FreeTds (Id int IDENTITY PRIMARY KEY, Name nvarchar(20))
GO
BEGIN TRAN
INSERT INTO dbo.FreeTds (Name) VALUES (N'kept'), (N'also kept')
COMMIT
BEGIN TRAN
DELETE FROM dbo.FreeTds
ROLLBACK
GO
SELECT COUNT(*), MIN(Name), @@TRANCOUNT FROM dbo.FreeTds
GO
"""
    assert run("tsql", script).split("\n")[0] == "2\talso kept\t0"


def test_bsqldb_prints_several_results_and_stops_at_an_error(run: Program) -> None:
    results = "SELECT 1 AS a, N'é' AS b\nSELECT CAST(2.50 AS decimal(5,2)) AS d\nGO\n"
    printed = run("bsqldb", f"{results}PRINT 'x'\nSELECT 1/0\nGO\nSELECT 7\nGO\n")
    assert [line.split() for line in printed.splitlines()[:3]] == [["1", "é"], ["2.50"], ["x"]]
    assert "Msg 8134, Level 16, State 1" in printed
    assert "Divide by zero error encountered." in printed
    assert "7" not in printed.splitlines()[-1]


def test_freebcp_copies_rows_in_and_out(
    run: Program, emulator: Emulator, clients_database: str, tmp_path: Path
) -> None:
    run("tsql", "CREATE TABLE dbo.Copied (Id int PRIMARY KEY, Name nvarchar(20) NULL, Price decimal(9,2) NULL)\nGO\n")
    given = "1,Größe,1.50\n2,,\n3,naïve 🌊,-0.01\n"
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(given, "utf-8")
    for direction, file in (("in", source), ("out", target)):
        done = subprocess.run(
            [
                "freebcp",
                f"{clients_database}.dbo.Copied",
                direction,
                str(file),
                "-S",
                "emulator",
                "-U",
                emulator.user,
                "-P",
                emulator.password,
                "-c",
                "-t",
                ",",
                "-r",
                "\n",
                "-T",
                "2147483647",
            ],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, "FREETDSCONF": str(tmp_path / "freetds.conf"), "LC_ALL": "C.UTF-8"},
        )
        assert "3 rows copied" in done.stdout, done.stdout + done.stderr
    assert target.read_text("utf-8") == given
