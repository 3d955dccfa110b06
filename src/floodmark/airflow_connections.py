"""Airflow's connections, and their extras, for adapters of any kind, and whether Airflow's settings may have an option.

Airflow's SDK takes two seconds to import. It is imported for a connection that the environment does not have as JSON,
and masks the password in its logs from then on.
"""

from __future__ import annotations

import configparser
import difflib
import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from floodmark.core.errors import ConfigError

OF_HOOKS = frozenset({
    "sqlalchemy_scheme", "sqlalchemy_query", "dialect", "placeholder", "insert_statement_format",
    "replace_statement_format", "escape_word_format", "escape_column_names",
})  # fmt: skip
"""Extras by which Airflow's hooks write their own SQL. They change nothing for Floodmark."""
_BACKENDS = (("secrets", "backend"), ("workers", "secrets_backend"))
"""Section and option of Airflow's settings, for servers and for workers."""


def read_connection(conn_id: str, *conn_types: str) -> Any:
    """Return an Airflow connection of one of the types. Raises ConfigError."""
    expected = " or ".join(conn_types)
    found = find_connection(conn_id)
    if found is None:
        raise ConfigError(
            f"connection {conn_id}",
            "Airflow does not know it.",
            f"Add it in Airflow, or set AIRFLOW_CONN_{conn_id.upper()} (type {expected}).",
        )
    if found.conn_type not in conn_types:
        raise ConfigError(f"connection {conn_id}", f"its type is {found.conn_type}, expected {expected}.")
    return found


def find_connection(conn_id: str) -> Any:
    """Return an Airflow connection; None where Airflow does not know it."""
    found = _of_environment(conn_id)
    if found is not None:
        return found
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None


@dataclass(frozen=True, slots=True)
class EnvironmentConnection:
    """A connection of the environment, with the attributes of Airflow's class."""

    conn_type: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    schema: str | None = None
    extra: str | None = field(default=None, repr=False)

    @property
    def extra_dejson(self) -> dict[str, Any]:
        return dict(json.loads(self.extra)) if self.extra else {}


def _of_environment(conn_id: str) -> EnvironmentConnection | None:
    """Return a connection that the environment has as JSON, as Airflow would read it; None where Airflow has to.

    Airflow asks a secrets backend first. A process that has imported its SDK has its masks too.
    """
    text = os.environ.get(f"AIRFLOW_CONN_{conn_id.upper()}", "").lstrip()
    if not text.startswith("{") or "airflow.sdk" in sys.modules or may_have_option(*_BACKENDS):
        return None
    try:
        fields = json.loads(text)
        extra = fields.pop("extra", None)
        if extra and not isinstance(extra, str):
            extra = json.dumps(extra)
        if extra and not isinstance(json.loads(extra), dict):
            return None
        conn_type = {"postgresql": "postgres"}.get(fields["conn_type"], fields["conn_type"].replace("-", "_"))
        port = int(fields["port"]) if fields.get("port") else None
        known = {name: fields.get(name) for name in ("host", "login", "password", "schema")}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # Airflow has its own words for it.
    return EnvironmentConnection(conn_type, port=port, extra=extra or None, **known)


@cache
def may_have_option(*options: tuple[str, str]) -> bool:
    """Return whether Airflow's settings may have one of the options switched on, or with a text.

    options: section and name of each. Its own defaults are all off. Airflow is not imported: False is certain, and what
    cannot be read here may be.
    """
    # An option may also be the output of a command, or a secret.
    named = [(section, option + end) for section, option in options for end in ("", "_cmd", "_secret")]
    variables = (os.environ.get(f"AIRFLOW__{section}__{option}".upper(), "") for section, option in named)
    if any(map(_is_on, variables)):
        return True
    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    file = Path(os.environ.get("AIRFLOW_CONFIG", home / "airflow.cfg")).expanduser()
    settings = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        settings.read(file, encoding="utf-8")
    except (configparser.Error, OSError, ValueError):
        return True
    return any(_is_on(settings.get(section, option, fallback="")) for section, option in named)


def _is_on(value: str) -> bool:
    return value.strip().lower() not in {"", "f", "false", "0"}


def read_extras(
    found: Any,
    conn_id: str,
    known: Sequence[str],
    passed_over: Collection[str] = (),
    only_false: Collection[str] = (),
    *,
    synonyms: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the extras by the names in ``known``. All names may be written in other cases and with other signs.

    passed_over: extras of Airflow's own hook that change nothing for Floodmark. only_false: extras that are passed over
    if they are false. synonyms: further names, each with that in ``known``. Raises ConfigError for all others, and for
    an extra that is no JSON object.
    """
    folded = {_folded(name): name for name in known} | {_folded(other): name for other, name in synonyms.items()}
    over, over_if_false = set(map(_folded, passed_over)), set(map(_folded, only_false))
    extras: dict[str, Any] = {}
    unknown = []
    for written, value in _parse_extra(found, conn_id).items():
        key = _folded(written)
        name = folded.get(key)
        is_over = key in over or (key in over_if_false and not read_flag(value, conn_id, written))
        if value in (None, "") or is_over:
            continue
        if name is None:
            # Near, but not sslrootcert for sslcert.
            near = difflib.get_close_matches(key, folded, n=1, cutoff=0.8)
            unknown.append(written + (f" (did you mean {folded[near[0]]}?)" if near else ""))
        elif name in extras:
            raise named_twice(conn_id, name)
        else:
            extras[name] = value
    if unknown:
        raise ConfigError(
            f"connection {conn_id}",
            f"its extra has {', '.join(sorted(unknown))}, which Floodmark does not take.",
            f"It takes {', '.join(known)}.",
        )
    return extras


def _parse_extra(found: Any, conn_id: str) -> dict[str, Any]:
    """Return the extra. Airflow takes one that is no JSON for an empty one."""
    try:
        parsed = json.loads(found.extra or "{}")
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ConfigError(f"connection {conn_id}", "its extra is no JSON object.", "Correct its extra.")
    return found.extra_dejson  # type: ignore[no-any-return]


def _folded(name: str) -> str:
    return re.sub(r"[._ -]", "", name).casefold()


def named_twice(conn_id: str, name: str) -> ConfigError:
    """Return the error about an extra that is there in two spellings."""
    return ConfigError(f"connection {conn_id}", f"its extra has {name} twice, in two spellings.", "Remove one.")


def required_field(value: str | None, conn_id: str, field: str) -> str:
    """Return a field of a connection that must not be empty. Raises ConfigError."""
    if not value:
        raise ConfigError(f"connection {conn_id}", f"it has no {field}.", "Complete it in Airflow.")
    return value


def read_flag(value: object, conn_id: str, name: str = "trust_server_certificate") -> bool:
    """Return an extra as a truth value: typed into a form it arrives as text. Raises ConfigError."""
    text = str(value).strip().lower()
    if text not in ("true", "false", "yes", "no", "1", "0", ""):
        raise ConfigError(f"connection {conn_id}", f"{name} is {value!r}, expected true or false.")
    return text in ("true", "yes", "1")
