"""Tables of a stream are read by Spark in one pass, in memory or, where there are many changes, through a shuffle."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from change_log import ChangeLog
from emulator_process import Emulator
from floodmark.core.schema import TableName
from floodmark.core.settings import SOURCE_VARIABLE, TableSettings
from floodmark.core.snapshot import Verdict
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.event_stream import reader
from floodmark.sources.event_stream.reader import open_event_reader, plan_event_reads
from floodmark.spark import stager
from floodmark.spark.engine import Engine
from spark_engine import classic_engine, stager_of_spark
from sqlserver_emulator.event_stream.encoding import MessageForm
from stream_rig import StreamRig, stream_rig

# py4j leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

LINES = TableName("dbo", "Lines")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with classic_engine() as opened:
        yield opened


@pytest.fixture
def rig(
    emulator: Emulator, database: WarehouseConnection, tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StreamRig]:
    with stream_rig(emulator, database, tmp_path) as made:
        made.client.run("CREATE TABLE dbo.Lines (Id int NOT NULL PRIMARY KEY, V nvarchar(20) NOT NULL, W int)")
        lines = TableSettings(LINES, TableName("shop", "lines"))
        made.settings = replace(made.settings, tables=(*made.settings.tables, lines))
        monkeypatch.setenv(SOURCE_VARIABLE, made.connection.to_json())
        made.stager = stager_of_spark(lambda: engine, open_event_reader, plan_event_reads)
        yield made


def lines_log(rig: StreamRig) -> ChangeLog:
    columns = (("Id", "int", 0), ("V", "nvarchar(20)", 1), ("W", "int", 2))
    return ChangeLog(rig.log.database, columns, "Id", table="Lines", commits=rig.log.commits)


@pytest.mark.parametrize("most_bytes", [64 << 20, 1])
def test_one_pass_brings_all_tables_to_the_state_of_the_source(
    rig: StreamRig, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stager, "MOST_BYTES", most_bytes)
    lines = lines_log(rig)
    rig.stream(*rig.change(*((number, f"{number}.00", "first") for number in range(1, 40))))
    rig.sync()
    rig.client.run("INSERT dbo.Lines VALUES (1, N'a', NULL), (2, N'b', 7)")
    rig.stream(*lines.commit(({}, {"Id": "1", "V": "a", "W": None}), ({}, {"Id": "2", "V": "x", "W": None})))
    rig.stream(*lines.commit(({"Id": "2", "V": "x", "W": None}, {"Id": "2", "V": "b", "W": "7"})))
    for amount in range(3):
        rig.stream(*rig.change(*((number, f"{amount}.50", f"näher {amount}") for number in range(1, 30))))
    rig.stream(*rig.change(1, 2, 3), b"nothing")
    assert rig.sync().window_id is not None
    assert rig.differing() == []
    assert rig.query("SELECT source_name, read_rows, staged_rows FROM floodmark.window_tables ORDER BY window_id, 1")
    assert len(rig.quarantined()) == 1
    assert rig.sync().window_id is None


@pytest.mark.parametrize("most_bytes", [64 << 20, 1])
def test_table_whose_events_lack_columns_is_refused_and_the_others_are_merged(
    rig: StreamRig, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stager, "MOST_BYTES", most_bytes)
    rig.sync()
    partial_log = replace(lines_log(rig), columns=(("Id", "int", 0), ("W", "int", 2)))
    rig.stream(*partial_log.commit(({}, {"Id": "1", "W": "1"})))
    rig.stream(*rig.change((1, "1.00", "one")))
    rig.sync()
    assert rig.query('SELECT "Id" FROM shop.orders') == [(1,)]
    assert rig.ledger.list_stopped("streamed")[0].verdict is Verdict.REFUSED


@pytest.mark.parametrize("form", [MessageForm(), MessageForm(limit_bytes=2000)])
def test_partitions_are_read_by_several_tasks(
    rig: StreamRig, form: MessageForm, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages go to the partitions in turn: segments of an event are in both, and one task has to join them."""
    monkeypatch.setattr(reader, "MOST_CHANGES", 0)
    rig.log.form = form
    lines = lines_log(rig)
    rig.sync()
    rig.stream(*rig.change(*((number, f"{number}.00", "first " * 300) for number in range(1, 40))))
    rig.client.run("INSERT dbo.Lines VALUES (1, N'a', NULL)")
    rig.stream(*lines.commit(({}, {"Id": "1", "V": "a", "W": None})))
    rig.stream(*rig.change((5, "7.50", "second " * 300), 6, 7), b"nothing", b"nothing")
    with caplog.at_level(logging.INFO):
        rig.sync()
    assert rig.differing() == []
    assert sorted(row[0] for row in rig.quarantined()) == ["0", "1"]
    is_split = form.limit_bytes != MessageForm().limit_bytes
    assert ("one task reads all of it again" in caplog.text) == is_split
    # Nothing is left over: the marks are those of one pass.
    rig.stream(*rig.change((8, "8.00", "third")))
    rig.sync()
    assert rig.differing() == []
    assert rig.sync().window_id is None


@pytest.mark.parametrize("most_changes", [250_000, 0])
def test_message_of_no_known_table_is_kept_although_a_table_is_refused(
    rig: StreamRig, most_changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders would report it first, and leaves the window by an event of another partition."""
    monkeypatch.setattr(reader, "MOST_CHANGES", most_changes)
    rig.sync()
    rig.log.columns = rig.log.columns[1:]
    refusing = replace(rig.log, key="").commit(({}, {"Amount": "1.00", "Note": None}))
    rig.client.run("INSERT dbo.Lines VALUES (1, N'a', NULL)")
    rig.capture.write(0, [b"nothing"])
    rig.capture.write(1, [*refusing, *lines_log(rig).commit(({}, {"Id": "1", "V": "a", "W": None}))])
    rig.sync()
    assert rig.ledger.list_stopped("streamed")[0].verdict is Verdict.REFUSED
    assert rig.query('SELECT "Id" FROM shop.lines') == [(1,)]
    assert [body for *_, body in rig.quarantined()] == [b"nothing"]
