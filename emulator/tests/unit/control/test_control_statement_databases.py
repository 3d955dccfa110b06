"""Which databases a statement is in, which faults ask."""

from __future__ import annotations

import pytest

from sqlserver_emulator.control.statement_databases import databases_of, written_database


@pytest.mark.parametrize(
    ("statement", "databases", "written"),
    [
        ("UPDATE dbo.t SET v = 1", set(), "here"),
        ("INSERT Shop.dbo.t VALUES (1)", {"shop"}, "shop"),
        ("INSERT INTO [My Shop]..[t] (a) SELECT b FROM Other.dbo.x", {"my shop", "other"}, "my shop"),
        ("UPDATE a SET v = 1 FROM Shop.dbo.t AS a", {"shop"}, "shop"),
        ("DELETE a FROM dbo.t JOIN Shop.dbo.t a ON a.id = t.id", {"shop"}, "shop"),
        ('DELETE TOP (5) FROM "Shop".dbo.t', {"shop"}, "shop"),
        ("SELECT id INTO Shop.dbo.n FROM dbo.t", {"shop"}, "shop"),
        ("SELECT id INTO dbo.n FROM Shop.dbo.t", {"shop"}, "here"),
        ("CREATE TABLE Shop.dbo.n (id int)", {"shop"}, "shop"),
        ("DROP TABLE IF EXISTS Shop.dbo.n", {"shop"}, "shop"),
        ("MERGE dbo.t AS t USING Other.dbo.s AS s ON t.id = s.id WHEN MATCHED THEN DELETE;", {"other"}, "here"),
        ("SELECT 1.5, t.id FROM dbo.t AS t", set(), "here"),
    ],
)
def test_statement_is_in_the_session_s_database_and_in_those_it_names(
    statement: str, databases: set[str], written: str
) -> None:
    assert databases_of(statement, "Here") == databases | {"here"}
    assert written_database(statement, "Here") == written
