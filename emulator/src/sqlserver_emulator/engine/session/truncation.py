"""Error 2628: which column a value was too long for. PostgreSQL says only how long the column is.

The column is one of the statement's table with that length; where there are several, the values decide: drivers bind
one for each column. Where nothing distinguishes them, the error is the older 8152, which names none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeGuard

from sqlserver_emulator.code_units import first_characters, unit_count
from sqlserver_emulator.engine.catalog.session_catalog import SessionCatalog
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.system_types.record import BINARY

_NAME = r'"(?:[^"]|"")*"'
_TARGET = re.compile(rf"\b(?:INSERT INTO|UPDATE|MERGE INTO) ({_NAME})\.({_NAME})(?: \(([^()]*)\))?")
_TOO_LONG = re.compile(r"^value too long for type (character varying|character|binary)\((\d+)\)")


def truncation_error(message: str, sql: str, values: Sequence[object], catalog: SessionCatalog) -> SqlServerError:
    """``message``: PostgreSQL's for SQLSTATE 22001; ``sql`` and ``values``: of the statement."""
    limit, target = _TOO_LONG.match(message), _TARGET.search(sql)
    table = catalog.table_by_postgres_name(_unquoted(target[1]), _unquoted(target[2])) if target else None
    if limit is None or target is None or table is None:
        return _unknown()
    length, is_binary = int(limit[2]), limit[1] == "binary"
    found = _find(table, length, target[3], values, is_binary=is_binary)
    if found is None:
        return _unknown()
    column, value = found
    # No source shows what a server says of a binary value.
    shown = "" if is_binary else first_characters(str(value), length)
    name = f"{table.database}.{table.schema}.{table.name}"
    return SqlServerError(
        2628,
        f"String or binary data would be truncated in table '{name}', column '{column.name}'. Truncated value: "
        f"'{shown}'.",
    )


def _find(
    table: CatalogObject, length: int, written: str | None, values: Sequence[object], *, is_binary: bool
) -> tuple[CatalogColumn, str | bytes] | None:
    # The type's declared length is all that PostgreSQL's message gives.
    fitting = [
        c for c in table.columns if c.type.length == length and (BY_NAME[c.type.name].family == BINARY) == is_binary
    ]
    too_long = [v for v in values if _is_longer(v, length, is_binary=is_binary)]
    # With one candidate the column is certain even where the value is computed by the statement.
    if len(fitting) == 1:
        return fitting[0], too_long[0] if too_long else ""
    named = [_unquoted(name.strip()) for name in written.split(",")] if written else []
    # Positions say which value goes where only if there is one value for each named column.
    if len(named) == len(values):
        by_name = {c.postgres_name: c for c in fitting}
        for name, value in zip(named, values, strict=True):
            if name in by_name and _is_longer(value, length, is_binary=is_binary):
                return by_name[name], value
    return None


def _is_longer(value: object, length: int, *, is_binary: bool) -> TypeGuard[str | bytes]:
    if is_binary and isinstance(value, str):
        # A literal is bound as PostgreSQL writes it: \x and two digits a byte.
        return value.startswith("\\x") and len(value) > 2 + 2 * length
    if is_binary:
        return isinstance(value, bytes) and len(value) > length
    return isinstance(value, str) and unit_count(value) > length


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _unknown() -> SqlServerError:
    return SqlServerError(8152, "String or binary data would be truncated.", state=30)
