"""Histories and logs of tables whose changes are streamed: what events bring to them, in whatever order they come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from emulator_process import Emulator
from floodmark.core.errors import ConfigError, TableNotPlannableError
from floodmark.core.settings import PipelineSettings, SecurityFiltered, Style
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.event_stream import source
from floodmark.sources.event_stream.envelope import StreamOptions
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
    rig.stager = SharedPassStager(rig.open_reader(), rig.at.database, rig.connection.open_stream(), readers)


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
    assert [row[:2] for row in rows] == [*pairwise(ends), (ends[2], None)]
    assert {len(row[2]) for row in rows} == {14}
    assert rig.differing() == []


def test_load_of_a_stream_without_events_has_the_time_of_its_plan(rig: StreamRig) -> None:
    rig.client.run("INSERT dbo.Orders VALUES (1, 1.00, N'one')")
    rig.sync()
    planned = "SELECT to_timestamp(('x' || encode(substr(to_lsn, 3), 'hex'))::bit(64)::bigint / 1000.0)"
    moments = rig.query(f"{planned} FROM floodmark.windows UNION ALL SELECT __valid_from FROM shop.orders")
    assert abs(moments[0][0] - moments[1][0]) < timedelta(seconds=0.01)


def test_log_has_commit_and_place_of_each_change(rig: StreamRig) -> None:
    choose(rig, Style.LOG)
    rig.sync()
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", None)), *rig.change(1))
    rig.sync()
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


def test_delete_whose_event_has_the_key_alone_has_the_values_of_the_version_before(
    rig: StreamRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, has_old_values=False)
    rig.stream(*rig.change((1, "1.00", "one")))
    rig.sync()
    rig.stream(*rig.change((1, "2.00", "two")))
    rig.sync()
    rig.client.run("DELETE dbo.Orders WHERE Id = 1")
    rig.stream(*rig.log.commit(({"Id": "1"}, {})))
    rig.sync()
    assert rig.query(VERSIONS)[2:] == [(1, 1, 2.0, "two", True)]
    assert rig.query("SELECT __kept FROM shop.orders") == [(["Amount", "Note"],)]


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


@pytest.mark.parametrize(
    ("style", "settings", "cause"),
    [
        (Style.LOG, {"without": ["has_all_columns"], "before_images": True}, "have in part, or not at all"),
        (Style.LOG, {"without": ["has_old_values"], "before_images": True}, "have in part, or not at all"),
        (Style.HISTORY, {"key": ("Id",)}, "pass such keys on from row to row"),
        (Style.HISTORY, {"security_filtered": SecurityFiltered.ACCEPT}, "security_filtered: accept"),
        (Style.SNAPSHOT, {}, "begin the reads of a snapshot"),
    ],
)
def test_style_that_the_events_of_a_table_cannot_have_is_refused(
    rig: StreamRig, monkeypatch: pytest.MonkeyPatch, style: Style, settings: dict[str, Any], cause: str
) -> None:
    declare(monkeypatch, **dict.fromkeys(settings.pop("without", ()), False))
    choose(rig, style, **settings)
    with pytest.raises((ConfigError, TableNotPlannableError), match=cause):
        rig.open()


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
