"""The contract of ``EventStream``, on a capture folder and on a topic of librdkafka's own mock broker."""

from __future__ import annotations

import itertools
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.capture_files import CaptureWriter
from floodmark.core.errors import ConfigError, SourceUnavailableError
from floodmark.sources.event_stream import kafka
from floodmark.sources.event_stream.kafka import KafkaStream
from floodmark.sources.event_stream.transport import (
    CaptureFolder,
    EventStream,
    KafkaTopic,
    PartitionEnds,
    StreamGapError,
)
from mock_broker import mock_broker

_topics = itertools.count(1)


class TransportRig(ABC):
    """A topic that a test writes to."""

    @property
    @abstractmethod
    def stream(self) -> EventStream: ...

    @property
    @abstractmethod
    def missing(self) -> EventStream:
        """A topic that does not exist."""

    @abstractmethod
    def write(self, partition: int, bodies: Sequence[bytes | None]) -> None: ...

    def read(self, partition: int, begin: int, end: int) -> list[tuple[int, bytes | None]]:
        return [(each.offset, each.body) for found in self.stream.read(partition, begin, end) for each in found]


@dataclass
class FolderRig(TransportRig):
    writer: CaptureWriter

    @property
    def stream(self) -> EventStream:
        return CaptureFolder(str(self.writer.folder))

    @property
    def missing(self) -> EventStream:
        return CaptureFolder(str(self.writer.folder.parent / "other"))

    def write(self, partition: int, bodies: Sequence[bytes | None]) -> None:
        self.writer.write(partition, bodies)


@dataclass
class KafkaRig(TransportRig):
    producer: Any
    servers: str
    topic: str

    @property
    def stream(self) -> EventStream:
        return KafkaStream(KafkaTopic(self.servers, self.topic))

    @property
    def missing(self) -> EventStream:
        return KafkaStream(KafkaTopic(self.servers, "no-such-topic"))

    def write(self, partition: int, bodies: Sequence[bytes | None]) -> None:
        for body in bodies:
            self.producer.produce(self.topic, value=body, partition=partition)
        assert self.producer.flush(20) == 0


@pytest.fixture(params=["folder", "kafka"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TransportRig]:
    if request.param == "folder":
        (tmp_path / "hub").mkdir()
        yield FolderRig(CaptureWriter(tmp_path / "hub"))
        return
    with mock_broker() as (producer, servers):
        yield KafkaRig(producer, servers, f"topic-{next(_topics)}")


def test_messages_come_back_with_their_offsets_and_bytes(rig: TransportRig) -> None:
    bodies = [b"", b"\x00\xff", "é🌊".encode(), b"x" * 100_000, None]
    rig.write(1, bodies)
    rig.write(1, [b"later"])
    rig.write(0, [b"other"])
    assert rig.read(1, 0, 6) == [*enumerate(bodies), (5, b"later")]
    assert rig.read(1, 2, 4) == [(2, bodies[2]), (3, bodies[3])]
    assert rig.read(0, 0, 1) == [(0, b"other")]
    assert rig.read(0, 1, 1) == []


def test_ends_are_those_of_each_partition(rig: TransportRig) -> None:
    rig.write(0, [b"a"] * 3)
    rig.write(2, [b"b"] * 5)
    ends = rig.stream.read_ends()
    assert ends[0] == PartitionEnds(0, 3)
    assert ends[2] == PartitionEnds(0, 5)
    assert all(each == PartitionEnds(0, 0) for number, each in ends.items() if number not in (0, 2))


def test_many_messages_stream_in_order(rig: TransportRig) -> None:
    for first in range(0, 20_000, 5_000):
        rig.write(0, [str(number).encode() for number in range(first, first + 5_000)])
    found = rig.read(0, 10, 19_990)
    assert found == [(number, str(number).encode()) for number in range(10, 19_990)]


def test_message_that_is_not_there_is_a_gap(rig: TransportRig) -> None:
    rig.write(0, [b"a", b"b"])
    with pytest.raises(StreamGapError):
        rig.read(0, 0, 5)
    with pytest.raises(StreamGapError):
        rig.read(0, 7, 9)


def test_unknown_topic_is_an_error_of_the_configuration(rig: TransportRig) -> None:
    with pytest.raises(ConfigError):
        rig.missing.read_ends()


def test_unknown_partition_is_a_gap(rig: TransportRig) -> None:
    rig.write(0, [b"a"])
    with pytest.raises(StreamGapError):
        rig.read(77, 0, 1)


def test_files_of_a_folder_have_no_rules_of_removal(tmp_path: Path) -> None:
    CaptureWriter(tmp_path).write(0, [b"a"])
    assert CaptureFolder(str(tmp_path)).read_retention([(0, 0)]) is None


def test_times_of_messages_are_read_from_a_broker_that_does_not_show_its_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "_SETTINGS_SECONDS", 1.0)  # the mock broker does not have the request
    began = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=5)
    with mock_broker() as (producer, servers):
        rig = KafkaRig(producer, servers, "kept")
        rig.write(0, [b"a" * 1000] * 3_000)
        rig.write(2, [b"b", b"c"])
        producer.produce("kept", value=b"d", partition=2, timestamp=86_400_000)
        assert producer.flush(20) == 0
        found = KafkaStream(KafkaTopic(servers, "kept")).read_retention([(0, 0), (0, 2_999), (2, 1), (2, 2), (2, 9)])
    assert (found.rules, found.refusal) == (None, "_TIMED_OUT")
    assert found.times.keys() == {(0, 0), (0, 2_999), (2, 1), (2, 2)}
    assert found.times[2, 2] == datetime(1970, 1, 2)
    assert all(began < at for place, at in found.times.items() if place != (2, 2))


def test_broker_that_is_away_is_an_error_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_TIMEOUT_SECONDS", 2.0)
    stream = KafkaStream(KafkaTopic("127.0.0.1:1", "orders"))
    began = time.monotonic()
    with pytest.raises(SourceUnavailableError, match="orders at 127"):
        stream.read_ends()
    with pytest.raises(SourceUnavailableError):
        list(stream.read(0, 0, 1))
    assert time.monotonic() - began < 20


def test_setting_that_librdkafka_does_not_take_is_an_error_of_the_configuration() -> None:
    stream = KafkaStream(KafkaTopic("127.0.0.1:1", "orders", {"security.protocol": "NONSENSE"}, "secret"))
    with pytest.raises(ConfigError) as raised:
        stream.read_ends()
    assert "secret" not in str(raised.value)
    assert "secret" not in repr(stream)


def test_removed_files_move_the_low_end(tmp_path: Path) -> None:
    writer = CaptureWriter(tmp_path)
    first = writer.write(0, [b"a", b"b"])
    writer.write(0, [])
    writer.write(0, [b"c"])
    first.unlink()
    stream = CaptureFolder(str(tmp_path))
    assert stream.read_ends() == {0: PartitionEnds(2, 3)}
    with pytest.raises(StreamGapError, match="no message 1, but message 2"):
        list(stream.read(0, 1, 3))


def test_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = CaptureWriter(tmp_path).write(0, [b"a" * 500])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Exception, match=str(path)):
        CaptureFolder(str(tmp_path)).read_ends()
    shutil.rmtree(tmp_path / "0")
    assert CaptureFolder(str(tmp_path)).read_ends() == {}
