"""A login that may not see everything: masks and filters, from the server to the doctor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.doctor import DiagnosisInput, Grade
from floodmark.core.planning import classify_tables
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, SecurityFiltered, TableSettings
from floodmark.core.snapshot import TableSnapshot
from floodmark.sources.cdc.doctor import diagnose
from floodmark.sources.cdc.source import SqlServerSource, read_facts
from floodmark.sources.sqlserver.driver import SqlServerConnection

MEMBERS, REGIONS = TableName("dbo", "Members"), TableName("dbo", "Regions")
READER, PASSWORD = "sees_little", "S33s!little"


@pytest.fixture(scope="module")
def database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Members (Id int PRIMARY KEY, Email varchar(50) MASKED WITH (FUNCTION = 'email()'),"
            " Phone varchar(20) MASKED WITH (FUNCTION = 'default()'), Name varchar(20))",
            "CREATE TABLE dbo.Regions (Id int PRIMARY KEY, Region varchar(9))",
            "CREATE FUNCTION dbo.Passes (@r varchar(9)) RETURNS TABLE AS RETURN SELECT 1 AS x WHERE @r = 'north'",
            "CREATE SECURITY POLICY dbo.RegionFilter ADD FILTER PREDICATE dbo.Passes(Region) ON dbo.Regions",
            f"CREATE LOGIN {READER} WITH PASSWORD = '{PASSWORD}'",
            f"CREATE USER {READER} FOR LOGIN {READER}",
            f"ALTER ROLE db_datareader ADD MEMBER {READER}",
        )
        made.enable("Members")
        made.enable("Regions")
        yield made
        made.run(f"DROP LOGIN {READER}")


@pytest.fixture
def at(emulator: Emulator, database: CdcDatabase) -> SqlServerConnection:
    """The connection of the reader."""
    return SqlServerConnection(
        emulator.host, emulator.port, database.name, READER, PASSWORD, ca_file=str(emulator.ca_file)
    )


@contextmanager
def granted(database: CdcDatabase, right: str) -> Iterator[None]:
    database.run(f"GRANT {right} TO {READER}")
    try:
        yield
    finally:
        database.run(f"REVOKE {right} FROM {READER}")


def seen(at: SqlServerConnection, table: TableName) -> TableSnapshot:
    return SqlServerSource(at).read_snapshot([table]).tables[0]


def found_by_doctor(at: SqlServerConnection, table: TableSettings) -> dict[tuple[str, str], Grade]:
    settings = PipelineSettings("shop", (table,))
    snapshot = SqlServerSource(at).read_snapshot(settings.sources)
    facts = read_facts(at)
    validities = classify_tables(settings, snapshot, {})
    now = datetime.now(UTC).replace(tzinfo=None)
    findings = diagnose(DiagnosisInput(settings, snapshot, validities, "yes", False, None, now), facts)
    return {(each.check, each.subject): each.grade for each in findings}


def test_columns_behind_masks_are_those_that_the_login_may_not_unmask(
    at: SqlServerConnection, database: CdcDatabase, emulator: Emulator
) -> None:
    assert seen(at, MEMBERS).masked == ("Email", "Phone")
    for right, left in (
        ("UNMASK ON dbo.Members (Email)", ("Phone",)),
        ("UNMASK ON dbo.Members", ()),
        ("UNMASK ON SCHEMA::dbo", ()),
        ("UNMASK", ()),
    ):
        with granted(database, right):
            assert seen(at, MEMBERS).masked == left, right
    owner = replace(at, user=emulator.user, password=emulator.password)
    assert seen(owner, MEMBERS).masked == ()


def test_filter_policies_are_those_that_the_login_may_see(at: SqlServerConnection, database: CdcDatabase) -> None:
    assert seen(at, REGIONS).filters == ()
    with granted(database, "VIEW DEFINITION"):
        assert seen(at, REGIONS).filters == ("dbo.RegionFilter",)
        assert seen(at, MEMBERS).filters == ()
        database.run("ALTER SECURITY POLICY dbo.RegionFilter WITH (STATE = OFF)")
        try:
            assert seen(at, REGIONS).filters == ()
        finally:
            database.run("ALTER SECURITY POLICY dbo.RegionFilter WITH (STATE = ON)")


def test_doctor_names_masks_and_filters(at: SqlServerConnection, database: CdcDatabase) -> None:
    members = TableSettings(MEMBERS, TableName("shop", "members"))
    regions = TableSettings(REGIONS, TableName("shop", "regions"))
    found = found_by_doctor(at, members)
    assert found["masked columns", str(MEMBERS)] is Grade.PROBLEM
    assert found["security policy", database.name] is Grade.NOTE
    assert ("security policy", str(REGIONS)) not in found_by_doctor(at, regions)
    with granted(database, "VIEW DEFINITION"):
        found = found_by_doctor(at, regions)
        assert found["security policy", str(REGIONS)] is Grade.PROBLEM
        assert ("security policy", database.name) not in found
        accepted = replace(regions, security_filtered=SecurityFiltered.ACCEPT)
        assert found_by_doctor(at, accepted)["security policy", str(REGIONS)] is Grade.NOTE
    with granted(database, "UNMASK"):
        assert ("masked columns", str(MEMBERS)) not in found_by_doctor(at, members)
