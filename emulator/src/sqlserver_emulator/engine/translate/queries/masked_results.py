"""Masked results: a client without UNMASK gets masks over a result, after all else was done with real values."""

from __future__ import annotations

from dataclasses import replace

from sqlserver_emulator.engine.masks import DEFAULT_MASK, Mask, parse_mask
from sqlserver_emulator.engine.translate.expressions.clauses import select_from
from sqlserver_emulator.engine.translate.expressions.emission import quote_text
from sqlserver_emulator.engine.translate.expressions.rows import Query
from sqlserver_emulator.engine.translate.expressions.scope import SourceColumn, quote
from sqlserver_emulator.engine.translate.values.conversion import EXPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import family, storage_type, varchar
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.system_types.record import BINARY, GUID, TEMPORAL, TEXT, VARIANT
from sqlserver_emulator.types import TsqlType

_ALIAS = quote("~m")
_SHOWN = {TEXT: "xxxx", TEMPORAL: "1900-01-01", GUID: "00000000-0000-0000-0000-000000000000"}


def masked(query: Query) -> Query:
    """The query as its client sees it: the same one where nothing is masked."""
    if not any(column.mask for column in query.columns):
        return query
    items = [f"{_shown(column)} AS {column.sql}" for column in query.columns]
    # Around the whole: the query itself compares, sorts and groups real values.
    sql = select_from(", ".join(items), f"({query.sql}) AS {_ALIAS}")
    columns = [replace(c, mask="", direct=c.direct and not c.mask) for c in query.columns]
    return Query(sql, columns, [Value("", column.type) for column in columns])


def masked_value(sql: str, type: TsqlType | None, mask: str = DEFAULT_MASK) -> str:
    """A PostgreSQL expression as its client sees it. NULL stays NULL."""
    if type is None or family(type) == VARIANT:
        raise NotSupportedByEmulatorError("an expression of unknown type over masked columns")
    parsed = parse_mask(mask, "", type)
    return f"CASE WHEN {sql} IS NULL THEN {sql} ELSE {_replacement(sql, type, parsed)} END"


def _shown(column: SourceColumn) -> str:
    sql = f"{_ALIAS}.{column.sql}"
    return masked_value(sql, column.type, column.mask) if column.mask else sql


def _replacement(sql: str, type: TsqlType, mask: Mask) -> str:
    if mask.name == "email":
        return _text(f"left({sql}::text, 1) || 'XXX@XXXX.com'", type)
    if mask.name == "partial":
        prefix, padding, suffix = int(mask.arguments[0]), mask.arguments[1], int(mask.arguments[2])
        ends = f"left({sql}::text, {prefix}) || {quote_text(padding)} || right({sql}::text, {suffix})"
        # A value no longer than prefix and suffix together would be shown whole.
        whole = f"length({sql}::text) > {prefix + suffix}"
        return _text(f"CASE WHEN {whole} THEN {ends} ELSE {quote_text(padding)} END", type)
    if mask.name == "random":
        low, high = mask.arguments
        return f"({low} + floor(random() * ({high} - {low} + 1)))::{storage_type(type)}"
    return _default(type)


def _default(type: TsqlType) -> str:
    kind = family(type)
    if kind == TEXT:
        return _text("'xxxx'::text", type)
    if kind == BINARY:
        return convert(Value("'\\x00'::bytea", TsqlType("varbinary", 1)), type, EXPLICIT).sql
    if kind in _SHOWN:
        shown = _SHOWN[kind]
        return convert(Value(f"{quote_text(shown)}::text", varchar(len(shown))), type, EXPLICIT).sql
    return f"0::{storage_type(type)}"


def _text(sql: str, type: TsqlType) -> str:
    # As long as the column may be: a longer mask is cut.
    return convert(Value(f"({sql})", TsqlType("nvarchar", 4000)), type, EXPLICIT).sql
