"""``sp_configure``: server options, read as ``sys.configurations`` shows them; ``clr enabled`` can be set.

A new value is in use at once, where a real server waits for RECONFIGURE. Options that nothing here depends on are
refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlserver_emulator.cdc.procedures.results import ResultColumn, int_argument, result_set, sql_of, text_argument
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Event, Info
from sqlserver_emulator.types import INT, TsqlType

_COLUMNS: tuple[ResultColumn, ...] = (
    ("name", TsqlType("nvarchar", 35)),
    ("minimum", INT),
    ("maximum", INT),
    ("config_value", INT),
    ("run_value", INT),
)
_SETTABLE = frozenset({"clr enabled", "show advanced options"})
"""``show advanced options`` hides nothing here, but scripts set it before anything else."""
_FIXED = {"max text repl size (B)": -1}
"""Options that can be set to what they are: no limit."""


def _configure(call: ProcedureCall) -> Iterator[Event]:
    wanted = text_argument(call, "@configname")
    rows = sql_of(call)(_OPTIONS, (wanted,))
    if wanted is not None and len(rows) > 1:
        raise SqlServerError(15124, f"The configuration option '{wanted}' is not unique.")
    if wanted is not None and not rows:
        message = f"The configuration option '{wanted}' does not exist, or it may be an advanced option."
        raise SqlServerError(15123, message)
    value = int_argument(call, "@configvalue")
    if value is None:
        yield from result_set(_COLUMNS, [tuple(row) for row in rows])
        return
    if not call.engine.caller_is("sysadmin"):
        raise SqlServerError(15247, "User does not have permission to perform this action.")
    name, least, most, old, _ = rows[0]
    if not least <= value <= most:
        raise SqlServerError(15129, f"'{value}' is not a valid value for configuration option '{name}'.")
    # Setting a fixed option to the value it has changes nothing, so scripts that do so pass.
    if name not in _SETTABLE and _FIXED.get(name) != value:
        raise NotSupportedByEmulatorError(f"setting the option '{name}' with sp_configure")
    sql_of(call)(_SET, (name, str(value)))
    yield Info(
        15457,
        f"Configuration option '{name}' changed from {old} to {value}. Run the RECONFIGURE statement to install.",
        procedure="sp_configure",
    )


SP_CONFIGURE = SystemProcedure(
    "sp_configure",
    (Parameter("@configname", TsqlType("varchar", 35), None), Parameter("@configvalue", INT, None)),
    _configure,
)

# The start of a name is enough where it is unique; the exact name wins over longer ones.
_OPTIONS = """
SELECT name::text, minimum::int, maximum::int, value::int, value_in_use::int FROM emulator_sys.configurations
WHERE $1::varchar IS NULL OR lower(name) = lower($1::varchar)
   OR (starts_with(lower(name), lower($1::varchar)) AND NOT EXISTS (
       SELECT FROM emulator_sys.configurations AS exact WHERE lower(exact.name) = lower($1::varchar)))
ORDER BY name
"""
_SET = """
INSERT INTO emulator.settings VALUES ($1::text, $2::text) ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
