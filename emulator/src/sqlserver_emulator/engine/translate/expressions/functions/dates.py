"""Date and time functions. Now is the emulator's clock at the statement's start, in PostgreSQL's time zone."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.functions.registry import Function, Handler, constant
from sqlserver_emulator.engine.translate.expressions.interfaces import Expressions
from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import TEMPORAL, counts_from_1900, has_offset, storage_type
from sqlserver_emulator.engine.translate.values.value import Value, exact_type
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.system_types.record import Declared
from sqlserver_emulator.types import BIGINT, DATETIME, INT, TsqlType

DATETIME2 = TsqlType("datetime2", scale=7)
DATETIMEOFFSET = TsqlType("datetimeoffset", scale=7)
DATE = TsqlType("date")

_PARTS = {
    "year": ("year", "yyyy", "yy"),
    "quarter": ("quarter", "qq", "q"),
    "month": ("month", "mm", "m"),
    "dayofyear": ("dayofyear", "dy", "y"),
    "day": ("day", "dd", "d"),
    "week": ("week", "wk", "ww"),
    "weekday": ("weekday", "dw", "w"),
    "hour": ("hour", "hh"),
    "minute": ("minute", "mi", "n"),
    "second": ("second", "ss", "s"),
    "millisecond": ("millisecond", "ms"),
    "microsecond": ("microsecond", "mcs"),
    "nanosecond": ("nanosecond", "ns"),
    "tzoffset": ("tzoffset", "tz"),
    "iso_week": ("iso_week", "isowk", "isoww"),
}
_PART_OF = {spelling: part for part, spellings in _PARTS.items() for spelling in spellings}


def date_part(node: exp.Expression, function: str) -> str:
    """The date part that a bare word names. Raises 155."""
    part = _PART_OF.get(node.name.lower())
    if part is None:
        raise SqlServerError(155, f"'{node.name}' is not a recognized {function} option.", severity=15)
    return part


def _moment(self: Expressions, node: exp.Expression) -> Value:
    """An argument that is a date, or a string or number that represents one."""
    value = self.value(node)
    if value.kind == TEMPORAL:
        return value
    # Strings convert to datetime2 here, which takes more forms and digits than datetime.
    if value.kind == "text":
        return convert(value, DATETIME2, IMPLICIT)
    return convert(value, DATETIME, IMPLICIT)


def _timestamp(self: Expressions, node: exp.Expression) -> str:
    return convert(_moment(self, node), DATETIME2, IMPLICIT).sql


def _dateadd(self: Expressions, nodes: list[exp.Expression]) -> Value:
    part = date_part(nodes[0], "dateadd")
    amount = self.converted(nodes[1], INT)
    value = self.value(nodes[2])
    # A string is taken as datetime; other types stay what they are.
    value = value if value.kind == TEMPORAL else convert(value, DATETIME, IMPLICIT)
    type = exact_type(value)
    _check_part(part, type, "dateadd")
    if has_offset(type):
        return Value(f"tsql.dateadd_offset('{part}', {amount}, {value.sql})", type)
    if type.name == "time":
        return Value(f"tsql.dateadd('{part}', {amount}, tsql.in_1900({value.sql}))::{storage_type(type)}", type)
    moment = convert(value, DATETIME2, IMPLICIT).sql
    added = Value(f"tsql.checked_dateadd('{part}', {amount}, {moment}, '{type.name}')", DATETIME2)
    # Back to the argument's own type, whose range the function has checked.
    return convert(added, type, IMPLICIT)


_TIME_PARTS = frozenset(("hour", "minute", "second", "millisecond", "microsecond", "nanosecond"))
_FINE_PARTS = frozenset(("microsecond", "nanosecond"))


def _check_part(part: str, type: TsqlType, function: str) -> None:
    """A date has no hours, a time no days; the old types cannot be moved by less than they hold."""
    if (
        (type.name == "date" and part in _TIME_PARTS)
        or (type.name == "time" and part not in _TIME_PARTS)
        or (function == "dateadd" and counts_from_1900(type) and part in _FINE_PARTS)
        or part == "tzoffset"
        or (function == "dateadd" and part == "iso_week")
    ):
        message = f"The datepart {part} is not supported by date function {function} for data type {type.name}."
        raise SqlServerError(9810, message)


def _datediff(function: str, type: TsqlType) -> Handler:
    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        part = date_part(nodes[0], function)
        called = "tsql.datediff" if type == BIGINT else "tsql.datediff_int"
        # Boundaries are counted in UTC where a value has an offset.
        start, end = _utc(self, nodes[1]), _utc(self, nodes[2])
        return Value(f"{called}('{part}', {start}, {end})", type)

    return handle


def _utc(self: Expressions, node: exp.Expression) -> str:
    value = _moment(self, node)
    if value.type is not None and has_offset(value.type):
        return f"tsql.utc_time({value.sql})"
    return convert(value, DATETIME2, IMPLICIT).sql


def _datepart(self: Expressions, nodes: list[exp.Expression]) -> Value:
    part = date_part(nodes[0], "datepart")
    return Value(_part_sql(self, part, nodes[1]), INT)


def _part_sql(self: Expressions, part: str, node: exp.Expression) -> str:
    if part == "tzoffset":
        moment = convert(_moment(self, node), DATETIMEOFFSET, IMPLICIT)
        return f"tsql.offset_minutes({moment.sql})"
    moment = _moment(self, node)
    _check_part(part, exact_type(moment), "datepart")
    return f"tsql.datepart('{part}', {convert(moment, DATETIME2, IMPLICIT).sql})"


def _single_part(part: str) -> Function:
    return Function(lambda self, nodes: Value(_part_sql(self, part, nodes[0]), INT), 1, 1)


def _datename(self: Expressions, nodes: list[exp.Expression]) -> Value:
    part = date_part(nodes[0], "datename")
    if part == "tzoffset":
        moment = convert(_moment(self, nodes[1]), DATETIMEOFFSET, IMPLICIT)
        return Value(f"tsql.offset_text(tsql.offset_minutes({moment.sql}))", TsqlType("nvarchar", 30))
    return Value(f"tsql.datename('{part}', {_timestamp(self, nodes[1])})", TsqlType("nvarchar", 30))


def _datetrunc(self: Expressions, nodes: list[exp.Expression]) -> Value:
    part = date_part(nodes[0], "datetrunc")
    value = _moment(self, nodes[1])
    moment = convert(value, DATETIME2, IMPLICIT).sql
    return convert(Value(f"tsql.datetrunc('{part}', {moment})", DATETIME2), value.type or DATETIME2, "explicit")


def _eomonth(self: Expressions, nodes: list[exp.Expression]) -> Value:
    months = self.converted(nodes[1], INT) if len(nodes) > 1 else "0"
    return Value(f"tsql.eomonth({_timestamp(self, nodes[0])}, {months})", DATE)


def _from_parts(function: str, type: TsqlType, count: int) -> Function:
    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        return Value(f"{function}({', '.join(self.converted(node, INT) for node in nodes)})", type)

    return Function(handle, count, count)


def _precise_from_parts(function: str, name: str, count: int) -> Function:
    """…FROMPARTS with a precision as its last argument, which is a part of the type."""

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        # The precision is part of the result's type, so it has to be a constant.
        scale = int(self.emission.constant(nodes[-1]))
        arguments = [self.converted(node, INT) for node in nodes[:-1]]
        type = TsqlType(name, scale=scale)
        return Value(f"{function}({', '.join([*arguments, str(scale)])})::{storage_type(type)}", type)

    return Function(handle, count, count)


def _offset_argument(self: Expressions, node: exp.Expression, function: str) -> str:
    """An offset in minutes, or a string such as '+02:00', as minutes. Beyond 14 hours it is error 9812."""
    value = self.value(node)
    minutes = f"tsql.offset_from_text({value.sql})" if value.kind == "text" else convert(value, INT, IMPLICIT).sql
    return f"tsql.checked_offset({minutes}, '{function}')"


def _checked(moment: str, function: str) -> str:
    return f"tsql.checked_datetimeoffset({moment}, '{function}')"


def _todatetimeoffset(self: Expressions, nodes: list[exp.Expression]) -> Value:
    moment = _moment(self, nodes[0])
    scale = _fraction_digits(moment)
    local = convert(moment, DATETIME2, IMPLICIT).sql
    made = f"tsql.datetimeoffset({local}, {_offset_argument(self, nodes[1], 'todatetimeoffset')})"
    return Value(_checked(made, "todatetimeoffset"), replace(DATETIMEOFFSET, scale=scale))


def _switchoffset(self: Expressions, nodes: list[exp.Expression]) -> Value:
    given = _moment(self, nodes[0])
    moment = convert(given, DATETIMEOFFSET, IMPLICIT)
    type = replace(DATETIMEOFFSET, scale=_fraction_digits(given))
    moved = f"tsql.switchoffset({moment.sql}, {_offset_argument(self, nodes[1], 'switchoffset')})"
    return Value(_checked(moved, "switchoffset"), type)


def _fraction_digits(moment: Value) -> int:
    type = exact_type(moment)
    record = BY_NAME[type.name]
    # Types without a declared scale have a fixed one.
    return type.scale if record.family != TEMPORAL or record.declared is Declared.SCALE else record.facets.scale


def at_time_zone(self: Expressions, node: exp.Expression) -> Value:
    """`x AT TIME ZONE 'zone'`: gives a local time its offset; moves a datetimeoffset to the zone."""
    value = _moment(self, node.this)
    given = self.value(node.args["zone"])
    if given.type is not None and given.kind != "text":
        message = f"Argument data type {given.type.name} is invalid for argument 2 of AT TIME ZONE function."
        raise SqlServerError(8116, message)
    zone = self.text(node.args["zone"])
    if value.type is not None and has_offset(value.type):
        return Value(_checked(f"tsql.move_to_zone({value.sql}, {zone})", "AT TIME ZONE"), value.type)
    local = convert(value, DATETIME2, IMPLICIT).sql
    moved = _checked(f"tsql.in_zone({local}, {zone})", "AT TIME ZONE")
    return Value(moved, replace(DATETIMEOFFSET, scale=_fraction_digits(value)))


_NOW = "emulator.now()"
_GETDATE = constant(f"tsql.round_datetime({_NOW})", DATETIME)

FUNCTIONS: dict[str, Function] = {
    "current_timestamp": _GETDATE,
    "current_timezone": constant("tsql.current_timezone()", TsqlType("nvarchar", 128)),
    "current_timezone_id": constant("tsql.current_timezone_id()", TsqlType("nvarchar", 128)),
    "dateadd": Function(_dateadd, 3, 3),
    "datediff": Function(_datediff("datediff", INT), 3, 3),
    "datediff_big": Function(_datediff("datediff_big", BIGINT), 3, 3),
    "datefromparts": _from_parts("tsql.datefromparts", DATE, 3),
    "datename": Function(_datename, 2, 2),
    "datepart": Function(_datepart, 2, 2),
    "datetime2fromparts": _precise_from_parts("tsql.datetime2fromparts", "datetime2", 8),
    "datetimefromparts": _from_parts("tsql.datetimefromparts", DATETIME, 7),
    "datetimeoffsetfromparts": _precise_from_parts("tsql.datetimeoffsetfromparts", "datetimeoffset", 10),
    "datetrunc": Function(_datetrunc, 2, 2),
    "day": _single_part("day"),
    "eomonth": Function(_eomonth, 1, 2),
    "getdate": _GETDATE,
    "getutcdate": constant("tsql.round_datetime(emulator.utc_now())", DATETIME),
    "month": _single_part("month"),
    "smalldatetimefromparts": _from_parts("tsql.smalldatetimefromparts", TsqlType("smalldatetime"), 5),
    "switchoffset": Function(_switchoffset, 2, 2),
    "sysdatetime": constant(f"tsql.precise_time({_NOW})", DATETIME2),
    "sysdatetimeoffset": constant("tsql.sysdatetimeoffset()", DATETIMEOFFSET),
    "sysutcdatetime": constant("tsql.precise_time(emulator.utc_now())", DATETIME2),
    "timefromparts": _precise_from_parts("tsql.timefromparts", "time", 5),
    "todatetimeoffset": Function(_todatetimeoffset, 2, 2),
    "year": _single_part("year"),
}
