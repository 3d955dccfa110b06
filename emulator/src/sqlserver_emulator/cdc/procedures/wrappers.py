"""``sp_cdc_generate_wrapper_function`` (docs/reference/sqlserver_cdc.md, "Wrapper functions"): scripts of functions
that ask for changes by time.

Owns the behaviour of those functions; running a script makes the function, in the caller's own schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlserver_emulator.cdc.enabling.enable_table import parse_column_list
from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.messages import cdc_error, is_cdc_error
from sqlserver_emulator.cdc.procedures.reports import read_visible_instances
from sqlserver_emulator.cdc.procedures.results import ResultColumn, require_cdc, result_set, sql_of, text_argument
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.engine.names import bracketed
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Event
from sqlserver_emulator.syntax.lexer import quote_string
from sqlserver_emulator.types import BIT, LSN, NVARCHAR_MAX, SYSNAME, TsqlType

_COLUMNS: tuple[ResultColumn, ...] = (("function_name", TsqlType("nvarchar", 145)), ("create_script", NVARCHAR_MAX))
_OPERATION = TsqlType("nvarchar", 2)


@dataclass(frozen=True, slots=True)
class WrappedColumn:
    """A captured column. ``ordinal``: its bit of the update mask."""

    name: str
    ordinal: int
    type: TsqlType


@dataclass(frozen=True, slots=True)
class WrapperRequest:
    """``included``, ``flagged``: names of columns to return, and to return an update flag of; None: all, or none."""

    closed_high_end: bool
    included: tuple[str, ...] | None
    flagged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """The parts of one script. ``kind``: all or net."""

    kind: str
    instance: str
    columns: tuple[WrappedColumn, ...]
    flags: tuple[WrappedColumn, ...]
    closed_high_end: bool

    @property
    def name(self) -> str:
        return f"fn_{self.kind}_changes_{self.instance}"


def build_script(wrapper: Wrapper) -> str:
    """Return the CREATE FUNCTION. Its window begins after @start_time; times that the instance lacks are error 313."""
    results = _results(wrapper)
    return _SCRIPT.format(
        name=bracketed(wrapper.name),
        declared=",\n    ".join(f"{bracketed(name)} {type_}" for name, type_, _ in results),
        instance=quote_string(wrapper.instance),
        latest="largest less than or equal" if wrapper.closed_high_end else "largest less than",
        selected=",\n        ".join(expression for _, _, expression in results),
        function=bracketed(f"fn_cdc_get_{wrapper.kind}_changes_{wrapper.instance}"),
    )


def _results(wrapper: Wrapper) -> list[tuple[str, TsqlType, str]]:
    """Return name, type and expression of each column. A flag is NULL but for an update's new values."""
    places = (
        [
            ("__CDC_STARTLSN", LSN, "c.[__$start_lsn]"),
            ("__CDC_SEQVAL", LSN, "c.[__$seqval]"),
        ]
        if wrapper.kind == "all"
        else []
    )
    return [
        *places,
        *((column.name, column.type, f"c.{bracketed(column.name)}") for column in wrapper.columns),
        ("__CDC_OPERATION", _OPERATION, _OPERATION_CODE),
        *((f"{column.name}_uflag", BIT, _FLAG.format(ordinal=column.ordinal)) for column in wrapper.flags),
    ]


def _generate(call: ProcedureCall) -> Iterator[Event]:
    database = require_cdc(call)
    wanted = text_argument(call, "@capture_instance")
    request = _request(call)
    instances = read_visible_instances(sql_of(call), database, instance=wanted)
    if wanted is not None and not instances:
        raise cdc_error(22920, wanted, database.name)
    scripts: list[tuple[object, ...]] = []
    for instance in instances:
        try:
            wrappers = _plan(call, database, instance, request)
        # docs/reference/sqlserver_cdc.md, "Wrapper functions". Without an instance named, the error that ends the whole
        # is 22921.
        except SqlServerError as error:
            if wanted is None and is_cdc_error(error):
                raise cdc_error(22921) from error
            raise
        scripts += ((wrapper.name, build_script(wrapper)) for wrapper in wrappers)
    yield from result_set(_COLUMNS, scripts)


def _request(call: ProcedureCall) -> WrapperRequest:
    """Return the arguments of the call. Raises 22965."""
    included, flagged = (text_argument(call, name) for name in ("@column_list", "@update_flag_list"))
    closed = call.arguments["@closed_high_end_point"]
    return WrapperRequest(
        closed is None or bool(closed),
        None if included is None else tuple(parse_column_list(included)),
        tuple(parse_column_list(flagged or "")),
    )


def _plan(
    call: ProcedureCall, database: CdcDatabase, instance: tuple[object, ...], request: WrapperRequest
) -> list[Wrapper]:
    """Return the wrapper of all changes and, where the instance has them, that of net changes. Raises 22918, 22919."""
    name, object_id, has_net = str(instance[2]), instance[3], bool(instance[7])
    columns = [
        WrappedColumn(str(column), int(ordinal), TsqlType(str(type_), length, precision, scale))
        for column, ordinal, type_, length, precision, scale in sql_of(call)(database.sql(_CAPTURED), (object_id,))
    ]
    table = f"{bracketed('cdc')}.{bracketed(f'{name}_CT')}"
    included = _chosen(columns, request.included, 22918, table)
    flags = _chosen(columns, request.flagged, 22919, table)
    kinds = ("all", "net") if has_net else ("all",)
    return [Wrapper(kind, name, included, flags, request.closed_high_end) for kind in kinds]


def _chosen(
    columns: list[WrappedColumn], names: tuple[str, ...] | None, error: int, table: str
) -> tuple[WrappedColumn, ...]:
    if names is None:
        return tuple(columns)
    found = {column.name.lower(): column for column in columns}
    if any(name.lower() not in found for name in names):
        raise cdc_error(error, table)
    return tuple(found[name.lower()] for name in names)


GENERATE_WRAPPER = SystemProcedure(
    "sp_cdc_generate_wrapper_function",
    (
        Parameter("@capture_instance", SYSNAME, None),
        Parameter("@closed_high_end_point", BIT, True),
        Parameter("@column_list", NVARCHAR_MAX, None),
        Parameter("@update_flag_list", NVARCHAR_MAX, None),
    ),
    _generate,
)

_OPERATION_CODE = (
    "CASE c.[__$operation] WHEN 1 THEN N'D' WHEN 2 THEN N'I' WHEN 3 THEN N'UO' WHEN 4 THEN N'UN' WHEN 5 THEN N'M' END"
)
_FLAG = "CASE c.[__$operation] WHEN 4 THEN sys.fn_cdc_is_bit_set({ordinal}, c.[__$update_mask]) END"
# A time out of range makes its bound NULL, and the change function raises 313 for that. It would do so too for a window
# without an LSN, which is why the function returns before.
_SCRIPT = """\
CREATE FUNCTION {name} (@start_time datetime, @end_time datetime, @row_filter_option nvarchar(30))
RETURNS @changes TABLE (
    {declared}
)
AS
BEGIN
    DECLARE @from_lsn binary(10), @to_lsn binary(10), @earliest datetime, @latest datetime;
    SET @from_lsn = sys.fn_cdc_get_min_lsn({instance});
    SET @to_lsn = sys.fn_cdc_get_max_lsn();
    SET @earliest = sys.fn_cdc_map_lsn_to_time(@from_lsn);
    SET @latest = sys.fn_cdc_map_lsn_to_time(@to_lsn);
    IF @start_time IS NOT NULL
        SET @from_lsn = CASE WHEN @start_time BETWEEN @earliest AND @latest THEN sys.fn_cdc_increment_lsn(
            sys.fn_cdc_map_time_to_lsn(N'largest less than or equal', @start_time)) END;
    IF @end_time IS NOT NULL
        SET @to_lsn = CASE WHEN @end_time BETWEEN @earliest AND @latest THEN
            sys.fn_cdc_map_time_to_lsn(N'{latest}', @end_time) END;
    IF @from_lsn = sys.fn_cdc_increment_lsn(@to_lsn)
        RETURN;
    INSERT @changes
    SELECT
        {selected}
    FROM cdc.{function}(@from_lsn, @to_lsn, @row_filter_option) AS c;
    RETURN;
END
"""
_CAPTURED = """
SELECT k.column_name::text, k.column_ordinal, c.type_name::text, c.length, c.precision::int, c.scale::int
FROM :cdc.captured_columns k
JOIN emulator.columns c ON c.object_id = k.object_id AND c.column_id = k.column_ordinal + 5
WHERE k.object_id = $1::int ORDER BY k.column_ordinal
"""
