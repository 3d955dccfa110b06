"""The heartbeat of a stream: its beats arrive through the stream, and their absence is an alert."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from emulated_stream import EmulatedStream, emulated_stream
from emulator_process import Emulator, running_emulator
from floodmark.core.alerts import HEARTBEAT_MISSING
from floodmark.core.capture import HeartbeatSettings
from floodmark.core.errors import ConfigError, FloodmarkError
from floodmark.core.schema import TableName
from floodmark.core.settings import TableSettings
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.event_stream.doctor import StreamBeats, grant_beats, keep_heartbeat, make_beats
from open_alerts import OpenAlerts
from stream_rig import PIPELINE

BEAT = TableName("dbo", "Beat")
AT_ONCE = HeartbeatSettings(BEAT, 0.0)
IN_AN_HOUR = HeartbeatSettings(BEAT, 3600.0)


@dataclass
class Heart:
    """A pipeline whose second table is the heartbeat's."""

    stream: EmulatedStream
    alerts: OpenAlerts = field(default_factory=OpenAlerts)

    @property
    def beats(self) -> StreamBeats:
        return StreamBeats(self.stream.rig.at)

    @property
    def number(self) -> int:
        return self.beats.read_beat(BEAT).number

    def end_run(self, settings: HeartbeatSettings = AT_ONCE) -> None:
        """Run the pipeline, and keep the heartbeat as the end of a run does."""
        self.stream.rig.sync()
        keep_heartbeat(PIPELINE, settings, beats=self.beats, ledger=self.stream.rig.ledger, alerts=self.alerts)


@pytest.fixture(scope="module")
def hubs(open_dir: Path) -> Path:
    return open_dir / "hubs"


@pytest.fixture(scope="module")
def streaming(open_dir: Path, hubs: Path) -> Iterator[Emulator]:
    with running_emulator(open_dir / "beating", "--event-hubs-folder", str(hubs)) as running:
        yield running


@pytest.fixture
def heart(streaming: Emulator, hubs: Path, database: WarehouseConnection, tmp_path: Path) -> Iterator[Heart]:
    with emulated_stream(streaming, hubs, database, tmp_path) as stream:
        rig = stream.rig
        rig.settings = dataclasses.replace(
            rig.settings, tables=(*rig.settings.tables, TableSettings(BEAT, TableName("shop", "beat")))
        )
        yield Heart(stream)


def make(heart: Heart) -> None:
    """Create the heartbeat table by the statements of the hints, and stream it."""
    for statement in make_beats(BEAT):
        heart.stream.rig.client.run(statement)
    heart.stream.begin()
    heart.stream.rig.client.run("EXEC sys.sp_add_object_to_event_stream_group N'g', N'dbo.Beat'")


def test_beats_arrive_through_the_stream_and_their_absence_is_an_alert(heart: Heart) -> None:
    make(heart)
    run = heart.stream.rig.client.run
    heart.end_run()
    # The load of the table counts as the arrival of the row that it has.
    assert (heart.number, heart.alerts.kinds) == (1, [])
    heart.stream.deliver()
    run("EXEC emulator.fail_event_stream N'unreachable', @times = 0")
    heart.end_run()
    assert (heart.number, heart.alerts.kinds) == (2, [])
    assert heart.stream.rig.query("SELECT beat FROM shop.beat") == [(1,)]
    # The server delivers nothing: the run has nothing to read, and does not fail.
    heart.end_run()
    assert (heart.number, heart.alerts.kinds) == (3, [HEARTBEAT_MISSING])
    [alert] = heart.alerts.open.values()
    assert "Beat 2, written" in alert.what
    heart.end_run()
    assert heart.alerts.kinds == [HEARTBEAT_MISSING]
    run("EXEC emulator.clear_faults")
    heart.stream.deliver()
    heart.end_run(IN_AN_HOUR)
    assert heart.alerts.kinds == []
    assert heart.stream.rig.differing() == []


def test_beat_within_the_limit_is_waited_for_and_not_repeated(heart: Heart) -> None:
    make(heart)
    heart.end_run(IN_AN_HOUR)
    heart.stream.deliver()
    heart.end_run(IN_AN_HOUR)
    # All has arrived, and the next beat is due in twenty minutes.
    assert (heart.number, heart.alerts.kinds) == (0, [])
    heart.beats.write_beat(BEAT)
    heart.end_run(IN_AN_HOUR)
    assert (heart.number, heart.alerts.kinds) == (1, [])


def test_table_that_is_left_out_has_another_alert(heart: Heart) -> None:
    make(heart)
    heart.end_run()
    heart.stream.rig.client.run(
        "EXEC sys.sp_remove_object_from_event_stream_group N'g', N'dbo.Beat'; DROP TABLE dbo.Beat"
    )
    for statement in make_beats(BEAT):
        heart.stream.rig.client.run(statement)
    heart.stream.deliver("INSERT dbo.Orders VALUES (1, 1, N'one')")
    heart.end_run()
    assert [each.table for each in heart.stream.rig.ledger.list_stopped(PIPELINE)] == [BEAT]
    assert heart.alerts.kinds == []


def test_missing_table_and_row_are_named_with_their_statements(heart: Heart, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match=r"dbo.Beat: the heartbeat table does not exist") as missing:
        heart.beats.read_beat(BEAT)
    assert missing.value.hint.startswith("CREATE TABLE [dbo].[Beat]")
    with caplog.at_level(logging.WARNING):
        keep_heartbeat(PIPELINE, AT_ONCE, beats=heart.beats, ledger=heart.stream.rig.ledger, alerts=heart.alerts)
    assert "Pipeline streamed has no heartbeat: dbo.Beat: the heartbeat table does not exist" in caplog.text
    heart.stream.rig.client.run(missing.value.hint.split("; INSERT", maxsplit=1)[0])
    with pytest.raises(ConfigError, match="no row with id 1") as empty:
        heart.beats.read_beat(BEAT)
    heart.stream.rig.client.run(empty.value.hint)
    assert heart.number == 0


def test_login_needs_one_right_to_write_beats(heart: Heart) -> None:
    client, at = heart.stream.rig.client, heart.stream.rig.at
    for statement in make_beats(BEAT):
        client.run(statement)
    client.run("IF SUSER_ID(N'beater') IS NULL CREATE LOGIN beater WITH PASSWORD = N'a-Password-1'")
    client.run("CREATE USER beater FOR LOGIN beater; GRANT SELECT ON dbo.Beat TO beater")
    beats = StreamBeats(dataclasses.replace(at, user="beater", password="a-Password-1"))
    assert not beats.read_beat(BEAT).may_write
    with pytest.raises(FloodmarkError, match="UPDATE"):
        beats.write_beat(BEAT)
    client.run(grant_beats(BEAT, "beater"))
    assert beats.read_beat(BEAT).may_write
    beats.write_beat(BEAT)
    assert beats.read_beat(BEAT).number == 1
