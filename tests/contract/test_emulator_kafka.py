"""The emulator streams to a real Kafka broker over TLS with a login, and Floodmark reads from there.

Large transactions, large rows, more partitions, and deliveries that the broker refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.java_packages import MissingPackagesError
from emulator_process import Emulator, running_emulator
from floodmark.core.settings import OnGap
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.event_stream.transport import KafkaTopic
from kafka_broker import PASSWORD, USER, KafkaBroker, kafka_broker
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.event_stream.destination import Hub, HubMessage
from sqlserver_emulator.event_stream.kafka_hubs import KafkaHubs
from sqlserver_emulator.server.certificate import provide_certificate
from stream_rig import StreamRig, stream_rig

TOPIC = "orders"
PARTITIONS = 3
CREDENTIAL = "ALTER DATABASE SCOPED CREDENTIAL hub WITH IDENTITY = '{}', SECRET = '{}'"
DELIVER = "EXEC emulator.run_event_stream"
ERRORS = "SELECT error_number, error_message FROM sys.dm_change_feed_errors"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    try:
        with kafka_broker(tmp_path_factory.mktemp("kafka") / "broker") as started:
            yield started
    except MissingPackagesError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def streaming(open_dir: Path, broker: KafkaBroker) -> Iterator[Emulator]:
    options = ("--event-hubs-broker", broker.secure_servers, "--event-hubs-ca-file", str(broker.ca_file))
    with running_emulator(open_dir / "to-kafka", *options) as emulator:
        yield emulator


@pytest.fixture
def rig(streaming: Emulator, database: WarehouseConnection, tmp_path: Path, broker: KafkaBroker) -> Iterator[StreamRig]:
    broker.create_topic(TOPIC, PARTITIONS)
    with stream_rig(streaming, database, tmp_path, on_gap=OnGap.FAIL) as made:
        login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": USER}
        made.topic = KafkaTopic(broker.secure_servers, TOPIC, login, PASSWORD, str(broker.ca_file))
        for statement in (
            "ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = ON",
            "CREATE MASTER KEY",
            f"CREATE DATABASE SCOPED CREDENTIAL hub WITH IDENTITY = '{USER}', SECRET = '{PASSWORD}'",
            "EXEC sys.sp_enable_change_event_stream",
            "EXEC sys.sp_create_change_event_stream_group N'g', N'AzureEventHubsApacheKafka',"
            f" N'floods.servicebus.windows.net/{TOPIC}', N'hub', @max_message_size_kb = 128",
            "EXEC sys.sp_add_object_to_change_event_stream_group N'g', N'dbo.Orders'",
        ):
            made.client.run(statement)
        yield made
    broker.delete_topic(TOPIC)


def run(rig: StreamRig, *batches: str) -> None:
    for batch in batches:
        rig.client.run(batch)


def sizes(rig: StreamRig) -> list[int]:
    """Return how many messages each partition has."""
    return [ends.high for _, ends in sorted(rig.connection.open_stream().read_ends().items())]


def assert_equal(rig: StreamRig) -> None:
    assert rig.differing() == []
    assert rig.quarantined() == []


def test_transaction_of_50_000_changes_arrives(rig: StreamRig) -> None:
    rig.sync()
    run(rig, "INSERT dbo.Orders SELECT value, value / 100.0, CONCAT(N'größe ', value) FROM GENERATE_SERIES(1, 50000)")
    run(rig, DELIVER)
    assert sum(sizes(rig)) == 50_000
    rig.sync()
    assert rig.query('SELECT count(*), sum("Id") FROM shop.orders') == [(50_000, 50_000 * 50_001 // 2)]
    assert_equal(rig)


def test_rows_of_a_megabyte_arrive_in_many_messages(rig: StreamRig) -> None:
    rig.sync()
    run(
        rig,
        """INSERT dbo.Orders SELECT value, value, REPLICATE(CAST(N'"é' AS nvarchar(max)), 250000 + value)"""
        " FROM GENERATE_SERIES(1, 6)",
    )
    run(rig, "UPDATE dbo.Orders SET Note = CONCAT(N'x', Note) WHERE Id < 3", "DELETE dbo.Orders WHERE Id = 5")
    run(rig, DELIVER)
    assert min(sizes(rig)) > 30
    rig.sync()
    lengths = 'SELECT count(*), min(length("Note")), max(length("Note")) FROM shop.orders WHERE NOT __deleted'
    assert rig.query(lengths) == [(5, 500_003, 500_012)]
    assert_equal(rig)


def test_new_partitions_are_written_and_read(rig: StreamRig, broker: KafkaBroker) -> None:
    run(rig, "INSERT dbo.Orders SELECT value, 1, N'first' FROM GENERATE_SERIES(1, 12)", DELIVER)
    rig.sync()
    broker.add_partitions(TOPIC, PARTITIONS + 2)
    run(rig, "UPDATE dbo.Orders SET Note = N'second'", "DELETE dbo.Orders WHERE Id % 3 = 0", DELIVER)
    assert len(sizes(rig)) == PARTITIONS + 2
    assert min(sizes(rig)) > 0
    rig.sync()
    assert_equal(rig)


def test_refused_deliveries_hold_the_log_and_name_no_secret(rig: StreamRig, broker: KafkaBroker) -> None:
    rig.sync()
    run(rig, CREDENTIAL.format(USER, "another-Secret"), "INSERT dbo.Orders VALUES (1, 1, N'held')")
    assert rig.client.error(DELIVER)[0] == 23681
    assert rig.client.rows("SELECT log_reuse_wait_desc FROM sys.databases WHERE name = DB_NAME()") == [("REPLICATION",)]
    broker.delete_topic(TOPIC)
    run(rig, CREDENTIAL.format(USER, PASSWORD))
    assert rig.client.error(DELIVER)[0] == 23680
    errors = rig.client.rows(ERRORS)
    assert {23680, 23681} <= {number for number, _ in errors}
    assert not any(secret in str(errors) for secret in ("another-Secret", PASSWORD))
    broker.create_topic(TOPIC, PARTITIONS)
    run(rig, DELIVER)
    rig.sync()
    assert rig.query('SELECT "Id", "Note" FROM shop.orders') == [(1, "held")]


def test_certificate_of_another_authority_is_not_trusted(broker: KafkaBroker, tmp_path: Path) -> None:
    hubs = KafkaHubs(broker.secure_servers, provide_certificate(tmp_path, "127.0.0.1").ca_file)
    with pytest.raises(SqlServerError, match="certificate verify failed") as caught:
        hubs.send(Hub(f"floods/{TOPIC}", USER, PASSWORD), [HubMessage(None, b"body")])
    assert caught.value.number == 23694
    assert PASSWORD not in str(caught.value)
