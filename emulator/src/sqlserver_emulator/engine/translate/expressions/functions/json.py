"""JSON functions: JSON_VALUE, JSON_QUERY, JSON_MODIFY, ISJSON. The PostgreSQL side is engine/sql/functions_json.sql."""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.functions.registry import ANY_NUMBER, Function, simple
from sqlserver_emulator.engine.translate.expressions.interfaces import Expressions
from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, as_text, convert
from sqlserver_emulator.engine.translate.values.type_rules import (
    BINARY,
    DECIMAL,
    FLOAT,
    INTEGER,
    TEMPORAL,
    TEXT,
)
from sqlserver_emulator.engine.translate.values.value import Value, exact_type
from sqlserver_emulator.types import INT, NVARCHAR_MAX, TsqlType


class JsonValue(Value):
    """Text that is JSON already: FOR JSON and JSON_MODIFY take it as it is and not as a string."""

    __slots__ = ()


def json_text(value: Value) -> str:  # noqa: PLR0911  (one return a kind of value)
    """The value as FOR JSON and JSON_MODIFY write it; NULL stays NULL."""
    if isinstance(value, JsonValue) or value.is_null or value.kind == DECIMAL:
        return f"{value.sql}::text"
    if value.kind == INTEGER and value.type is not None and value.type.name == "bit":
        return f"({value.sql} <> 0)::text"
    if value.kind == INTEGER:
        return f"{value.sql}::text"
    if value.kind == FLOAT:
        return f"tsql.float_to_text({value.sql}, 2)"
    if value.kind == BINARY:
        return f"""('"' || replace(encode({value.sql}, 'base64'), E'\\n', '') || '"')"""
    if value.kind == TEMPORAL:
        name = exact_type(value).name
        moment = convert(value, TsqlType("varchar", 40), IMPLICIT, "126" if name != "date" else "23")
        return f"tsql.json_string({moment.sql})"
    return f"tsql.json_string({as_text(value)})"


def _json_query(self: Expressions, nodes: list[exp.Expression]) -> Value:
    return JsonValue(f"tsql.json_query({', '.join(self.text(node) for node in nodes)})", NVARCHAR_MAX, kind=TEXT)


def _json_modify(self: Expressions, nodes: list[exp.Expression]) -> Value:
    document, path = self.text(nodes[0]), self.text(nodes[1])
    new = json_text(self.value(nodes[2]))
    return JsonValue(f"tsql.json_modify({document}, {path}, {new})", NVARCHAR_MAX, kind=TEXT)


def _isjson(self: Expressions, nodes: list[exp.Expression]) -> Value:
    arguments = [self.text(nodes[0])]
    if len(nodes) > 1:
        arguments.append(f"'{nodes[1].name.upper()}'")
    return Value(f"tsql.isjson({', '.join(arguments)})", INT)


def _json_array(*, keeps_nulls: bool) -> Function:
    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        items = [_member(self, node, keeps_nulls=keeps_nulls) for node in nodes]
        return JsonValue(f"('[' || concat_ws(',', {', '.join(items) or 'NULL'}) || ']')", NVARCHAR_MAX, kind=TEXT)

    return Function(handle, 0, ANY_NUMBER)


def _json_object(*, keeps_nulls: bool) -> Function:
    """Names and values come in turn."""

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        members = [
            f"(tsql.json_string({self.text(name)}) || ':' || {_member(self, value, keeps_nulls=keeps_nulls)})"
            for name, value in zip(nodes[::2], nodes[1::2], strict=True)
        ]
        joined = ", ".join(members) or "NULL"
        return JsonValue(f"('{{' || concat_ws(',', {joined}) || '}}')", NVARCHAR_MAX, kind=TEXT)

    return Function(handle, 0, ANY_NUMBER)


def _member(self: Expressions, node: exp.Expression, *, keeps_nulls: bool) -> str:
    text = json_text(self.value(node))
    return f"coalesce({text}, 'null')" if keeps_nulls else text


FUNCTIONS: dict[str, Function] = {
    "json_array": _json_array(keeps_nulls=False),
    "json_array absent": _json_array(keeps_nulls=False),
    "json_array null": _json_array(keeps_nulls=True),
    "json_object": _json_object(keeps_nulls=True),
    "json_object absent": _json_object(keeps_nulls=False),
    "json_object null": _json_object(keeps_nulls=True),
    "isjson": Function(_isjson, 1, 2),
    "json_modify": Function(_json_modify, 3, 3),
    "json_path_exists": simple("tt", INT, "tsql.json_path_exists({0}, {1})"),
    "json_query": Function(_json_query, 1, 2),
    "json_value": simple("tt", TsqlType("nvarchar", 4000), "tsql.json_value({0}, {1})"),
}
