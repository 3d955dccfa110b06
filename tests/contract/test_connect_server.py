"""Messages of a load about a Spark Connect server that it cannot use; secrets that the server does not keep."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from cdc_database import wait_until
from connect_server import ConnectServer, as_options
from floodmark.core.errors import ConfigError, DataQualityError, LoadKilledError, LoadStartError
from floodmark.core.settings import REMOTE_VARIABLE
from floodmark.spark import connect
from floodmark.spark.connect import ConnectEngine, open_connect_engine
from floodmark.spark.launch.processes import REQUIRED_SETTINGS
from floodmark.spark.stage import recover
from floodmark_laptop.processes import free_port
from task_work import is_beating, refuse

TOKEN, VALUE = "t0ken-of-the-server", "value-of-a-row"
_CLIENT = """
import sys
from functools import partial
from floodmark.spark.connect import open_connect_engine
from floodmark.spark.engine import OpeningEngine, stop_on_termination
from task_work import beat
opening = OpeningEngine(open_connect_engine)
stop_on_termination(opening)
opening.get().session.range(1).mapInArrow(partial(beat, sys.argv[1]), "beats long").collect()
"""
_HOLDER = """
import os, signal, sys, threading
from pathlib import Path
from floodmark.spark.engine import OpeningEngine, stop_on_termination
class Engine:
    def stop(self):
        with lock:
            Path(sys.argv[1]).touch()
lock = threading.Lock()
opening = OpeningEngine(Engine)
opening.get()
stop_on_termination(opening)
with lock:
    os.kill(os.getpid(), signal.SIGTERM)
threading.Event().wait()
"""
SUPPORT = str(Path(__file__).parents[1] / "support")


@pytest.fixture(scope="module")
def server(open_dir: Path) -> Iterator[ConnectServer]:
    made = ConnectServer(open_dir / "server.log", PYTHONPATH=SUPPORT, SPARK_CONNECT_AUTHENTICATE_TOKEN=TOKEN)
    with made.running():
        yield made


def open_at(url: str) -> ConnectEngine:
    # Of several sessions in one process: in a thread of gRPC, the end of an earlier one would wait for itself.
    gc.collect()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(REMOTE_VARIABLE, url)
        return open_connect_engine()


def client_url(server: ConnectServer, token: str = TOKEN) -> str:
    return f"sc://localhost:{server.port}/;token={token}"


def test_server_that_does_not_answer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_ANSWER_SECONDS", 0.5)
    with pytest.raises(LoadKilledError, match=r"does not answer within 0\.5 seconds"):
        open_at(f"sc://127.0.0.1:{free_port()}")


def test_wrong_token_is_refused_and_not_repeated(server: ConnectServer) -> None:
    with pytest.raises(ConfigError, match="refuses its token") as caught:
        open_at(client_url(server, "wr0ng"))
    assert "wr0ng" not in caught.value.in_full


def test_server_of_another_spark_is_refused(server: ConnectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "pyspark", SimpleNamespace(__version__="4.0.9"))
    with pytest.raises(ConfigError, match=r"it runs Spark 4\.1\.\d, and this Floodmark is for 4\.0\.9"):
        open_at(client_url(server))


def test_server_with_workers_of_another_floodmark_is_refused(
    server: ConnectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "LOADED_VERSION", "9.9")
    with pytest.raises(LoadStartError, match=r"its workers run Floodmark \S+, and this is 9\.9"):
        open_at(client_url(server))


def test_server_that_was_not_started_for_floodmark_is_refused(tmp_path: Path) -> None:
    plain = ConnectServer(tmp_path / "plain.log", application="plain_server.py")
    with plain.running(), pytest.raises(ConfigError) as caught:
        open_at(plain.url)
    assert "spark.python.daemon.module=floodmark.spark.daemon" in str(caught.value)
    assert "floodmark spark-server" in str(caught.value)


def test_server_without_floodmark_is_refused(tmp_path: Path) -> None:
    bare = ConnectServer(tmp_path / "bare.log", application="plain_server.py", PYSPARK_PYTHON=sys._base_executable)
    with (
        bare.running(*as_options(REQUIRED_SETTINGS)),
        pytest.raises(LoadStartError, match=r"lack the package floodmark") as caught,
    ):
        open_at(bare.url)
    assert not caught.value.retryable


def test_neither_values_of_errors_nor_the_token_are_printed(
    server: ConnectServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = open_at(client_url(server))
    with pytest.raises(PySparkException, match=VALUE):
        engine.session.sql(f"SELECT CAST('{VALUE}' AS int)").collect()
    with pytest.raises(PySparkException) as caught:
        engine.session.range(1).mapInArrow(partial(refuse, VALUE), "v long").collect()
    engine.stop()
    found = recover(caught.value)
    assert isinstance(found, DataQualityError)
    assert found.detail == VALUE
    assert VALUE not in server.text() + caplog.text + capfd.readouterr().err
    assert TOKEN not in server.text()


def test_no_session_starts_a_python_daemon_of_its_own(server: ConnectServer) -> None:
    open_at(client_url(server)).stop()
    begun = server.daemons()
    for _ in range(3):
        open_at(client_url(server)).stop()
    assert server.daemons() == begun


def test_server_interrupts_the_load_of_a_client_that_is_terminated(server: ConnectServer, tmp_path: Path) -> None:
    beats = tmp_path / "beats"
    environment = os.environ | {REMOTE_VARIABLE: client_url(server), "PYTHONPATH": SUPPORT}
    with subprocess.Popen([sys.executable, "-c", _CLIENT, str(beats)], env=environment) as client:
        wait_until(beats.exists, 60)
        client.send_signal(signal.SIGTERM)
        assert client.wait(10) == 128 + signal.SIGTERM
    wait_until(lambda: not is_beating(beats), 30)


def test_server_is_asked_also_by_a_client_that_holds_a_lock_of_its_connection(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    ended = subprocess.run([sys.executable, "-c", _HOLDER, str(asked)], timeout=60, check=False)
    assert ended.returncode == 128 + signal.SIGTERM
    assert asked.exists()
