"""The addresses that the name of a server leads to: the listener of an availability group has one for each subnet."""

from __future__ import annotations

import socket


def count_addresses(host: str) -> int:
    """Return how many addresses the name has; 0 where it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return 0
    return len({sockaddr[0] for *_, sockaddr in found})
