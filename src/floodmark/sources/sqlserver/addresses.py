"""The host of a server: what may be written as one, and the addresses that its name leads to.

The listener of an availability group has one address for each subnet.
"""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address

from floodmark.core.errors import ConfigError

_NAME = re.compile(r"(?!\.)[\w.-]+")
_SERVER = re.compile(
    rf"(?:(?P<protocol>tcp|lpc|np|admin):)?(?P<host>{_NAME.pattern})(?:\\(?P<instance>[^\\,:]+))?(?:[,:]\s*(?P<port>\d+))?",
    re.IGNORECASE,
)
"""The ``Server`` of a connection string, as tools for SQL Server take it."""


def require_host(host: str, subject: str) -> None:
    """Raise ConfigError, with what to write, unless the text is the name or the address of one host.

    The driver ignores the name of an instance next to a port, and would connect to another server.
    """
    if not _NAME.fullmatch(host) and not _is_address(host):
        raise ConfigError(subject, f"its host is {host!r}, which {_explain(host)}.", "Correct it in Airflow.")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _explain(host: str) -> str:
    found = _SERVER.fullmatch(host)
    if found is None:
        return "is neither a name nor an address (this machine is localhost)"
    protocol, name, instance, port = found.group("protocol", "host", "instance", "port")
    end = f" and {port} as the port" if port else ""
    if instance:
        where = end or (
            f" and the port of the instance {instance} as the port. SQL Server Configuration Manager shows the port, "
            "and keeps it the same after a restart if it is set there"
        )
        return f"names an instance: write {name} as the host{where}"
    if protocol and protocol.lower() != "tcp":
        return f"does not name TCP, by which Floodmark connects: write {name} as the host{end}"
    return f"is more than a name: write {name} as the host{end}"


def count_addresses(host: str) -> int:
    """Return how many addresses the name has; 0 where it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return 0
    return len({sockaddr[0] for *_, sockaddr in found})
