"""DDL text to declarations."""

from __future__ import annotations

import pytest

from sqlserver_emulator.engine.ddl.reading.declarations import (
    CheckDeclaration,
    ForeignKeyDeclaration,
    IndexColumn,
    KeyDeclaration,
    ObjectName,
    TableDeclaration,
)
from sqlserver_emulator.engine.ddl.reading.read_alter import (
    Additions,
    ColumnChange,
    ConstraintSwitch,
    Removals,
    read_alter_table,
)
from sqlserver_emulator.engine.ddl.reading.read_table import read_create_table
from sqlserver_emulator.engine.ddl.reading.taking import take_name
from sqlserver_emulator.engine.ddl.tables.select_into import find_into
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.data_types import take_type
from sqlserver_emulator.types import TsqlType


def _type(cursor: Cursor) -> tuple[TsqlType, None, None]:
    return take_type(cursor), None, None


def _table(text: str) -> TableDeclaration:
    return read_create_table(Cursor(text), _type)


def test_names_have_up_to_three_parts() -> None:
    assert take_name(Cursor('[a b].."c"')) == ObjectName("c", "", "a b")
    assert take_name(Cursor("dbo.[x]]y]")) == ObjectName("x]y", "dbo")
    assert take_name(Cursor("#t")).is_temporary
    with pytest.raises(NotSupportedByEmulatorError):
        take_name(Cursor("srv.db.dbo.t"))


def test_column_options_may_come_in_any_order() -> None:
    for text in ("a int IDENTITY(5, -1) NOT NULL PRIMARY KEY", "a int PRIMARY KEY NOT NULL IDENTITY ( 5 , -1 )"):
        table = _table(f"t ({text})")
        (column,) = table.columns
        assert (column.identity, column.nullable) == ((5, -1), False)
        assert table.constraints == (KeyDeclaration(True, (IndexColumn("a"),)),)


def test_defaults_end_where_the_next_option_begins() -> None:
    table = _table("t (a int DEFAULT -1 NOT NULL, b nvarchar(5) CONSTRAINT d DEFAULT (N',)') NULL, c int DEFAULT NULL)")
    assert [(c.default.expression, c.default.name) for c in table.columns if c.default] == [
        ("-1", ""),
        ("(N',)')", "d"),
        ("NULL", ""),
    ]
    assert [c.nullable for c in table.columns] == [False, True, None]


def test_table_constraints_are_read() -> None:
    table = _table(
        "t (a int, b int, CONSTRAINT pk PRIMARY KEY NONCLUSTERED (a DESC, b) WITH (FILLFACTOR = 80) ON [PRIMARY],"
        " CHECK (a IN (1, 2)), FOREIGN KEY (b) REFERENCES s.o (x) ON DELETE SET NULL ON UPDATE CASCADE) ON [PRIMARY]"
    )
    assert table.constraints == (
        KeyDeclaration(True, (IndexColumn("a", True), IndexColumn("b")), "pk", False),
        CheckDeclaration("a IN (1, 2)"),
        ForeignKeyDeclaration(("b",), ObjectName("o", "s"), ("x",), "", "SET NULL", "CASCADE"),
    )


def test_computed_columns_keep_their_text() -> None:
    first, second = _table("t (a AS (x + 1) PERSISTED NOT NULL, b AS ISNULL(x, 0))").columns
    assert (first.computed, first.persisted, first.nullable) == ("(x + 1)", True, False)
    assert (second.computed, second.type) == ("ISNULL(x, 0)", None)


@pytest.mark.parametrize("text", ["t (a int,, b int)", "t (a)", "t a int", "t (a int) garbage", "t (a int FOO)"])
def test_what_is_no_declaration_is_a_syntax_error(text: str) -> None:
    with pytest.raises(SqlServerError) as refused:
        _table(text)
    assert refused.value.number in (102, 156, 2715)


@pytest.mark.parametrize(
    "text", ["t (a int GENERATED ALWAYS AS ROW START)", "t (a int, PERIOD FOR SYSTEM_TIME (a, b))"]
)
def test_features_that_are_not_there_are_named(text: str) -> None:
    with pytest.raises(NotSupportedByEmulatorError):
        _table(text)


def test_alter_table_is_read() -> None:
    added = read_alter_table(Cursor("ADD a int NULL, CONSTRAINT c CHECK (a > 0), CONSTRAINT d DEFAULT 1 FOR b"), _type)
    assert isinstance(added, Additions)
    assert [c.name for c in added.columns] == ["a"]
    assert added.constraints == (CheckDeclaration("a > 0", "c"),)
    assert [(d.name, d.column, d.expression) for d in added.defaults] == [("d", "b", "1")]
    assert read_alter_table(Cursor("ALTER COLUMN a decimal(9, 2) NOT NULL"), _type) == ColumnChange(
        "a", TsqlType("decimal", precision=9, scale=2), None, False
    )
    assert read_alter_table(Cursor("DROP COLUMN a, b"), _type) == Removals(("a", "b"), (), False)
    assert read_alter_table(Cursor("DROP c, COLUMN IF EXISTS d"), _type) == Removals(("d",), ("c",), True)
    assert read_alter_table(Cursor("WITH NOCHECK CHECK CONSTRAINT ALL"), _type) == ConstraintSwitch((), True, False)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("SELECT a INTO t FROM x", True),
        ("WITH q AS (SELECT 1 AS a) SELECT a INTO #t FROM q", True),
        ("SELECT N'into' AS a FROM t", False),
        ("WITH q AS (SELECT 1 AS a) INSERT INTO t SELECT a FROM q", False),
        ("INSERT INTO t SELECT 1", False),
        ("SELECT (SELECT 1 INTO) FROM t", False),
    ],
)
def test_select_into_is_distinguished_from_other_intos(statement: str, found: bool) -> None:
    assert (find_into(statement) is not None) is found
