"""Committed rows are there after the engine was killed."""

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


def test_folder_of_another_version_gets_the_views_and_functions_of_this_one(open_dir: Path) -> None:
    """A start runs the scripts again only where they have changed, which it sees by their digests."""
    folder = open_dir / "upgraded"
    table = "CREATE TABLE dbo.t (id int PRIMARY KEY, v varchar(9) DEFAULT 'x')"
    with open_engine(folder, ["Shop"], "secret") as engine:
        session = engine.open_session(login="sa", password="secret", database="Shop", application="writer")
        client = Client(session)
        client.run(f"EXEC sys.sp_cdc_enable_db; {table}; EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL")
        client.run("EXEC sp_addextendedproperty 'note', 'kept', 'SCHEMA', 'dbo', 'TABLE', 't'")
        client.run("CREATE VIEW dbo.seen AS SELECT id FROM dbo.t")
        client.run("INSERT dbo.t (id) VALUES (1)")
        other = "UPDATE emulator.settings SET value = 'other' WHERE name IN ('library', 'agent views') RETURNING 1"
        owner = engine.engine_session("master")
        assert len(owner.fetch_all(other)) == 2
        owner.fetch_all("ALTER TABLE emulator.sessions DROP COLUMN encrypted CASCADE")
        owner.close()
        session.close()
    with open_engine(folder, ["Shop"], "secret") as engine:
        client = Client(engine.open_session(login="sa", password="secret", database="Shop", application="reader"))
        assert client.rows("SELECT CAST(value AS varchar(9)) FROM sys.extended_properties") == [("kept",)]
        assert client.rows("SELECT id FROM dbo.seen") == [(1,)]
        assert client.value("SELECT COUNT(*) FROM msdb.dbo.sysjobs") == 2
        assert client.value("SELECT encrypt_option FROM sys.dm_exec_connections WHERE session_id = @@SPID") == "FALSE"
        client.session.close()


def test_a_hundred_databases_may_have_a_capture_job(engine: Engine) -> None:
    session = engine.engine_session("master")
    settings = ("max_replication_slots", "max_wal_senders", "max_active_replication_origins")
    assert [session.fetch_all(f"SHOW {name}") for name in settings] == [[("100",)]] * 3
    session.close()
