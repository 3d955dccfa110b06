"""FOR JSON and FOR XML: the rows of a query as one text.

A row becomes its object or element by concatenation, because both have an order and an omission of NULLs that
PostgreSQL's own functions do not have. FOR XML knows PATH only: it is what strings were concatenated with before
STRING_AGG.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.clauses import select_from
from sqlserver_emulator.engine.translate.expressions.emission import Emission, quote_text
from sqlserver_emulator.engine.translate.expressions.functions.json import JsonValue, json_text
from sqlserver_emulator.engine.translate.expressions.rows import Query
from sqlserver_emulator.engine.translate.expressions.scope import SourceColumn, quote
from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import family
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.types import NVARCHAR_MAX, TsqlType

# The server's own fixed names of these columns.
_JSON_COLUMN = "JSON_F52E2B61-18A1-11d1-B105-00805F49916B"
_XML_COLUMN = "XML_F52E2B61-18A1-11d1-B105-00805F49916B"
_XML_CONTENT = ("", "*", "text()", "data()", "node()")
_ROWS = "~rows"


def options_of(clause: exp.Expression) -> dict[str, exp.Expression | None]:
    """The words of a FOR clause in upper case, with the literal in their parentheses."""
    found: dict[str, exp.Expression | None] = {}
    for option in clause.expressions:
        word = option.this
        if isinstance(word, exp.XMLKeyValueOption):
            found[word.this.name.upper()] = word.expression
        else:
            found[word.name.upper()] = None
    return found


def for_json(query: Query, clause: exp.Expression, emission: Emission, sources: int) -> Query:
    """``sources``: how many tables the query reads, which AUTO would nest."""
    options = options_of(clause)
    unknown = set(options) - {"PATH", "AUTO", "ROOT", "INCLUDE_NULL_VALUES", "WITHOUT_ARRAY_WRAPPER"}
    if unknown:
        raise NotSupportedByEmulatorError(f"FOR JSON {sorted(unknown)[0]}")
    if "AUTO" in options and sources > 1:
        raise NotSupportedByEmulatorError("FOR JSON AUTO over more than one table")
    tree = _JsonObject("INCLUDE_NULL_VALUES" in options)
    for column, value in zip(query.columns, _row_values(query), strict=True):
        if not column.name:
            message = "Column expressions and data sources without names or aliases cannot be formatted as JSON text"
            raise SqlServerError(13605, f"{message} using FOR JSON clause. Add alias to the unnamed column or table.")
        tree.add([column.name] if "AUTO" in options else column.name.split("."), json_text(value), column.name)
    joined = f"string_agg({tree.sql()}, ',')"
    sql = joined if "WITHOUT_ARRAY_WRAPPER" in options else f"('[' || {joined} || ']')"
    if "ROOT" in options:
        root = options["ROOT"]
        name = emission.constant(root) if root is not None else "root"
        sql = f"('{{' || to_json({quote_text(name)}::text)::text || ':' || {sql} || '}}')"
    return _one_text(query, sql, _JSON_COLUMN, is_json="WITHOUT_ARRAY_WRAPPER" not in options)


def _row_values(query: Query) -> list[Value]:
    """The columns of ``query`` as a source; those that are JSON already are known as that."""
    made: list[Value] = []
    for i, column in enumerate(query.columns):
        is_json = i < len(query.values) and isinstance(query.values[i], JsonValue)
        kind = JsonValue if is_json else Value
        family_name = family(column.type) if column.type is not None else None
        made.append(kind(f"{quote(_ROWS)}.{column.sql}", column.type, kind=family_name, is_null=column.untyped))
    return made


@dataclass(slots=True)
class _JsonObject:
    """Members by name, in order; a member is a value's SQL or an object."""

    includes_null: bool
    members: dict[str, str | _JsonObject] = field(default_factory=dict)

    def add(self, path: list[str], sql: str, name: str) -> None:
        """Raises 13601 for a name that is there already."""
        if len(path) == 1:
            if path[0] in self.members:
                raise _conflict(name)
            self.members[path[0]] = sql
            return
        inner = self.members.setdefault(path[0], _JsonObject(self.includes_null))
        # Members of one object must follow one another, as the server writes while it reads the columns in order.
        if not isinstance(inner, _JsonObject) or list(self.members)[-1] != path[0]:
            raise _conflict(name)
        inner.add(path[1:], sql, name)

    def sql(self) -> str:
        return f"('{{' || {self._members()} || '}}')"

    def _members(self) -> str:
        parts: list[str] = []
        for name, member in self.members.items():
            head = f"to_json({quote_text(name)}::text)::text || ':' || "
            if isinstance(member, _JsonObject):
                # An inner object whose members are all NULL is left out like a NULL member.
                parts.append(f"{head}'{{' || nullif({member._members()}, '') || '}}'")
            # concat_ws leaves NULL members out, which is FOR JSON's default.
            else:
                parts.append(head + (f"coalesce({member}, 'null')" if self.includes_null else member))
        return f"concat_ws(',', {', '.join(parts)})"


def _conflict(name: str) -> SqlServerError:
    message = f"Property '{name}' cannot be generated in JSON output due to a conflict with another column name or"
    return SqlServerError(13601, f"{message} alias. Use different names and aliases for each column in SELECT list.")


def for_xml(query: Query, clause: exp.Expression, emission: Emission) -> Query:
    """Return the query of FOR XML PATH over ``query``."""
    options = options_of(clause)
    unknown = set(options) - {"PATH", "TYPE", "ROOT"}
    if "PATH" not in options or unknown:
        raise NotSupportedByEmulatorError(f"FOR XML {', '.join(sorted(unknown)) or 'without PATH'}")
    node = options["PATH"]
    element = emission.constant(node) if node is not None else "row"
    content = _xml_row(query, element, emission)
    sql = f"string_agg({content}, '')"
    if "ROOT" in options:
        root = options["ROOT"]
        name = emission.constant(root) if root is not None else "root"
        sql = f"({quote_text(f'<{name}>')} || {sql} || {quote_text(f'</{name}>')})"
    return _one_text(query, sql, _XML_COLUMN, type=TsqlType("xml") if "TYPE" in options else NVARCHAR_MAX)


def _xml_row(query: Query, element: str, emission: Emission) -> str:
    parts: list[str] = []
    attributes: list[str] = []
    for column, value in zip(query.columns, _row_values(query), strict=True):
        name = column.name
        # An @ at the beginning makes the column an attribute, which may have no path.
        if "/" in name.lstrip("@"):
            raise NotSupportedByEmulatorError(f"FOR XML PATH with the column name {name!r}")
        text = f"tsql.xml_text({convert(value, NVARCHAR_MAX, IMPLICIT, _xml_style(value)).sql})"
        if name.startswith("@"):
            attributes.append(f"' {name[1:]}=\"' || replace({text}, '\"', '&quot;') || '\"'")
        elif name.lower() in _XML_CONTENT:
            parts.append(text if value.type is None or value.type.name != "xml" else f"{value.sql}")
        else:
            parts.append(f"'<{name}>' || {text} || '</{name}>'")
    inner = f"concat({', '.join(parts)})" if parts else "''"
    if not element:
        # PATH('') has no element around a row.
        return inner
    return f"concat({quote_text('<' + element)}, {', '.join([*attributes, quote_text('>')])}, {inner}, '</{element}>')"


def _xml_style(value: Value) -> str | None:
    # FOR XML writes dates in ISO 8601, which is style 126.
    return "126" if value.kind == "temporal" else None


def plain_texts(query: Query) -> str:
    """Return what `.value('.', …)` finds in `FOR XML PATH(''), TYPE`: the texts themselves, one behind the other."""
    texts = [convert(value, NVARCHAR_MAX, IMPLICIT, _xml_style(value)).sql for value in _row_values(query)]
    return select_from(f"string_agg(concat({', '.join(texts)}), '')", f"({query.sql}) AS {quote(_ROWS)}")


def _one_text(query: Query, sql: str, name: str, *, type: TsqlType = NVARCHAR_MAX, is_json: bool = False) -> Query:
    """No rows give no text: a scalar subquery is then NULL, and a result has no row."""
    rows = f"({query.sql}) AS {quote(_ROWS)} HAVING count(*) > 0"
    column = SourceColumn(name, quote(name), type)
    value = (JsonValue if is_json else Value)("", type, kind="text")
    return Query(select_from(f"{sql} AS {column.sql}", rows), [column], [value])
