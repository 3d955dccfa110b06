"""The command ``sqlserver-emulator`` as a process: its one line, its files, its end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pymssql
import pytest

from emulator_process import STOP_SECONDS, Emulator, running_emulator

PASSWORD = "From-The-Environment-1"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sqlserver_emulator", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def start(data_dir: Path, password: str = PASSWORD, **options: Any) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "sqlserver_emulator", "--port", "0", "--data", str(data_dir), "--database", "Shop"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SQLSERVER_EMULATOR_SA_PASSWORD": password},
        **options,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


@pytest.fixture
def data_dir(open_dir: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=open_dir, prefix=""))
    folder.chmod(0o755)
    yield folder / "d"
    shutil.rmtree(folder, ignore_errors=True)


def query(server: Emulator, statement: str) -> list[tuple[object, ...]]:
    connection = server.connect_pymssql("Shop", autocommit=True)
    cursor = connection.cursor()
    cursor.execute(statement)
    rows = cursor.fetchall() if cursor.description else []
    connection.close()
    return rows


def test_the_password_is_kept_in_a_private_file(emulator: Emulator) -> None:
    data_dir = emulator.ca_file.parents[1]
    private = [path for path in (data_dir / "sa.password", data_dir / "tls" / "server.key") if path.exists()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in private] == [0o600, 0o600]


def test_the_password_may_come_from_the_environment(data_dir: Path) -> None:
    process, ready = start(data_dir)
    try:
        assert ready["password_file"] is None
        assert not list(data_dir.rglob("*.password"))
        server = Emulator(
            ready["host"],
            ready["port"],
            ready["user"],
            PASSWORD,
            Path(ready["ca_file"]),
            tuple(ready["databases"]),
            psutil.Process(process.pid),
        )
        assert query(server, "SELECT DB_NAME()") == [("Shop",)]
        for inside in server.process.children(recursive=True):
            assert PASSWORD not in " ".join(inside.cmdline())
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
        process.stdout.close()  # type: ignore[union-attr]


def test_control_c_in_a_terminal_ends_it_cleanly(data_dir: Path) -> None:
    process, _ready = start(data_dir, stderr=subprocess.PIPE, start_new_session=True)
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    _out, err = process.communicate(timeout=STOP_SECONDS)
    assert (process.returncode, err) == (0, "")
    assert psutil.wait_procs(family, timeout=STOP_SECONDS)[1] == []


def test_a_signal_makes_it_print_what_its_threads_do(data_dir: Path, tmp_path: Path) -> None:
    said = tmp_path / "stderr"
    with said.open("w") as stderr:
        process, _ = start(data_dir, stderr=stderr)
        process.send_signal(signal.SIGUSR1)
        limit = time.monotonic() + STOP_SECONDS
        while "_supervise" not in said.read_text() and time.monotonic() < limit:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0
    assert "_supervise" in said.read_text()
    process.stdout.close()  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_clients_at_work_and_leaves_no_process(data_dir: Path, number: signal.Signals) -> None:
    process, ready = start(data_dir)
    family = psutil.Process(process.pid).children(recursive=True)
    server = Emulator(
        ready["host"], ready["port"], "sa", PASSWORD, Path(ready["ca_file"]), ("Shop",), psutil.Process(process.pid)
    )
    idle = server.connect_pymssql()
    began = threading.Event()

    def wait() -> None:
        connection = server.connect_pymssql()
        began.set()
        with pytest.raises(pymssql.Error):
            connection.cursor().execute("WAITFOR DELAY '00:01:00'")

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert began.wait(20)
    process.send_signal(number)
    assert process.wait(STOP_SECONDS) == 0
    waiting.join(STOP_SECONDS)
    assert not waiting.is_alive()
    assert psutil.wait_procs(family, timeout=STOP_SECONDS)[1] == []
    assert idle is not None
    process.stdout.close()  # type: ignore[union-attr]


def test_state_survives_a_stop_and_a_kill(data_dir: Path) -> None:
    with running_emulator(data_dir, databases=["Shop"]) as server:
        password, ca = server.password, server.ca_file.read_bytes()
        query(server, "CREATE TABLE dbo.Kept (Id int NOT NULL PRIMARY KEY)")
        query(server, "INSERT INTO dbo.Kept VALUES (1)")
    process, ready = start(data_dir, password="")
    family = psutil.Process(process.pid).children(recursive=True)
    again = Emulator(
        ready["host"],
        ready["port"],
        "sa",
        Path(ready["password_file"]).read_text(),
        Path(ready["ca_file"]),
        ("Shop",),
        psutil.Process(process.pid),
    )
    assert (again.password, again.ca_file.read_bytes()) == (password, ca)
    query(again, "INSERT INTO dbo.Kept VALUES (2)")
    process.kill()
    process.wait(STOP_SECONDS)
    process.stdout.close()  # type: ignore[union-attr]
    assert psutil.wait_procs(family, timeout=STOP_SECONDS)[1] == []
    with running_emulator(data_dir, databases=["Shop"]) as server:
        assert query(server, "SELECT Id FROM dbo.Kept ORDER BY Id") == [(1,), (2,)]


def test_a_port_in_use_is_one_clear_message(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("--port", str(port), "--data", str(data_dir))
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        f"sqlserver-emulator: cannot listen on 127.0.0.1:{port}: Address already in use"
    ]
    assert ended.stdout == ""


def test_a_data_folder_too_deep_for_postgres_is_one_clear_message(data_dir: Path) -> None:
    deep = data_dir / ("d" * 100)
    ended = run("--port", "0", "--data", str(deep))
    assert ended.returncode == 1
    assert "too long" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_data_folder_that_cannot_be_made_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run("--port", "0", "--data", str(tmp_path / "file" / "data"))
    assert ended.returncode == 1
    assert ended.stderr.startswith("sqlserver-emulator: the data folder ")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--event-hubs-ca-file", "absent.pem"), "give --event-hubs-broker too"),
        (
            ("--event-hubs-broker", "host:9093", "--event-hubs-ca-file", "absent.pem"),
            "absent.pem cannot be used: No such",
        ),
        (("--event-hubs-broker", "host:9093", "--event-hubs-ca-file", __file__), "cannot be used: "),
        (("--event-hubs-broker", "host:9093", "--release", "2022"), "event hubs need --release 2025"),
    ],
)
def test_event_hubs_that_cannot_be_are_one_clear_message(data_dir: Path, options: tuple[str, ...], reason: str) -> None:
    ended = run("--port", "0", "--data", str(data_dir), *options)
    assert ended.returncode == 1
    assert reason in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_missing_arguments_are_reported_without_starting_anything() -> None:
    ended = run()
    assert ended.returncode == 2
    assert "--data" in ended.stderr
