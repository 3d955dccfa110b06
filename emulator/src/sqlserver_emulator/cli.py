"""The command ``sqlserver-emulator``: engine, server and certificate put together, one line of JSON when ready.

Owns the process: arguments, the password of ``sa``, signals, the log on stderr, the exit status.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import secrets
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from sqlserver_emulator.release import RELEASES
from sqlserver_emulator.server.certificate import CertificateFiles, provide_certificate, write_private_file
from sqlserver_emulator.server.handshake import TlsContexts
from sqlserver_emulator.server.listener import EmulatorServer, listen

if TYPE_CHECKING:
    from sqlserver_emulator.assembly.factory import Engine, StreamDestination
    from sqlserver_emulator.event_stream.broker import BrokerDestination

PASSWORD_VARIABLE = "SQLSERVER_EMULATOR_SA_PASSWORD"  # noqa: S105 - a variable's name
USER = "sa"
_ANY_ADDRESS = {"0.0.0.0": "localhost", "::": "localhost"}  # noqa: S104 - no address that a client is led to
_LOG = logging.getLogger("sqlserver_emulator")


class StartError(Exception):
    """The emulator could not start; the message says why and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    logging.basicConfig(
        stream=sys.stderr, level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # What every thread does, on standard error: for a process that does not answer, or does not end.
    faulthandler.register(signal.SIGUSR1)
    # The handlers raise, so that a signal during the start unwinds through every context manager as well.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        _run(options)
    except StartError as error:
        print(f"sqlserver-emulator: {error}", file=sys.stderr)
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(
        prog="sqlserver-emulator",
        description="A stand-in for SQL Server with change data capture, speaking its wire protocol (TDS 7.4).",
        epilog=f"The password of {USER} is taken from {PASSWORD_VARIABLE}, or generated into a file in DIR.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=14330, help="port; 0 picks a free one (default %(default)s)")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder that holds all state")
    parser.add_argument("--database", action="append", default=[], metavar="NAME", help="create it if it is missing")
    parser.add_argument(
        "--capture-interval", type=float, metavar="SECONDS", help="pause between two log scans of the capture job"
    )
    parser.add_argument(
        "--secondary-port",
        type=int,
        metavar="PORT",
        help="also serve a readable secondary on this port; 0 picks a free one",
    )
    parser.add_argument(
        "--release",
        type=int,
        choices=RELEASES,
        help="the release of SQL Server as which it presents itself (2025 with event hubs, otherwise 2022)",
    )
    hubs = parser.add_mutually_exclusive_group()
    hubs.add_argument(
        "--event-hubs-folder", type=Path, metavar="DIR", help="stream change events into this folder, as Azure Capture"
    )
    hubs.add_argument(
        "--event-hubs-broker",
        metavar="HOST:PORT",
        help="stream change events to the topics of this Kafka broker (sqlserver-emulator[kafka])",
    )
    parser.add_argument(
        "--event-hubs-ca-file",
        type=Path,
        metavar="FILE",
        help="the broker has TLS by these authorities (PEM), and takes the credentials of stream groups (SASL PLAIN)",
    )
    parser.add_argument(
        "--event-hubs-partitions", type=int, default=4, metavar="N", help="partitions of a hub (default %(default)s)"
    )
    levels = ("debug", "info", "warning", "error")
    parser.add_argument(
        "--log-level", choices=levels, default="warning", help="least level to log (default %(default)s)"
    )
    return parser


def _stop(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # a second one must not break the clean-up
    raise SystemExit(0)


def _run(options: argparse.Namespace) -> None:
    data: Path = options.data.resolve()
    _make_data_folder(data)
    password, password_file = _provide_password(data)
    certificate = _provide_certificate(data, options.host)
    with ExitStack() as opened:
        listener = opened.enter_context(_listen(options.host, options.port))
        second = None
        if options.secondary_port is not None:
            second = opened.enter_context(_listen(options.host, options.secondary_port))
        engine = opened.enter_context(_open_engine(data, options, password))
        contexts = TlsContexts.load(certificate)
        if second is not None:
            served = opened.enter_context(EmulatorServer(engine.secondary, contexts, second))
            # Before the first client of the other address is accepted.
            engine.read_only_route = (_ANY_ADDRESS.get(options.host, options.host), served.port)
        server = opened.enter_context(EmulatorServer(engine, contexts, listener))
        ready = {
            "host": options.host,
            "port": server.port,
            "secondary_port": engine.read_only_route[1] if engine.read_only_route else None,
            "user": USER,
            "ca_file": str(certificate.ca_file),
            "password_file": str(password_file) if password_file else None,
            "databases": list(engine.databases),
        }
        print(json.dumps(ready), flush=True)
        while True:
            signal.pause()


def _make_data_folder(data: Path) -> None:
    # Imported here, so that --help and wrong arguments answer at once.
    from embedded_postgres import make_passable_folder  # noqa: PLC0415

    try:
        make_passable_folder(data)
    except OSError as error:
        raise StartError(f"the data folder {data} cannot be used: {error.strerror}") from error


def _open_engine(data: Path, options: argparse.Namespace, password: str) -> Engine:
    # Imported here as well: the engine is the slow part.
    from embedded_postgres import EmbeddedPostgresError  # noqa: PLC0415
    from sqlserver_emulator.assembly.cluster import EmulatorStateError  # noqa: PLC0415
    from sqlserver_emulator.assembly.factory import open_engine  # noqa: PLC0415
    from sqlserver_emulator.event_stream.broker import MissingExtraError  # noqa: PLC0415

    destination = _stream_destination(options)
    release = RELEASES[options.release or (2025 if destination else 2022)]
    if destination and not release.has_event_streaming:
        raise StartError(f"SQL Server {release.year} has no change event streaming: event hubs need --release 2025")
    try:
        return open_engine(
            data, options.database, password, options.capture_interval, destination=destination, release=release
        )
    except (EmbeddedPostgresError, EmulatorStateError) as error:
        raise StartError(str(error)) from error
    except MissingExtraError as error:
        raise StartError(f"--event-hubs-broker: {error}") from None


def _stream_destination(options: argparse.Namespace) -> StreamDestination | BrokerDestination | None:
    from sqlserver_emulator.assembly.factory import StreamDestination  # noqa: PLC0415
    from sqlserver_emulator.event_stream.broker import BrokerDestination  # noqa: PLC0415

    folder, broker, ca_file = options.event_hubs_folder, options.event_hubs_broker, options.event_hubs_ca_file
    if ca_file and not broker:
        raise StartError("--event-hubs-ca-file is for a broker: give --event-hubs-broker too.")
    if ca_file:
        try:
            ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            raise StartError(f"--event-hubs-ca-file: {ca_file} cannot be used: {error.strerror or error}") from error
    if broker:
        return BrokerDestination(broker, ca_file and ca_file.resolve())
    return StreamDestination(folder.resolve(), options.event_hubs_partitions) if folder else None


def _provide_password(data: Path) -> tuple[str, Path | None]:
    """The password, and the file it lies in unless the environment gave it."""
    given = os.environ.pop(PASSWORD_VARIABLE, "")
    if given:
        return given, None
    path = data / "sa.password"
    try:
        if not path.exists():
            write_private_file(path, secrets.token_urlsafe(24).encode())
        return path.read_text("utf-8").strip(), path
    except OSError as error:
        raise StartError(f"the data folder {data} cannot be used: {error.strerror}") from error


def _provide_certificate(data: Path, host: str) -> CertificateFiles:
    try:
        return provide_certificate(data / "tls", host)
    except (OSError, ValueError) as error:
        raise StartError(f"the certificate in {data / 'tls'} cannot be used: {error}") from error


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        number = error.errno or 0  # below 0: a name that cannot be resolved
        reason = os.strerror(number) if number > 0 else error.strerror
        raise StartError(f"cannot listen on {host}:{port}: {reason}") from error
