"""CREATE, ALTER and DROP SEQUENCE. A sequence is PostgreSQL's; its declaration is kept in ``emulator.sequences``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.scope import DdlScope, SchemaEntry
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.names import postgres_name, qualified
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.lexer import INTEGER
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.system_types import SYSTEM_TYPES
from sqlserver_emulator.system_types.wire import Packing
from sqlserver_emulator.types import BIGINT, TsqlType

_SEQUENCE = """
SELECT o.object_id, s.type_name, s.precision, s.start_value, s.increment, s.minimum_value, s.maximum_value,
    s.is_cycling, s.cache_size, o.postgres_name
FROM emulator.sequences s JOIN emulator.objects o ON o.object_id = s.object_id
WHERE o.database_id = $1::int AND o.schema_id = $2::int AND lower(o.name) = lower($3)
"""
_LARGEST: Final = 2**63 - 1
_RANGES: Final = {type.name: type.integer_range for type in SYSTEM_TYPES if type.wire.packing is Packing.INTEGER}
_DEFAULT_CACHE: Final = 50


@dataclass(frozen=True, slots=True)
class Sequence:
    """A sequence's declaration. ``start`` None: the lowest number, or for a descending sequence the highest."""

    type: TsqlType
    start: int | None = None
    increment: int = 1
    minimum: int = 0
    maximum: int = 0
    cycles: bool = False
    cache: int | None = _DEFAULT_CACHE

    @property
    def first(self) -> int:
        if self.start is not None:
            return self.start
        return self.minimum if self.increment > 0 else self.maximum


def create_sequence(scope: DdlScope, cursor: Cursor, name: ObjectName) -> None:
    """Raises 2714, 11700 to 11708 for a declaration that contradicts itself."""
    type_ = scope.read_type(cursor)[0] if cursor.accept("AS") else BIGINT
    low, high = _range(type_)
    declared, _ = _take_options(cursor, Sequence(type_, minimum=low, maximum=high), name)
    _check(declared, name)
    home = scope.schema(name)
    own_name = postgres_name(name.name)
    target = qualified(home.postgres_name, own_name)
    if scope.fetch("SELECT 1 WHERE to_regclass($1) IS NOT NULL", [target]):
        raise SqlServerError(2714, f"There is already an object named '{name.name}' in the database.", state=6)
    scope.run(
        # Always bigint: the declared type's range is in MINVALUE and MAXVALUE.
        f"CREATE SEQUENCE {target} AS bigint INCREMENT BY {declared.increment} MINVALUE {declared.minimum}"
        f" MAXVALUE {declared.maximum} START WITH {declared.first} {'CYCLE' if declared.cycles else 'NO CYCLE'}"
    )
    # The values come from nextval, which the caller's role needs a right for.
    scope.run(f"GRANT USAGE ON SEQUENCE {target} TO PUBLIC")
    object_id = rows.object_id_of(scope, target)
    rows.insert_object(scope, home, name.name, "SO", object_id=object_id, postgres_name=own_name)
    _keep(scope, object_id, declared)


def alter_sequence(scope: DdlScope, cursor: Cursor, name: ObjectName) -> None:
    """Raises 15151 when there is none."""
    home = scope.schema(name)
    found = scope.fetch(_SEQUENCE, [home.database_id, home.schema_id, name.name])
    if not found:
        message = f"Cannot alter the sequence '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(15151, message)
    object_id, type_name, precision, start, increment, minimum, maximum, cycles, cache, own_name = found[0]
    before = Sequence(
        TsqlType(type_name, precision=precision), int(start), int(increment), int(minimum), int(maximum), cycles, cache
    )
    declared, restart = _take_options(cursor, before, name)
    _check(declared, name)
    target = qualified(home.postgres_name, str(own_name))
    scope.run(
        f"ALTER SEQUENCE {target} INCREMENT BY {declared.increment} MINVALUE {declared.minimum}"
        f" MAXVALUE {declared.maximum} START WITH {declared.first} {'CYCLE' if declared.cycles else 'NO CYCLE'}"
        f"{'' if restart is None else f' RESTART WITH {restart}'}"
    )
    _keep(scope, int(object_id), declared)
    rows.touch(scope, int(object_id))


def drop_sequence(scope: DdlScope, name: ObjectName, *, if_exists: bool) -> None:
    """Apply DROP SEQUENCE. Raises 3701 and 3729."""
    home: SchemaEntry = scope.schema(name)
    found = scope.fetch(_SEQUENCE, [home.database_id, home.schema_id, name.name])
    if not found:
        if if_exists:
            return
        message = f"Cannot drop the sequence '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(3701, message, severity=11, state=5)
    target = qualified(home.postgres_name, str(found[0][-1]))
    # PostgreSQL would refuse the drop as well, but not with this error.
    used = scope.fetch(
        "SELECT t.name FROM pg_depend d JOIN pg_attrdef a ON a.oid = d.objid AND d.classid = 'pg_attrdef'::regclass"
        " JOIN emulator.objects t ON t.object_id = a.adrelid::int"
        " WHERE d.refobjid = $1::oid AND d.refclassid = 'pg_class'::regclass LIMIT 1",
        [found[0][0]],
    )
    if used:
        message = f"Cannot DROP SEQUENCE '{name}' because it is being referenced by object '{used[0][0]}'."
        raise SqlServerError(3729, message)
    scope.run(f"DROP SEQUENCE {target}")
    scope.fetch("DELETE FROM emulator.objects WHERE object_id = $1::int", [found[0][0]])


def _range(type_: TsqlType) -> tuple[int, int]:
    if type_.name in _RANGES:
        return _RANGES[type_.name]
    if type_.name not in ("decimal", "numeric") or type_.scale:
        message = (
            "The sequence object must be of data type int, bigint, smallint, tinyint, or decimal with a scale of 0"
        )
        raise SqlServerError(11702, f"{message}, or a user-defined data type based on one of these.")
    # decimal(38) is beyond PostgreSQL's sequences, which are bigint.
    limit = min(10**type_.precision - 1, _LARGEST)
    return (-limit, limit)


def _take_options(cursor: Cursor, sequence: Sequence, name: ObjectName) -> tuple[Sequence, int | None]:
    """Return what is declared from here on, and the number that RESTART begins with."""
    low, high = _range(sequence.type)
    restart: int | None = None
    while not cursor.at_end and cursor.word != ";":
        if cursor.accept("START", "WITH"):
            sequence = replace(sequence, start=_take_integer(cursor))
        elif cursor.accept("RESTART"):
            # RESTART without a number begins with the declared start.
            restart = _take_integer(cursor) if cursor.accept("WITH") else sequence.first
        elif cursor.accept("INCREMENT", "BY"):
            sequence = replace(sequence, increment=_take_integer(cursor))
        elif cursor.accept("MINVALUE"):
            sequence = replace(sequence, minimum=_take_integer(cursor))
        elif cursor.accept("MAXVALUE"):
            sequence = replace(sequence, maximum=_take_integer(cursor))
        elif cursor.accept("NO", "MINVALUE"):
            sequence = replace(sequence, minimum=low)
        elif cursor.accept("NO", "MAXVALUE"):
            sequence = replace(sequence, maximum=high)
        elif cursor.word == "CYCLE" or (cursor.word == "NO" and cursor.word_after() == "CYCLE"):
            sequence = replace(sequence, cycles=not cursor.accept("NO"))
            cursor.expect("CYCLE")
        elif cursor.accept("NO", "CACHE"):
            sequence = replace(sequence, cache=None)
        elif cursor.accept("CACHE"):
            sequence = replace(
                sequence, cache=_take_integer(cursor) if cursor.token.kind == INTEGER else _DEFAULT_CACHE
            )
        else:
            raise cursor.syntax_error()
    return sequence, restart


def _take_integer(cursor: Cursor) -> int:
    sign = -1 if cursor.accept("-") else 1
    if cursor.token.kind != INTEGER:
        raise cursor.syntax_error()
    number = sign * int(cursor.take().text)
    if not -_LARGEST - 1 <= number <= _LARGEST:
        raise NotSupportedByEmulatorError("sequences beyond bigint")
    return number


def _check(sequence: Sequence, name: ObjectName) -> None:
    if sequence.increment == 0:
        raise SqlServerError(11700, f"The increment for sequence object '{name}' cannot be zero.")
    if sequence.minimum >= sequence.maximum:
        raise SqlServerError(
            11705, f"The minimum value for sequence object '{name}' must be less than its maximum value."
        )
    if not sequence.minimum <= sequence.first <= sequence.maximum:
        message = f"The start value for sequence object '{name}' must be between the minimum and maximum value of the"
        raise SqlServerError(11703, f"{message} sequence object.")


def _keep(scope: DdlScope, object_id: int, declared: Sequence) -> None:
    scope.fetch(
        "INSERT INTO emulator.sequences VALUES ($1::int, $2, $3::int, $4::numeric, $5::numeric, $6::numeric,"
        " $7::numeric, $8::boolean, $9::int) ON CONFLICT (object_id) DO UPDATE SET start_value = excluded.start_value,"
        " increment = excluded.increment, minimum_value = excluded.minimum_value,"
        " maximum_value = excluded.maximum_value, is_cycling = excluded.is_cycling, cache_size = excluded.cache_size",
        [
            object_id,
            declared.type.name,
            declared.type.precision,
            declared.first,
            declared.increment,
            declared.minimum,
            declared.maximum,
            declared.cycles,
            declared.cache,
        ],
    )
