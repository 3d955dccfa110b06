"""Results of the catalog procedures from the rows of the sys views; the views themselves are the engine's."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fake_engine import FakeEngine
from sqlserver_emulator.contract import StatementResult, Variables
from sqlserver_emulator.events import Command, ErrorRaised, ResultStart, Rows
from sqlserver_emulator.tsql.interpreter import TsqlSession

Row = tuple[object, ...]


class CatalogEngine(FakeEngine):
    """Answers every query with the rows given for the table that it reads first."""

    def __init__(self, tables: dict[str, list[Row]]) -> None:
        super().__init__()
        self.database = "shop"
        self.tables = tables
        self.asked: list[dict[str, object]] = []

    def execute(self, statement: str, variables: Variables) -> StatementResult:
        self.asked.append({name: variable.value for name, variable in variables.items()})
        table = statement.partition("FROM ")[2].split(maxsplit=1)[0]
        rows = self.tables.get(table, [])
        return StatementResult(Command.SELECT, (), iter([Rows(rows)]), row_count=len(rows))


def call(engine: FakeEngine, text: str) -> tuple[list[str], list[Row]]:
    events = list(TsqlSession(engine, session_id=51, procedures={}, default_database="shop").run_batch(text))
    assert not [event.error for event in events if isinstance(event, ErrorRaised)]
    names = [column.name for event in events if isinstance(event, ResultStart) for column in event.columns]
    rows: list[Row] = []
    for event in events:
        if isinstance(event, Rows):
            rows.extend(event.rows)
    assert all(len(row) == len(names) for row in rows)
    return names, rows


def column(name: str, type: str, max_length: int, precision: int = 0, scale: int = 0, **more: object) -> Row:
    facets = {"shown": type, "nullable": 1, "identity": 0, "computed": 0, "default": None} | more
    return (
        *("dbo", "t", name, 1, type, facets["shown"], max_length, precision, scale),
        *(facets["nullable"], facets["identity"], facets["computed"], facets["default"]),
    )


COLUMN_CASES = [
    (column("a", "int", 4, 10, nullable=0, identity=1), [4, "int identity", 10, 4, 0, 56]),
    (column("a", "numeric", 9, 12, 3, identity=1), [2, "numeric() identity", 12, 14, 3, 108]),
    (column("a", "nvarchar", 40), [-9, "nvarchar", 20, 40, None, 39]),
    (column("a", "nvarchar", -1), [-9, "nvarchar", 1073741823, 2147483646, None, 39]),
    (column("a", "varbinary", -1), [-3, "varbinary", 2147483647, 2147483647, None, 37]),
    (column("a", "datetime2", 8, 27, 7), [93, "datetime2", 27, 54, 7, 0]),
    (column("a", "datetime2", 6, 19, 0), [93, "datetime2", 19, 54, 0, 0]),
    (column("a", "money", 8, 19, 4, nullable=0), [3, "money", 19, 21, 4, 60]),
    (column("a", "nvarchar", 256, shown="sysname"), [-9, "sysname", 128, 256, None, 39]),
    (column("a", "timestamp", 8, nullable=0), [-2, "timestamp", 8, 8, None, 45]),
]


@pytest.mark.parametrize(("found", "described"), COLUMN_CASES)
def test_sp_columns_100_describes_a_column_as_odbc_does(found: Row, described: list[object]) -> None:
    engine = CatalogEngine({"sys.all_objects": [found]})
    names, [row] = call(engine, "EXEC sp_columns_100 't', @ODBCVer = 3")
    values = dict(zip(names, row, strict=True))
    assert len(names) == 29
    shown = [values[key] for key in ("DATA_TYPE", "TYPE_NAME", "PRECISION", "LENGTH", "SCALE", "SS_DATA_TYPE")]
    assert shown == described


def test_sp_columns_of_odbc_2_has_19_columns_and_old_type_codes() -> None:
    engine = CatalogEngine({"sys.all_objects": [column("a", "date", 3, 10)]})
    names, [row] = call(engine, "EXEC sp_columns 't'")
    assert (len(names), names[-1], row[4]) == (19, "SS_DATA_TYPE", -9)


def test_wildcards_count_only_when_patterns_are_asked_for() -> None:
    engine = CatalogEngine({})
    call(engine, "EXEC sp_columns_100 'a_b%', NULL, NULL, NULL, @fUsePattern = 0")
    call(engine, "EXEC sp_columns_100 'a_b%'")
    assert [asked["@name"] for asked in engine.asked] == ["a[_]b[%]", "a_b%"]
    assert [asked["@owner"] for asked in engine.asked] == ["%", "%"]


TABLES: list[Row] = [("shop", "dbo", "t", "TABLE"), ("shop", "sys", "objects", "VIEW")]


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ("'''TABLE'''", ["t"]),
        ("'''VIEW'',''TABLE'''", ["t", "objects"]),
        ("NULL", ["t", "objects"]),
        ("'TABLE'", ["t"]),
    ],
)
def test_sp_tables_reads_the_quoted_list_of_types(kinds: str, found: list[str]) -> None:
    engine = CatalogEngine({"sys.all_objects": TABLES})
    names, rows = call(engine, f"EXEC sp_tables '%', NULL, 'Shop', {kinds}")
    assert names == ["TABLE_QUALIFIER", "TABLE_OWNER", "TABLE_NAME", "TABLE_TYPE", "REMARKS"]
    assert [row[2] for row in rows] == found


def test_sp_tables_lists_databases_for_a_lone_qualifier() -> None:
    engine = CatalogEngine({"sys.databases": [("shop", None, None, None, None)]})
    _, rows = call(engine, "EXEC sp_tables '', '', '%'")
    assert [row[0] for row in rows] == ["shop"]


def test_another_databases_catalog_is_refused_with_15250() -> None:
    session = TsqlSession(CatalogEngine({}), session_id=51, procedures={}, default_database="shop")
    events: Iterable[object] = session.run_batch("EXEC sp_pkeys 't', NULL, 'master'")
    assert [event.error.number for event in events if isinstance(event, ErrorRaised)] == [15250]


def test_sp_fkeys_has_14_columns_and_odbc_rules() -> None:
    key: Row = ("dbo", "parent", "a", "dbo", "child", "b", 1, 1, 0, "fk", "pk")
    names, [row] = call(CatalogEngine({"sys.foreign_keys": [key]}), "EXEC sp_fkeys @pktable_name = 'parent'")
    assert (len(names), names[-1]) == (14, "DEFERRABILITY")
    assert row == ("shop", "dbo", "parent", "a", "shop", "dbo", "child", "b", 1, 0, 3, "fk", "pk", 7)


def test_sp_statistics_gives_the_table_first_then_unique_indexes_before_others() -> None:
    indexes: list[Row] = [
        ("dbo", "t", 0, "ix", 2, 1, "b", 1),
        ("dbo", "t", 1, "pk", 1, 1, "a", 0),
    ]
    engine = CatalogEngine({"sys.objects": [("dbo", "t")], "sys.indexes": indexes})
    _, rows = call(engine, "EXEC sp_statistics_100 't'")
    assert [(row[3], row[5], row[6], row[9]) for row in rows] == [
        (None, None, 0, None),
        (0, "pk", 1, "A"),
        (1, "ix", 3, "D"),
    ]
    _, rows = call(engine, "EXEC sp_statistics 't', NULL, NULL, '%', 'Y', 'Q'")
    assert [row[5] for row in rows] == [None, "pk"]


def test_sp_datatype_info_lists_types_by_their_odbc_code() -> None:
    names, rows = call(CatalogEngine({}), "sp_datatype_info_100 @ODBCVer = 3")
    codes = [row[1] for row in rows]
    assert len(names) == 20
    assert codes == sorted(codes, key=lambda code: int(str(code)))
    assert {"int", "int identity", "nvarchar", "datetime2", "uniqueidentifier"} <= {row[0] for row in rows}
    # The closest to the code is first: clients take what they do not know of a code from its first row.
    _, rows = call(CatalogEngine({}), "sp_datatype_info_100 93, @ODBCVer = 3")
    assert [row[0] for row in rows] == ["datetime2", "datetime", "smalldatetime"]
    _, rows = call(CatalogEngine({}), "EXEC sp_datatype_info 4")
    assert [row[0] for row in rows] == ["int", "int identity"]


def test_known_procedure_that_is_not_there_is_refused_by_name() -> None:
    session = TsqlSession(CatalogEngine({}), session_id=51, procedures={}, default_database="shop")
    errors = [event.error for event in session.run_batch("EXEC sys.sp_helpdb 't'") if isinstance(event, ErrorRaised)]
    assert [(error.number, "sp_helpdb" in error.message) for error in errors] == [(49999, True)]


def test_role_procedures_say_alter_role_to_the_engine() -> None:
    engine = FakeEngine()
    session = TsqlSession(engine, session_id=51, procedures={}, default_database="shop")
    text = "EXEC sp_addrolemember 'db_owner', 'o]b' EXEC sp_droprolemember N'db_owner', N'bob' EXEC sp_addrole readers"
    assert not [event for event in session.run_batch(text) if isinstance(event, ErrorRaised)]
    assert engine.log == [
        "ALTER ROLE [db_owner] ADD MEMBER [o]]b]",
        "ALTER ROLE [db_owner] DROP MEMBER [bob]",
        "CREATE ROLE [readers]",
    ]
