"""Flyway, unmodified, driven from Python through Spark's JVM: it migrates a database of its own, and cleans it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator_process import Emulator
from jdbc_body import error_of
from jdbc_jvm import Jdbc, spark_with_driver, write_trust_store

# py4j leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

DATABASE = "Flyway"
FLYWAY = "org.flywaydb:flyway-sqlserver:11.8.2"
_MIGRATIONS = Path(__file__).parent / "migrations"


@pytest.fixture(scope="module")
def jdbc(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jdbc]:
    trust_store = tmp_path_factory.mktemp("flyway") / "trust.p12"
    write_trust_store(emulator.ca_file, trust_store)
    with spark_with_driver(FLYWAY) as session:
        yield Jdbc(session, emulator, DATABASE, trust_store)


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    """A copy of the migrations, which a test may change."""
    return Path(shutil.copytree(_MIGRATIONS, tmp_path / "migrations"))


@pytest.fixture
def flyway(jdbc: Jdbc, migrations: Path) -> Any:
    """Return Flyway on an empty database."""
    connection = jdbc.emulator.connect_pymssql("master", autocommit=True)
    cursor = connection.cursor()
    cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    cursor.execute(f"CREATE DATABASE {DATABASE}")
    connection.close()
    jvm = jdbc.session._jvm
    options = ";".join(f"{name}={value}" for name, value in jdbc.options.items() if name not in ("user", "password"))
    return (
        jvm.org.flywaydb.core.Flyway.configure(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        .dataSource(f"{jdbc.url};{options}", jdbc.emulator.user, jdbc.emulator.password)
        .schemas(_texts(jdbc, "dbo", "fly"))  # it creates the second, and cleans both
        .locations(_texts(jdbc, f"filesystem:{migrations}"))
        .placeholders({"score": "4.5"})
        .cleanDisabled(False)
        .load()
    )


def test_flyway_migrates_once_and_knows_what_is_there(flyway: Any, jdbc: Jdbc, migrations: Path) -> None:
    assert (_migrate(flyway), _migrate(flyway)) == (3, 0)
    assert flyway.info().current().getDescription() == "insert rows"
    flyway.validate()
    found = _rows(jdbc, "SELECT Name, Code, CAST(Score AS float), Orders FROM fly.Totals ORDER BY Name")
    assert found == [("Ada 🌊", "ADA", 6.5, 2), ("Béla", "BÉL", 2.25, 0)]
    with (migrations / "V2__insert_rows.sql").open("a") as script:
        script.write("SELECT 1;\n")
    assert "checksum mismatch" in str(error_of(flyway.validate)).lower()


def test_a_migration_that_fails_is_undone(flyway: Any, jdbc: Jdbc, migrations: Path) -> None:
    (migrations / "V3__fail.sql").write_text("CREATE TABLE fly.Lost (Id int);\nGO\nINSERT fly.Lost VALUES ('x');\n")
    assert "Conversion failed" in str(error_of(flyway.migrate))
    assert flyway.info().current().getVersion().toString() == "2"
    assert _rows(jdbc, "SELECT OBJECT_ID(N'fly.Lost'), COUNT(*) FROM fly.Customers") == [(None, 2)]


def test_flyway_cleans_what_it_has_made(flyway: Any, jdbc: Jdbc) -> None:
    flyway.migrate()
    _rows(jdbc, "CREATE TABLE dbo.Other (Id int PRIMARY KEY) SELECT 1")
    flyway.clean()
    assert _rows(jdbc, "SELECT name FROM sys.objects WHERE is_ms_shipped = 0") == []
    assert _rows(jdbc, "SELECT name FROM sys.types WHERE is_user_defined = 1") == []
    assert _migrate(flyway) == 3


def _migrate(flyway: Any) -> int:
    """Migrate; return how many migrations ran."""
    return len(flyway.migrate().getSuccessfulMigrations())


def _texts(jdbc: Jdbc, *texts: str) -> Any:
    """Return an array of Java."""
    array = jdbc.session._sc._gateway.new_array(jdbc.session._jvm.java.lang.String, len(texts))
    for i, text in enumerate(texts):
        array[i] = text
    return array


def _rows(jdbc: Jdbc, query: str) -> list[tuple[Any, ...]]:
    connection = jdbc.emulator.connect_pymssql(DATABASE, autocommit=True)
    try:
        cursor = connection.cursor()
        cursor.execute(query)
        return [tuple(row) for row in cursor.fetchall()]
    finally:
        connection.close()
