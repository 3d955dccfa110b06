"""The doctor over the wire: what it finds in a source, what fixes it, and the grants that are enough."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from cdc_database import CdcDatabase, cdc_database
from embedded_postgres.server import EmbeddedPostgres
from emulator_process import Emulator
from floodmark.cli.main import app
from floodmark.cli.process import out
from floodmark.core.errors import FloodmarkError
from floodmark.core.planning import classify_tables
from floodmark.core.position import Lsn
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.snapshot import Verdict
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.source import SqlServerSource, read_facts
from floodmark.sources.sqlserver.driver import SqlServerConnection, connect
from object_store import connection_of, open_store, write_file

READER, PASSWORD = "doctor's reader", "D0ctor!reader"
CONFIG = """
sources: {shop: {conn_id: shop_mssql, capture: {heartbeat: dbo.Heartbeat}}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: "@weekly"
    tables:
      - {source: dbo.Orders, target: shop.orders, net: server}
      - {source: dbo.Heap, target: shop.heap}
      - {source: dbo.Plain, target: shop.plain}
      - {source: dbo.Gated, target: shop.gated, capture_instance: "gat'ed"}
"""
TABLES = tuple(
    TableSettings(TableName("dbo", name), TableName("shop", name.lower()), capture_instance=instance)
    for name, instance in (("Orders", None), ("Gated", "gat'ed"))
)


@pytest.fixture(scope="module")
def database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Amount int, Twice AS Amount * 2)",
            "CREATE TABLE dbo.Heap (Id int)",
            "CREATE TABLE dbo.Plain (Id int PRIMARY KEY)",
            "CREATE TABLE dbo.Gated (Id int PRIMARY KEY)",
        )
        made.enable("Orders", supports_net_changes="0")
        made.enable("Heap")
        made.run(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'Gated', @role_name = N'gate',"
            " @capture_instance = N'gat''ed'"
        )
        made.scan()
        yield made


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulator: Emulator, database: CdcDatabase) -> CliRunner:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    extra = {"encrypt": "yes", "ca_file": str(emulator.ca_file)}
    source = {
        "conn_type": "mssql",
        "host": emulator.host,
        "port": emulator.port,
        "login": emulator.user,
        "password": emulator.password,
        "schema": database.name,
        "extra": extra,
    }
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", json.dumps(source))
    monkeypatch.setattr(out, "width", 250)
    return CliRunner()


Findings = dict[tuple[str, str], dict[str, str]]


def findings(cli: CliRunner) -> Findings:
    """Return the findings of the doctor by check and subject."""
    result = cli.invoke(app, ["doctor", "shop", "--json"])
    assert result.exit_code == 4, result.output
    document = result.stdout[result.stdout.index("[\n") :]  # Airflow's words on short passwords may stand before it
    return {(each["check"], each["subject"]): each for each in json.loads(document)}


def test_doctor_finds_what_is_wrong_with_each_table_and_says_what_mends_it(cli: CliRunner) -> None:
    found = findings(cli)
    net = found["net changes", "dbo.Orders"]
    assert net["grade"] == "problem"
    assert "EXEC sys.sp_cdc_enable_table" in net["fix"]
    assert "@supports_net_changes = 1" in net["fix"]
    assert found["computed columns", "dbo.Orders"]["grade"] == "note"
    assert "Twice" in found["computed columns", "dbo.Orders"]["text"]
    assert found["key", "dbo.Heap"]["grade"] == "problem"
    assert "key: [..]" in found["key", "dbo.Heap"]["fix"]
    assert found["instance", "dbo.Plain"]["grade"] == "problem"
    assert found["command id", "dbo.Orders"]["grade"] == "good"
    assert "role gate" in found["permissions", "dbo.Gated"]["text"]


def test_cluster_whose_executors_receive_the_passwords_is_noted(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings(cli)["spark", "local[*]"]["grade"] == "good"
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://spark%3A%2F%2Fmaster:7077")
    note = findings(cli)["spark", "spark://master:7077"]
    assert note["grade"] == "note"
    assert "spark.network.crypto.enabled" in note["fix"]


def test_statement_against_a_missing_instance_creates_it(cli: CliRunner, database: CdcDatabase) -> None:
    database.run(findings(cli)["instance", "dbo.Plain"]["fix"])
    database.scan()
    assert findings(cli)["instance", "dbo.Plain"]["grade"] == "good"
    database.run("EXEC sys.sp_cdc_disable_table N'dbo', N'Plain', N'dbo_Plain'")


def test_table_that_a_procedure_truncates_is_a_risk(cli: CliRunner, database: CdcDatabase) -> None:
    assert ("truncate", "dbo.Orders") not in findings(cli)
    database.run("CREATE PROCEDURE dbo.Purge AS TRUNCATE TABLE dbo.Orders")
    risk = findings(cli)["truncate", "dbo.Orders"]
    assert (risk["grade"], risk["text"].split()[0]) == ("risk", "dbo.Purge")
    assert database.error_of("EXEC dbo.Purge") == 4711
    database.run("DROP PROCEDURE dbo.Purge")


def test_size_of_a_column_that_capture_has_not_come_to_is_a_risk_until_it_has(
    cli: CliRunner, database: CdcDatabase
) -> None:
    database.run("CREATE TABLE dbo.Sized (Id int PRIMARY KEY, Code nvarchar(20), Wide int, Version rowversion)")
    path = Path(os.environ["FLOODMARK_CONFIG"])
    path.write_text(CONFIG + "      - {source: dbo.Sized, target: shop.sized}\n", encoding="utf-8")
    database.enable("Sized")
    database.run(
        "ALTER TABLE dbo.Sized ALTER COLUMN Wide bigint", "ALTER TABLE dbo.Sized ALTER COLUMN Code nvarchar(10)"
    )
    risk = findings(cli)["column size", "dbo.Sized"]
    assert risk["grade"] == "risk"
    assert "yet (Code: nvarchar(10), in dbo_Sized still nvarchar(20)): if" in risk["text"]
    database.scan()
    assert ("column size", "dbo.Sized") not in findings(cli)
    database.run("DROP TABLE dbo.Sized")


def test_user_whom_capture_needs_is_missed(cli: CliRunner, database: CdcDatabase) -> None:
    assert ("cdc user", database.name) not in findings(cli)
    database.run("ALTER ROLE [db_owner] DROP MEMBER [cdc]")
    problem = findings(cli)["cdc user", database.name]
    assert problem["grade"] == "problem"
    database.run(problem["fix"])
    assert ("cdc user", database.name) not in findings(cli)


def test_names_that_are_taken_before_the_database_is_enabled_can_be_freed(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch, emulator: Emulator, database: CdcDatabase
) -> None:
    source = json.loads(os.environ["AIRFLOW_CONN_SHOP_MSSQL"]) | {"schema": "Taken"}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", json.dumps(source))
    database.run("CREATE DATABASE Taken")
    try:
        with emulator.connect_pymssql("Taken", autocommit=True) as connection:
            taken = CdcDatabase("Taken", connection)
            taken.run("CREATE SCHEMA cdc", "CREATE USER cdc WITHOUT LOGIN")
            assert taken.error_of("EXEC sys.sp_cdc_enable_db") == 22906
            for check in ("cdc schema", "cdc user"):
                found = findings(cli)[check, "Taken"]
                assert found["grade"] == "problem"
                taken.run(found["fix"].partition(": ")[2].partition(": ")[2] or found["fix"].partition(": ")[2])
            assert {("cdc schema", "Taken"), ("cdc user", "Taken")}.isdisjoint(findings(cli))
            taken.run(findings(cli)["cdc", "Taken"]["fix"])
    finally:
        database.run("DROP DATABASE Taken")


def test_doctor_has_the_statements_that_make_a_heartbeat(cli: CliRunner, database: CdcDatabase) -> None:
    missing = findings(cli)["heartbeat", "dbo.Heartbeat"]
    assert (missing["grade"], missing["text"]) == ("problem", "the table does not exist.")
    database.run(*missing["fix"].replace("; ", ";\n").splitlines())
    assert findings(cli)["heartbeat", "dbo.Heartbeat"]["grade"] == "good"
    database.run("EXEC sys.sp_cdc_disable_table N'dbo', N'Heartbeat', N'dbo_Heartbeat'")
    untracked = findings(cli)["heartbeat", "dbo.Heartbeat"]
    assert (untracked["text"], untracked["fix"].split()[1]) == (
        "its changes are not captured.",
        "sys.sp_cdc_enable_table",
    )
    database.run("DROP TABLE dbo.Heartbeat")


def test_doctor_sees_that_the_agent_is_stopped(cli: CliRunner, database: CdcDatabase) -> None:
    assert findings(cli)["agent", database.name]["grade"] == "good"
    database.run("EXEC emulator.stop_agent")
    try:
        stopped = findings(cli)["agent", database.name]
    finally:
        database.run("EXEC emulator.reset")
    assert (stopped["grade"], stopped["fix"]) == ("problem", "Start the service SQL Server Agent.")


def test_retention_shorter_than_three_runs_is_a_risk_and_its_fix_ends_it(cli: CliRunner, database: CdcDatabase) -> None:
    risk = findings(cli)["retention", database.name]
    assert risk["grade"] == "risk"
    database.run(risk["fix"])
    assert database.query(
        "SELECT retention FROM msdb.dbo.cdc_jobs WHERE job_type = 'cleanup' AND database_id = DB_ID()"
    )[0] == {"retention": 21 * 24 * 60}
    assert findings(cli)["retention", database.name]["grade"] == "good"


def test_doctor_says_when_the_clock_of_the_server_is_not_ours(cli: CliRunner, database: CdcDatabase) -> None:
    assert ("clock", database.name) not in findings(cli)
    database.run("EXEC emulator.advance_clock @seconds = 600")
    try:
        ahead = findings(cli)["clock", database.name]
    finally:
        database.run("EXEC emulator.reset_clock")
    assert (ahead["grade"], "ahead of this machine's" in ahead["text"]) == ("risk", True)


def test_doctor_says_that_the_connection_trusts_anybody(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch, emulator: Emulator, database: CdcDatabase
) -> None:
    assert findings(cli)["tls", database.name]["grade"] == "good"
    source = {
        "conn_type": "mssql",
        "host": emulator.host,
        "port": emulator.port,
        "login": emulator.user,
        "password": emulator.password,
        "schema": database.name,
        "extra": {"trust_server_certificate": True},
    }
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", json.dumps(source))
    risk = findings(cli)["tls", database.name]
    assert risk["grade"] == "risk"
    assert "ca_file" in risk["fix"]


def test_findings_are_shown_worst_first_and_never_with_a_password(cli: CliRunner, emulator: Emulator) -> None:
    result = cli.invoke(app, ["doctor", "shop"])
    assert result.exit_code == 4
    assert result.stdout.index("PROBLEM: ") < result.stdout.index("checks are good. --all lists them.")
    assert emulator.password not in result.output


@pytest.mark.parametrize(("encoding", "grade"), [("UTF8", "good"), ("LATIN1", "problem")])
def test_doctor_finds_a_warehouse_that_cannot_store_every_text(
    cli: CliRunner, postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, encoding: str, grade: str
) -> None:
    at = {"conn_type": "postgres", "host": str(postgres.socket_dir), "login": "postgres", "schema": "encoded"}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(at))
    with psycopg.connect(postgres.conninfo(), autocommit=True) as session:
        session.execute(f"CREATE DATABASE encoded ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        try:
            found = findings(cli)["encoding", "warehouse"]
        finally:
            session.execute("DROP DATABASE encoded WITH (FORCE)")
    assert found["grade"] == grade
    assert encoding in found["text"]
    assert ("ENCODING 'UTF8' TEMPLATE template0" in found["fix"]) is (grade == "problem")


def test_warehouse_that_cannot_be_reached_is_a_problem(cli: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Airflow does not know it" in findings(cli)["connection", "warehouse"]["text"]
    at = {"conn_type": "postgres", "host": "127.0.0.1", "port": 1, "login": "loader", "password": "s3cret-of-loader"}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(at | {"schema": "warehouse"}))
    found = findings(cli)["connection", "warehouse"]
    assert found["grade"] == "problem"
    assert "cannot be reached" in found["text"]
    assert "s3cret" not in json.dumps(found)


def test_doctor_says_of_a_lake_what_is_missing(
    cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: EmbeddedPostgres
) -> None:
    lake = "warehouse: {kind: iceberg, conn_id: lake}\nledger: {conn_id: ledger}"
    text = CONFIG.replace("warehouse: {conn_id: warehouse}", lake)
    Path(os.environ["FLOODMARK_CONFIG"]).write_text(text, encoding="utf-8")
    ledger = {"conn_type": "postgres", "host": str(postgres.socket_dir), "login": "postgres", "schema": "lake"}
    monkeypatch.setenv("AIRFLOW_CONN_LEDGER", json.dumps(ledger))
    monkeypatch.setenv("FLOODMARK_JARS", str(tmp_path))
    with (
        open_store("company") as bucket,
        psycopg.connect(postgres.conninfo(), autocommit=True) as server,
    ):
        server.execute("CREATE DATABASE lake")
        try:
            monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_of(replace(bucket, location="s3://missing"), tmp_path))
            assert findings(cli)["lake", "s3://missing/tables"]["text"] == "there is no bucket missing."
            monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_of(bucket, tmp_path))
            found = findings(cli)
            assert found["lake", f"{bucket.location}/tables"]["grade"] == "good"
            assert "floodmark fetch-jars --s3" in found["lake", "the jars of the lake"]["fix"]
            assert ("lake", "catalog") not in found
            with psycopg.connect(postgres.conninfo(), dbname="lake", autocommit=True) as session:
                session.execute("CREATE SCHEMA floodmark_lake")
                session.execute(
                    "CREATE TABLE floodmark_lake.iceberg_tables AS SELECT 'lake' AS catalog_name,"
                    " 'shop' AS table_namespace, 'orders' AS table_name, %s AS metadata_location"
                    " UNION ALL SELECT 'release', 'shop', 'orders', %s",
                    [metadata := f"{bucket.location}/v1.metadata.json", f"{bucket.location}/given-up.metadata.json"],
                )
            assert metadata in findings(cli)["lake", "shop.orders"]["text"]
            write_file(bucket, metadata, datetime.now(UTC), b"{}")
            assert findings(cli)["lake", "catalog"]["grade"] == "good"
        finally:
            server.execute("DROP DATABASE lake WITH (FORCE)")


@pytest.mark.parametrize(
    ("deletes", "relation"),
    [
        ("deletes: hard", "gated"),
        ("style: snapshot", "gated"),
        ("style: history, keep_versions: 7d", "gated_versions"),
    ],
)
def test_rights_that_the_user_of_the_warehouse_lacks_are_problems_until_their_fixes_have_run(
    cli: CliRunner, postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, deletes: str, relation: str
) -> None:
    def rights() -> dict[tuple[str, str], str]:
        document = cli.invoke(app, ["doctor", "shop", "--json"]).stdout
        found = json.loads(document[document.index("[\n") :])
        return {(each["grade"], each["text"]): each["fix"] for each in found if each["check"] == "rights"}

    at = WarehouseConnection(str(postgres.socket_dir), 5432, "company", "postgres")
    monkeypatch.setenv(
        "AIRFLOW_CONN_WAREHOUSE",
        json.dumps({"conn_type": "postgres", "host": at.host, "login": "the loader", "schema": at.database}),
    )
    with psycopg.connect(postgres.conninfo(), autocommit=True) as session:
        session.execute('CREATE ROLE "the loader" LOGIN')
        session.execute("CREATE DATABASE company TEMPLATE template0")
    try:
        with psycopg.connect(at.conninfo(), autocommit=True) as administrator:
            administrator.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders (id int)")
            administrator.execute("CREATE TABLE shop.gated (); CREATE TABLE shop.gated_versions ()")
            administrator.execute('GRANT USAGE ON SCHEMA shop TO "the loader"')
            administrator.execute('GRANT SELECT, INSERT, UPDATE ON shop.gated, shop.gated_versions TO "the loader"')
            found = rights()
            assert {(grade, text.partition(":")[0]) for grade, text in found} == {
                ("problem", '"the loader" may not create the schema "floodmark", which is not there yet.'),
                ("problem", '"the loader" may not create the schema "floodmark_staging", which is not there yet.'),
                ("problem", '"the loader" may not create tables in the schema "shop".'),
                ("problem", '"the loader" may not read and write "shop"."orders", which belongs to another user.'),
                ("risk", '"shop"."gated" belongs to another user'),
            }
            path = Path(os.environ["FLOODMARK_CONFIG"])
            path.write_text(CONFIG.replace("target: shop.gated", f"target: shop.gated, {deletes}"), encoding="utf-8")
            fixes = [fix for (_, text), fix in rights().items() if "may not delete rows" in text]
            assert fixes == [f'GRANT DELETE ON "shop"."{relation}" TO "the loader";']
            administrator.execute(fixes[0].encode())
            assert "may not delete rows" not in repr(rights())
            path.write_text(CONFIG, encoding="utf-8")
            with pytest.raises(FloodmarkError, match="permission denied for database company"):
                PostgresLedger(replace(at, user="the loader")).ensure_schema()
            for fix in found.values():
                administrator.execute(fix.partition(" or ")[0].encode())
            # Without CREATE on the database: the schemas are there.
            PostgresLedger(replace(at, user="the loader")).ensure_schema()
            assert [grade for grade, _ in rights()] == ["good"]
    finally:
        with psycopg.connect(postgres.conninfo(), autocommit=True) as session:
            session.execute("DROP DATABASE company WITH (FORCE)")
            session.execute('DROP ROLE "the loader"')


def test_grants_are_enough_to_read_the_tables_and_their_changes(
    cli: CliRunner, emulator: Emulator, database: CdcDatabase
) -> None:
    name = READER.replace("]", "]]")
    database.run(f"CREATE LOGIN [{name}] WITH PASSWORD = '{PASSWORD}'")
    script = cli.invoke(app, ["doctor", "shop", "--grants", READER])
    assert script.exit_code == 0, script.output
    batch = script.stdout[script.stdout.index("USE ") :]  # Airflow's words on short passwords may stand before it
    at = SqlServerConnection(
        emulator.host, emulator.port, database.name, READER, PASSWORD, ca_file=str(emulator.ca_file)
    )
    try:
        # All but Plain, which has no change table, and the net function that Orders lacks.
        lines = [
            line
            for line in batch.splitlines()
            if "Plain" not in line and "get_net_changes" not in line and not line.startswith("--")
        ]
        database.run("\n".join(lines))
        database.run(f"USE [{database.name}]")
        settings = PipelineSettings("shop", TABLES)
        pinned = {table.source: table.capture_instance for table in TABLES if table.capture_instance}
        snapshot = SqlServerSource(at).read_snapshot(settings.sources, pinned)
        assert [validity.verdict for validity in classify_tables(settings, snapshot, {})] == [Verdict.NOT_STARTED] * 2
        assert isinstance(snapshot.newest, Lsn)
        again = SqlServerSource(at).read_snapshot(settings.sources, pinned, [snapshot.newest])
        assert again.entries == {snapshot.newest: snapshot.newest_at}
        facts = read_facts(at)
        assert (facts.is_db_owner, facts.hazards.switchable, facts.hazards.has_schema) == (False, None, True)
        with connect(replace(at, database="msdb")) as msdb:
            for table in ("cdc_jobs", "sysjobactivity"):
                assert msdb.fetch(f"SELECT HAS_PERMS_BY_NAME(N'dbo.{table}', N'OBJECT', N'SELECT')") == [(1,)]
    finally:
        database.run(f"USE [{database.name}]", f"DROP USER [{name}]", f"USE msdb; DROP USER [{name}]")
        database.run(f"USE [{database.name}]", f"DROP LOGIN [{name}]")
