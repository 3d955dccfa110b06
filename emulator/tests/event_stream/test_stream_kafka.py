"""Changes of streamed tables at a Kafka broker, which is the mock of librdkafka. Topics of it have four partitions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sqlserver_emulator.assembly.factory import open_engine
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.event_stream import kafka_hubs
from sqlserver_emulator.event_stream.broker import BrokerDestination, MissingExtraError
from sqlserver_emulator.release import SQL_SERVER_2025
from stream_source import PASSWORD, SETUP, Source

PARTITIONS = 4
SECRET = "a-Key+of/a=Policy"
HOLDUP = "SELECT log_reuse_wait_desc FROM sys.databases WHERE name = 'Shop'"
ERRORS = "SELECT error_number, error_message FROM sys.dm_change_feed_errors ORDER BY session_id"


@dataclass
class MockBroker:
    """A broker that lives as long as its client."""

    client: Producer
    servers: str

    def create_topic(self, name: str) -> None:
        """Ask for a topic, which this broker then has."""
        self.client.list_topics(name, timeout=10)

    def messages(self, topic: str) -> list[tuple[int, bytes | None, dict[str, Any]]]:
        """Return partition, key and body of each message."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "test", "auto.offset.reset": "error"})
        found = []
        for number in range(PARTITIONS):
            place = TopicPartition(topic, number, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=10)
            consumer.assign([place])
            for message in consumer.consume(end, timeout=10) if end else ():
                found.append((number, message.key(), json.loads(message.value())))
        consumer.close()
        return found


@pytest.fixture(scope="module")
def broker() -> MockBroker:
    client = Producer({"test.mock.num.brokers": 1})
    (found,) = client.list_topics(timeout=10).brokers.values()
    return MockBroker(client, f"{found.host}:{found.port}")


@contextmanager
def source_of(folder: Path, destination: BrokerDestination) -> Iterator[Source]:
    """A server that streams to a broker, and a database with a table and a stream."""
    with open_engine(folder, ["Shop"], PASSWORD, destination=destination, release=SQL_SERVER_2025) as engine:
        session = engine.open_session(login="sa", password=PASSWORD, database="Shop", application="test")
        source = Source(engine, session, folder)
        source.run(*SETUP, "CREATE TABLE dbo.a (id int PRIMARY KEY, v varchar(max))")
        yield source
        session.close()


@pytest.fixture(scope="module")
def shared(open_dir: Path, broker: MockBroker) -> Iterator[Source]:
    with source_of(open_dir / "kafka", BrokerDestination(broker.servers)) as source:
        yield source


@pytest.fixture
def source(shared: Source) -> Iterator[Source]:
    yield shared
    shared.run("EXEC sys.sp_disable_event_stream", "EXEC sys.sp_enable_event_stream", "TRUNCATE TABLE dbo.a")


def number_of_delivery(source: Source) -> int:
    """Deliver, and return the number of the error."""
    with pytest.raises(SqlServerError) as caught:
        source.run("EXEC emulator.run_event_stream")
    return caught.value.number


@pytest.mark.parametrize(("scheme", "keys"), [("Table", 1), ("StreamGroup", 1), ("Column", 20)])
def test_partition_key_is_the_key_of_the_message(source: Source, broker: MockBroker, scheme: str, keys: int) -> None:
    hub = f"by-{scheme}"
    broker.create_topic(hub)
    column = ", @partition_key_column_name = N'v'" if scheme == "Column" else ""
    source.group(hub, f"@partition_key_scheme = N'{scheme}'{column}")
    source.add(hub, "dbo.a")
    source.run("INSERT dbo.a SELECT value, CONCAT('v', value) FROM GENERATE_SERIES(1, 20)", "UPDATE dbo.a SET id += 50")
    source.run("EXEC emulator.run_event_stream")
    found = broker.messages(hub)
    assert len(found) == 60
    assert len({key for _, key, _ in found}) == keys
    assert None not in {key for _, key, _ in found}
    partition_of = {key: partition for partition, key, _ in found}
    for partition, key, _ in found:
        assert partition == partition_of[key]
    places = [body["logicalid"].split(":")[1:] for partition, key, body in found if key == found[0][1]]
    assert places == sorted(places)


def test_messages_without_a_key_are_dealt_in_turn(source: Source, broker: MockBroker) -> None:
    broker.create_topic("dealt")
    source.group("dealt")
    source.add("dealt", "dbo.a")
    source.run("INSERT dbo.a SELECT value, 'v' FROM GENERATE_SERIES(1, 40)", "EXEC emulator.run_event_stream")
    found = broker.messages("dealt")
    assert {key for _, key, _ in found} == {None}
    assert [sum(partition == each for each, _, _ in found) for partition in range(PARTITIONS)] == [10] * 4


def test_transaction_of_many_parts_arrives_whole(
    source: Source, broker: MockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_hubs, "_PART_BYTES", 20_000)
    broker.create_topic("parts")
    source.group("parts", "@max_message_size_kb = 128")
    source.add("parts", "dbo.a")
    source.run("INSERT dbo.a SELECT value, REPLICATE('v', 60) FROM GENERATE_SERIES(1, 300)")
    source.run("INSERT dbo.a VALUES (301, REPLICATE(CAST('w' AS varchar(max)), 400000))")
    source.run("EXEC emulator.run_event_stream")
    bodies = [body for _, _, body in broker.messages("parts")]
    assert len({body["logicalid"] for body in bodies}) == 301
    assert sum(body["finalsegment"] for body in bodies) == 301
    assert len(bodies) == 304


def test_missing_hub_holds_the_log_until_it_is_there(source: Source, broker: MockBroker) -> None:
    source.group("later")
    source.add("later", "dbo.a")
    source.run("INSERT dbo.a VALUES (1, 'v')")
    assert number_of_delivery(source) == 23680
    assert source.run(HOLDUP) == [("REPLICATION",)]
    assert 23680 in dict(source.run(ERRORS))
    broker.create_topic("later")
    source.run("EXEC emulator.run_event_stream")
    assert [body["operation"] for _, _, body in broker.messages("later")] == ["INS"]
    assert source.run(HOLDUP) == [("NOTHING",)]


def test_delivery_whose_end_is_unknown_comes_twice(source: Source, broker: MockBroker) -> None:
    broker.create_topic("twice")
    source.group("twice")
    source.add("twice", "dbo.a")
    source.run("EXEC emulator.fail_event_stream @fault = 'lost session'", "INSERT dbo.a VALUES (1, 'v')")
    # The stream delivers by itself too, so that this may be its first delivery or its second one.
    source.run("BEGIN TRY EXEC emulator.run_event_stream END TRY BEGIN CATCH END CATCH")
    source.run("EXEC emulator.run_event_stream")
    assert 23692 in dict(source.run(ERRORS))
    bodies = [body for _, _, body in broker.messages("twice")]
    assert len(bodies) == len({body["id"] for body in bodies}) == 2
    assert len({body["logicalid"] for body in bodies}) == 1


def test_groups_of_amqp_are_refused_by_name(source: Source) -> None:
    create = (
        "EXEC sys.{} N'g', N'{}', N'floods.servicebus.windows.net/hub', N'c'; EXEC sys.sp_drop_event_stream_group N'g'"
    )
    for name in ("sp_create_event_stream_group", "sp_create_change_event_stream_group"):
        with pytest.raises(SqlServerError, match="AzureEventHubsAmqp with --event-hubs-broker"):
            source.run(create.format(name, "AzureEventHubsAmqp"))
        for taken in ("AzureEventHubsApacheKafka", "AzureEventHubs"):
            source.run(create.format(name, taken))


def test_broker_that_is_away_is_23679(open_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_hubs, "_TIMEOUT_SECONDS", 1.0)
    with source_of(open_dir / "away", BrokerDestination("127.0.0.1:1")) as source:
        source.group("hub")
        source.add("hub", "dbo.a")
        source.run("INSERT dbo.a VALUES (1, 'v')")
        assert number_of_delivery(source) == 23679
        assert source.run(HOLDUP) == [("REPLICATION",)]


def test_broker_with_a_login_needs_a_secret_which_nothing_shows(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kafka_hubs, "_TIMEOUT_SECONDS", 1.0)
    folder = open_dir / "guarded"
    authority = open_dir / "guarded-ca.pem"
    authority.write_text("")
    with source_of(folder, BrokerDestination("127.0.0.1:1", authority)) as source:
        source.group("hub")
        source.add("hub", "dbo.a")
        source.run("INSERT dbo.a VALUES (1, 'v')")
        assert number_of_delivery(source) == 23613
        source.run(
            "CREATE MASTER KEY",
            f"ALTER DATABASE SCOPED CREDENTIAL c WITH IDENTITY = 'policy', SECRET = '{SECRET}'",
        )
        assert number_of_delivery(source) == 23677
        assert SECRET not in str(source.run("SELECT * FROM sys.database_scoped_credentials"))
        assert SECRET not in str(source.run(ERRORS))
        with pytest.raises(SqlServerError) as caught:
            source.run("SELECT secret FROM emulator.credentials")
        assert caught.value.number == 208
        source.run("ALTER DATABASE SCOPED CREDENTIAL c WITH IDENTITY = 'policy'")
        assert number_of_delivery(source) == 23613
    assert SECRET not in "".join(capfd.readouterr())
    for log in folder.glob("**/*.log"):
        assert SECRET not in log.read_text(errors="replace")


def test_broker_without_the_package_names_the_extra(open_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlserver_emulator.event_stream.kafka_hubs", None)
    destination = BrokerDestination("127.0.0.1:1")
    with pytest.raises(MissingExtraError, match=r"Install sqlserver-emulator\[kafka\]"):
        destination.open()
