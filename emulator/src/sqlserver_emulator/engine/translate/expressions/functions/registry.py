"""How a built-in function is declared: its arity, its argument kinds, its result type and the PostgreSQL expression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.interfaces import Expressions
from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import FLOAT_TYPE
from sqlserver_emulator.engine.translate.values.value import TypeOrThunk, Value
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import BIGINT, INT, TsqlType

Handler = Callable[[Expressions, list[exp.Expression]], Value]

REFUSED = frozenset(
    [
        "compress",
        "decompress",
        "parse",
        "try_parse",
        "openxml",
        "openquery",
        "openrowset",
        "encryptbykey",
        "decryptbykey",
        "signbycert",
        "pwdcompare",
        "pwdencrypt",
        "cursor_status",
        "eventdata",
        "trigger_nestlevel",
        "columns_updated",
        "update",
        "freetexttable",
        "containstable",
        "contains",
        "freetext",
        "textptr",
        "textvalid",
        "percentile_cont",
        "percentile_disc",
        "sql_variant_property",
        "base64_decode",
        "base64_encode",
        "connectionproperty",
        "current_request_id",
        "date_bucket",
        "decryptbypassphrase",
        "encryptbypassphrase",
        "formatmessage",
        "getansinull",
        "get_filestream_transaction_context",
        "logical_name",
        "min_active_rowversion",
        "product",
        "publishingservername",
        "regexp_count",
        "regexp_instr",
        "regexp_like",
        "regexp_replace",
        "regexp_substr",
        "set_bit",
        "unistr",
        "stats_date",
        "file_id",
        "file_name",
        "filegroup_id",
        "filegroup_name",
        "fileproperty",
        "fulltextcatalogproperty",
        "fulltextserviceproperty",
        "assemblyproperty",
        "indexkey_property",
        "typeproperty",
        "databaseproperty",
        "permissions",
        "pwdexpiry",
        "crypt_gen_random",
        "json_arrayagg",
        "json_objectagg",
        "vector_distance",
    ]
)
"""Built-in functions of the server that the emulator does not have: refused by name, not called unknown."""


@dataclass(frozen=True, slots=True)
class Function:
    """A built-in function: its translation, and how many arguments it takes."""

    handler: Handler
    fewest: int
    most: int

    def check(self, name: str, count: int) -> None:
        if self.fewest <= count <= self.most:
            return
        if self.fewest == self.most:
            message = f"The {name} function requires {self.fewest} argument(s)."
            raise SqlServerError(174, message, severity=15)
        message = f"The {name} function requires {self.fewest} to {self.most} arguments."
        raise SqlServerError(189, message, severity=15)


ANY_NUMBER = 1000

_KINDS: dict[str, TsqlType] = {
    "i": INT,
    "b": BIGINT,
    "f": FLOAT_TYPE,
    "d": TsqlType("datetime2", scale=7),
    "g": TsqlType("uniqueidentifier"),
    "n": TsqlType("decimal", precision=38, scale=10),
    "x": TsqlType("varbinary", -1),
}


def argument(self: Expressions, node: exp.Expression, kind: str) -> str:
    """One argument's SQL. kind: t text, i int, b bigint, f float, d datetime2, x binary, n decimal, * as it is."""
    if kind == "t":
        return self.text(node)
    if kind == "*":
        return self.sql(node)
    return convert(self.value(node), _KINDS[kind], IMPLICIT).sql


def simple(kinds: str, result: TypeOrThunk, template: str) -> Function:
    """A function of a fixed form. ``kinds``: one letter an argument, those after `?` optional.

    ``template`` holds {0}, {1}…; with optional arguments it is a function's name, called with what was given.
    """
    required, _, optional = kinds.partition("?")
    letters = required + optional

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        arguments = [argument(self, node, letters[i]) for i, node in enumerate(nodes)]
        if optional or "{" not in template:
            return Value(f"{template}({', '.join(arguments)})", result)
        return Value(template.format(*arguments), result)

    return Function(handle, len(required), len(letters))


def constant(sql: str, result: TypeOrThunk) -> Function:
    """Return a function without arguments."""
    return Function(lambda _self, _nodes: Value(sql, result), 0, 0)
