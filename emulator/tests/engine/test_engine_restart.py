"""What was committed is there after the engine was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from engine_client import Client
from sqlserver_emulator.assembly.factory import Engine, open_engine

_WRITER = """
import sys
from pathlib import Path
from sqlserver_emulator.assembly.factory import open_engine

engine = open_engine(Path(sys.argv[1]), ["Shop"], "secret")
session = engine.open_session(login="sa", password="secret", database="Shop", application="writer")

def run(text):
    for event in session.run_batch(text):
        assert type(event).__name__ != "ErrorRaised", event

run("CREATE TABLE dbo.t (id int IDENTITY PRIMARY KEY, n nvarchar(20))")
for number in range(100):
    run(f"INSERT INTO dbo.t (n) VALUES (N'row {number}')")
run("BEGIN TRAN; INSERT INTO dbo.t (n) VALUES (N'not committed')")
print("written", flush=True)
sys.stdin.read()
"""


def test_committed_rows_survive_kill_9_of_every_process(open_dir: Path) -> None:
    folder = open_dir / "killed"
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"written\n"
    victims = [*psutil.Process(writer.pid).children(recursive=True), psutil.Process(writer.pid)]
    for victim in victims:
        os.kill(victim.pid, signal.SIGKILL)
    writer.communicate()
    psutil.wait_procs(victims, timeout=30)
    with open_engine(folder, ["shop"], "secret") as engine:
        assert engine.databases == ("master", "tempdb", "model", "msdb", "Shop")
        session = engine.open_session(login="sa", password="secret", database="Shop", application="reader")
        client = Client(session)
        assert client.value("SELECT COUNT(*) FROM dbo.t") == 100
        client.run("INSERT INTO dbo.t (n) VALUES (N'after')")
        assert client.types("SELECT n FROM dbo.t") == client.types("SELECT CAST(N'' AS nvarchar(20)) AS n")
        session.close()


def test_a_hundred_databases_may_have_a_capture_job(engine: Engine) -> None:
    session = engine.engine_session("master")
    settings = ("max_replication_slots", "max_wal_senders", "max_active_replication_origins")
    assert [session.fetch_all(f"SHOW {name}") for name in settings] == [[("100",)]] * 3
    session.close()
