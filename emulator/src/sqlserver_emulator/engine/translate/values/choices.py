"""Values that meet: CASE, COALESCE, VALUES and the like bring several expressions to one type."""

from __future__ import annotations

from collections.abc import Callable

from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, as_text, convert
from sqlserver_emulator.engine.translate.values.type_rules import TEXT, VARIANT, family, storage_type, unify
from sqlserver_emulator.engine.translate.values.value import LiteralValue, Value, VariantValue, suggest_general
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.system_types.others import VARIANT_VALUES
from sqlserver_emulator.types import TsqlType


def choose(tests: list[str], results: list[Value]) -> Value:
    """CASE WHEN tests[i] THEN results[i] … ELSE results[-1] END with the results brought to one type."""
    values, type = unified(results)
    whens = " ".join(f"WHEN {test} THEN {value}" for test, value in zip(tests, values, strict=False))
    nullable = any(value.nullable for value in results)
    return Value(f"(CASE {whens} ELSE {values[-1]} END)", type, kind=common_kind(results), nullable=nullable)


def unified(values: list[Value]) -> tuple[list[str], Callable[[], TsqlType | None]]:
    """The SQL of values that meet in one column or result, and their common type (asked lazily)."""
    typed = [value for value in values if not value.is_null]
    kinds = {value.kind for value in typed}
    # A parameter without a type takes that of the values it meets.
    if typed and len(typed) < len(values):
        for value in values:
            suggest_general(value, typed[0])

    def common() -> TsqlType | None:
        found: TsqlType | None = None
        for value in typed:
            found = unify(found, value.type)
        return found or values[0].type

    if VARIANT in kinds:
        return _as_variants(values), common
    if kinds == {TEXT}:
        return [as_text(value) if not value.is_null else "NULL::text" for value in values], common
    if None in kinds or not typed:
        return [value.sql for value in values], common
    alike = _alike(typed)
    if alike is not None:
        storage = storage_type(alike)
        # The cast keeps PostgreSQL from reading the branch as text.
        return [value.sql if not value.is_null else f"NULL::{storage}" for value in values], common
    target = common()
    return [convert(value, target, IMPLICIT).sql if target is not None else value.sql for value in values], common


def _as_variants(values: list[Value]) -> list[str]:
    """Properties of the server, and what replaces them, in the storage of the base type that all have."""
    bases = {_variant_base(value) for value in values if not value.is_null}
    base = bases.pop()
    if bases or base is None:
        raise NotSupportedByEmulatorError(VARIANT_VALUES)
    return [f"NULL::{base}" if value.is_null else _variant_sql(value, base) for value in values]


def _variant_base(value: Value) -> str | None:
    if isinstance(value, VariantValue):
        return value.base
    # Columns of system views, and SESSION_CONTEXT.
    if value.kind in (TEXT, VARIANT):
        return "text"
    return "integer" if value.type is not None and value.type.name in ("int", "smallint", "tinyint") else None


def _variant_sql(value: Value, base: str) -> str:
    if value.kind == TEXT:
        return as_text(value)
    # PostgreSQL refuses a column that is none of the base type, which a derived table may have.
    return value.sql if value.kind == VARIANT and not isinstance(value, VariantValue) else f"{value.sql}::{base}"


def _alike(values: list[Value]) -> TsqlType | None:
    """The type that all have already. Literals are not asked: their exact type would enter the cache's key."""
    if any(isinstance(value, LiteralValue) for value in values):
        return None
    types = {value.type for value in values}
    return types.pop() if len(types) == 1 else None


def common_kind(values: list[Value]) -> str | None:
    """Return the kind that values have together, or None."""
    kinds = {value.kind for value in values if not value.is_null}
    if len(kinds) == 1:
        return kinds.pop()
    if None in kinds or not kinds:
        return None
    type = unified(values)[1]()
    return family(type) if type is not None else None
