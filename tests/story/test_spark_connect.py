"""A resident Spark in place of spark-submit, by the Spark connection alone: loads whose client is killed, and whose
server ends, in the middle. Source and warehouse end equal, row by row."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connect_server import ConnectServer
from floodmark_laptop import shop
from torture_command import RunningCommand
from torture_rig import CDC, TortureRig

pytestmark = pytest.mark.timeout(1800)

_LIMIT_SECONDS = 400
_TRY_AGAIN = 75


def succeeds(command: RunningCommand) -> str:
    assert command.wait(_LIMIT_SECONDS) == 0, command.output
    return command.output


@contextmanager
def load_that_reads(rig: TortureRig, server: ConnectServer) -> Iterator[RunningCommand]:
    """A run whose workers read the table that is left to Spark, and wait there."""
    with rig.source.connect_pymssql(shop.DATABASE, autocommit=True) as at, at.cursor() as cursor:
        cursor.execute("EXEC emulator.slow_statements @seconds = 3, @times = 0, @text = N'Orders'")
        yield begin_reading(rig, server)
        cursor.execute("EXEC emulator.clear_faults")


def begin_reading(rig: TortureRig, server: ConnectServer) -> RunningCommand:
    """Begin a run, and return when its workers read the source.

    A run that does not reach a server of a busy machine in time is begun again, as a scheduler does.
    """
    deadline = time.monotonic() + _LIMIT_SECONDS
    command = rig.begin("run", "shop")
    while not server.is_connected_to(rig.source.port):
        if command.wait_for_leader(0.2):
            assert command.wait(_LIMIT_SECONDS) == _TRY_AGAIN, command.output
            command = rig.begin("run", "shop")
        assert time.monotonic() < deadline, command.output
    return command


def test_loads_through_a_server_lose_and_double_no_row(open_dir: Path) -> None:
    rig = TortureRig(open_dir / "connect", 1, with_spark=True)
    server = ConnectServer(open_dir / "server.log")
    rig.environment = server.connection()
    with rig.running(), server.running():
        with load_that_reads(rig, server) as killed:
            killed.kill()
        # The tasks of the killed load may still run, and may have staged all that is left to Spark.
        succeeds(rig.begin("run", "shop"))
        with load_that_reads(rig, server) as left:
            server.kill()
            server.start()
            assert left.wait(_LIMIT_SECONDS) == _TRY_AGAIN, left.output
        assert f"on {server.url} is up" in left.output
        assert "the Spark Connect server ended" in left.output
        assert "Traceback" not in left.output
        succeeds(rig.begin("run", "shop"))
        rig.end_workload()
        succeeds(rig.begin_without_spark("run", "shop"))
        verified = json.loads(succeeds(rig.begin("verify", "shop", "--json")))
        assert {each["source"] for each in verified if each["equal"]} == {f"dbo.{table}" for table in CDC.tables}
        assert rig.source.password not in server.text()
