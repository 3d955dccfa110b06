"""sp_tablecollations_100: what bulk load asks about a table before it sends the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.collations import find_collation
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Column, Event
from sqlserver_emulator.tsql.catalog.queries import ints, names, query, result_set
from sqlserver_emulator.types import NVARCHAR_4000, TsqlType

_COLUMNS: Final = [*ints("colid"), *names("name"), Column("tds_collation", TsqlType("binary", 5)), *names("collation")]
_TABLE: Final = """
SELECT c.column_id, c.name, c.collation_name FROM sys.all_columns c
WHERE c.object_id = OBJECT_ID(@object) ORDER BY c.column_id
"""


def _collations(call: ProcedureCall) -> Iterator[Event]:
    found = query(call, _TABLE, object=(NVARCHAR_4000, call.arguments["@object"]))
    rows = [
        (id, name, None if collation is None else find_collation(collation).wire, collation)
        for id, name, collation in found
    ]
    yield from result_set(_COLUMNS, rows)


SP_TABLECOLLATIONS_100: Final = SystemProcedure(
    "sp_tablecollations_100", (Parameter("@object", NVARCHAR_4000),), _collations
)
