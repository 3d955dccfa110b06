"""Values that meet: CASE, COALESCE, VALUES and the like bring several expressions to one type."""

from __future__ import annotations

from collections.abc import Callable

from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, as_text, convert
from sqlserver_emulator.engine.translate.values.type_rules import TEXT, family, storage_type, unify
from sqlserver_emulator.engine.translate.values.value import LiteralValue, Value, suggest_general
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
