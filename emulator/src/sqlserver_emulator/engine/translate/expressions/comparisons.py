"""Comparisons over translated values: `=` and its kind, IN, ANY and ALL, LIKE.

Strings are compared by their collation (``values.collating``), and the shorter counts as filled with blanks, so 'abc'
equals 'abc '. Of a collation that is not binary their keys are compared. Of a binary one, PostgreSQL's type bpchar
(without a length) compares so, and a varchar is cast to it without a change of the stored bytes; the blanks stay there
for LEN's sake. An index on a varchar column knows blanks, though: next to a constant the comparison is therefore also
said as a range in the order of bytes ('abc' and everything behind it up to, not including, 'abc!').
"""

from __future__ import annotations

from sqlserver_emulator.engine.translate.expressions.clauses import select_from
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.expressions.scope import SourceColumn
from sqlserver_emulator.engine.translate.values.collating import (
    OPERATIONS,
    collation_of,
    folded,
    grouped_type,
    is_comparable_as_stored,
    key,
)
from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, as_text, convert
from sqlserver_emulator.engine.translate.values.type_rules import (
    BINARY,
    NUMBERS,
    TEMPORAL,
    TEXT,
    VARBINARY_MAX,
    VARIANT,
    higher,
    is_composite,
    is_fixed_text,
    is_national,
)
from sqlserver_emulator.engine.translate.values.value import LiteralValue, Value, exact_type, suggest, suggest_general
from sqlserver_emulator.types import MAX_LENGTH, TsqlType

_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_AFTER_BLANK = "'!'"
"""The character that follows the blank: strings that differ in trailing blanks only lie before it."""
_LISTED_RANGES_MAX = 16
"""An IN of more strings is a plain one, which uses no index: each range costs the planner time."""


def compare(operator: str, left: Value, right: Value) -> str:
    """A comparison as a PostgreSQL boolean."""
    if left.is_null or right.is_null:
        _suggest_types(operator, left, right)
        # A comparison with NULL is unknown; the cast keeps PostgreSQL from asking for the type.
        return "NULL::boolean"
    left, right = comparable(left, right)
    if left.kind == right.kind == TEXT:
        return _compare_text(operator, left, right)
    return f"({left.sql} {comparison_operator(operator, left, right)} {right.sql})"


def _suggest_types(operator: str, left: Value, right: Value) -> None:
    for value, other in ((left, right), (right, left)):
        if operator in ("=", "<>") and not other.is_null:
            suggest(value, other.type)
        else:
            suggest_general(value, other)


def _compare_text(operator: str, left: Value, right: Value) -> str:
    collation = collation_of(left, right, operation=OPERATIONS[operator])
    if not collation.is_binary:
        return f"({key(left.sql, collation)} {operator} {key(right.sql, collation)})"
    if right.direct and left.constant:
        # Only the form column operator constant can be a range over an index.
        operator, left, right = _MIRRORED.get(operator, operator), right, left
    # `<>` would be two ranges, which no index scan serves; char(n) compares without blanks by itself.
    if operator == "<>" or not (left.direct and right.constant) or is_fixed_text(left.type):
        return f"({_blank_padded(left)} {operator} {_blank_padded(right)})"
    column, start = left.sql, f"rtrim({right.sql}, ' ')"
    end = f"{start} || {_AFTER_BLANK}"
    ranges = {
        # The range is what an index serves; the exact comparison drops other strings that begin alike.
        "=": f"({column} >= {start} AND {column} < {end} AND {_blank_padded(left)} = {_blank_padded(right)})",
        "<": f"({column} < {start})",
        "<=": f"({column} < {end})",
        ">": f"({column} >= {end})",
        ">=": f"({column} >= {start})",
    }
    return ranges[operator]


def padded(value: Value) -> str:
    """A string in the form in which rows are grouped: as itself, but compared by its collation."""
    type = grouped_type(value.collated)
    return _blank_padded(value) if type == "bpchar" else f"{value.sql}::{type}"


def order_key(value: Value) -> str:
    """The value as it is ordered and counted. Raises 446 for a conflict of collations."""
    if value.kind != TEXT or value.is_null:
        return value.sql
    grouped_type(value.collated)
    collation = collation_of(value, operation="ORDER BY")
    return distinct_key(value) if collation.is_binary else key(value.sql, collation)


def _blank_padded(value: Value) -> str:
    """A string in the form whose trailing blanks do not count."""
    # A stored char(n) is bpchar already; a cast would keep its index from being used.
    if not isinstance(value, LiteralValue) and is_fixed_text(value.type) and value.direct:
        return value.sql
    return f"{value.sql}::bpchar"


def has_blanks_at_end(value: Value) -> bool:
    """Whether PostgreSQL would compare the value otherwise than the server does without ``padded``."""
    if value.kind != TEXT or value.is_null:
        return False
    return isinstance(value, LiteralValue) or not is_comparable_as_stored(value.collated, value.type)


def distinct_key(value: Value) -> str:
    """The value as it is distinguished by GROUP BY, DISTINCT and PARTITION BY."""
    return padded(value) if has_blanks_at_end(value) else value.sql


def unpadded(sql: str) -> str:
    """Back from ``padded``, with the blanks that are there (a cast to text would cut them off)."""
    return f"tsql.unpadded({sql}, -1, false)"


def comparison_operator(operator: str, left: Value, right: Value) -> str:
    """Return PostgreSQL's operator; a composite type has operators of its own, which must be named to be found."""
    if left.kind == right.kind == TEMPORAL:
        left_type, right_type = exact_type(left), exact_type(right)
        if left_type.name == right_type.name and is_composite(left_type):
            return f"OPERATOR(tsql.{operator})"
    return operator


def comparable(left: Value, right: Value) -> tuple[Value, Value]:
    """Both sides brought to a type that PostgreSQL compares as the server does."""
    if left.kind is None or right.kind is None:
        return left, right
    if left.kind == right.kind:
        return _same_family(left, right)
    if VARIANT in (left.kind, right.kind):
        left, right = (
            Value(f"{v.sql}::text", TsqlType("nvarchar", 4000)) if v.kind == VARIANT else v for v in (left, right)
        )
        return comparable(left, right)
    # PostgreSQL compares numbers of all kinds with each other by value.
    if {left.kind, right.kind} <= set(NUMBERS):
        return left, right
    left_type, right_type = _ranked_type(left), _ranked_type(right)
    # The side of lower precedence is converted, as SQL Server's data type precedence says.
    if higher(left_type, right_type) is left_type:
        return left, convert(right, left_type, IMPLICIT)
    return convert(left, right_type, IMPLICIT), right


def _ranked_type(value: Value) -> TsqlType:
    """The type, which for a string literal is not asked for its length: that would enter the cache's key."""
    if isinstance(value, LiteralValue) and value.kind == TEXT:
        return TsqlType("nvarchar" if value.is_national else "varchar", MAX_LENGTH)
    return exact_type(value)


def _same_family(left: Value, right: Value) -> tuple[Value, Value]:
    if left.kind == BINARY:
        return _padded_binaries(left, right)
    if left.kind != TEMPORAL:
        return left, right
    left_type, right_type = exact_type(left), exact_type(right)
    # PostgreSQL compares dates and timestamps with each other.
    if left_type.name == right_type.name or not (_compares_alone(left_type) or _compares_alone(right_type)):
        return left, right
    if higher(left_type, right_type) is left_type:
        return left, convert(right, left_type, IMPLICIT)
    return convert(left, right_type, IMPLICIT), right


def _compares_alone(type: TsqlType) -> bool:
    return type.name == "time" or is_composite(type)


def _padded_binaries(left: Value, right: Value) -> tuple[Value, Value]:
    """Binaries are compared as if the shorter had zeros behind it: 0x00 equals an LSN of ten zeros.

    Next to a binary(n) the other side is filled to n, so that an index on the column is used.
    """
    lengths = [_fixed_length(value) for value in (left, right)]
    if lengths == [None, None]:
        return _without_zeros(left), _without_zeros(right)
    width = max(length or 0 for length in lengths)
    filled = [
        value if length == width else Value(f"tsql.pad_binary({value.sql}, {width})", VARBINARY_MAX)
        for value, length in zip((left, right), lengths, strict=True)
    ]
    return filled[0], filled[1]


def _fixed_length(value: Value) -> int | None:
    type = None if isinstance(value, LiteralValue) else value.type
    if type is None or type.name not in ("binary", "rowversion"):
        return None
    return 8 if type.name == "rowversion" else type.length


def _without_zeros(value: Value) -> Value:
    return Value(f"rtrim({value.sql}, '\\x00'::bytea)", VARBINARY_MAX)


def in_list(value: Value, items: list[Value]) -> str:
    """Return `value IN (items)` as a PostgreSQL boolean."""
    for item in items:
        if value.is_null or item.is_null:
            _suggest_types("=", value, item)
    if value.is_null:
        return "NULL::boolean"
    given = [item for item in items if not item.is_null]
    # Each item is a range of its own, so that an index on the column serves it.
    if value.kind == TEXT and value.direct and _is_binary(value, given) and len(given) <= _LISTED_RANGES_MAX:
        tests = [compare("=", value, item) for item in given]
    else:
        pairs = [comparable(value, item) for item in given]
        written = [_list_pair(left, right) for left, right in pairs]
        operators = {comparison_operator("=", left, right) for left, right in pairs}
        # One plain IN is only possible when all comparisons have one left side and no special operator.
        if len(given) == len(items) and operators == {"="} and len({left for left, _ in written}) == 1:
            return f"({written[0][0]} IN ({', '.join(right for _, right in written)}))"
        tests = [compare("=", value, item) for item in given]
    # A NULL in the list makes a row that matches nothing unknown, not false (NOT IN then finds no row).
    if len(given) < len(items):
        tests.append("NULL::boolean")
    return f"({' OR '.join(tests)})"


def _is_binary(value: Value, items: list[Value]) -> bool:
    return collation_of(value, *items, operation=OPERATIONS["="]).is_binary


def _list_pair(left: Value, right: Value) -> tuple[str, str]:
    if left.kind == right.kind == TEXT:
        collation = collation_of(left, right, operation=OPERATIONS["="])
        if collation.is_binary:
            return _blank_padded(left), _blank_padded(right)
        return key(left.sql, collation), key(right.sql, collation)
    return left.sql, right.sql


def compare_with_rows(operator: str, value: Value, word: str, query: str, column: SourceColumn) -> str:
    """`value operator ANY|ALL (query)`, and IN (query); ``column``: the one column of the query."""
    type = column.type
    suggest(value, type)
    if type is None or value.kind is None:
        return f"({value.sql} {operator} {word} ({query}))"
    item = Value('"in"."value"', type, collated=column.collated)
    left, right = comparable(value, item)
    written = comparison_operator(operator, left, right)
    left_sql, right_sql = _list_pair(left, right)
    # A column that needs no conversion needs no query around it.
    if right_sql == item.sql:
        return f"({left_sql} {written} {word} ({query}))"
    rows = select_from(right_sql, f'({query}) AS "in"("value")')
    return f"({left_sql} {written} {word} ({rows}))"


def like(emission: Emission, value: Value, pattern: Value, escape: str | None) -> str:
    """LIKE. PostgreSQL's LIKE has no [classes]: a pattern that may have them goes through a regular expression.

    Blanks count, but those at the end of a (var)char that the pattern has no match for do not.
    """
    suggest_general(pattern, value)
    collation = collation_of(value, pattern, operation="like")
    text, pattern_sql = folded(as_text(value), collation), folded(as_text(pattern), collation)
    open_ended = isinstance(pattern, LiteralValue) and bool(emission.facet(pattern, "open_ended"))
    # LIKE ignores blanks at the end of a varchar value: the value is tried with and without them.
    texts = [text] if open_ended or _counts_blanks(value, pattern) else [text, f"rtrim({text}, ' ')"]
    by_units = [f"tsql.like({sql}, {pattern_sql}, {escape if escape is not None else 'NULL'})" for sql in texts]
    if not isinstance(pattern, LiteralValue) or emission.facet(pattern, "pattern"):
        return f"({' OR '.join(by_units)})"
    # Without a class the pattern means the same to PostgreSQL's LIKE, but for one unit of a pair.
    # The function is what PostgreSQL makes of ESCAPE. Stored expressions are parsed again, by a parser whose ESCAPE
    # takes no typed literal.
    escaped = f"like_escape({pattern_sql}, {escape if escape is not None else _NO_ESCAPE})"
    tests = [f"{sql} LIKE {escaped}" for sql in texts]
    if emission.facet(pattern, "wildcard"):
        return (
            f"(CASE WHEN tsql.has_pairs({as_text(value)}) THEN {' OR '.join(by_units)} ELSE {' OR '.join(tests)} END)"
        )
    return f"({' OR '.join(tests)})"


# PostgreSQL's default escape is the backslash; T-SQL has none unless ESCAPE names it.
_NO_ESCAPE = "''"


def _counts_blanks(value: Value, pattern: Value) -> bool:
    """Whether one side is national: then every blank counts."""
    for side in (value, pattern):
        if isinstance(side, LiteralValue):
            if side.is_national:
                return True
        elif side.kind == TEXT and side.type is not None and is_national(side.type):
            return True
    return value.kind != TEXT
