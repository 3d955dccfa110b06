"""Airflow's connections, and their extras, for adapters of any kind.

A password is masked in logs from the moment its connection is read. Airflow's SDK takes two seconds to import: it is
imported when a connection is read.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Sequence
from typing import Any

from floodmark.core.errors import ConfigError

OF_HOOKS = frozenset({
    "sqlalchemy_scheme", "sqlalchemy_query", "dialect", "placeholder", "insert_statement_format",
    "replace_statement_format", "escape_word_format", "escape_column_names",
})  # fmt: skip
"""Extras by which Airflow's hooks write their own SQL. They change nothing for Floodmark."""


def read_connection(conn_id: str, *conn_types: str) -> Any:
    """Return an Airflow connection of one of the types. Raises ConfigError."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    expected = " or ".join(conn_types)
    try:
        found = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ConfigError(
            f"connection {conn_id}",
            "Airflow does not know it.",
            f"Add it in Airflow, or set AIRFLOW_CONN_{conn_id.upper()} (type {expected}).",
        ) from None
    if found.conn_type not in conn_types:
        raise ConfigError(f"connection {conn_id}", f"its type is {found.conn_type}, expected {expected}.")
    return found


def read_extras(
    found: Any,
    conn_id: str,
    known: Sequence[str],
    passed_over: Collection[str] = (),
    only_false: Collection[str] = (),
) -> dict[str, Any]:
    """Return the extras by the names in ``known``, which may be written in other cases and with other signs.

    passed_over: extras of Airflow's own hook that change nothing for Floodmark. only_false: extras that are passed over
    if they are false. Raises ConfigError for all others, and for an extra that is no JSON object.
    """
    folded = {_folded(name): name for name in known}
    extras: dict[str, Any] = {}
    unknown = []
    for written, value in _parse_extra(found, conn_id).items():
        name = folded.get(_folded(written))
        is_over = written in passed_over or (written in only_false and not read_flag(value, conn_id, written))
        if value in (None, "") or is_over:
            continue
        if name is None:
            # Near, but not sslrootcert for sslcert.
            near = difflib.get_close_matches(_folded(written), folded, n=1, cutoff=0.8)
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
