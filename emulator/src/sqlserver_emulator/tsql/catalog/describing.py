"""sp_describe_first_result_set and sp_describe_undeclared_parameters: what a batch would give and what it takes.

Drivers ask them when a program wants to know a statement's columns or parameters before it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.collations import DEFAULT_COLLATION
from sqlserver_emulator.contract import EngineSession, Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Column, Event
from sqlserver_emulator.syntax import statements as nodes
from sqlserver_emulator.tds.type_info import is_character
from sqlserver_emulator.tsql.catalog.batch_analysis import AnalyzedBatch, Step, analyze, called_procedure, steps
from sqlserver_emulator.tsql.catalog.queries import Row, ints, names, result_set, smallints
from sqlserver_emulator.tsql.catalog.type_facts import SYSNAME_TYPE_ID, TypeFacts, wire_collation, wire_type
from sqlserver_emulator.tsql.catalog.user_made import TABLE_TYPE_ID, user_made
from sqlserver_emulator.types import BIT, NVARCHAR_4000, NVARCHAR_MAX, SMALLINT, TsqlType

_TINYINT: Final = TsqlType("tinyint")


def _bits(text: str) -> list[Column]:
    return [Column(name, BIT) for name in text.split()]


def _type_columns(prefix: str) -> list[Column]:
    return [
        *ints(f"{prefix}system_type_id"),
        Column(f"{prefix}system_type_name", TsqlType("nvarchar", 256)),
        Column(f"{prefix}max_length", SMALLINT),
        Column(f"{prefix}precision", _TINYINT),
        Column(f"{prefix}scale", _TINYINT),
    ]


def _user_type_columns(prefix: str) -> list[Column]:
    user, xml = f"{prefix}user_type", f"{prefix}xml_collection"
    return [
        *ints(f"{user}_id"),
        *names(f"{user}_database {user}_schema {user}_name"),
        Column(f"{prefix}assembly_qualified_type_name", NVARCHAR_4000),
        *ints(f"{xml}_id"),
        *names(f"{xml}_database {xml}_schema {xml}_name"),
        *_bits(f"{prefix}is_xml_document {prefix}is_case_sensitive {prefix}is_fixed_length_clr_type"),
    ]


RESULT_COLUMNS: Final = [
    *_bits("is_hidden"),
    *ints("column_ordinal"),
    *names("name"),
    *_bits("is_nullable"),
    *_type_columns(""),
    *names("collation_name"),
    *_user_type_columns(""),
    *names("source_server source_database source_schema source_table source_column"),
    *_bits("is_identity_column is_part_of_unique_key is_updateable is_computed_column is_sparse_column_set"),
    *smallints("ordinal_in_order_by_list order_by_is_descending order_by_list_length"),
    *ints("tds_type_id tds_length tds_collation_id"),
    Column("tds_collation_sort_id", _TINYINT),
]
_PARAMETER_COLUMNS: Final = [
    *ints("parameter_ordinal"),
    *names("name"),
    *_type_columns("suggested_"),
    *_user_type_columns("suggested_"),
    *_bits("suggested_is_input suggested_is_output"),
    *names("formal_parameter_name"),
    *ints("suggested_tds_type_id suggested_tds_length"),
]


def _first_result_set(call: ProcedureCall) -> Iterator[Event]:
    mode = call.arguments["@browse_information_mode"]
    if mode:
        raise NotSupportedByEmulatorError(f"sp_describe_first_result_set with @browse_information_mode = {mode}")
    columns = first_result(call.engine, analyze(call.arguments["@tsql"], call.arguments["@params"]))
    yield from result_set(RESULT_COLUMNS, [result_row(i, column) for i, column in enumerate(columns, 1)])


def first_result(engine: EngineSession, analyzed: AnalyzedBatch) -> tuple[Column, ...]:
    """Return the columns of the first result set that the batch may give; none where it gives none."""
    for step in steps(engine, analyzed):
        statement = step.statement
        # The text exists only when the batch runs, so its columns cannot be known before; the server refuses too.
        if isinstance(statement, nodes.ExecuteText):
            raise SqlServerError(
                11513, "The metadata could not be determined because the statement contains dynamic SQL."
            )
        if isinstance(statement, nodes.Execute):
            raise NotSupportedByEmulatorError(f"describing the results of the procedure {statement.procedure}")
        columns = engine.describe(statement.text, step.variables) if isinstance(statement, nodes.Sql) else None
        if columns is not None:
            return columns
    return ()


def result_row(ordinal: int, column: Column) -> Row:
    """Return the description of a column, in the order of RESULT_COLUMNS."""
    type, collation = column.type, column.collation or DEFAULT_COLLATION
    # Columns that the server fills: a driver that builds an UPDATE from the description leaves them out.
    updatable = not (column.identity or column.computed or type.name == "rowversion")
    return (
        *(False, ordinal, column.name or None, column.nullable, *_facts(type)),
        collation.name if is_character(type) else None,
        *_user_type(type),
        *(None,) * 5,
        *(column.identity, None, updatable, column.computed, False, None, None, None),
        *(*wire_type(type), *wire_collation(type, collation)),
    )


def _facts(type: TsqlType) -> Row:
    facts = TypeFacts.of(type)
    return facts.system_type_id, facts.name, facts.max_length, facts.precision, facts.scale


def _user_type(type: TsqlType) -> Row:
    # sysname is the only alias type that a result can show: aliases of users end as their system type.
    own = (SYSNAME_TYPE_ID, None, "sys", "sysname") if type.name == "sysname" else (None,) * 4
    return (*own, *(None,) * 5, False, is_character(type), False)


def _undeclared_parameters(call: ProcedureCall) -> Iterator[Event]:
    analyzed = analyze(call.arguments["@tsql"], call.arguments["@params"])
    wanted = analyzed.undeclared
    for name, times in Counter(analyzed.names).items():
        # Two places may want two types; the server does not choose between them.
        if times > 1 and name in wanted:
            message = f"The undeclared parameter '{name}' is used more than once in the batch being analyzed."
            raise SqlServerError(11508, message)
    found: dict[str, tuple[TsqlType, nodes.ParameterDeclaration | None, bool]] = {}
    for statement in analyzed.batch.statements:
        found |= _suggested(call, Step(statement, analyzed.variables))
    rows = []
    for ordinal, name in enumerate(wanted, 1):
        if name not in found:
            raise SqlServerError(11502, f"The type for parameter '{name}' cannot be deduced in this context.")
        rows.append(_parameter_row(call, (ordinal, name), *found[name]))
    yield from result_set(_PARAMETER_COLUMNS, rows)


def _suggested(call: ProcedureCall, step: Step) -> dict[str, tuple[TsqlType, nodes.ParameterDeclaration | None, bool]]:
    """Return, by name, each parameter's type, the procedure's parameter that it is for, and whether it comes back."""
    statement = step.statement
    if isinstance(statement, nodes.Execute):
        return _suggested_by_call(call, statement)
    if isinstance(statement, nodes.Sql):
        types = call.engine.undeclared_types(statement.text, step.variables)
        return {name: (type, None, False) for name, type in types.items() if type is not None}
    return {}


def _suggested_by_call(
    call: ProcedureCall, statement: nodes.Execute
) -> dict[str, tuple[TsqlType, nodes.ParameterDeclaration | None, bool]]:
    procedure = called_procedure(call.engine, statement)
    found: dict[str, tuple[TsqlType, nodes.ParameterDeclaration | None, bool]] = {}
    # `EXEC @x = p`: the return status is an int, whatever the procedure is.
    if statement.return_variable:
        found[statement.return_variable] = (TsqlType("int"), None, True)
    if procedure is None:
        return found
    by_name = {formal.name: formal for formal in procedure.parameters}
    # A call may give too many arguments: binding reports that when it runs, not when it is described.
    for argument, positional in zip(statement.arguments, procedure.parameters, strict=False):
        formal = by_name.get(argument.name.lower(), positional) if argument.name else positional
        if argument.value is not None and argument.value.variable:
            found[argument.value.variable] = (formal.type, formal, argument.output)
    return found


def _parameter_row(
    call: ProcedureCall,
    place: tuple[int, str],
    type: TsqlType,
    formal: nodes.ParameterDeclaration | None,
    is_output: bool,
) -> Row:
    is_return = is_output and formal is None
    ends = (not is_return, is_output, None if formal is None else formal.shown)
    made = user_made(call, type)
    if made is None:
        return (*place, *_facts(type), *_user_type(type), *ends, *wire_type(type))
    user_type = (made.user_type_id, call.engine.database, made.schema, made.name)
    if made.base is None:
        facts = (TABLE_TYPE_ID, None, -1, 0, 0)
        return (*place, *facts, *user_type, *(None,) * 5, False, False, False, *ends, TABLE_TYPE_ID, -1)
    others = _user_type(made.base)[len(user_type) :]
    return (*place, *_facts(made.base), *user_type, *others, *ends, *wire_type(made.base))


_TEXT: Final = (Parameter("@tsql", NVARCHAR_MAX), Parameter("@params", NVARCHAR_MAX, None))
SP_DESCRIBE_FIRST_RESULT_SET: Final = SystemProcedure(
    "sp_describe_first_result_set", (*_TEXT, Parameter("@browse_information_mode", _TINYINT, 0)), _first_result_set
)
SP_DESCRIBE_UNDECLARED_PARAMETERS: Final = SystemProcedure(
    "sp_describe_undeclared_parameters", _TEXT, _undeclared_parameters
)
