"""Names: how a T-SQL name is spelled in PostgreSQL, and how identifiers and literals are quoted.

PostgreSQL cuts identifiers at 63 bytes; longer ones are cut here with a hash, so that two long names stay two names.
The catalog keeps the real names.
"""

from __future__ import annotations

import hashlib

_POSTGRES_NAME_BYTES = 63
_HASH_CHARACTERS = 8

RANGE_SUFFIX = "~range"
LENGTH_SUFFIX = "~length"
"""Ends of the names of CHECK constraints that stand for limits of a T-SQL type."""
IDENTITY_SUFFIX = "~identity"
"""End of the name of a sequence that a decimal identity column owns."""
BLANKS_PREFIX = "~blanks."
"""Before the oid of a unique index: the name of the second one, to which blanks at the end of a string do not count."""


def postgres_name(name: str) -> str:
    """The identifier that represents ``name`` in PostgreSQL: itself where it fits, else cut and hashed."""
    encoded = name.encode()
    if len(encoded) <= _POSTGRES_NAME_BYTES:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:_HASH_CHARACTERS]
    kept = encoded[: _POSTGRES_NAME_BYTES - _HASH_CHARACTERS - 1].decode(errors="ignore")
    return f"{kept}~{digest}"


def postgres_schema(database: str, schema: str) -> str:
    """The PostgreSQL schema that holds schema ``schema`` of database ``database``."""
    separator = "." if "." not in database + schema else "\x01"
    return postgres_name(f"{database}{separator}{schema}")


def index_name(table_object_id: int, name: str) -> str:
    """PostgreSQL index names are unique in a schema, T-SQL ones in a table."""
    return postgres_name(f"{table_object_id}.{name}")


def quote(identifier: str) -> str:
    """Return a quoted PostgreSQL identifier."""
    return '"' + identifier.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A PostgreSQL string literal (standard_conforming_strings is on)."""
    return "'" + text.replace("'", "''") + "'"


def qualified(schema: str, name: str) -> str:
    """Return a quoted PostgreSQL name with its schema."""
    return f"{quote(schema)}.{quote(name)}"


def bracketed(name: str) -> str:
    """Return a T-SQL identifier in brackets."""
    return "[" + name.replace("]", "]]") + "]"
