"""The values of ``pipelines.yaml`` that are more than a string or a number, each with its own check."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from croniter import croniter  # type: ignore[import-untyped]
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationInfo

from floodmark.core.naming import IDENTIFIER_MAX_BYTES, LEDGER_SCHEMA, STAGING_SCHEMA
from floodmark.core.schema import TableName

PARSE_RULES = "parse_rules"
"""The key of the validation context; without it, the SQL of rules is parsed."""
_CRON_FIELDS = 5
_DURATION = re.compile(r"(\d+)\s*([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_OWN_SCHEMAS = frozenset({LEDGER_SCHEMA, STAGING_SCHEMA, "information_schema"})


def _parse_table(value: object) -> object:
    return TableName.parse(value) if isinstance(value, str) else value


def _check_target(name: TableName) -> TableName:
    for part in (name.schema, name.name):
        if len(part.encode()) > IDENTIFIER_MAX_BYTES:
            raise ValueError(f"{part!r} is longer than the {IDENTIFIER_MAX_BYTES} bytes of PostgreSQL's names")
        if "\0" in part:
            raise ValueError("a name cannot hold a zero character")
    if name.schema.lower() in _OWN_SCHEMAS or name.schema.lower().startswith("pg_"):
        raise ValueError(f"schema {name.schema} is reserved: choose another schema for the target")
    return name


def _check_cron(value: str) -> str:
    if not value.startswith("@") and len(value.split()) != _CRON_FIELDS:
        raise ValueError(f"not a cron expression: {value!r} (expected five fields, such as '*/5 * * * *')")
    if not croniter.is_valid(value):
        raise ValueError(f"not a cron expression: {value!r}")
    return value


def _parse_duration(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if not match:
        raise ValueError(f"not a duration: {value!r} (expected a number and s, m, h or d, such as 30m)")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _check_positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("a duration must be positive")
    return value


def _check_rule(value: str, info: ValidationInfo) -> str:
    if (info.context or {}).get(PARSE_RULES, True):
        # Imported here: a DAG file is parsed repeatedly and leaves rules to the run.
        from floodmark.config.rules import parse_rule  # noqa: PLC0415

        parse_rule(value)
    return value


SourceTableName = Annotated[TableName, BeforeValidator(_parse_table), PlainSerializer(str)]
TargetTableName = Annotated[
    TableName, BeforeValidator(_parse_table), AfterValidator(_check_target), PlainSerializer(str)
]
Cron = Annotated[str, AfterValidator(_check_cron)]
Duration = Annotated[
    timedelta,
    BeforeValidator(_parse_duration),
    AfterValidator(_check_positive),
    PlainSerializer(lambda value: f"{value.total_seconds():.0f}s"),
]
RuleSql = Annotated[str, AfterValidator(_check_rule)]
RuleName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]
PipelineName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]
ConnectionId = Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=250)]
ColumnName = Annotated[str, Field(min_length=1, max_length=128)]
"""The name of a source column, as the source spells it."""
