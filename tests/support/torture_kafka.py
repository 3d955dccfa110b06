"""An emulator that streams to a Kafka broker over TLS with a login, and a broker that is killed at random moments."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pymssql
import pytest

from benchmarks.java_packages import MissingPackagesError
from cdc_database import wait_until
from kafka_broker import PASSWORD, USER, kafka_broker
from torture_stream import HUB, STREAM, StreamTortureRig, enable_stream

_PARTITIONS = 3
_PAUSE_SECONDS = (5.0, 20.0)


def _enable(connection: pymssql.Connection) -> None:
    enable_stream(connection)
    cursor = connection.cursor()
    cursor.execute("CREATE MASTER KEY")
    cursor.execute(f"ALTER DATABASE SCOPED CREDENTIAL hub WITH IDENTITY = '{USER}', SECRET = '{PASSWORD}'")


class KafkaTortureRig(StreamTortureRig):
    """Deliveries also fail at random, as with the folder. A second thread kills the broker and starts it again."""

    def __init__(self, folder: Path, seed: int, *, with_spark: bool) -> None:
        self._chance_of_broker = random.Random(seed + 1)
        self._calm = threading.Event()
        self._broker_kills = 0
        with ExitStack() as begun:
            try:
                self._broker = begun.enter_context(kafka_broker(folder / "kafka"))
            except MissingPackagesError as error:
                pytest.skip(str(error))
            self._broker.create_topic(HUB, _PARTITIONS)
            # A broker that was killed reads its newest segment again before it serves.
            self._broker.configure_topic(HUB, segment_bytes=str(16 << 20))
            super().__init__(folder, seed, with_spark=with_spark, recording=replace(STREAM, enable=_enable))
            self._brokers = begun.pop_all()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._killer = threading.Thread(target=self._kill_broker)
        with self._brokers, super().running():
            self._killer.start()
            try:
                yield
            finally:
                self._calm.set()
                self._killer.join()

    def end_workload(self) -> None:
        wait_until(lambda: self._broker_kills > 0)
        self._calm.set()
        self._killer.join()
        print(f"{self._broker_kills} kills of the broker")
        super().end_workload()

    def _kill_broker(self) -> None:
        while not self._calm.wait(self._chance_of_broker.uniform(*_PAUSE_SECONDS)):
            self._broker.kill()
            self._broker_kills += 1
            self._broker.start()

    def _options(self) -> tuple[str, ...]:
        return (
            "--event-hubs-broker",
            self._broker.secure_servers,
            "--event-hubs-ca-file",
            str(self._broker.ca_file),
        )

    def _wait_for_hub(self) -> None:
        """The topic is there."""

    def _hub_connection(self) -> str:
        extra = {
            "bootstrap.servers": self._broker.secure_servers,
            "topic": HUB,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self._broker.ca_file),
        }
        return json.dumps({"conn_type": "kafka", "extra": extra})
