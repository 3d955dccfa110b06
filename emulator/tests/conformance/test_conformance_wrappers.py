"""See docs/reference/sqlserver_cdc.md, "Wrapper functions": scripts of functions that ask for changes by time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from conformance_server import Row, Server, Source, new_database

_GENERATE = "EXEC sys.sp_cdc_generate_wrapper_function"
_CHANGES = (
    "INSERT dbo.t (id, v) VALUES (1, 'a')",
    "UPDATE dbo.t SET v = 'b'",
    "BEGIN TRAN; INSERT dbo.t (id, v) VALUES (2, 'x'); DELETE dbo.t WHERE id = 1; COMMIT",
)


@pytest.fixture(scope="module")
def wrapped(server: Server) -> Iterator[Source]:
    """Three commits apart in time; the wrappers are made, with flags, and again with an open end (in schema o)."""
    with new_database(server) as made:
        made.admin.run(
            "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10), [a b] decimal(9, 2))",
            "CREATE TABLE dbo.loose (id int NOT NULL)",
            "CREATE SCHEMA o",
        )
        made.enable("t")
        made.enable("loose")
        for change in _CHANGES:
            made.admin.run("WAITFOR DELAY '00:00:00.020'", change)
        made.scan()
        for row in made.admin.query(f"{_GENERATE} N'dbo_t', @update_flag_list = N'v, [a b]'"):
            made.admin.run(row["create_script"])
        for row in made.admin.query(f"{_GENERATE} N'dbo_t', @closed_high_end_point = 0, @column_list = N'id'"):
            made.admin.run(str(row["create_script"]).replace("CREATE FUNCTION ", "CREATE FUNCTION o."))
        yield made


def _times(source: Source) -> list[str]:
    """Return the times of the three commits."""
    rows = source.admin.rows(
        "SELECT DISTINCT tran_end_time FROM cdc.dbo_t_CT JOIN cdc.lsn_time_mapping ON start_lsn = [__$start_lsn]"
        " ORDER BY 1"
    )
    return [_text(time) for (time,) in rows]


def _text(time: datetime) -> str:
    return f"'{time.isoformat(timespec='milliseconds')}'"


def _wrapped(source: Source, start: str, end: str, option: str = "all", name: str = "dbo.fn_all_changes") -> list[Row]:
    rows = source.admin.query(f"SELECT * FROM {name}_dbo_t({start}, {end}, N'{option}')")
    return sorted(rows, key=lambda row: (row.get("__CDC_STARTLSN", b""), row.get("__CDC_SEQVAL", b"")))


def test_scripts_are_given_for_each_instance_one_or_two(wrapped: Source) -> None:
    found = wrapped.admin.result(_GENERATE)
    assert (found.columns, found.types) == (("function_name", "create_script"), ("nvarchar(145)", "nvarchar(max)"))
    assert sorted(name for name, _ in found.rows) == [
        "fn_all_changes_dbo_loose",
        "fn_all_changes_dbo_t",
        "fn_net_changes_dbo_t",
    ]


def test_all_changes_are_named_by_letters_and_flags_show_what_an_update_changed(wrapped: Source) -> None:
    found = wrapped.admin.result("SELECT * FROM dbo.fn_all_changes_dbo_t(NULL, NULL, N'all')")
    assert tuple(zip(found.columns, found.types, strict=True)) == (
        ("__CDC_STARTLSN", "binary(10)"),
        ("__CDC_SEQVAL", "binary(10)"),
        ("id", "int"),
        ("v", "varchar(10)"),
        ("a b", "decimal(9,2)"),
        ("__CDC_OPERATION", "nvarchar(2)"),
        ("v_uflag", "bit"),
        ("a b_uflag", "bit"),
    )
    rows = _wrapped(wrapped, "NULL", "NULL")
    assert [(row["__CDC_OPERATION"], row["id"], row["v"], row["v_uflag"], row["a b_uflag"]) for row in rows] == [
        ("I", 1, "a", None, None),
        ("UN", 1, "b", True, False),
        ("I", 2, "x", None, None),
        ("D", 1, "b", None, None),
    ]


def test_old_values_of_an_update_are_marked(wrapped: Source) -> None:
    rows = _wrapped(wrapped, "NULL", "NULL", "all update old")
    assert sorted((row["__CDC_OPERATION"], row["v"], row["v_uflag"]) for row in rows if row["v"] == "a") == [
        ("I", "a", None),
        ("UO", "a", None),
    ]


def test_net_changes_have_no_places_and_merges_are_marked(wrapped: Source) -> None:
    rows = _wrapped(wrapped, "NULL", "NULL", name="dbo.fn_net_changes")
    assert rows == [
        {"id": 2, "v": "x", "a b": None, "__CDC_OPERATION": "I", "v_uflag": None, "a b_uflag": None},
    ]
    first, _, last = _times(wrapped)
    rows = _wrapped(wrapped, first, last, "all with merge", "dbo.fn_net_changes")
    assert sorted((row["__CDC_OPERATION"], row["id"]) for row in rows) == [("D", 1), ("M", 2)]


def test_window_begins_after_its_start_and_ends_with_its_end(wrapped: Source) -> None:
    first, second, last = _times(wrapped)
    assert [row["__CDC_OPERATION"] for row in _wrapped(wrapped, "NULL", second)] == ["I", "UN"]
    assert [row["__CDC_OPERATION"] for row in _wrapped(wrapped, first, second)] == ["UN"]
    assert [row["__CDC_OPERATION"] for row in _wrapped(wrapped, second, "NULL")] == ["I", "D"]
    assert _wrapped(wrapped, second, second) == []
    assert _wrapped(wrapped, last, "NULL") == []


def test_open_end_is_not_in_the_window(wrapped: Source) -> None:
    first, second, last = _times(wrapped)
    name = "o.fn_all_changes"
    rows = _wrapped(wrapped, first, last, name=name)
    assert [tuple(row)[2:] for row in rows] == [("id", "__CDC_OPERATION")]
    assert [row["__CDC_OPERATION"] for row in rows] == ["UN"]
    assert _wrapped(wrapped, first, second, name=name) == []


@pytest.mark.parametrize(
    ("start", "end"), [("'2000-01-01'", "NULL"), ("NULL", "'2999-01-01'"), ("'2999-01-01'", "NULL")]
)
def test_time_outside_what_was_captured_is_error_313(wrapped: Source, start: str, end: str) -> None:
    error = wrapped.admin.error(f"SELECT * FROM dbo.fn_all_changes_dbo_t({start}, {end}, N'all')")
    assert (error.number, error.severity, error.state) == (313, 16, 3)


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ("N'dbo_t', @column_list = N'id, absent'", 22918),
        ("N'dbo_t', @update_flag_list = N'absent'", 22919),
        ("N'nothing'", 22920),
        ("NULL, @column_list = N'v'", 22921),
    ],
)
def test_argument_of_the_generator_is_refused(wrapped: Source, arguments: str, number: int) -> None:
    error = wrapped.admin.error(f"{_GENERATE} {arguments}")
    assert (error.number, error.severity, error.state) == (number, 16, 1)


def test_generator_shows_what_the_caller_may_read(wrapped: Source) -> None:
    reader = wrapped.log_in("SELECT ON dbo.loose")
    assert [row["function_name"] for row in reader.query(_GENERATE)] == ["fn_all_changes_dbo_loose"]
    assert reader.error(f"{_GENERATE} N'dbo_t'").number == 22920
    reader.close()


def test_generator_needs_a_database_with_cdc(server: Server) -> None:
    master = server.connect("master")
    assert master.error(_GENERATE).number == 22901
    master.close()
