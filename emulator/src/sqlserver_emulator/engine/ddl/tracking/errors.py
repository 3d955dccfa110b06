"""The errors of Change Tracking's switches, by number."""

from __future__ import annotations

from sqlserver_emulator.errors import SqlServerError

_TEXTS = {
    155: "'{}' is not a recognized CHANGE RETENTION UNIT option.",
    1718: "Change tracking must be enabled on database '{}' before it can be enabled on table '{}'.",
    3735: "The primary key constraint '{}' on table '{}' cannot be dropped because change tracking is enabled on the"
    " table. Change tracking requires a primary key constraint on the table. Disable change tracking before dropping"
    " the constraint.",
    4996: "Change tracking is already enabled for table '{}'.",
    4997: "Cannot enable change tracking on table '{}'. Change tracking requires a primary key on the table. Create a"
    " primary key on the table before enabling change tracking.",
    4998: "Change tracking is not enabled on table '{}'.",
    4999: "Cannot enable change tracking on table '{}'. Change tracking does not support a primary key of type"
    " timestamp on a table.",
    5088: "Change tracking is already enabled for database '{}'.",
    5089: "Change tracking is disabled for database '{}'. Change tracking must be enabled on a database to modify"
    " change tracking settings.",
    5090: "Database '{}' is a system database. Change tracking settings cannot be modified for system databases.",
    5091: "ALTER DATABASE change tracking option '{}' was specified more than once. Each option can be specified only"
    " once.",
    5092: "The value for change tracking option '{}' is not valid. The value must be between {} and {} minutes.",
    22114: "Change tracking options for ALTER DATABASE cannot be combined with other ALTER DATABASE options.",
    22115: "Change tracking is enabled for one or more tables in database '{}'. Disable change tracking on each table"
    " before disabling it for the database. Use the sys.change_tracking_tables catalog view to obtain a list of tables"
    " for which change tracking is enabled.",
}
_SYNTAX = (155, 5091, 5092)


def tracking_error(number: int, *names: object, state: int = 1) -> SqlServerError:
    """Return the error; ``names`` fill its text."""
    return SqlServerError(number, _TEXTS[number].format(*names), severity=15 if number in _SYNTAX else 16, state=state)
