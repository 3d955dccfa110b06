"""Extended properties: kept with what they describe, shown by the view and the function that tools ask."""

from __future__ import annotations

import pytest

from sql_client import SqlClient

OBJECTS = """
CREATE TABLE described (id int PRIMARY KEY, q int CONSTRAINT default_q DEFAULT 1)
CREATE INDEX index_q ON described (q)
GO
CREATE VIEW described_view AS SELECT id, q FROM described
GO
CREATE PROCEDURE described_procedure @a int, @b varchar(20) = 'x' OUTPUT AS SELECT 1
GO
CREATE FUNCTION described_function(@x int) RETURNS int AS BEGIN RETURN @x END
"""
TARGETS = [
    "",
    "'SCHEMA', 'dbo'",
    "'SCHEMA', 'dbo', 'TABLE', 'described'",
    "'user', 'dbo', 'table', 'described', 'column', 'q'",
    "'SCHEMA', 'dbo', 'TABLE', 'described', 'CONSTRAINT', 'default_q'",
    "'SCHEMA', 'dbo', 'TABLE', 'described', 'INDEX', 'index_q'",
    "'SCHEMA', 'dbo', 'VIEW', 'described_view', 'COLUMN', 'q'",
    "'SCHEMA', 'dbo', 'PROCEDURE', 'described_procedure', 'PARAMETER', '@b'",
    "'SCHEMA', 'dbo', 'FUNCTION', 'described_function', 'PARAMETER', '@x'",
]


@pytest.fixture
def objects(client: SqlClient) -> SqlClient:
    if client.value("SELECT OBJECT_ID('described')") is None:
        client.script(OBJECTS)
    return client


@pytest.mark.parametrize("target", TARGETS)
def test_property_is_added_changed_listed_and_dropped(objects: SqlClient, target: str) -> None:
    behind = f", {target}" if target else ""
    listed = f"{target}, " if target else ""
    padding = ", ".join(["NULL"] * (6 - (target.count(",") + 1 if target else 0)))
    shown = f"SELECT name, value FROM fn_listextendedproperty(NULL, {listed}{padding})".replace(", )", ")")
    objects.run(f"EXEC sys.sp_addextendedproperty N'Note', N'first'{behind}")
    assert objects.error(f"EXEC sp_addextendedproperty 'note', 'again'{behind}")[0] == 15233
    objects.run(f"EXEC sp_updateextendedproperty 'Note', 'second'{behind}")
    assert objects.rows(shown) == [("Note", "second")]
    assert objects.value("SELECT CAST(value AS nvarchar(50)) FROM sys.extended_properties") == "second"
    objects.run(f"EXEC sp_dropextendedproperty 'Note'{behind}")
    assert objects.rows(shown) == []
    assert objects.error(f"EXEC sp_updateextendedproperty 'Note', 'x'{behind}")[0] == 15217


def test_question_tools_ask_finds_the_descriptions_of_columns(objects: SqlClient) -> None:
    column = "'SCHEMA', 'dbo', 'TABLE', 'described', 'COLUMN'"
    objects.run(f"EXEC sp_addextendedproperty 'MS_Description', 'what q is', {column}, 'q'")
    query = """
        SELECT c.name, CAST(e.value AS nvarchar(max)) FROM sys.columns c
        LEFT JOIN sys.extended_properties e ON e.major_id = c.object_id AND e.minor_id = c.column_id AND e.class = 1
        WHERE c.object_id = OBJECT_ID('described') ORDER BY c.column_id"""
    assert objects.rows(query) == [("id", None), ("q", "what q is")]
    assert objects.rows(f"SELECT objname FROM ::fn_listextendedproperty(default, {column}, default)") == [("q",)]
    objects.run(f"EXEC sp_dropextendedproperty 'MS_Description', {column}, 'q'")


def test_description_of_a_view_outlives_changes_below_it(objects: SqlClient) -> None:
    objects.run("EXEC sp_addextendedproperty 'd', 'a view', 'SCHEMA', 'dbo', 'VIEW', 'described_view'")
    objects.script(
        "ALTER TABLE described ALTER COLUMN q bigint\nGO\nALTER VIEW described_view AS SELECT q FROM described"
    )
    query = "SELECT value FROM fn_listextendedproperty('d', 'SCHEMA', 'dbo', 'VIEW', NULL, NULL, NULL)"
    assert objects.rows(query) == [("a view",)]
    objects.run("DROP VIEW described_view")
    assert objects.rows("SELECT name FROM sys.extended_properties") == []
    objects.script("CREATE VIEW described_view AS SELECT id, q FROM described")


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("sp_addextendedproperty 'p', 'v', 'SCHEMA', 'dbo', 'TABLE', 'missing'", 15135),
        ("sp_addextendedproperty 'p', 'v', 'SCHEMA', 'dbo', 'TABLE'", 15600),
        ("sp_addextendedproperty NULL, 'v'", 15600),
        ("sp_dropextendedproperty 'p', 'SCHEMA', 'dbo'", 15217),
    ],
)
def test_call_that_means_nothing_is_refused(objects: SqlClient, call: str, number: int) -> None:
    assert objects.error(f"EXEC {call}")[0] == number
