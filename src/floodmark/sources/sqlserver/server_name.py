"""The name of a server: what may be written as one, the addresses it leads to, and the port of a named instance.

The rules are those of SQL Server's drivers, which agree on ``tcp:host\\instance,port``: a port is enough, and
without one SQL Server Browser has that of the instance ([MC-SQLR]).
"""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass
from ipaddress import ip_address

from floodmark.core.errors import ConfigError, SourceAdminError, SourceUnavailableError

SQL_SERVER_PORT = 1433
BROWSER_PORT = 1434
BROWSER_SECONDS = 5.0
"""The time for all answers."""

_ANSWER_SECONDS = 1.0
"""The time for one answer, as in Microsoft's clients: a datagram may be lost."""
_ATTEMPTS = 3
_ASK, _ANSWER = b"\x04", 5
_HEAD_BYTES = 3
_MOST_BYTES = 1024
_LONGEST_INSTANCE = 32
_DEFAULT_INSTANCE = "mssqlserver"
_WAYS_OUT = (
    "Start the service SQL Server Browser and let UDP port {port} through to it, or write the port of the instance "
    "into the connection: SQL Server Configuration Manager shows it, and keeps it after a restart if it is set there."
)

_NAME = re.compile(r"(?!\.)[\w.-]+")
_SERVER = re.compile(
    rf"(?:(?P<protocol>tcp|lpc|np|admin):)?(?P<host>{_NAME.pattern})(?:\\(?P<instance>[^\\,:]+))?(?:(?P<mark>[,:])\s*(?P<port>\d+))?",
    re.IGNORECASE,
)
"""The ``Server`` of a connection string, as tools for SQL Server take it."""


@dataclass(frozen=True, slots=True)
class ServerName:
    """One server. ``instance`` is set where ``port`` is 0: SQL Server Browser has its port."""

    host: str
    port: int
    instance: str = ""


def parse_server(written: str, port: int | None, subject: str) -> ServerName:
    """Return the server that the fields host and port of a connection name. Raises ConfigError, with what to write."""
    if _is_host(written):
        return ServerName(written, port or SQL_SERVER_PORT)
    found = _SERVER.fullmatch(written)
    if found is None or (found["protocol"] or "tcp").lower() != "tcp" or found["mark"] == ":":
        raise _refused(written, subject, _explain(found))
    named = int(found["port"] or 0)
    if named and port and named != port:
        raise _refused(written, subject, f"has another port than the field port, {port}")
    instance = found["instance"] or ""
    if port or named or instance.lower() in ("", _DEFAULT_INSTANCE):
        return ServerName(found["host"], port or named or SQL_SERVER_PORT)
    if not instance.isascii() or len(instance) > _LONGEST_INSTANCE:
        why = f"has an instance that SQL Server Browser cannot be asked for: write {found['host']} and the port"
        raise _refused(written, subject, why)
    return ServerName(found["host"], 0, instance)


def require_host(host: str, subject: str) -> None:
    """Raise ConfigError unless the text is the name or the address of one host.

    The driver ignores the name of an instance next to a port, and would connect to another server.
    """
    if not _is_host(host):
        raise _refused(host, subject, _explain(None))


def _is_host(text: str) -> bool:
    if _NAME.fullmatch(text):
        return True
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _refused(written: str, subject: str, why: str) -> ConfigError:
    return ConfigError(subject, f"its host is {written!r}, which {why}.", "Correct it in Airflow.")


def _explain(found: re.Match[str] | None) -> str:
    if found is None:
        return "is neither a name nor an address (this machine is localhost)"
    end = f" and {found['port']} as the port" if found["port"] else ""
    if (found["protocol"] or "tcp").lower() != "tcp":
        return f"does not name TCP, by which Floodmark connects: write {found['host']} as the host{end}"
    return f"is more than a name: write {found['host']} as the host{end}"


def count_addresses(host: str) -> int:
    """Return how many addresses the name has; 0 where it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return 0
    return len({sockaddr[0] for *_, sockaddr in found})


def find_port(host: str, instance: str, subject: str) -> int:
    """Return the TCP port of an instance, as SQL Server Browser on its host answers.

    Raises SourceUnavailableError where nothing answers about that instance in ``BROWSER_SECONDS``; SourceAdminError
    where the instance has no TCP.
    """
    answer = _ask_browser(host, instance)
    if answer is None:
        raise SourceUnavailableError(
            subject,
            f"SQL Server Browser on {host} did not answer which port the instance {instance} has.",
            _WAYS_OUT.format(port=BROWSER_PORT),
        )
    port = answer.get("tcp", "")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise SourceAdminError(
            subject,
            f"the instance {instance} does not listen on TCP, says SQL Server Browser on {host}.",
            "Enable TCP/IP for it in SQL Server Configuration Manager.",
        )
    return int(port)


def _ask_browser(host: str, instance: str) -> dict[str, str] | None:
    """Return what is said about the instance, by lower-case names; None where nothing valid was said in time."""
    end = time.monotonic() + BROWSER_SECONDS
    try:
        addresses = socket.getaddrinfo(host, BROWSER_PORT, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for _ in range(_ATTEMPTS):
        for family, kind, protocol, _, address in addresses:
            left = end - time.monotonic()
            if left <= 0:
                return None
            try:
                with socket.socket(family, kind, protocol) as asked:
                    asked.settimeout(min(left, _ANSWER_SECONDS))
                    asked.connect(address)  # datagrams from elsewhere are not received
                    asked.send(_ASK + instance.encode("ascii") + b"\0")
                    answer = read_answer(asked.recv(_HEAD_BYTES + _MOST_BYTES + 1), instance)
            except OSError:
                continue
            if answer is not None:
                return answer
    return None


def read_answer(datagram: bytes, instance: str) -> dict[str, str] | None:
    """Return the values of an SVR_RESP about one instance, by lower-case names; None for anything else."""
    head, text = datagram[:_HEAD_BYTES], datagram[_HEAD_BYTES:]
    is_whole = len(head) == _HEAD_BYTES and int.from_bytes(head[1:], "little") == len(text) <= _MOST_BYTES
    if not is_whole or head[0] != _ANSWER:
        return None
    fields = text.decode("latin-1").split(";")
    values = dict(zip(map(str.lower, fields[::2]), fields[1::2], strict=False))
    return values if values.get("instancename", "").lower() == instance.lower() else None
