"""The address of a Spark Connect server, as an Airflow connection gives it, and the URL that a client takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from floodmark.core.errors import ConfigError
from floodmark.core.hosts import is_loopback

SCHEME = "sc://"
AIRFLOW_SCHEME = "spark_connect://"
"""The scheme of connections of Airflow's type ``spark_connect``."""
_DEFAULT_PORT = 15002
_PARAMETERS = ("use_ssl", "user_id")
_TRUE, _FALSE = "true", "false"


def is_server(master: str) -> bool:
    """Return whether a master is a Spark Connect server."""
    return master.startswith((SCHEME, AIRFLOW_SCHEME))


def client_url(conn_id: str, master: str, extra: Mapping[str, Any], user: str, token: str) -> tuple[str, str]:
    """Return the server's plain URL, which may be shown, and that for the client, which has the token.

    master: ``sc://host:port``, or with ``;``-separated parameters after ``/;``. Raises ConfigError.
    """
    subject = f"connection {conn_id}"
    refused = sorted(name for name, value in extra.items() if value not in (None, "") and name not in _PARAMETERS)
    if refused:
        raise ConfigError(
            subject,
            f"its extra {refused[0]} is for spark-submit, and its host is a Spark Connect server.",
            "Remove it; the properties of Spark are those that the server was started with.",
        )
    address, _, parameters = master.partition("://")[2].partition("/")
    given = {name: str(value) for name, value in extra.items() if value not in (None, "")}
    for parameter in filter(None, parameters.lstrip(";").split(";")):
        name, _, value = parameter.partition("=")
        if name not in _PARAMETERS:
            raise ConfigError(
                subject,
                f"its host has the parameter {name}.",
                "Give a token as the password. Of the others, only use_ssl and user_id may be set.",
            )
        given[name] = unquote(value)
    host, port = _endpoint(subject, address)
    has_tls = given.get("use_ssl", _FALSE).lower()
    if has_tls not in (_TRUE, _FALSE):
        raise ConfigError(subject, f"use_ssl is {given['use_ssl']!r}, expected true or false.")
    if token and has_tls == _FALSE:
        if not is_loopback(host.strip("[]")):
            raise ConfigError(
                subject, "its password would be sent in clear.", "Set its extra use_ssl to true: a token needs TLS."
            )
        # The only name for which the client sends a token without TLS.
        host = "localhost"
    wanted = {"use_ssl": has_tls, "user_id": given.get("user_id") or user, "token": token}
    options = ";".join(f"{name}={quote(value, safe='')}" for name, value in wanted.items() if value)
    return f"{SCHEME}{host}:{port}", f"{SCHEME}{host}:{port}/;{options}"


def _endpoint(subject: str, address: str) -> tuple[str, int]:
    """Return host and port; an IPv6 address keeps its brackets."""
    try:
        parsed = urlsplit(f"//{address}")
        host, port = parsed.hostname, parsed.port
    except ValueError:
        host = port = None
    if not host or "@" in address or "," in address:
        raise ConfigError(subject, "its host is not sc://HOST:PORT.", "Correct it.")
    return f"[{host}]" if ":" in host else host, port or _DEFAULT_PORT
