"""Debezium's engine on the change tables of one database, with its JDBC sink or without a sink."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.drivers import Address
from benchmarks.peers.debezium_jars import Installation

_PROGRAM = Path(__file__).with_name("DebeziumReader.java")
_QUIET_SECONDS = 3
"""Time without an event after the last one that was expected: one that is too many would come within it."""
_MOST_SECONDS = 3_600
_BATCH_ROWS = 8_192
"""The batch of engine and sink: twice as fast to the sink as their defaults of 2,048 and 500."""


@dataclass(frozen=True)
class Reading:
    """The events of one run of the engine."""

    events: int
    """The number of changes, without tombstones and heartbeats."""
    seconds: float
    """The time from the first event to the last, which the sink has written."""
    start_seconds: float
    """The time from the start of Java to the first event."""


@dataclass(frozen=True)
class Debezium:
    """Debezium on one database. Its position is kept in a folder, from one run to the next."""

    installation: Installation
    source: Address
    database: str
    folder: Path

    def read(self, events: int, sink: Mapping[str, str]) -> Reading:
        """Run the engine until so many changes have come: to a sink, or without its settings to be counted.

        Raise RuntimeError where the engine fails, or gives more.
        """
        given = {f"engine.{name}": value for name, value in self._engine_properties().items()}
        given |= {f"sink.{name}": value for name, value in sink.items()}
        given |= {"reader.events": str(events), "reader.quiet.seconds": str(_QUIET_SECONDS)}
        began = time.time()
        found = self._run(as_properties(given))
        if found["events"] != events:
            raise RuntimeError(f"Debezium read {found['events']} changes instead of {events}")
        return Reading(events, found["last"] - found["first"], found["first"] - began)

    def copy_to(self, folder: Path) -> Debezium:
        """Return a second reader that starts at the same position."""
        shutil.copytree(self.folder, folder)
        return Debezium(self.installation, self.source, self.database, folder)

    def _run(self, given: str) -> dict[str, Any]:
        self.folder.mkdir(exist_ok=True)
        command = [
            str(self.installation.java),
            "-cp",
            f"{self.installation.jars}/*",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            str(_PROGRAM),
        ]
        log = self.folder / "reader.log"
        with log.open("w", encoding="utf-8") as errors:
            # On standard input, because there are passwords in it.
            done = subprocess.run(
                command,
                input=given,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=_MOST_SECONDS,
                check=False,
            )
        if done.returncode != 0:
            raise RuntimeError(f"Debezium ended with {done.returncode}:\n{log.read_text(encoding='utf-8')[-4000:]}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def _engine_properties(self) -> dict[str, str]:
        return {
            "name": "peer",
            "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
            "topic.prefix": "peer",
            "database.hostname": self.source.host,
            "database.port": str(self.source.port),
            "database.user": self.source.user,
            "database.password": self.source.password,
            "database.names": self.database,
            "driver.encrypt": "true",
            "driver.trustServerCertificate": "true",
            "include.schema.changes": "false",
            "max.batch.size": str(_BATCH_ROWS),
            "max.queue.size": str(4 * _BATCH_ROWS),
            "tombstones.on.delete": "false",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self.folder / "offsets"),
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(self.folder / "history"),
        }


def as_properties(given: Mapping[str, str]) -> str:
    """Return the text of a Java properties file."""
    return "".join(f"{_escape(name)}={_escape(value)}\n" for name, value in given.items())


def _escape(text: str) -> str:
    return "".join(f"\\{each}" if each in "\\:=#! " else each for each in text)


def jdbc_sink(warehouse: Mapping[str, Any], schema: str) -> dict[str, str]:
    """Return the settings of Debezium's JDBC sink: it makes the tables, and writes by key."""
    return {
        "connection.url": f"jdbc:postgresql://{warehouse['host']}:{warehouse['port']}/{warehouse['database']}"
        "?reWriteBatchedInserts=true",
        "connection.username": str(warehouse["user"]),
        "connection.password": str(warehouse["password"]),
        "batch.size": str(_BATCH_ROWS),
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "quote.identifiers": "true",
        "collection.name.format": f"{schema}.${{source.table}}",
    }
