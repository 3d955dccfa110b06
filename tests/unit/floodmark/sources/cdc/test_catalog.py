"""Result sets of read_snapshot.sql, as SQL Server prints them, into capture instances."""

from datetime import datetime

import pytest

from floodmark.core.position import Lsn, NoPosition
from floodmark.core.schema import SourceColumn, TableName
from floodmark.core.snapshot import WiderInstance
from floodmark.sources.cdc.source import Catalog, build_catalog, parse_column_list
from floodmark.sources.sqlserver.tables import find_table, round_to_tick

START = bytes.fromhex("0000002D000005500042")
CREATED = datetime(2026, 8, 25, 10, 0, 1)
ORDERS = TableName("dbo", "Orders")


def _help(name: str = "dbo_Orders", object_id: int = 200, created_at: datetime = CREATED, **other: object) -> tuple:
    row = {
        "source_schema": "dbo",
        "source_table": "Orders",
        "capture_instance": name,
        "object_id": object_id,
        "source_object_id": 100,
        "start_lsn": START,
        "end_lsn": None,
        "supports_net_changes": True,
        "has_drop_pending": None,
        "role_name": None,
        "index_name": "PK_Orders",
        "filegroup_name": None,
        "create_date": created_at,
        "index_column_list": "[Id]",
        "captured_column_list": "[Id], [Note]",
    }
    return tuple((row | other).values())


OWN = [(name, "binary", 10) for name in ("__$start_lsn", "__$end_lsn", "__$seqval")] + [
    ("__$operation", "int", 4),
    ("__$update_mask", "varbinary", 128),
]
CAPTURED = [
    ("Id", "int", 4),
    ("Total", "int", 4),
    ("Note", "nvarchar", -1),
    ("Code", "nvarchar", 40),
    ("Rv", "binary", 8),
]


def _columns(object_id: int, *columns: tuple[str, str, int], **computed: bool) -> list[tuple]:
    return [
        (object_id, name, kind, length, 0, 0, name != "Id", computed.get(name, False)) for name, kind, length in columns
    ]


def _catalog(
    instances: list[tuple] | None = None,
    oldest: bytes | None = START,
    source: list[tuple] | None = None,
    readable: int = 1,
    command_id: bool = True,
) -> Catalog:
    instances = [_help()] if instances is None else instances
    last = [("__$command_id", "int", 4)] if command_id else []
    if source is None:
        source = _columns(100, *CAPTURED[:-1], ("Rv", "timestamp", 8), Total=True)
    return build_catalog(
        tables=[("dbo", "Orders", 100, True), ("dbo", "Plain", 101, False)],
        instances=instances,
        change_tables=[(row[3], f"{row[2]}_CT", oldest, readable, None, 0, None) for row in instances],
        columns=source + [c for row in instances for c in _columns(row[3], *OWN, *CAPTURED, *last)],
        primary_keys=[(100, "Id")],
    )


def _instance(catalog: Catalog, pinned: str | None = None):
    table = find_table(catalog.tables, ORDERS)
    assert table is not None
    return catalog.find_instance(table, pinned)


def test_catalog_reads_columns_in_mask_order_with_the_source_tables_facts() -> None:
    found = _instance(_catalog())
    assert found.instance.table.columns == (
        SourceColumn("Id", "int", 1, nullable=False),
        SourceColumn("Total", "int", 2, is_computed=True),
        SourceColumn("Note", "nvarchar", 3, max_length=-1),
        SourceColumn("Code", "nvarchar", 4, max_length=20),
        SourceColumn("Rv", "timestamp", 5),
    )
    assert found.instance.table.key == ("Id",)
    assert found.instance.start == Lsn(START)


def test_catalog_keeps_a_users_column_whose_name_begins_like_the_servers_own() -> None:
    names = ("Id", "__$tenant", "Note")
    captured = [(name, "nvarchar", -1) for name in names]
    catalog = build_catalog(
        tables=[("dbo", "Orders", 100, True)],
        instances=[_help()],
        change_tables=[(200, "dbo_Orders_CT", START, 1, None, 0, None)],
        columns=_columns(100, *captured) + _columns(200, *OWN, *captured, ("__$command_id", "int", 4)),
        primary_keys=[(100, "Id")],
    )
    found = _instance(catalog).instance.table.columns
    assert [(column.name, column.ordinal) for column in found] == [("Id", 1), ("__$tenant", 2), ("Note", 3)]


def test_catalog_leaves_out_a_captured_column_that_the_source_has_dropped() -> None:
    source = _columns(100, CAPTURED[0], *CAPTURED[3:])
    assert [(c.name, c.ordinal) for c in _instance(_catalog(source=source)).instance.table.columns] == [
        ("Id", 1),
        ("Code", 4),
        ("Rv", 5),
    ]


@pytest.mark.parametrize("has", [True, False])
def test_catalog_shows_whether_the_change_table_has_command_ids(has: bool) -> None:
    assert _instance(_catalog(command_id=has)).instance.has_command_id is has


def test_catalog_does_not_believe_the_index_columns_of_a_row_without_an_index() -> None:
    row = _help(index_name=None, index_column_list="[OfTheRowBefore]")
    assert _instance(_catalog([row])).instance.table.key == ("Id",)


def test_catalog_has_no_instance_of_a_change_table_that_may_not_be_read() -> None:
    found = _instance(_catalog(readable=0))
    assert not found.readable
    assert found.instance is None


@pytest.mark.parametrize(("value", "absence"), [(None, NoPosition.NULL), (bytes(10), NoPosition.ZERO)])
def test_catalog_keeps_both_kinds_of_absence_of_a_new_instance(value: bytes | None, absence: NoPosition) -> None:
    assert _instance(_catalog(oldest=value)).oldest is absence


@pytest.mark.parametrize(
    ("fewer", "other_created", "wider"),
    [
        (("Id", "Note"), CREATED.replace(hour=9), WiderInstance("other", ("Code", "Rv"))),
        (("Id", "Note"), CREATED.replace(hour=11), None),
        (tuple(name for name, *_ in CAPTURED if name != "Total"), CREATED.replace(hour=9), None),  # computed
        (tuple(name for name, *_ in CAPTURED), CREATED.replace(hour=9), None),
    ],
)
def test_catalog_finds_an_older_instance_with_more_columns(
    fewer: tuple[str, ...], other_created: datetime, wider: WiderInstance | None
) -> None:
    source = _columns(100, *CAPTURED[:-1], ("Rv", "timestamp", 8), Total=True)
    catalog = build_catalog(
        tables=[("dbo", "Orders", 100, True)],
        instances=[_help(), _help("other", 300, other_created)],
        change_tables=[(200, "dbo_Orders_CT", START, 1, None, 0, None), (300, "other_CT", START, 1, None, 0, None)],
        columns=source
        + _columns(200, *OWN, *(each for each in CAPTURED if each[0] in fewer))
        + _columns(300, *OWN, *CAPTURED),
        primary_keys=[(100, "Id")],
    )
    assert catalog.find_wider(_instance(catalog, "dbo_Orders")) == wider


def test_catalog_picks_the_newest_of_two_instances_and_the_pinned_one_before_it() -> None:
    catalog = _catalog([_help(), _help("dbo_Orders_v2", 201, datetime(2026, 9, 1))])
    assert _instance(catalog).name == "dbo_Orders_v2"
    assert _instance(catalog, "DBO_orders").name == "dbo_Orders"
    assert _instance(catalog, "gone") is None


def test_catalog_prefers_an_instance_that_has_been_captured_to_a_newer_one_that_has_not() -> None:
    old, new = _help(), _help("dbo_Orders_v2", 201, datetime(2026, 9, 1))
    catalog = build_catalog(
        tables=[("dbo", "Orders", 100, True)],
        instances=[old, new],
        change_tables=[
            (200, "dbo_Orders_CT", START, 1, None, 1, START),
            (201, "dbo_Orders_v2_CT", None, 1, None, 1, None),
        ],
    )
    assert _instance(catalog).name == "dbo_Orders"


def test_catalog_finds_a_table_in_another_case_unless_there_is_an_exact_one() -> None:
    catalog = build_catalog(tables=[("dbo", "orders", 1, True), ("dbo", "ORDERS", 2, True)])
    assert find_table(catalog.tables, TableName("DBO", "Orders")).object_id in (1, 2)
    assert find_table(catalog.tables, TableName("dbo", "ORDERS")).object_id == 2
    assert find_table(catalog.tables, TableName("dbo", "nope")) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [("[a], [b]", ("a", "b")), ("[a]]b], [c, d]", ("a]b", "c, d")), ("", ()), (None, ())],
)
def test_column_list_is_parsed(text: str | None, names: tuple[str, ...]) -> None:
    assert parse_column_list(text) == names


@pytest.mark.parametrize(("tick", "printed"), [(0, 0), (1, 3), (2, 7), (3, 10), (94, 313), (299, 997)])
def test_creation_of_an_instance_is_the_same_however_a_driver_rounds_it(tick: int, printed: int) -> None:
    exact = tick * 1_000_000 // 300
    for microsecond in (exact, exact // 1000 * 1000, printed * 1000):
        at = datetime(2026, 5, 1, 12, 0, 0, microsecond)
        assert round_to_tick(at) == datetime(2026, 5, 1, 12, 0, 0, printed * 1000)


def test_catalog_keeps_masks_and_filters_by_their_table() -> None:
    catalog = build_catalog(
        [("dbo", "Orders", 100, True), ("dbo", "Plain", 101, False)],
        masked=[(100, "Email"), (100, "Phone"), (999, "Other")],
        filters=[(101, "sec", "plain_filter")],
    )
    assert [(table.masked, table.filters) for table in catalog.tables] == [
        (("Email", "Phone"), ()),
        ((), ("sec.plain_filter",)),
    ]
