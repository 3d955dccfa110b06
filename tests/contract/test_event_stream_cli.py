"""The command line on an event stream: runs, verify, doctor, status, repair. Spark is replaced by one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from emulator_process import Emulator
from floodmark.cli.main import app
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.event_stream import kafka
from floodmark.sources.event_stream.doctor import RemovalRules
from mock_broker import mock_broker
from stream_commands import prepare_commands
from stream_rig import StreamRig, stream_rig

CONFIG = """
sources: {shop: {conn_id: shop, kind: event_stream, stream_conn_id: hub}}
warehouse: {conn_id: warehouse}
pipelines:
  orders:
    source: shop
    on_gap: ON_GAP
    tables:
      - {source: dbo.Orders, target: shop.orders}
"""


@pytest.fixture
def rig(
    emulator: Emulator, database: WarehouseConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StreamRig]:
    with stream_rig(emulator, database, tmp_path) as made:
        prepare_commands(made, CONFIG.replace("ON_GAP", "fail"), tmp_path, monkeypatch)
        yield made


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, " ".join(result.output.split())


def open_alerts(rig: StreamRig) -> list[tuple[Any, ...]]:
    with psycopg.connect(rig.warehouse.conninfo()) as session:
        return session.execute("SELECT kind, what FROM floodmark.alerts WHERE ended_at IS NULL").fetchall()


def test_commands_on_a_stream(rig: StreamRig) -> None:
    assert call("config", "check")[0] == 0
    code, text = call("doctor", "orders")
    assert code == 4, text
    assert "there is no partition" in text
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", None)))
    code, text = call("doctor", "orders", "--all")
    assert code == 0, text
    assert "2 partitions, 2 messages" in text
    assert "NOTE: retention: hub the files are kept as long as the owner of the folder keeps them" in text
    code, text = call("doctor", "orders", "--grants", "reader")
    assert code == 0, text
    assert "GRANT SELECT ON [dbo].[Orders] TO [reader]" in text
    code, text = call("run", "orders")
    assert code == 0, text
    assert call("verify", "orders")[0] == 0
    assert open_alerts(rig) == []
    rig.stream(*rig.change((1, "9.00", "new"), 2), b"nonsense")
    assert call("run", "orders")[0] == 0
    ((kind, what),) = open_alerts(rig)
    assert kind == "messages_quarantined"
    assert what.startswith("1 messages of the stream could not be read as changes: ")
    assert "nonsense" not in what
    assert call("run", "orders")[0] == 0
    with psycopg.connect(rig.warehouse.conninfo()) as session:
        session.execute("DELETE FROM floodmark.quarantined_messages")
    assert call("run", "orders")[0] == 0
    assert open_alerts(rig) == []
    assert call("verify", "orders")[0] == 0
    code, text = call("status", "orders")
    assert code == 0, text
    assert "dbo.Orders" in text
    code, text = call("replay", "orders", "--from-lsn", "1", "--to-lsn", "2")
    assert code == 2
    assert "there is nothing to replay" in text


def test_table_whose_events_are_gone_is_repaired_or_loaded_again(rig: StreamRig, tmp_path: Path) -> None:
    rig.partitions = 1
    rig.stream(*rig.change((1, "1.00", "one")))
    assert call("run", "orders")[0] == 0
    lost = rig.capture.write(0, rig.change((2, "2.00", "lost")))
    lost.unlink()
    for file in rig.capture.folder.rglob("*.avro"):
        file.unlink()
    rig.stream(*rig.change((3, "3.00", "three")))
    code, text = call("run", "orders")
    assert code == 1, text
    assert "dbo.Orders: expired: messages 1 to 1 of partition 0 are no longer in the stream." in text
    assert call("reload", "orders", "dbo.Orders")[0] == 0
    assert call("run", "orders")[0] == 0
    assert call("verify", "orders")[0] == 0


def test_status_shows_unread_messages_and_the_age_of_the_oldest(rig: StreamRig) -> None:
    def read() -> tuple[object, ...]:
        result = CliRunner().invoke(app, ["status", "orders", "--live", "--json"])
        assert result.exit_code in (0, 4), result.output
        [[table]] = [each["tables"] for each in json.loads(result.output)]
        return table["unread_messages"], table["lag_seconds"]

    rig.log.began_at = datetime.now(UTC) - timedelta(hours=2)
    rig.stream(*rig.change((1, "1.00", "one")))
    assert read() == (None, None)
    assert call("run", "orders")[0] == 0
    assert read() == (0, 0)
    rig.stream(b"nonsense", *rig.change((2, "2.00", "two")), *rig.change((3, "3.00", "three")))
    messages, seconds = read()
    assert messages == 3
    assert isinstance(seconds, float)
    assert 7200 <= seconds < 7500
    text = call("status", "orders", "--live")[1]
    assert "3 msg" in text
    assert "lags by 120 min" in text
    assert call("run", "orders")[0] == 0
    assert read() == (0, 0)


def test_doctor_knows_what_was_read_of_a_topic_where_there_is_a_ledger(
    rig: StreamRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = RemovalRules(timedelta(days=7))
    with mock_broker() as (producer, servers):

        def send(*bodies: bytes) -> None:
            for body in bodies:
                producer.produce("changes", value=body, partition=0)
            assert producer.flush(20) == 0

        extra = {"bootstrap.servers": servers, "topic": "changes"}
        monkeypatch.setenv("AIRFLOW_CONN_HUB", json.dumps({"conn_type": "kafka", "extra": extra}))
        # The mock broker does not have the request for the settings of a topic.
        monkeypatch.setattr(kafka, "_SETTINGS_SECONDS", 1.0)
        send(*rig.change((1, "1.00", "one")))
        code, text = call("doctor", "orders", "--all")
        assert code == 0, text
        assert "NOTE: retention: changes the broker does not show how long messages are kept (_TIMED_OUT)." in text
        monkeypatch.setattr(kafka, "read_rules", lambda *_: (kept, ""))
        text = call("doctor", "orders", "--all")[1]
        assert "good: retention: changes: messages are kept for 7 days." in text
        assert "unread messages" not in text
        assert call("run", "orders")[0] == 0
        assert "unread messages" not in call("doctor", "orders", "--all")[1]
        send(*rig.change((2, "2.00", "two")))
        text = call("doctor", "orders", "--all")[1]
        assert "good: unread messages: dbo.Orders: the oldest message that was not read is" in text
        kept = RemovalRules(timedelta(0))
        code, text = call("doctor", "orders")
        assert code == 3, text
        assert "RISK: unread messages: dbo.Orders the oldest message that was not read is" in text
        assert "fix: floodmark run orders" in text
