"""CREATE TABLE, and the column and constraint declarations that ALTER TABLE shares with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlserver_emulator.engine.ddl.reading.declarations import (
    CheckDeclaration,
    ColumnDeclaration,
    Constraint,
    DataSpace,
    DefaultDeclaration,
    ForeignKeyDeclaration,
    IndexColumn,
    IndexDeclaration,
    KeyDeclaration,
    TableDeclaration,
)
from sqlserver_emulator.engine.ddl.reading.taking import (
    expect_end,
    skip_storage_options,
    take_column_names,
    take_expression,
    take_index_columns,
    take_mask,
    take_name,
    take_parenthesised,
)
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.syntax import lexer
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.types import TsqlType

TypeReader = Callable[[Cursor], tuple[TsqlType, int | None, bool | None]]
"""Reads a data type; returns it with the alias type's id and nullability, if it is an alias type."""

_CONSTRAINT_START = frozenset(("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "DEFAULT"))
_COLUMN_OPTION = frozenset(
    (
        "NULL",
        "NOT",
        "CONSTRAINT",
        "DEFAULT",
        "PRIMARY",
        "UNIQUE",
        "CHECK",
        "REFERENCES",
        "FOREIGN",
        "IDENTITY",
        "ROWGUIDCOL",
        "COLLATE",
        "PERSISTED",
        "WITH",
        "SPARSE",
        "MASKED",
        "GENERATED",
        "ENCRYPTED",
        "HIDDEN",
        "INDEX",
    )
)
_REFUSED_OPTIONS = {
    "GENERATED": "GENERATED ALWAYS columns (temporal and ledger tables)",
    "ENCRYPTED": "ENCRYPTED columns",
    "HIDDEN": "HIDDEN columns",
    "COLUMN_SET": "column sets",
}
_ACTIONS = ("NO ACTION", "CASCADE", "SET NULL", "SET DEFAULT")


def read_create_table(cursor: Cursor, read_type: TypeReader) -> TableDeclaration:
    """From the name on."""
    name = take_name(cursor)
    if cursor.word == "AS":
        raise NotSupportedByEmulatorError(f"CREATE TABLE AS {cursor.word_after()}")
    cursor.expect("(")
    reader = TableElementReader(cursor, read_type)
    while True:
        reader.take_element()
        if cursor.accept(","):
            # T-SQL allows a comma after the last element.
            if cursor.accept(")"):
                break
            continue
        cursor.expect(")")
        break
    if cursor.word == "AS" and cursor.word_after() in ("NODE", "EDGE", "FILETABLE"):
        raise NotSupportedByEmulatorError(f"CREATE TABLE … AS {cursor.word_after()}")
    reader.take_storage()
    expect_end(cursor)
    return TableDeclaration(
        name, tuple(reader.columns), tuple(reader.constraints), tuple(reader.indexes), tuple(reader.data_spaces)
    )


def _refuse_hash(cursor: Cursor) -> None:
    if cursor.word == "HASH":
        raise NotSupportedByEmulatorError("HASH indexes (memory-optimized tables)")


class TableElementReader:
    """Collects the columns and constraints of one table, in order."""

    def __init__(self, cursor: Cursor, read_type: TypeReader) -> None:
        self._cursor = cursor
        self._read_type = read_type
        self.columns: list[ColumnDeclaration] = []
        self.constraints: list[Constraint] = []
        self.indexes: list[IndexDeclaration] = []
        self.defaults: list[DefaultDeclaration] = []
        self.data_spaces: list[DataSpace] = []

    def take_storage(self) -> None:
        """Take storage options, and note the filegroups that they name."""
        self.data_spaces += skip_storage_options(self._cursor)

    def take_element(self) -> None:
        word = self._cursor.word
        if self._cursor.token.kind == lexer.NAME and word in _CONSTRAINT_START:
            self.take_constraint()
        elif word == "INDEX":
            self._take_index()
        elif word == "PERIOD":
            raise NotSupportedByEmulatorError("PERIOD FOR SYSTEM_TIME (temporal tables)")
        else:
            self._take_column()

    # -- table constraints ------------------------------------------------------------------------------------------

    def take_constraint(self) -> None:
        cursor = self._cursor
        name = cursor.take_identifier() if cursor.accept("CONSTRAINT") else ""
        if cursor.word in ("PRIMARY", "UNIQUE"):
            primary, clustered = self._take_key_kind()
            columns = take_index_columns(cursor)
            self.take_storage()
            self.constraints.append(KeyDeclaration(primary, columns, name, clustered))
        elif cursor.accept("CHECK"):
            # NOT FOR REPLICATION changes nothing where there is no replication.
            self._skip_not_for_replication()
            self.constraints.append(CheckDeclaration(take_parenthesised(cursor), name))
        elif cursor.accept("FOREIGN", "KEY"):
            self._take_foreign_key(name, take_column_names(cursor))
        elif cursor.accept("DEFAULT"):
            self._take_table_default(name)
        else:
            raise cursor.syntax_error()

    def _take_table_default(self, name: str) -> None:
        """ALTER TABLE t ADD CONSTRAINT d DEFAULT (0) FOR c."""
        cursor = self._cursor
        expression = take_expression(cursor, ("FOR",))
        cursor.expect("FOR")
        column = cursor.take_identifier()
        with_values = cursor.accept("WITH", "VALUES")
        self.defaults.append(DefaultDeclaration(expression, name, with_values, column))

    def _take_key_kind(self) -> tuple[bool, bool | None]:
        cursor = self._cursor
        primary = cursor.accept("PRIMARY", "KEY")
        if not primary:
            cursor.expect("UNIQUE")
        if cursor.accept("CLUSTERED"):
            return primary, True
        clustered = False if cursor.accept("NONCLUSTERED") else None
        _refuse_hash(cursor)
        return primary, clustered

    def _take_foreign_key(self, name: str, columns: tuple[str, ...]) -> None:
        cursor = self._cursor
        cursor.expect("REFERENCES")
        references = take_name(cursor)
        referenced = take_column_names(cursor) if cursor.word == "(" else ()
        actions = {"DELETE": "NO ACTION", "UPDATE": "NO ACTION"}
        while cursor.word == "ON" and cursor.word_after() in actions:
            cursor.take()
            event = cursor.take().word
            action = next((a for a in _ACTIONS if cursor.accept(*a.split())), None)
            if action is None:
                raise cursor.syntax_error()
            actions[event] = action
        self._skip_not_for_replication()
        self.constraints.append(
            ForeignKeyDeclaration(columns, references, referenced, name, actions["DELETE"], actions["UPDATE"])
        )

    def _skip_not_for_replication(self) -> None:
        self._cursor.accept("NOT", "FOR", "REPLICATION")

    def _take_index(self) -> None:
        cursor = self._cursor
        cursor.expect("INDEX")
        name = cursor.take_identifier()
        unique = cursor.accept("UNIQUE")
        clustered = cursor.accept("CLUSTERED")
        cursor.accept("NONCLUSTERED")
        _refuse_hash(cursor)
        if cursor.word == "COLUMNSTORE":
            raise NotSupportedByEmulatorError("columnstore indexes")
        # An index at a column has no column list and is about that column.
        columns = take_index_columns(cursor) if cursor.word == "(" else (IndexColumn(self.columns[-1].name),)
        included = take_column_names(cursor) if cursor.accept("INCLUDE") else ()
        condition = take_expression(cursor, ("WITH", "ON")) if cursor.accept("WHERE") else ""
        self.take_storage()
        self.indexes.append(IndexDeclaration(name, columns, included, unique, clustered, condition))

    # -- columns ----------------------------------------------------------------------------------------------------

    def _take_column(self) -> None:
        cursor = self._cursor
        name = cursor.take_identifier()
        if cursor.accept("AS"):
            expression = take_expression(cursor, _COLUMN_OPTION)
            self.columns.append(ColumnDeclaration(name, computed=expression))
        elif cursor.word == "TIMESTAMP" or (not cursor.at_end and cursor.word not in (",", ")")):
            type_, alias, alias_nullable = self._read_type(cursor)
            self.columns.append(ColumnDeclaration(name, type_, alias, alias_nullable))
        else:
            # `CREATE TABLE t (timestamp)` is a rowversion column of that name.
            if name.lower() != "timestamp":
                raise cursor.syntax_error()
            self.columns.append(ColumnDeclaration(name, TsqlType("rowversion")))
        while self._take_column_option(name):
            pass

    def _change(self, **changes: object) -> None:
        self.columns[-1] = replace(self.columns[-1], **changes)  # type: ignore[arg-type]

    def _take_column_option(self, column: str) -> bool:
        """One option of the column declared last; False when there is none left."""
        cursor = self._cursor
        if cursor.accept("NOT", "NULL"):
            self._change(nullable=False)
        elif cursor.accept("NULL"):
            self._change(nullable=True)
        elif cursor.accept("PERSISTED"):
            self._change(persisted=True)
        elif cursor.accept("ROWGUIDCOL"):
            self._change(rowguidcol=True)
        elif cursor.accept("IDENTITY"):
            self._change(identity=self._take_identity())
        # SPARSE is about storage.
        elif cursor.accept("SPARSE") or cursor.accept("NOT", "FOR", "REPLICATION"):
            return True
        elif cursor.accept("COLLATE"):
            self._change(collation=cursor.take_identifier())
        elif cursor.word == "INDEX":
            self._take_index()
        elif cursor.word == "MASKED":
            self._change(mask=take_mask(cursor))
        elif cursor.word in _REFUSED_OPTIONS:
            raise NotSupportedByEmulatorError(_REFUSED_OPTIONS[cursor.word])
        else:
            return self._take_column_constraint(column)
        return True

    def _take_identity(self) -> tuple[int, int]:
        cursor = self._cursor
        if cursor.word != "(":
            return (1, 1)
        seed, _, increment = take_parenthesised(cursor).partition(",")
        # The increment may be left out after the seed, and signs may be separated by blanks.
        return (int(seed.replace(" ", "")), int(increment.replace(" ", "") or 1))

    def _take_column_constraint(self, column: str) -> bool:
        cursor = self._cursor
        name = cursor.take_identifier() if cursor.accept("CONSTRAINT") else ""
        if cursor.accept("DEFAULT"):
            expression = take_expression(cursor, _COLUMN_OPTION)
            with_values = cursor.accept("WITH", "VALUES")
            self._change(default=DefaultDeclaration(expression, name, with_values, column))
        elif cursor.word in ("PRIMARY", "UNIQUE"):
            primary, clustered = self._take_key_kind()
            columns = take_index_columns(cursor) if cursor.word == "(" else (IndexColumn(column),)
            self.take_storage()
            self.constraints.append(KeyDeclaration(primary, columns, name, clustered))
        elif cursor.accept("CHECK"):
            self._skip_not_for_replication()
            self.constraints.append(CheckDeclaration(take_parenthesised(cursor), name, column))
        elif cursor.word in ("FOREIGN", "REFERENCES"):
            has_list = cursor.accept("FOREIGN", "KEY") and cursor.word == "("
            self._take_foreign_key(name, take_column_names(cursor) if has_list else (column,))
        elif name:
            # CONSTRAINT name NULL / NOT NULL
            return self._take_column_option(column)
        else:
            return False
        return True
