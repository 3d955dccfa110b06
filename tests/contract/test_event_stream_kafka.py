"""Changes come through Apache Kafka, which is killed, loses messages, gets partitions, and is created again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.java_packages import MissingPackagesError
from emulator_process import Emulator
from floodmark.core.errors import ConfigError, SourceUnavailableError
from floodmark.core.settings import OnGap
from floodmark.core.snapshot import Verdict
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.event_stream import kafka
from floodmark.sources.event_stream.doctor import RemovalRules, StreamRetention, UnreadMessages
from floodmark.sources.event_stream.kafka import KafkaStream
from floodmark.sources.event_stream.source import read_stream_facts
from floodmark.sources.event_stream.transport import KafkaTopic, StreamGapError
from kafka_broker import KafkaBroker, kafka_broker
from sqlserver_emulator.event_stream.encoding import MessageForm
from stream_rig import ORDERS, PIPELINE, StreamRig, stream_rig

TOPIC = "changes"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    try:
        with kafka_broker(tmp_path_factory.mktemp("kafka") / "broker") as started:
            yield started
    except MissingPackagesError as error:
        pytest.skip(str(error))


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection, tmp_path: Path, broker: KafkaBroker) -> Iterator[StreamRig]:
    broker.create_topic(TOPIC, 3)
    with stream_rig(emulator, database, tmp_path, on_gap=OnGap.REPAIR) as made:
        made.topic = KafkaTopic(broker.servers, TOPIC)
        yield made
    broker.delete_topic(TOPIC)


def send(broker: KafkaBroker, random_: random.Random, bodies: list[bytes], partitions: int = 3) -> None:
    """Send messages to any partition, some of them twice: the server delivers at least once."""
    repeated = [body for body in bodies for _ in range(random_.choice((1, 1, 1, 2)))]
    broker.send(TOPIC, ((random_.randrange(partitions), body) for body in repeated))


def test_rows_are_equal_after_kills_repeats_and_new_partitions(
    rig: StreamRig, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_ = random.Random(5)
    monkeypatch.setattr(kafka, "_TIMEOUT_SECONDS", 5.0)
    rig.log.form = MessageForm(limit_bytes=4_000)
    send(broker, random_, rig.change(*((key, f"{key}.00", "first") for key in range(1, 20))))
    rig.sync()
    assert rig.differing() == []
    for round_ in range(3):
        changes: list[tuple[int, str | None, str | None] | int] = [
            (random_.randrange(1, 30), f"{round_}.{number:02}", random_.choice((None, "kurz", "läng " * 1500)))
            for number in range(8)
        ]
        bodies = [body for change in changes for body in rig.change(change)]
        send(broker, random_, bodies, partitions=3 if round_ < 2 else 5)
        opened = rig.open()
        if round_ == 0:
            broker.kill()
            with pytest.raises(SourceUnavailableError):
                rig.load(opened)
            broker.start()
        if round_ == 1:
            broker.add_partitions(TOPIC, 5)
        rig.load(opened)
        rig.publish(opened)
    rig.sync()
    assert rig.differing() == []
    assert rig.quarantined() == []


def test_messages_that_are_gone_and_a_new_topic_lead_to_a_load_of_the_table(
    rig: StreamRig, broker: KafkaBroker
) -> None:
    random_ = random.Random(6)
    send(broker, random_, rig.change((1, "1.00", "one"), (2, "2.00", "two")))
    rig.sync()
    broker.send(TOPIC, ((0, body) for body in rig.change((1, "5.00", "lost"), 2)))
    high = rig.connection.open_stream().read_ends()[0].high
    broker.delete_records(TOPIC, 0, high)
    assert rig.verdicts() == {"Orders": Verdict.EXPIRED}
    rig.reload()
    assert rig.differing() == []
    broker.delete_topic(TOPIC)
    broker.create_topic(TOPIC, 3)
    send(broker, random_, rig.change((3, "3.00", "three")))
    assert rig.verdicts() == {"Orders": Verdict.AHEAD_OF_SOURCE}
    rig.reload()
    send(broker, random_, rig.change((1, "7.00", "after")))
    rig.sync()
    assert rig.differing() == []


def test_doctor_reads_how_long_messages_are_kept_and_what_is_unread(rig: StreamRig, broker: KafkaBroker) -> None:
    def read() -> StreamRetention:
        found = read_stream_facts(rig.connection, (), rig.ledger.list_marks(PIPELINE)).retention
        assert found is not None
        return found

    def age(at: datetime | None) -> float:
        assert at is not None
        return (datetime.now(UTC).replace(tzinfo=None) - at).total_seconds()

    broker.send(TOPIC, ((0, body) for body in rig.change((1, "1.00", "one"), (2, "2.00", "two"))))
    rig.sync()
    found = read()
    assert found.rules == RemovalRules(timedelta(days=7))
    assert [(each.partition, each.offset) for each in found.oldest] == [(0, 0)]
    assert -5 < age(found.oldest[0].at) < 300
    assert found.unread == {ORDERS: UnreadMessages()}
    broker.send(TOPIC, ((each % 2, body) for each in range(2) for body in rig.change((1, f"{each}.00", "unread"))))
    broker.configure_topic(TOPIC, retention_ms="3600000", retention_bytes="1000000", cleanup_policy="compact,delete")
    found = read()
    assert found.rules == RemovalRules(timedelta(hours=1), 1_000_000, is_compacted=True)
    unread = found.unread[ORDERS]
    assert unread.gone == ""
    assert -5 < age(unread.oldest_at) < 300
    ends = rig.connection.open_stream().read_ends()
    broker.delete_records(TOPIC, 0, ends[0].high)
    broker.configure_topic(TOPIC, retention_ms="-1", retention_bytes="-1", cleanup_policy="delete")
    found = read()
    assert found.rules == RemovalRules(None)
    assert found.unread[ORDERS].gone == f"messages 2 to {ends[0].high - 1} of partition 0"
    assert [(each.partition, each.offset) for each in found.oldest] == [(1, 0)]


def test_topic_that_is_written_in_transactions_is_refused_by_name(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a transaction has an offset, and no message. It is not one that is gone, and not one to come."""
    monkeypatch.setattr(kafka, "_TIMEOUT_SECONDS", 5.0)
    broker.create_topic("holes", 2)
    broker.send_in_transaction("holes", 0, [b"a", b"b"])
    stream = KafkaStream(KafkaTopic(broker.servers, "holes"))
    assert stream.read_ends()[0].high == 3
    assert [each.body for found in stream.read(0, 0, 2) for each in found] == [b"a", b"b"]
    with pytest.raises(ConfigError, match=r"partition 0 has no message 2, but later offsets: .* transactions"):
        list(stream.read(0, 0, 3))
    broker.send_in_transaction("holes", 0, [b"c"])
    with pytest.raises(ConfigError, match="partition 0 has no message 2, but later offsets"):
        list(stream.read(0, 1, 4))
    broker.send("holes", [(0, b"d")])
    broker.delete_records("holes", 0, 3)
    with pytest.raises(StreamGapError, match="message 1 of partition 0 is no longer in the stream"):
        list(stream.read(0, 1, 4))
    assert list(stream.read(1, 0, 0)) == []
    broker.delete_topic("holes")
