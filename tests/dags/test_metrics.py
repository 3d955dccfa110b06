"""Floodmark's metrics, received as StatsD and as OpenTelemetry, however Airflow's environment configures it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from dag_process import DagProcess

from floodmark.app.alerts import AirflowMetrics

SEND = """
from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from floodmark.core.position import Lsn
from floodmark.core.status import TableMeasure
from floodmark.core.schema import TableName
from floodmark.core.plan import LoadKind, TableCounts
from floodmark.app.alerts import AirflowMetrics
from floodmark.core.plan import AdvanceResult, PublishedTable

# As Airflow does before it runs a task.
stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)
orders, lsn = TableName("dbo", "Order Lines"), Lsn(b"\\0\\0\\0\\1".ljust(10, b"\\0"))
counts = TableCounts(read_rows=7, staged_rows=6, inserted_rows=5, deleted_rows=1)
table = PublishedTable(orders, TableName("shop", "orders"), LoadKind.CHANGES, lsn, lsn, counts)
AirflowMetrics().send_window(AdvanceResult(1, "shop", lsn, (table,)), 12.5)
AirflowMetrics().send_measures("shop", [TableMeasure(orders, 63.0, None, None, 8192)])
print("ON" if AirflowMetrics().are_on() else "OFF")
"""


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(10)
        yield listening


def received(receiver: socket.socket, count: int) -> dict[str, str]:
    """Return Floodmark's metrics by name."""
    found: dict[str, str] = {}
    while len(found) < count:
        name, _, value = receiver.recv(1000).decode().partition(":")
        if "floodmark" in name:
            found[name] = value
    return found


def statsd(receiver: socket.socket, **more: str) -> dict[str, str]:
    settings = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(receiver.getsockname()[1])}
    return {f"AIRFLOW__METRICS__{name}": value for name, value in (settings | more).items()}


def test_metrics_reach_statsd_with_pipeline_and_table_in_their_names(
    dag_process: DagProcess, receiver: socket.socket
) -> None:
    done = dag_process.run(SEND, **statsd(receiver))
    assert done.stdout.split()[-1] == "ON", done.stderr
    assert received(receiver, 9) == {
        "airflow.floodmark.table.read_rows.shop.dbo.Order_Lines": "7|c",
        "airflow.floodmark.table.inserted_rows.shop.dbo.Order_Lines": "5|c",
        "airflow.floodmark.table.updated_rows.shop.dbo.Order_Lines": "0|c",
        "airflow.floodmark.table.deleted_rows.shop.dbo.Order_Lines": "1|c",
        "airflow.floodmark.table.unchanged_rows.shop.dbo.Order_Lines": "0|c",
        "airflow.floodmark.table.quarantined_rows.shop.dbo.Order_Lines": "0|c",
        "airflow.floodmark.window.duration.shop": "12500.000000|ms",
        "airflow.floodmark.table.lag_seconds.shop.dbo.Order_Lines": "63.0|g",
        "airflow.floodmark.table.change_bytes.shop.dbo.Order_Lines": "8192|g",
    }


def test_metrics_are_tagged_where_tags_are_kept(dag_process: DagProcess, receiver: socket.socket) -> None:
    done = dag_process.run(SEND, **statsd(receiver, STATSD_INFLUXDB_ENABLED="True"))
    assert done.returncode == 0, done.stderr
    names = list(received(receiver, 9))
    assert names[0] == "airflow.floodmark.table.read_rows,pipeline=shop,table=dbo.Order_Lines"
    assert names[6] == "airflow.floodmark.window.duration,pipeline=shop"


def test_without_a_receiver_nothing_is_measured() -> None:
    assert not AirflowMetrics().are_on()


def test_metrics_reach_opentelemetry_under_names_without_a_table(dag_process: DagProcess) -> None:
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Not on the terminal of the tests."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        settings = {
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        }
        done = dag_process.run(SEND, **settings)
        server.shutdown()
    assert done.stdout.split()[-1] == "ON", done.stderr
    sent = b"".join(bodies)
    for name in (b"floodmark.table.read_rows", b"floodmark.table.lag_seconds", b"floodmark.window.duration"):
        assert name in sent
    assert b"dbo.Order_Lines" in sent
    assert b"lag_seconds.shop" not in sent
