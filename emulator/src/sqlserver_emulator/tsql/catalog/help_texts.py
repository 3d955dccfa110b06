"""sp_help and sp_helpindex: what a person at a console asks of an object, one result set after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Column, Event, Info
from sqlserver_emulator.syntax.parsing.modules import parse_procedure
from sqlserver_emulator.system_types import names_where
from sqlserver_emulator.system_types.record import TEMPORAL, SystemType
from sqlserver_emulator.tsql.catalog.queries import Row, ints, names, query, result_set
from sqlserver_emulator.types import DATETIME, INT, NVARCHAR_4000, TsqlType

_OBJECT_NAME: Final = TsqlType("nvarchar", 776)
_KINDS: Final = {
    "U": "user table",
    "V": "view",
    "P": "stored procedure",
    "FN": "scalar function",
    "IF": "inline function",
    "TF": "table function",
    "TR": "trigger",
    "PK": "primary key cns",
    "UQ": "unique cns",
    "C": "check cns",
    "D": "default (maybe cns)",
    "F": "foreign key cns",
    "SN": "synonym",
    "SO": "sequence object",
}
_ANSWER: Final = TsqlType("varchar", 35)
_SHORT: Final = TsqlType("char", 5)
_OBJECTS: Final = """
SELECT o.name, 'dbo', o.type FROM sys.all_objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
ORDER BY CASE WHEN o.is_ms_shipped = 1 THEN 1 ELSE 0 END, o.type DESC, o.name
"""
_OBJECT: Final = """
SELECT o.object_id, o.name, RTRIM(o.type), o.create_date, m.definition FROM sys.all_objects o
LEFT JOIN sys.sql_modules m ON m.object_id = o.object_id WHERE o.object_id = OBJECT_ID(@name)
"""


def _listed(holds: Callable[[SystemType], bool]) -> str:
    """Return the names of types for an IN list."""
    return ", ".join(f"'{name}'" for name in sorted(names_where(holds)))


# Precision and scale are shown of numbers and of the date and time types of 2008, not of the two that are older.
_NUMBERS: Final = _listed(lambda type: type.is_number or (type.family == TEMPORAL and not type.counts_from_1900))
_WIDE: Final = names_where(lambda type: type.length is not None and type.unit_bytes == 2)
_PADDED_BY_SETTING: Final = _listed(lambda type: type.length is not None and type.unit_bytes == 1)
"""The types that SET ANSI_PADDING is about; sp_help says of the others that there is nothing to say."""
_COLUMNS: Final = f"""
SELECT c.name, u.name, CASE c.is_computed WHEN 1 THEN 'yes' ELSE 'no' END, c.max_length,
    CASE WHEN t.name IN ({_NUMBERS}) THEN CONVERT(char(5), c.precision) ELSE '     ' END,
    CASE WHEN t.name IN ({_NUMBERS}) THEN CONVERT(char(5), c.scale) ELSE '     ' END,
    CASE c.is_nullable WHEN 1 THEN 'yes' ELSE 'no' END,
    CASE WHEN t.name IN ({_PADDED_BY_SETTING}) THEN 'no' ELSE '(n/a)' END,
    CASE WHEN t.name NOT IN ({_PADDED_BY_SETTING}) THEN '(n/a)'
         WHEN c.is_nullable = 1 THEN 'yes' ELSE 'no' END,
    c.collation_name
FROM sys.all_columns c JOIN sys.types u ON u.user_type_id = c.user_type_id
JOIN sys.types t ON t.user_type_id = c.system_type_id
WHERE c.object_id = @id ORDER BY c.column_id
"""  # noqa: S608 - a constant list
_IDENTITY: Final = """
SELECT c.name, c.seed_value, c.increment_value, 0 FROM sys.identity_columns c WHERE c.object_id = @id
"""
_ROW_GUID: Final = "SELECT c.name FROM sys.columns c WHERE c.object_id = @id AND c.is_rowguidcol = 1"
_INDEXES: Final = """
SELECT i.name,
    CASE i.type WHEN 1 THEN 'clustered' ELSE 'nonclustered' END + CASE i.is_unique WHEN 1 THEN ', unique' ELSE '' END
    + CASE i.is_primary_key WHEN 1 THEN ', primary key' ELSE '' END
    + CASE i.is_unique_constraint WHEN 1 THEN ', unique key' ELSE '' END + ' located on PRIMARY',
    STRING_AGG(c.name + CASE k.is_descending_key WHEN 1 THEN '(-)' ELSE '' END, ', ')
        WITHIN GROUP (ORDER BY k.key_ordinal)
FROM sys.indexes i JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id
JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE i.object_id = @id AND k.is_included_column = 0 AND i.type IN (1, 2)
GROUP BY i.index_id, i.name, i.type, i.is_unique, i.is_primary_key, i.is_unique_constraint ORDER BY i.name
"""
_KEYS: Final = """
SELECT CASE k.type WHEN 'PK' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END
    + CASE i.type WHEN 1 THEN ' (clustered)' ELSE ' (non-clustered)' END, k.name,
    STRING_AGG(c.name, ', ') WITHIN GROUP (ORDER BY x.key_ordinal)
FROM sys.key_constraints k JOIN sys.indexes i ON i.object_id = k.parent_object_id AND i.index_id = k.unique_index_id
JOIN sys.index_columns x ON x.object_id = i.object_id AND x.index_id = i.index_id
JOIN sys.columns c ON c.object_id = x.object_id AND c.column_id = x.column_id
WHERE k.parent_object_id = @id GROUP BY k.type, i.type, k.name
"""
_CHECKS: Final = """
SELECT CASE k.parent_column_id WHEN 0 THEN 'CHECK Table Level ' ELSE 'CHECK on column ' + c.name END, k.name,
    CASE k.is_disabled WHEN 1 THEN 'Disabled' ELSE 'Enabled' END, k.definition
FROM sys.check_constraints k
LEFT JOIN sys.columns c ON c.object_id = k.parent_object_id AND c.column_id = k.parent_column_id
WHERE k.parent_object_id = @id
"""
_DEFAULTS: Final = """
SELECT 'DEFAULT on column ' + c.name, k.name, k.definition FROM sys.default_constraints k
JOIN sys.columns c ON c.object_id = k.parent_object_id AND c.column_id = k.parent_column_id
WHERE k.parent_object_id = @id
"""
_FOREIGN_KEYS: Final = """
SELECT f.name, f.delete_referential_action_desc, f.update_referential_action_desc, f.is_disabled, ps.name, p.name,
    s.name, r.name,
    STRING_AGG(c.name, ', ') WITHIN GROUP (ORDER BY k.constraint_column_id),
    STRING_AGG(rc.name, ', ') WITHIN GROUP (ORDER BY k.constraint_column_id)
FROM sys.foreign_keys f JOIN sys.foreign_key_columns k ON k.constraint_object_id = f.object_id
JOIN sys.objects p ON p.object_id = f.parent_object_id JOIN sys.schemas ps ON ps.schema_id = p.schema_id
JOIN sys.objects r ON r.object_id = f.referenced_object_id JOIN sys.schemas s ON s.schema_id = r.schema_id
JOIN sys.columns c ON c.object_id = k.parent_object_id AND c.column_id = k.parent_column_id
JOIN sys.columns rc ON rc.object_id = k.referenced_object_id AND rc.column_id = k.referenced_column_id
WHERE @id IN (f.parent_object_id, f.referenced_object_id)
GROUP BY f.object_id, f.name, f.delete_referential_action_desc, f.update_referential_action_desc, f.is_disabled,
    ps.name, p.name, s.name, r.name ORDER BY f.name
"""
_INDEX_COLUMNS: Final = [
    *names("index_name"),
    Column("index_description", TsqlType("varchar", 210)),
    Column("index_keys", TsqlType("nvarchar", 2078)),
]


def _help(call: ProcedureCall) -> Iterator[Event]:
    # Without a name sp_help lists all objects of the database.
    if call.arguments["@objname"] is None:
        columns = [*names("Name Owner"), Column("Object_type", TsqlType("nvarchar", 31))]
        found = [(name, owner, _kind(kind)) for name, owner, kind in query(call, _OBJECTS)]
        yield from result_set(columns, found)
        return
    object_id, name, kind, created, definition = _find(call)
    head = [*names("Name Owner"), Column("Type", TsqlType("nvarchar", 31)), Column("Created_datetime", DATETIME)]
    yield from result_set(head, [(name, "dbo", _kind(kind), created)])
    if kind == "P":
        yield from _parameters(str(definition))
    elif kind in ("U", "V", "IF", "TF"):
        yield from _columns(call, object_id)
    if kind in ("U", "V"):
        yield from _identity(call, object_id)
    if kind == "U":
        yield from result_set(names("Data_located_on_filegroup"), [("PRIMARY",)])
        yield from _indexes(call, object_id, str(name))
        yield from _constraints(call, object_id, str(name))


def _helpindex(call: ProcedureCall) -> Iterator[Event]:
    object_id, name, *_ = _find(call)
    yield from _indexes(call, object_id, str(name))


def _find(call: ProcedureCall) -> Row:
    """Return the object that the caller names. Raises 15009."""
    name = call.arguments["@objname"]
    found = query(call, _OBJECT, name=(_OBJECT_NAME, name))
    if not found:
        database = call.engine.database
        message = f"The object '{name}' does not exist in database '{database}' or is invalid for this operation."
        raise SqlServerError(15009, message)
    return found[0]


def _kind(kind: object) -> str:
    return _KINDS.get(str(kind).strip(), "system object")


def _columns(call: ProcedureCall, object_id: object) -> Iterator[Event]:
    columns = [
        *names("Column_name Type"),
        Column("Computed", _ANSWER),
        *ints("Length"),
        Column("Prec", _SHORT),
        Column("Scale", _SHORT),
        Column("Nullable", _ANSWER),
        Column("TrimTrailingBlanks", _ANSWER),
        Column("FixedLenNullInSource", _ANSWER),
        *names("Collation"),
    ]
    yield from result_set(columns, query(call, _COLUMNS, id=(INT, object_id)))


def _identity(call: ProcedureCall, object_id: object) -> Iterator[Event]:
    number = TsqlType("decimal", precision=38)
    columns = [*names("Identity"), Column("Seed", number), Column("Increment", number)]
    columns.append(Column("Not For Replication", INT))
    found = query(call, _IDENTITY, id=(INT, object_id))
    yield from result_set(columns, found or [("No identity column defined.", None, None, None)])
    guid = query(call, _ROW_GUID, id=(INT, object_id))
    yield from result_set(names("RowGuidCol"), guid or [("No rowguidcol column defined.",)])


def _indexes(call: ProcedureCall, object_id: object, name: str) -> Iterator[Event]:
    found = query(call, _INDEXES, id=(INT, object_id))
    if found:
        yield from result_set(_INDEX_COLUMNS, found)
    else:
        # The server prints a message where there is nothing, and no empty result set.
        yield Info(15472, f"The object '{name}' does not have any indexes, or you do not have permissions.")


def _constraints(call: ProcedureCall, object_id: object, name: str) -> Iterator[Event]:
    own: list[Row] = []
    referencing: list[Row] = []
    none = ("(n/a)",) * 4
    for kind, constraint, state, definition in query(call, _CHECKS, id=(INT, object_id)):
        own.append((kind, constraint, "(n/a)", "(n/a)", state, "Is_For_Replication", definition))
    own += [(kind, key, *none, text) for kind, key, text in query(call, _DEFAULTS, id=(INT, object_id))]
    database = call.engine.database
    for key, deletes, updates, disabled, schema, table, to_schema, to, columns, to_columns in query(
        call, _FOREIGN_KEYS, id=(INT, object_id)
    ):
        # A table that references itself is listed on both sides.
        if table == name:
            actions = (_action(deletes), _action(updates), "Disabled" if disabled else "Enabled")
            own.append(("FOREIGN KEY", key, *actions, "Is_For_Replication", columns))
            # A foreign key takes two rows; the second one has only the table that it references.
            own.append((*(" ",) * 6, f"REFERENCES {database}.{to_schema}.{to} ({to_columns})"))
        if to == name:
            referencing.append((f"{database}.{schema}.{table}: {key}",))
    own += [(kind, key, *none, columns) for kind, key, columns in query(call, _KEYS, id=(INT, object_id))]
    yield from _constraint_sets(own, referencing, name)


def _action(description: object) -> str:
    return str(description).replace("_", " ").title()


def _constraint_sets(own: list[Row], referencing: list[Row], name: str) -> Iterator[Event]:
    if own:
        columns = [
            Column("constraint_type", TsqlType("nvarchar", 146)),
            *names("constraint_name delete_action update_action status_enabled status_for_replication"),
            Column("constraint_keys", NVARCHAR_4000),
        ]
        yield from result_set(columns, own)
    else:
        yield Info(15469, f"No constraints are defined on object '{name}', or you do not have permissions.")
    if referencing:
        yield from result_set([Column("Table is referenced by foreign key", TsqlType("nvarchar", 516))], referencing)
    else:
        text = f"No foreign keys reference table '{name}', or you do not have permissions on referencing tables."
        yield Info(15470, text)


def _parameters(definition: str) -> Iterator[Event]:
    columns = [*names("Parameter_name Type"), *ints("Length Prec Scale Param_order"), *names("Collation")]
    rows: list[Row] = []
    for order, parameter in enumerate(parse_procedure(definition).parameters, 1):
        type_ = parameter.type
        # sp_help shows bytes; -1, the length of a (max) type, is no number of characters.
        length = type_.length * (2 if type_.name in _WIDE and type_.length > 0 else 1)
        rows.append(
            (parameter.shown, type_.name, length or None, type_.precision or None, type_.scale or None, order, None)
        )
    if rows:
        yield from result_set(columns, rows)


SP_HELP: Final = SystemProcedure("sp_help", (Parameter("@objname", _OBJECT_NAME, None),), _help)
SP_HELPINDEX: Final = SystemProcedure("sp_helpindex", (Parameter("@objname", _OBJECT_NAME),), _helpindex)
