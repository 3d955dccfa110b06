"""Histories, logs and times of commits of streamed tables: what events bring, in whatever order they come."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from emulator_process import Emulator
from floodmark.core.errors import ConfigError, TableNotPlannableError
from floodmark.core.settings import (
    ColumnSettings,
    Deletes,
    Mask,
    OnFailure,
    OnGap,
    PipelineSettings,
    Rule,
    SecurityFiltered,
    Style,
)
from floodmark.core.snapshot import Verdict
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.sources.event_stream import source
from floodmark.sources.event_stream.envelope import StreamOptions
from floodmark.sync.columns import hash_value
from floodmark.sync.filters import parse_filter
from shared_pass_stager import SharedPassStager
from stream_rig import PIPELINE, StreamRig, stream_rig

VERSIONS = 'SELECT __op, "Id", "Amount"::float, "Note", __deleted FROM shop.orders_history ORDER BY "Id", __load, __lsn'
ENTRIES = 'SELECT __op, "Id", "Amount"::float, "Note" FROM shop.orders ORDER BY __load, __lsn, __seq, __op'
PLACES = (
    "SELECT encode(__lsn, 'hex'), encode(__seq, 'hex'), __op, __committed_at, \"Id\" FROM shop.orders"
    " WHERE __op > 0 ORDER BY __load, __lsn, __seq, __op"
)


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection, tmp_path: Path) -> Iterator[StreamRig]:
    with stream_rig(emulator, database, tmp_path) as made:
        choose(made, Style.HISTORY)
        share_pass(made)
        yield made


def choose(rig: StreamRig, style: Style, **settings: Any) -> None:
    [table] = rig.settings.tables
    rig.settings = PipelineSettings(PIPELINE, (replace(table, style=style, **settings),))


def share_pass(rig: StreamRig, readers: int = 0) -> None:
    """Read the stream as the load job does. readers: see ``SharedPassStager``."""
    stream = rig.connection.open_stream()
    rig.stager = SharedPassStager(rig.open_reader(), rig.at.database, stream, readers, rig.mask_keys)


def declare(monkeypatch: pytest.MonkeyPatch, **options: bool) -> None:
    """Let the database say with which options the table was added to its stream group."""
    found = StreamOptions(**{"has_all_columns": True, "has_old_values": True} | options)
    monkeypatch.setattr(source, "read_options", lambda _, tables: dict.fromkeys(tables, found))


def test_each_event_is_a_version_with_its_time(rig: StreamRig) -> None:
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", None)))
    rig.sync()
    rig.stream(*rig.change((1, "1.50", "one"), 2), *rig.change((2, "2.50", "two"), (1, "1.75", None)))
    rig.sync()
    assert rig.query(VERSIONS) == [
        (2, 1, 1.0, "one", False),
        (4, 1, 1.5, "one", False),
        (4, 1, 1.75, None, False),
        (2, 2, 2.0, None, False),
        (1, 2, 2.0, None, True),
        (2, 2, 2.5, "two", False),
    ]
    began = rig.log.began_at
    times = 'SELECT __valid_from, __valid_to, __lsn FROM shop.orders_history WHERE "Id" = 1 ORDER BY __lsn'
    ends = [began + timedelta(milliseconds=each) for each in (1, 2, 3)]
    rows = rig.query(times)
    assert [row[:2] for row in rows] == [*itertools.pairwise(ends), (ends[2], None)]
    assert {len(row[2]) for row in rows} == {14}
    assert rig.differing() == []


@pytest.mark.parametrize("deletes", list(Deletes))
def test_each_row_has_the_time_of_the_event_that_its_position_names(rig: StreamRig, deletes: Deletes) -> None:
    choose(rig, Style.CURRENT, commit_times=True, deletes=deletes)
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", None), (3, "3.00", None)))
    rig.sync()
    late = rig.change((1, "1.50", "one"))
    rig.stream(*rig.change((1, "1.75", None)), *rig.change(2), *rig.change((4, "4.00", "four")))
    rig.sync()
    rig.stream(*late)
    rig.sync()
    at = {number: rig.log.began_at + timedelta(milliseconds=number) for number in (1, 3, 4, 5)}
    deleted = [(2, at[4])] if deletes is Deletes.SOFT else []
    times = 'SELECT "Id", __committed_at FROM shop.orders ORDER BY 1'
    assert rig.query(times) == [(1, at[3]), *deleted, (3, at[1]), (4, at[5])]
    rig.client.run("DELETE dbo.Orders WHERE Id = 3")
    rig.reload()
    swept = [(3, at[5])] if deletes is Deletes.SOFT else []
    assert rig.query(times) == [(1, at[5]), *deleted, *swept, (4, at[5])]
    assert rig.differing() == []


def test_load_of_a_stream_without_events_has_the_time_of_its_plan(rig: StreamRig) -> None:
    rig.client.run("INSERT dbo.Orders VALUES (1, 1.00, N'one')")
    rig.sync()
    planned = "SELECT to_timestamp(('x' || encode(substr(to_lsn, 3), 'hex'))::bit(64)::bigint / 1000.0)"
    moments = rig.query(f"{planned} FROM floodmark.windows UNION ALL SELECT __valid_from FROM shop.orders")
    assert abs(moments[0][0] - moments[1][0]) < timedelta(seconds=0.01)


def test_log_has_commit_and_place_of_each_change(rig: StreamRig) -> None:
    choose(rig, Style.LOG)
    rig.client.run("INSERT dbo.Orders VALUES (9, 9.00, N'nine')")
    rig.sync()
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", None)), *rig.change(1))
    rig.sync()
    assert rig.query("SELECT octet_length(__lsn) FROM shop.orders WHERE __op = 0") == [(10,)]
    at = [rig.log.began_at + timedelta(milliseconds=each) for each in (1, 2)]
    lsns = [f"0000002a000000{each:02x}0001".rjust(20, "0") for each in (1, 2)]
    assert rig.query(PLACES) == [
        (lsns[0], "00000001", 2, at[0], 1),
        (lsns[0], "00000002", 2, at[0], 2),
        (lsns[1], "00000001", 1, at[1], 1),
    ]


def test_update_of_a_key_is_a_delete_and_an_insert(rig: StreamRig) -> None:
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two")))
    rig.sync()
    rows = [{"Id": str(key), "Amount": "1.00", "Note": "one"} for key in (1, 5)]
    rig.client.run("UPDATE dbo.Orders SET Id = 5 WHERE Id = 1")
    rig.stream(*rig.log.commit((rows[0], rows[1])))
    rig.sync()
    assert rig.query(VERSIONS) == [
        (2, 1, 1.0, "one", False),
        (1, 1, 1.0, "one", True),
        (2, 2, 2.0, "two", False),
        (2, 5, 1.0, "one", False),
    ]


@pytest.mark.parametrize("before_images", [False, True])
def test_log_of_a_declared_key_that_is_passed_on_has_each_change(rig: StreamRig, *, before_images: bool) -> None:
    choose(rig, Style.LOG, key=("Id",), before_images=before_images, snapshot=False)
    rig.sync()
    rig.log.key = ""
    rows = [{"Id": str(key), "Amount": None, "Note": str(note)} for key, note in ((1, 1), (2, 1), (2, 2), (3, 2))]
    messages = rig.log.commit(({}, rows[0]), ({}, rows[2])) + rig.log.commit((rows[0], rows[1]), (rows[2], rows[3]))
    rig.stream(*messages[:3])
    rig.sync()
    rig.stream(*messages[2:])
    rig.sync()
    assert rig.stopped() == {}
    assert rig.query(ENTRIES) == [
        (2, 1, None, "1"),
        (2, 2, None, "2"),
        (1, 1, None, "1"),
        (2, 2, None, "1"),
        (1, 2, None, "2"),
        (2, 3, None, "2"),
    ]


def test_log_of_a_table_without_a_key_has_the_row_before_each_update(rig: StreamRig) -> None:
    rig.client.run("DROP TABLE dbo.Orders")
    rig.client.run("CREATE TABLE dbo.Orders (Id int, Amount decimal(9,2), Note nvarchar(20))")
    rig.log.key, rig.log.columns = "", (*rig.log.columns[:2], ("Note", "nvarchar(20)", 2))
    choose(rig, Style.LOG)
    rig.sync()
    rows = [{"Id": "1", "Amount": None, "Note": note} for note in "ab"]
    messages = [*rig.log.commit(({}, rows[0]), ({}, rows[0]), (rows[0], rows[1])), *rig.log.commit((rows[0], {}))]
    for readers in (0, 2):
        share_pass(rig, readers)
        rig.stream(*messages, *messages[::2])
        rig.sync()
        assert rig.query(ENTRIES) == [
            (2, 1, None, "a"),
            (2, 1, None, "a"),
            (3, 1, None, "a"),
            (4, 1, None, "b"),
            (1, 1, None, "a"),
        ]


@pytest.mark.parametrize("is_shown", [False, True])
def test_delete_whose_event_has_the_key_alone_has_the_values_of_the_version_before(
    rig: StreamRig, monkeypatch: pytest.MonkeyPatch, *, is_shown: bool
) -> None:
    declare(monkeypatch, has_old_values=not is_shown)
    rig.stream(*rig.change((1, "1.00", "one")))
    rig.sync()
    rig.stream(*rig.change((1, "2.00", "two")))
    rig.sync()
    rig.client.run("DELETE dbo.Orders WHERE Id = 1")
    rig.stream(*rig.log.commit(({"Id": "1"}, {})))
    rig.sync()
    assert rig.query(VERSIONS)[2:] == [(1, 1, 2.0, "two", True)]
    assert rig.query("SELECT unnest(__kept) FROM shop.orders ORDER BY 1") == [("Amount",), ("Note",)]


def test_events_in_part_have_the_other_values_of_the_version_before(
    rig: StreamRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, has_all_columns=False)
    rig.stream(*rig.change((1, "1.00", "one")))
    rig.sync()
    rig.log.columns = rig.log.columns[:2]
    amount = rig.log.commit(({"Id": "1", "Amount": "1.00"}, {"Id": "1", "Amount": "9.00"}))
    rig.log.columns = (("Id", "int", 0), ("Note", "nvarchar(max)", 2))
    note = rig.log.commit(({"Id": "1", "Note": "one"}, {"Id": "1", "Note": "two"}))
    rig.client.run("UPDATE dbo.Orders SET Amount = 9, Note = N'two'")
    rig.stream(*note)
    rig.sync()
    rig.stream(*amount)
    rig.sync()
    assert rig.query(VERSIONS)[1:] == [(4, 1, 9.0, "one", False), (4, 1, 9.0, "two", False)]
    assert rig.differing() == []


def test_style_that_the_events_of_a_table_cannot_have_is_refused(
    rig: StreamRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = rig.settings
    for style, settings, cause in (
        (Style.LOG, {"without": ["has_all_columns"], "before_images": True}, "have in part, or not at all"),
        (Style.LOG, {"without": ["has_old_values"], "before_images": True}, "have in part, or not at all"),
        (Style.HISTORY, {"key": ("Id",)}, "pass such keys on from row to row"),
        (Style.HISTORY, {"security_filtered": SecurityFiltered.ACCEPT}, "security_filtered: accept"),
        (Style.SNAPSHOT, {}, "begin the reads of a snapshot"),
        (Style.CURRENT, {"without": ["has_all_columns"], "where": parse_filter("Amount > 1")}, "its events leave out"),
        (Style.LOG, {"without": ["has_old_values"], "where": parse_filter("Amount > 1")}, "its events leave out"),
        (Style.CURRENT, {"where": parse_filter("Note = 'x'")}, "which no filter compares"),
    ):
        chosen = {name: value for name, value in settings.items() if name != "without"}
        with monkeypatch.context() as patch:
            declare(patch, **dict.fromkeys(settings.get("without", ()), False))
            rig.settings = usual
            choose(rig, style, **chosen)
            with pytest.raises((ConfigError, TableNotPlannableError), match=cause):
                rig.open()


def test_filter_needs_the_values_that_it_reads(rig: StreamRig) -> None:
    choose(rig, Style.CURRENT, where=parse_filter("Amount < 5"))
    rig.sync()
    rig.stream(*rig.change((1, "1.00", "one")))
    rig.sync()
    rig.stream(*map(without_old, rig.change((1, "2.00", "two"))))
    with pytest.raises(ConfigError, match="the row before an update, which shows whether the row passed the filter"):
        rig.sync()
    rig.reload()
    whole, rig.log.columns = rig.log.columns, (rig.log.columns[0], rig.log.columns[2])
    rig.stream(*rig.log.commit(({"Id": "1", "Note": "two"}, {"Id": "1", "Note": "new"})))
    with pytest.raises(ConfigError, match=r"its events leave out columns.*Amount"):
        rig.sync()
    rig.log.columns = whole
    rig.reload()
    choose(rig, Style.CURRENT, where=parse_filter("Amount < Id"))
    rig.reload()
    assert rig.query('SELECT "Id" FROM shop.orders WHERE NOT __deleted') == []
    assert rig.differing() == []


PEOPLE = (
    ("Id", "uniqueidentifier", 0), ("Region", "char(4)", 1), ("Born", "datetime2(7)", 2), ("Mail", "nvarchar(40)", 3)
)  # fmt: skip
SECRET = "a secret of more than sixteen characters"
GUIDS = [f"9C8D4AD2-BF54-4F10-A96F-03{number:010}" for number in range(6)]


@pytest.mark.parametrize("style", [Style.CURRENT, Style.HISTORY, Style.LOG])
@pytest.mark.parametrize("readers", [0, 2])
def test_hashed_keys_are_netted_matched_and_deleted_and_a_dropped_column_filters(
    rig: StreamRig, style: Style, readers: int
) -> None:
    rig.client.run("DROP TABLE dbo.Orders")
    declared = ", ".join(f"{name} {kind}{' NOT NULL PRIMARY KEY' if name == 'Id' else ''}" for name, kind, _ in PEOPLE)
    rig.client.run(f"CREATE TABLE dbo.Orders ({declared})")
    rig.log.columns, rig.mask_keys = PEOPLE, {"key": SECRET}
    columns = (
        ColumnSettings("Id", "person", mask=Mask.HASH),
        ColumnSettings("Region", is_dropped=True),
        ColumnSettings("Mail", "mail", mask=Mask.LAST4),
    )
    where = parse_filter("Region IN ('N', 'S') AND (Born IS NULL OR Born < '20260101 12:00:00.5')")
    choose(rig, style, columns=columns, mask_key_conn_id="key", where=where)
    share_pass(rig, readers)

    def row(number: int, region: str | None, mail: str, born: str | None = "2025-12-31 23:59:59.9999999") -> Any:
        padded = region and region.ljust(4)
        return {"Id": GUIDS[number], "Region": padded, "Born": born, "Mail": mail}

    def change(*pairs: Any) -> None:
        """Change rows in one transaction, each from its values before to those after, {} for none."""
        for old, new in pairs:
            values = ", ".join("NULL" if value is None else f"'{value}'" for value in new.values())
            rig.client.run(f"DELETE dbo.Orders WHERE Id = '{old['Id']}'" if old else "SELECT 1")
            rig.client.run(f"INSERT dbo.Orders VALUES ({values})" if new else "SELECT 1")
        rig.stream(*rig.log.commit(*pairs))
        rig.sync()

    def living() -> set[tuple[Any, ...]]:
        return set(rig.query("SELECT person, mail FROM shop.orders WHERE NOT __deleted"))

    def seen(number: int, mail: str) -> tuple[str, str]:
        return hash_value(SECRET.encode(), GUIDS[number]), mail

    first, second, hidden = row(0, "N", "mail-0000"), row(1, "S", "mail-1111", None), row(2, "n", "mail-2222")
    change(({}, first), ({}, second), ({}, hidden))
    newer, left, came, other = (
        first | {"Mail": "mail-9999"},
        second | {"Region": "X   "},
        hidden | {"Region": "S   "},
        row(3, "N", "mail-3333", "2026-01-01 12:00:00.5000000"),
    )
    change((first, newer), (second, left), (hidden, came), ({}, other))
    if style is not Style.LOG:
        assert living() == {seen(0, "*****9999"), seen(2, "*****2222")}
        assert rig.differing() == []
    moved, back = newer | {"Id": GUIDS[4]}, left | {"Region": "N   "}
    change((newer, moved), (left, back), (other, {}), (came, {}))
    if style is Style.LOG:
        of_log = "SELECT __op, person, mail FROM shop.orders ORDER BY __load, __lsn, __seq, __op, mail"
        assert rig.query(of_log) == [
            (0, *seen(0, "*****0000")),
            (0, *seen(1, "*****1111")),
            (4, *seen(0, "*****9999")),
            (1, *seen(1, "*****1111")),
            (2, *seen(2, "*****2222")),
            (1, *seen(0, "*****9999")),
            (2, *seen(4, "*****9999")),
            (2, *seen(1, "*****1111")),
            (1, *seen(2, "*****2222")),
        ]
    else:
        assert living() == {seen(4, "*****9999"), seen(1, "*****1111")}
        assert rig.differing() == []
        rig.reload()
        assert living() == {seen(4, "*****9999"), seen(1, "*****1111")}
    assert (rig.stopped(), rig.quarantined()) == ({}, [])


def test_log_that_is_to_have_rows_before_updates_refuses_events_without_them(rig: StreamRig) -> None:
    choose(rig, Style.LOG, before_images=True)
    rig.stream(*rig.change((1, "1.00", "one")))
    rig.sync()
    rig.stream(*map(without_old, rig.change((1, "2.00", "two"))))
    with pytest.raises(ConfigError, match="its events lack the row before an update"):
        rig.sync()


def without_old(event: bytes) -> bytes:
    """Return an event of an update without the row before it, as a table without old values has them."""
    message = json.loads(event)
    data = json.loads(message["data"])
    data["eventrow"]["old"] = None
    return json.dumps(message | {"data": json.dumps(data)}).encode()


Row = tuple[Any, ...]


class Workload:
    """Random transactions of a few rows, with what each style must have of them."""

    def __init__(self, rig: StreamRig, seed: int) -> None:
        self.rig, self.chance = rig, random.Random(seed)
        self.commits: list[tuple[bytes, list[Row]]] = []
        """The LSN of each commit, and the rows after it."""
        self.changes: list[Row] = []
        """Operation, key, amount and note of each change, in their order."""
        self.living: dict[int, tuple[float, str | None]] = {}

    def write(self) -> list[bytes]:
        """Make a transaction. Return its messages."""
        made: list[Any] = []
        for _ in range(self.chance.choice((1, 1, 2, 4))):
            key, number = self.chance.randrange(1, 5), len(self.changes) + 1
            before = self.living.pop(key, None)
            if before is not None and self.chance.random() < 0.4:
                made.append(key)
                self.changes.append((1, key, *before))
                continue
            self.living[key] = float(number), self.chance.choice((None, f"n{number}", "same"))
            made.append((key, f"{number}.00", self.living[key][1]))
            self.changes.append((4 if before else 2, key, *self.living[key]))
        lsn = (0x2A << 48 | len(self.commits) + 1 << 16 | 1).to_bytes(10)
        self.commits.append((lsn, [(key, *row) for key, row in sorted(self.living.items())]))
        return self.rig.change(*made)

    def check_commits(self, first: int) -> None:
        """Require the rows as of each commit from one on."""
        for lsn, rows in self.commits[first:]:
            end = f"'\\x{lsn.hex()}ffffffff'"
            found = self.rig.query(
                'SELECT "Id", "Amount"::float, "Note" FROM shop.orders_history WHERE NOT __deleted'
                f' AND __lsn <= {end} AND (__next_lsn > {end} OR __next_lsn IS NULL) ORDER BY "Id"'
            )
            assert found == rows, lsn.hex()


def passing(changes: Sequence[Row], amounts: Collection[int]) -> list[Row]:
    """Return the changes of a source that only has the rows with some amounts, of which each change has another."""
    newest: dict[int, Row] = {}
    found: list[Row] = []
    for operation, key, amount, note in changes:
        before, passes = newest.get(key), operation != 1 and amount in amounts
        if before is not None:
            found.append((4, key, amount, note) if passes else (1, *before))
        elif passes:
            found.append((2, key, amount, note))
        newest = {**newest, key: (key, amount, note)} if passes else {k: r for k, r in newest.items() if k != key}
    return found


@pytest.mark.parametrize("is_filtered", [False, True])
@pytest.mark.parametrize("style", [Style.HISTORY, Style.LOG])
@pytest.mark.parametrize("seed", range(1))
def test_events_in_any_order_and_again_end_in_the_same_rows(
    rig: StreamRig, style: Style, seed: int, *, is_filtered: bool
) -> None:
    amounts = random.Random(seed).sample(range(1, 200), 100)
    where = parse_filter(f"Amount IN ({', '.join(map(str, amounts))})") if is_filtered else None
    choose(rig, style, where=where)
    work = Workload(rig, seed)
    early = [body for _ in range(3) for body in work.write()]
    rig.stream(*early)
    rig.sync()
    loaded = list(rig.query(f"SELECT * FROM ({ENTRIES if style is Style.LOG else VERSIONS}) AS s"))
    begun, loaded_rows = len(work.changes), work.commits[-1][1]
    waiting = [body for _ in range(12) for body in work.write()]
    sent: list[bytes] = list(early)
    while waiting:
        share_pass(rig, work.chance.choice((0, 2)))
        now = work.chance.sample(waiting, work.chance.randint(1, len(waiting)))
        waiting = [body for body in waiting if body not in now]
        rig.stream(*now, *work.chance.sample(sent, 2), *now[:1])
        sent += now
        rig.sync()
    assert (rig.stopped(), rig.quarantined()) == ({}, [])
    begin = [(4, *row) for row in loaded_rows]
    expected = passing([*begin, *work.changes[begun:]], amounts)[len(loaded) :] if is_filtered else work.changes[begun:]
    if style is Style.LOG:
        assert rig.query(ENTRIES) == [*loaded, *expected]
        return
    assert rig.differing() == []
    versions = [(*each, each[0] == 1) for each in expected]
    assert rig.query(VERSIONS) == sorted([*loaded, *versions], key=lambda each: each[1])
    if not is_filtered:
        work.check_commits(2)


def test_events_from_before_a_load_that_come_late_change_nothing(rig: StreamRig) -> None:
    work = Workload(rig, 3)
    rig.stream(*work.write())
    rig.sync()
    late = [body for _ in range(4) for body in work.write()]
    rig.stream(*late[1:], *work.write())
    rig.reload()
    loaded = rig.query(VERSIONS)
    rig.stream(*late)
    rig.sync()
    assert rig.query(VERSIONS) == loaded
    first = len(work.commits)
    rig.stream(*late, *[body for _ in range(4) for body in work.write()])
    rig.sync()
    work.check_commits(first - 1)
    assert (rig.stopped(), rig.differing()) == ({}, [])


@pytest.mark.parametrize("style", [Style.HISTORY, Style.LOG])
def test_log_of_the_database_that_steps_back_begins_behind_a_load(rig: StreamRig, style: Style) -> None:
    choose(rig, style, on_gap=OnGap.REPAIR)
    rig.log.commits = itertools.count(1000)
    rig.sync()
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two")), *rig.change((3, "3.00", "three")))
    rig.sync()
    late = rig.change((1, "5.00", "old"), (3, "5.00", "old"))
    rig.change((1, "8.00", "lost"), 2)
    rig.log = replace(rig.log, began_at=rig.log.began_at + timedelta(minutes=1), commits=itertools.count(10))
    rig.stream(*rig.change((3, "6.00", "first of the new stream")))
    rig.sync()
    assert set(rig.stopped().values()) == {Verdict.INSTANCE_REPLACED}
    assert rig.sync().window_id is None
    rig.load_pending()
    rig.stream(*late, *rig.change((3, "7.00", "next")))
    rig.sync()
    rig.stream(*late)
    rig.sync()
    assert rig.stopped() == {}
    if style is Style.LOG:
        assert [row[:3] for row in rig.query(ENTRIES)] == [
            (2, 1, 1.0),
            (2, 2, 2.0),
            (2, 3, 3.0),
            (0, 1, 8.0),
            (0, 3, 6.0),
            (4, 3, 7.0),
        ]
        return
    assert [row[:3] for row in rig.query(VERSIONS)] == [
        (2, 1, 1.0),
        (2, 1, 8.0),
        (2, 2, 2.0),
        (1, 2, 2.0),
        (2, 3, 3.0),
        (2, 3, 6.0),
        (4, 3, 7.0),
    ]
    assert rig.differing() == []


@pytest.mark.parametrize("style", [Style.HISTORY, Style.LOG])
def test_changes_that_break_a_rule_wait_and_are_released_into_their_places(rig: StreamRig, style: Style) -> None:
    rules = (Rule("small", '"Amount" < 100', OnFailure.QUARANTINE),)
    choose(rig, style, rules=rules)
    rig.sync()
    insert, update = rig.change((1, "700.00", "much")), rig.change((1, "800.00", "more"))
    delete, again = rig.change(1), rig.change((1, "1.00", "one"))
    rig.stream(*delete, *insert, *insert)
    rig.sync()
    rig.stream(*update, *again, *insert)
    rig.sync()
    entries = ENTRIES if style is Style.LOG else VERSIONS
    assert [row[:2] for row in rig.query(entries)] == [(1, 1), (2, 1)]
    assert rig.query("SELECT count(*) FROM floodmark.quarantine WHERE settled_at IS NULL") == [(2,)]
    choose(rig, style)
    PostgresQuarantine(rig.warehouse).release(PIPELINE, replace(rig.settings.tables[0], rules=()), "anna")
    expected = [(2, 1, 700.0, "much"), (4, 1, 800.0, "more"), (1, 1, 800.0, "more"), (2, 1, 1.0, "one")]
    assert [row[:4] for row in rig.query(entries)] == expected
    rig.stream(*insert, *update)
    rig.sync()
    assert [row[:4] for row in rig.query(entries)] == expected
