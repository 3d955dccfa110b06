"""Kinds of tables: which are tracked, which are refused, and what breaks the tracking of one."""

import sqlite3
from pathlib import Path
from uuid import UUID

import pytest

from compact_files import ITEM, apply, list_changes, make_file, open_file, read_rows, show, show_since, take_anchor
from compact_tracking import (
    ChangeTracking,
    InvalidOperationError,
    TrackingArgumentError,
    TrackingKeyType,
    TrackingLostError,
    TrackingOptions,
    TrackingRangeError,
    Transaction,
    UnsupportedError,
)

needs_strict = pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 37), reason="STRICT came with SQLite 3.37")
needs_drop_column = pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 35), reason="SQLite drops columns since 3.35")


@pytest.fixture
def file(tmp_path: Path) -> sqlite3.Connection:
    return make_file(tmp_path / "device.db", ITEM, "INSERT INTO item (k, code, v) VALUES ('a', 1, 0), ('b', 2, 0)")


@pytest.mark.parametrize(
    "create",
    [
        "CREATE TABLE t (a, b, v, PRIMARY KEY (b, a))",
        "CREATE TABLE t (a, b, v, PRIMARY KEY (b, a)) WITHOUT ROWID",
        "CREATE TABLE t (a PRIMARY KEY, b UNIQUE, v) WITHOUT ROWID",
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b, v)",
        "CREATE TABLE t (a INTEGER PRIMARY KEY AUTOINCREMENT, b UNIQUE, v)",
        "CREATE TABLE t (a INT PRIMARY KEY, b, v, rowid, oid)",
        "CREATE TABLE t (a BIGINT PRIMARY KEY ON CONFLICT REPLACE, b UNIQUE ON CONFLICT REPLACE, v)",
        pytest.param("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, v INT) STRICT", marks=needs_strict),
        'CREATE TABLE "t" ("a" NUMERIC(9,2) PRIMARY KEY, b, v, "odd "" name\'s" DEFAULT 5)',
    ],
)
def test_a_table_of_this_kind_is_tracked(tmp_path: Path, create: str) -> None:
    file = make_file(tmp_path / "device.db", create, "INSERT INTO t (a, b, v) VALUES (1, 1, 0), (2, 2, 0)", track="t")
    after, before = take_anchor(file), read_rows(file, "t")
    for statement in (
        "INSERT INTO t (a, b, v) VALUES (3, 3, 0), (4, 4, 0)",
        "UPDATE t SET v = 9 WHERE a = 1",
        "DELETE FROM t WHERE a = 2",
        "UPDATE t SET a = 7 WHERE a = 3",
        "REPLACE INTO t (a, b, v) VALUES (4, 4, 1)",
    ):
        file.execute(statement)
    until, changes = list_changes(file, after, "t")
    assert len(changes) == 4
    if "(b, a)" not in create:
        assert show(changes) == ["D 2", "I 4", "I 7", "U 1"]
        assert apply(before, changes) == read_rows(file, "t")
    file.execute("VACUUM")
    assert show_since(file, until, "t") == []


def test_keys_that_differ_in_case_only_are_two_keys(tmp_path: Path) -> None:
    file = make_file(
        tmp_path / "device.db",
        "CREATE TABLE t (k TEXT PRIMARY KEY COLLATE NOCASE, v)",
        "INSERT INTO t VALUES ('a', 1)",
        track="t",
    )
    after = take_anchor(file)
    file.execute("UPDATE t SET k = 'A'")
    until, changes = list_changes(file, after, "t")
    assert show(changes) == ["D a", "I A"]
    file.execute("REPLACE INTO t (k, v) VALUES ('a', 2)")
    assert show_since(file, until, "t") == ["D A", "I a"]


def test_a_partial_unique_index_is_known_to_a_replace(tmp_path: Path) -> None:
    file = make_file(
        tmp_path / "device.db",
        "CREATE TABLE t (k INT PRIMARY KEY, code, live)",
        "CREATE UNIQUE INDEX one ON t (code) WHERE live",
        "INSERT INTO t VALUES (1, 'x', 1), (2, 'x', 0), (3, 'y', 1)",
        track="t",
    )
    after = take_anchor(file)
    file.execute("REPLACE INTO t (k, code, live) VALUES (4, 'x', 1)")
    assert show_since(file, after, "t") == ["D 1", "I 4"]


def test_a_table_is_tracked_by_its_rowguidcol(tmp_path: Path) -> None:
    path = tmp_path / "device.db"
    file = open_file(path)
    file.execute("CREATE TABLE t (id uniqueidentifier ROWGUIDCOL UNIQUE, v)")
    tracking = ChangeTracking(file)
    with pytest.raises(TrackingArgumentError, match="has no primary key"):
        tracking.enable_tracking("t")
    tracking.enable_tracking("t", TrackingKeyType.GUID, TrackingOptions.ALL)
    guid = UUID("00112233-4455-6677-8899-aabbccddeeff")
    file.execute("INSERT INTO t (id, v) VALUES (?, 1)", (str(guid),))
    after = take_anchor(file)
    file.execute("DELETE FROM t")
    assert show_since(file, after, "t") == [f"D {guid}"]
    ((packed,),) = file.execute("SELECT __sysRK FROM __sysOCSDeletedRows").fetchall()
    assert packed == guid.bytes_le
    assert tracking.unpack_tombstone_key("t", packed) == (guid,)
    assert file.execute("SELECT * FROM __sysOCSTrackedObjects").fetchall() == [("t", 0x70, 2, 1)]


SEVENTEEN = ", ".join(f"c{number}" for number in range(17))


@pytest.mark.parametrize(
    ("create", "error", "message"),
    [
        ("CREATE TABLE t (a)", TrackingArgumentError, "no primary key"),
        ("CREATE VIEW t AS SELECT 1 AS a", TrackingArgumentError, "no table 't'"),
        ("CREATE VIRTUAL TABLE t USING fts5(a)", UnsupportedError, "not an ordinary user table"),
        ("CREATE TABLE t (rowid INT PRIMARY KEY, _rowid_, oid)", UnsupportedError, "hide every name of its rowid"),
        (
            f"CREATE TABLE t ({SEVENTEEN}, PRIMARY KEY ({SEVENTEEN}))",
            UnsupportedError,
            "has 17 columns; 16 can be tracked",
        ),
        (
            "CREATE TABLE t (a PRIMARY KEY); CREATE UNIQUE INDEX low ON t (lower(a))",
            UnsupportedError,
            "on an expression",
        ),
        (
            "CREATE TABLE t (a PRIMARY KEY); INSERT INTO t VALUES (NULL)",
            InvalidOperationError,
            "rows with NULL in the key",
        ),
        (
            "CREATE TABLE t (a PRIMARY KEY, b); CREATE TRIGGER x AFTER UPDATE ON t BEGIN SELECT 1; END",
            InvalidOperationError,
            r"trigger on every UPDATE \(x\)",
        ),
    ],
)
def test_a_table_of_this_kind_is_refused(tmp_path: Path, create: str, error: type[Exception], message: str) -> None:
    file = open_file(tmp_path / "device.db")
    try:
        file.executescript(create)
    except sqlite3.OperationalError as missing:
        if "fts5" not in str(missing):
            raise
        pytest.skip("this SQLite has no FTS5")
    with pytest.raises(error, match=message):
        ChangeTracking(file).enable_tracking("t")
    assert file.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE '\\_\\_%' ESCAPE '\\'").fetchone() == (0,)


def test_a_trigger_on_named_columns_is_no_obstacle(tmp_path: Path) -> None:
    touch = "CREATE TRIGGER touch AFTER UPDATE OF v ON item BEGIN UPDATE item SET code = 5 WHERE k = NEW.k; END"
    file = make_file(tmp_path / "device.db", ITEM, touch, "INSERT INTO item (k) VALUES ('a')")
    after = take_anchor(file)
    file.execute("UPDATE item SET v = 1")
    assert show_since(file, after) == ["U a"]


@pytest.mark.parametrize("name", ["new", "OLD"])
def test_a_name_that_means_a_row_in_triggers_is_refused(file: sqlite3.Connection, name: str) -> None:
    file.execute(f"CREATE TABLE {name} (a PRIMARY KEY)")
    with pytest.raises(UnsupportedError, match="give the table another name"):
        ChangeTracking(file).enable_tracking(name)


def test_a_guid_that_is_unique_in_part_is_refused(file: sqlite3.Connection) -> None:
    file.execute("CREATE TABLE t (id uniqueidentifier ROWGUIDCOL, v)")
    file.execute("CREATE UNIQUE INDEX part ON t (id) WHERE v")
    with pytest.raises(TrackingArgumentError, match="make a unique index on it"):
        ChangeTracking(file).enable_tracking("t", TrackingKeyType.GUID)


@pytest.mark.parametrize("name", ["__sysOCSDeletedRows", "__ct_state", "sqlite_master", "none"])
def test_only_a_users_own_table_is_tracked(file: sqlite3.Connection, name: str) -> None:
    with pytest.raises((TrackingArgumentError, UnsupportedError)):
        ChangeTracking(file).enable_tracking(name)


def test_arguments_out_of_range_are_refused(file: sqlite3.Connection) -> None:
    tracking = ChangeTracking(file)
    for kind in (TrackingKeyType.NONE, 3):
        with pytest.raises(TrackingRangeError, match="use PRIMARY_KEY or GUID"):
            tracking.enable_tracking("item", kind, TrackingOptions.ALL)  # type: ignore[arg-type]
    for options in (TrackingOptions.NONE, 8, True):
        with pytest.raises(TrackingRangeError, match="a combination of TrackingOptions"):
            tracking.enable_tracking("item", TrackingKeyType.PRIMARY_KEY, options)  # type: ignore[arg-type]


def test_enabling_again_changes_nothing_and_refuses_other_options(file: sqlite3.Connection) -> None:
    tracking = ChangeTracking(file)
    before = tracking.list_tracked_tables()
    tracking.enable_tracking("ITEM")
    assert tracking.list_tracked_tables() == before
    with pytest.raises(InvalidOperationError, match="tracked in another way"):
        tracking.enable_tracking("item", TrackingKeyType.PRIMARY_KEY, TrackingOptions.DELETE)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (TrackingOptions.INSERT, ["I n"]),
        (TrackingOptions.UPDATE, ["U a", "U n"]),
        (TrackingOptions.DELETE, ["D b"]),
        (TrackingOptions.INSERT | TrackingOptions.DELETE, ["D b", "I n"]),
    ],
)
def test_only_the_chosen_operations_are_tracked(tmp_path: Path, options: TrackingOptions, expected: list[str]) -> None:
    file = open_file(tmp_path / "device.db")
    file.execute(ITEM)
    file.execute("INSERT INTO item (k) VALUES ('a'), ('b')")
    tracking = ChangeTracking(file)
    tracking.enable_tracking("item", TrackingKeyType.PRIMARY_KEY, options)
    assert tracking.get_tracking_options("item") == options
    after = take_anchor(file)
    file.execute("INSERT INTO item (k) VALUES ('n')")
    file.execute("UPDATE item SET v = 1 WHERE k <> 'b'")
    file.execute("DELETE FROM item WHERE k = 'b'")
    assert show_since(file, after) == expected


def test_rows_from_before_the_tracking_have_no_numbers(file: sqlite3.Connection) -> None:
    columns = "__sysInsertTxBsn, __sysChangeTxBsn, __sysTrackingContext"
    assert set(file.execute(f"SELECT {columns} FROM item")) == {(None, None, None)}
    file.execute("INSERT INTO item (k) VALUES ('c')")
    assert file.execute(f"SELECT {columns} FROM item WHERE k = 'c'").fetchall() == [(1, 1, None)]


@needs_drop_column
def test_disabling_removes_columns_triggers_and_tombstones(file: sqlite3.Connection) -> None:
    tracking = ChangeTracking(file)
    after = take_anchor(file)
    file.execute("DELETE FROM item WHERE k = 'a'")
    tracking.disable_tracking("item")
    assert file.execute("SELECT * FROM item").fetchall() == [("b", 2, 0)]
    assert file.execute(
        "SELECT count(*) FROM sqlite_master WHERE tbl_name = 'item' AND type = 'trigger'"
    ).fetchone() == (0,)
    assert file.execute("SELECT count(*) FROM __sysOCSDeletedRows").fetchone() == (0,)
    assert tracking.get_tracking_options("item") is None
    with pytest.raises(InvalidOperationError, match="'item' is not tracked"):
        tracking.disable_tracking("item")
    with pytest.raises(TrackingArgumentError, match="enable its tracking first"):
        show_since(file, after)
    tracking.enable_tracking("item")
    assert show_since(file, take_anchor(file)) == []


def test_enabling_and_disabling_inside_a_transaction_are_undone_with_it(file: sqlite3.Connection) -> None:
    file.execute("CREATE TABLE other (id INTEGER PRIMARY KEY, v)")
    with pytest.raises(ZeroDivisionError), Transaction(file) as transaction:
        ChangeTracking(transaction).enable_tracking("other")
        assert ChangeTracking(transaction).get_tracking_options("other") == TrackingOptions.ALL
        1 / 0  # noqa: B018 - raises
    assert ChangeTracking(file).get_tracking_options("other") is None


REBUILD = (
    "CREATE TABLE new (k TEXT PRIMARY KEY NOT NULL, code INTEGER UNIQUE, v INTEGER)",
    "INSERT INTO new SELECT k, code, v FROM item",
    "DROP TABLE item",
    "ALTER TABLE new RENAME TO item",
)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (REBUILD, "was changed without its tracking"),
        (("ALTER TABLE item RENAME TO other",), "no table 'item'"),
        (("DROP TABLE item",), "no table 'item'"),
        (("DROP TRIGGER __ct_1_delete",), "__ct_1_delete"),
        (("CREATE UNIQUE INDEX other ON item (v, code)",), "__ct_1_note_insert, __ct_1_note_update"),
        (("CREATE UNIQUE INDEX other ON item (upper(k))",), "on an expression"),
    ],
)
def test_a_table_whose_tracking_was_damaged_is_reported(
    file: sqlite3.Connection, statements: tuple[str, ...], message: str
) -> None:
    after = take_anchor(file)
    ChangeTracking(file).check_table("item")
    for statement in statements:
        file.execute(statement)
    with pytest.raises(TrackingLostError, match=message):
        ChangeTracking(file).check_table("item")
    with pytest.raises(TrackingLostError, match=message):
        show_since(file, after)


@pytest.mark.parametrize("rebuild", [REBUILD, ("CREATE UNIQUE INDEX other ON item (v, k)",)])
def test_a_damaged_table_is_tracked_from_the_start_when_it_is_enabled_again(
    file: sqlite3.Connection, rebuild: tuple[str, ...]
) -> None:
    (before,) = ChangeTracking(file).list_tracked_tables()
    file.execute("DELETE FROM item WHERE k = 'a'")
    for statement in rebuild:
        file.execute(statement)
    ChangeTracking(file).enable_tracking("item")
    (tracked,) = ChangeTracking(file).list_tracked_tables()
    assert tracked.token != before.token
    after = take_anchor(file)
    file.execute("UPDATE item SET v = 8")
    assert show_since(file, after) == ["U b"]


def test_other_tables_may_be_altered_by_any_program(file: sqlite3.Connection) -> None:
    file.execute("CREATE TABLE other (a)")
    file.execute("ALTER TABLE other RENAME TO renamed")
    file.execute("ALTER TABLE renamed RENAME COLUMN a TO b")
    after = take_anchor(file)
    for statement in ("v TO w", "code TO number", "k TO id"):
        file.execute(f"ALTER TABLE item RENAME COLUMN {statement}")
    file.execute("UPDATE item SET w = 1 WHERE id = 'a'")
    file.execute("REPLACE INTO item (id, number) VALUES ('c', 2)")
    assert show_since(file, after) == ["D b", "I c", "U a"]
