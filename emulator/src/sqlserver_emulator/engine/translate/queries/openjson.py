"""OPENJSON: the columns it has by itself, and those that its WITH clause names, with a type and a path each."""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.clauses import select_from
from sqlserver_emulator.engine.translate.expressions.emission import quote_text
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator
from sqlserver_emulator.engine.translate.expressions.scope import SourceColumn, quote
from sqlserver_emulator.engine.translate.values.conversion import EXPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import TEXT, storage_type
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import NVARCHAR_4000, NVARCHAR_MAX, TsqlType

OPENJSON_COLUMNS = (
    SourceColumn("key", '"key"', NVARCHAR_4000, False),
    SourceColumn("value", '"value"', NVARCHAR_MAX),
    SourceColumn("type", '"type"', TsqlType("tinyint"), False),
)
_ROW = "~row"


def openjson_rows(
    expressions: ExpressionTranslator, arguments: str, definitions: list[exp.Expression]
) -> tuple[str, tuple[SourceColumn, ...]]:
    """The SQL that is behind LATERAL, and its columns."""
    items: list[str] = []
    columns: list[SourceColumn] = []
    for definition in definitions:
        name = definition.name
        type = expressions.read_type(definition.args["kind"], 1)
        path = definition.args.get("path")
        written = quote_text(expressions.emission.constant(path) if path is not None else _own_path(name))
        if definition.args.get("as_json"):
            if type != NVARCHAR_MAX:
                message = "AS JSON option can be specified only for column of nvarchar(max) type in WITH clause."
                raise SqlServerError(13618, message)
            value = f"tsql.json_field_structure({quote(_ROW)}.item, {written})"
        else:
            field = Value(f"tsql.json_field({quote(_ROW)}.item, {written})", NVARCHAR_MAX, kind=TEXT)
            value = convert(field, type, EXPLICIT).sql
        columns.append(SourceColumn(name, quote(name), type))
        items.append(f"{value}::{storage_type(type)}")
    rows = f"tsql.openjson_rows({arguments}) AS {quote(_ROW)}(item)"
    return f"({select_from(', '.join(items), rows)})", tuple(columns)


def _own_path(name: str) -> str:
    return '$."' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
