"""See docs/reference/sqlserver_cdc.md, "LSN", "Row shapes", "Order of changes", "Types": which rows a statement leaves,
in which order, with which values."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import count

import pytest

from conformance_server import Server, Source, new_database, shape

_numbers = count(1)


class Table:
    """A table of its own in the shared database; ``name`` is also what its instance ends with."""

    def __init__(self, source: Source, columns: str, *before: str, **options: str) -> None:
        self.source = source
        self.name = f"t{next(_numbers)}"
        source.admin.run(f"CREATE TABLE dbo.{self.name} ({columns})", *(self.text(sql) for sql in before))
        source.enable(self.name, **options)

    def text(self, sql: str) -> str:
        return sql.replace("dbo.t", f"dbo.{self.name}")

    def run(self, *batches: str) -> list[dict[str, object]]:
        """The change rows of the batches."""
        self.source.admin.run(*(self.text(sql) for sql in batches))
        self.source.scan()
        return self.source.changes(f"dbo_{self.name}")


@pytest.fixture(scope="module")
def server_database(server: Server) -> Iterator[Source]:
    with new_database(server) as made:
        yield made


_KEYED = "id int NOT NULL PRIMARY KEY, v varchar(10)"


def _commands(rows: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(row["__$operation"], row["__$command_id"]) for row in rows]


def test_rows_of_one_insert_share_the_commit_and_nothing_else(server_database: Source) -> None:
    rows = Table(server_database, _KEYED).run("INSERT dbo.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    assert _commands(rows) == [(2, 1), (2, 2), (2, 3)]
    assert len({row["__$start_lsn"] for row in rows}) == 1
    sequences = [row["__$seqval"] for row in rows]
    assert sequences == sorted(set(sequences))
    assert all(row["__$seqval"] < row["__$start_lsn"] and row["__$end_lsn"] is None for row in rows)


def test_delete_leaves_the_last_values_with_a_full_mask(server_database: Source) -> None:
    table = Table(server_database, _KEYED, "INSERT dbo.t VALUES (1, 'a'), (2, 'b')")
    rows = table.run("DELETE dbo.t")
    assert sorted(shape(rows, "id", "v")) == [(1, "03", 1, "a"), (1, "03", 2, "b")]
    assert len({row["__$seqval"] for row in rows}) == 2


def test_update_in_place_is_a_pair_that_shares_all_but_its_operation(server_database: Source) -> None:
    rows = Table(server_database, _KEYED, "INSERT dbo.t VALUES (1, 'a')").run("UPDATE dbo.t SET v = 'b'")
    assert shape(rows, "id", "v") == [(3, "02", 1, "a"), (4, "02", 1, "b")]
    assert len({(row["__$start_lsn"], row["__$seqval"], row["__$command_id"]) for row in rows}) == 1


def test_update_to_the_same_value_counts_a_row_and_leaves_none(server_database: Source) -> None:
    table = Table(server_database, _KEYED, "INSERT dbo.t VALUES (1, 'a')")
    update = table.text("UPDATE dbo.t SET v = 'a', id = 1 WHERE id = 1; SELECT @@ROWCOUNT")
    assert server_database.admin.rows(update) == [(1,)]
    assert table.run() == []


@pytest.mark.parametrize("ending", ["ROLLBACK", "ROLLBACK TRAN s; COMMIT"])
def test_rolled_back_changes_leave_nothing(server_database: Source, ending: str) -> None:
    table = Table(server_database, _KEYED)
    assert table.run(f"BEGIN TRAN; SAVE TRAN s; INSERT dbo.t VALUES (1, 'a'); UPDATE dbo.t SET v = 'b'; {ending}") == []


def test_nothing_is_collapsed_in_a_transaction(server_database: Source) -> None:
    """MCP lab t3."""
    table = Table(server_database, _KEYED, "INSERT dbo.t VALUES (9, 'z')")
    rows = table.run(
        "BEGIN TRAN; INSERT dbo.t VALUES (1, 'a'); UPDATE dbo.t SET v = 'b' WHERE id = 1;"
        " UPDATE dbo.t SET v = 'c' WHERE id = 1; DELETE dbo.t WHERE id = 9; COMMIT"
    )
    assert _commands(rows) == [(2, 1), (3, 2), (4, 2), (3, 3), (4, 3), (1, 4)]


def test_moved_key_is_a_delete_and_an_insert_of_one_sequence_value(server_database: Source) -> None:
    rows = Table(server_database, _KEYED, "INSERT dbo.t VALUES (1, 'a')").run("UPDATE dbo.t SET id = 2 WHERE id = 1")
    assert shape(rows, "id", "v") == [(1, "03", 1, "a"), (2, "03", 2, "a")]
    assert _commands(rows) == [(1, 1), (2, 2)]
    assert len({row["__$seqval"] for row in rows}) == 1


def test_many_moved_unique_values_come_as_one_pair_a_row(server_database: Source) -> None:
    """PSYNC: a unique nonclustered index."""
    table = Table(
        server_database,
        "id int NOT NULL PRIMARY KEY, code varchar(10) NOT NULL UNIQUE",
        "INSERT dbo.t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    rows = sorted(
        table.run("UPDATE dbo.t SET code = code + 'A'"),
        key=lambda row: (row["__$start_lsn"], row["__$seqval"], row["__$operation"]),
    )
    assert [row["__$operation"] for row in rows] == [1, 2] * 3
    for deleted, inserted in zip(rows[::2], rows[1::2], strict=True):
        assert (deleted["id"], deleted["__$seqval"]) == (inserted["id"], inserted["__$seqval"])
        assert inserted["code"] == f"{deleted['code']}A"


@pytest.mark.parametrize("update", ["SET id = id + 1", "SET id = 3 - id WHERE id < 3"])
def test_rows_that_take_over_keys_can_be_applied_in_their_order(server_database: Source, update: str) -> None:
    """The order is (start_lsn, command_id, seqval, operation), whatever the rows are: KB3030352."""
    table = Table(server_database, _KEYED, "INSERT dbo.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    replica: dict[object, object] = {1: "a", 2: "b", 3: "c"}
    for row in table.run(f"UPDATE dbo.t {update}"):
        if row["__$operation"] in (1, 3):
            assert replica.pop(row["id"]) == row["v"]
        else:
            assert row["id"] not in replica
            replica[row["id"]] = row["v"]
    assert replica == dict(server_database.admin.rows(table.text("SELECT id, v FROM dbo.t")))


def test_many_keys_assigned_unchanged_are_pairs_of_delete_and_insert(server_database: Source) -> None:
    """DBZ: ten rows for five keys."""
    table = Table(server_database, _KEYED, "INSERT dbo.t VALUES (1, 'a'), (2, 'a'), (3, 'a'), (4, 'a'), (5, 'a')")
    rows = table.run("UPDATE dbo.t SET id = id")
    assert sorted(row["__$operation"] for row in rows) == [1] * 5 + [2] * 5


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        ("id = s.id, v = s.v", [(1, "03", 1, "a"), (2, "03", 1, "b")]),
        ("v = s.v", [(3, "02", 1, "a"), (4, "02", 1, "b")]),
    ],
)
def test_merge_that_assigns_the_key_is_deferred(
    server_database: Source, assigned: str, expected: list[tuple[object, ...]]
) -> None:
    """G05 (R) VAND."""
    table = Table(server_database, _KEYED, "INSERT dbo.t VALUES (1, 'a')")
    rows = table.run(
        "MERGE dbo.t AS t USING (SELECT 1 AS id, 'b' AS v) AS s ON t.id = s.id"
        f" WHEN MATCHED THEN UPDATE SET {assigned};"
    )
    assert shape(rows, "id", "v") == expected


def test_delete_and_insert_in_a_transaction_have_their_own_sequence_values(server_database: Source) -> None:
    table = Table(server_database, _KEYED, "INSERT dbo.t VALUES (1, 'a')")
    rows = table.run("BEGIN TRAN; DELETE dbo.t WHERE id = 1; INSERT dbo.t VALUES (1, 'b'); COMMIT")
    assert [row["__$operation"] for row in rows] == [1, 2]
    assert rows[0]["__$seqval"] < rows[1]["__$seqval"]


def test_commands_are_counted_over_all_instances_of_a_transaction(server_database: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Order of changes" (MCP23)."""
    table = Table(server_database, _KEYED)
    server_database.enable(table.name, capture_instance=f"N'second_{table.name}'")
    first = table.run("BEGIN TRAN; INSERT dbo.t VALUES (1, 'a'); UPDATE dbo.t SET v = 'b'; DELETE dbo.t; COMMIT")
    second = server_database.changes(f"second_{table.name}")
    assert [row["__$command_id"] for row in first] == [1, 3, 3, 5]
    assert [row["__$command_id"] for row in second] == [2, 4, 4, 6]
    identity = ("__$start_lsn", "__$seqval", "__$operation")
    assert [[row[c] for c in identity] for row in first] == [[row[c] for c in identity] for row in second]


def test_transaction_over_two_tables_has_one_commit_and_one_count(server_database: Source) -> None:
    one, two = Table(server_database, _KEYED), Table(server_database, _KEYED)
    batch = f"BEGIN TRAN; INSERT dbo.{one.name} VALUES (1, 'a'); INSERT dbo.{two.name} VALUES (1, 'a'); COMMIT"
    server_database.admin.run(batch)
    rows = [*one.run(), *two.run()]
    assert len({row["__$start_lsn"] for row in rows}) == 1
    assert [row["__$command_id"] for row in rows] == [1, 2]


@pytest.mark.parametrize("columns", [1, 8, 9, 16, 17])
def test_mask_has_a_byte_for_eight_columns(server_database: Source, columns: int) -> None:
    table = Table(
        server_database, "id int NOT NULL PRIMARY KEY" + "".join(f", c{i} int" for i in range(2, columns + 1))
    )
    rows = table.run("INSERT dbo.t (id) VALUES (1)", *(["UPDATE dbo.t SET c2 = 1"] if columns > 1 else []))
    full = ((1 << columns) - 1).to_bytes((columns + 7) // 8, "big")
    assert rows[0]["__$update_mask"] == full
    if columns > 1:
        assert rows[2]["__$update_mask"] == (2).to_bytes(len(full), "big")


def test_identity_and_not_null_are_plain_nullable_columns(server_database: Source) -> None:
    table = Table(server_database, "id bigint IDENTITY NOT NULL PRIMARY KEY, v varchar(10) NOT NULL")
    rows = server_database.admin.rows(
        "SELECT name, is_nullable, is_identity FROM sys.columns"
        f" WHERE object_id = OBJECT_ID(N'cdc.dbo_{table.name}_CT') AND name IN (N'id', N'v')"
    )
    assert rows == [("id", True, False), ("v", True, False)]


def test_rowversion_is_eight_bytes_whose_bit_every_update_sets(server_database: Source) -> None:
    """EST; docs/reference/sqlserver_cdc.md, "Types"."""
    table = Table(server_database, "id int NOT NULL PRIMARY KEY, data varchar(10), rv rowversion")
    rows = table.run("INSERT dbo.t (id, data) VALUES (1, 'a')", "UPDATE dbo.t SET data = 'b'")
    assert shape(rows) == [(2, "07"), (3, "06"), (4, "06")]
    assert rows[1]["rv"] < rows[2]["rv"]
    found = server_database.admin.rows(
        "SELECT TYPE_NAME(system_type_id), max_length FROM sys.columns"
        f" WHERE object_id = OBJECT_ID(N'cdc.dbo_{table.name}_CT') AND name = N'rv'"
    )
    assert found == [("binary", 8)]


@pytest.mark.parametrize("persisted", ["", " PERSISTED"])
def test_computed_column_is_null_with_its_bit_on_inserts_and_deletes_only(
    server_database: Source, persisted: str
) -> None:
    table = Table(server_database, f"id int NOT NULL PRIMARY KEY, a int, b int, c AS (a + b){persisted}")
    rows = table.run(
        "INSERT dbo.t (id, a, b) VALUES (1, 2, 3)", "UPDATE dbo.t SET a = 5", "UPDATE dbo.t SET id = 2", "DELETE dbo.t"
    )
    assert shape(rows, "id", "a", "c") == [
        (2, "0F", 1, 2, None),
        (3, "02", 1, 2, None),
        (4, "02", 1, 5, None),
        (1, "0F", 1, 5, None),
        (2, "0F", 2, 5, None),
        (1, "0F", 2, 5, None),
    ]


def test_computed_column_may_be_the_key(server_database: Source) -> None:
    """G28 (R) EST."""
    table = Table(
        server_database, "actual_id int NOT NULL, data varchar(10), id AS (actual_id) PERSISTED NOT NULL PRIMARY KEY"
    )
    rows = table.run("INSERT dbo.t (actual_id, data) VALUES (3, 'c')", "DELETE dbo.t")
    assert shape(rows, "actual_id", "data", "id") == [(2, "07", 3, "c", None), (1, "07", 3, "c", None)]


@pytest.mark.parametrize("type_", ["text", "ntext", "image"])
def test_old_large_types_are_null_where_a_row_goes(server_database: Source, type_: str) -> None:
    value = "0x0102" if type_ == "image" else "'old'"
    shown = b"\1\2" if type_ == "image" else "old"
    table = Table(
        server_database, f"id int NOT NULL PRIMARY KEY, n int, big {type_}", f"INSERT dbo.t VALUES (1, 1, {value})"
    )
    rows = table.run(
        "UPDATE dbo.t SET n = 2", "UPDATE dbo.t SET id = 2", "DELETE dbo.t", f"INSERT dbo.t VALUES (3, 3, {value})"
    )
    assert [(row["__$operation"], row["big"]) for row in rows if row["__$operation"] != 4] == [
        (3, None),
        (1, None),
        (2, shown),
        (1, None),
        (2, shown),
    ]


@pytest.mark.parametrize("type_", ["varchar(max)", "nvarchar(max)", "varbinary(max)"])
def test_max_types_are_null_in_the_old_image_unless_they_change(server_database: Source, type_: str) -> None:
    one, two = ("0x01", "0x02") if "binary" in type_ else ("'one'", "'two'")
    a, b = (b"\1", b"\2") if "binary" in type_ else ("one", "two")
    table = Table(
        server_database, f"id int NOT NULL PRIMARY KEY, n int, big {type_}", f"INSERT dbo.t VALUES (1, 1, {one})"
    )
    rows = table.run(
        "UPDATE dbo.t SET n = 2", f"UPDATE dbo.t SET big = {two}", "UPDATE dbo.t SET id = 2", "DELETE dbo.t"
    )
    assert [(row["__$operation"], row["big"]) for row in rows] == [
        (3, None),
        (4, a),
        (3, a),
        (4, b),
        (1, b),
        (2, b),
        (1, b),
    ]


def test_update_of_a_table_with_every_rule_at_once(server_database: Source) -> None:
    """Computed, rowversion and max columns are in one table."""
    table = Table(
        server_database,
        "id int IDENTITY NOT NULL PRIMARY KEY, price decimal(9, 2) NOT NULL, quantity int NOT NULL,"
        " total AS (price * quantity), doubled AS (quantity * 2) PERSISTED, notes nvarchar(max), rv rowversion",
    )
    rows = table.run(
        "INSERT dbo.t (price, quantity, notes) VALUES (1.5, 2, N'n')",
        "UPDATE dbo.t SET quantity = quantity + 1 WHERE id = 1",
    )
    assert shape(rows, "price", "quantity", "total", "doubled", "notes") == [
        (2, "7F", Decimal("1.50"), 2, None, None, "n"),
        (3, "44", Decimal("1.50"), 2, None, None, None),
        (4, "44", Decimal("1.50"), 3, None, None, "n"),
    ]
