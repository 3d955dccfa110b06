"""PostgreSQL results to Python values, as ``events.Rows`` documents them, by psycopg's C loaders."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Loader, Transformer
from psycopg.pq.abc import PGresult
from psycopg.types.string import TextBinaryLoader

from sqlserver_emulator import precise
from sqlserver_emulator.types import SEVEN_DIGITS, TsqlType

Row = tuple[object, ...]

# psycopg has no binary text loader for these by default, so they would come as bytes.
_MORE_TEXT = (18, 142, 705)  # "char", xml, unknown
_TICKS = struct.Struct("!q")
_COMPOSITE = struct.Struct("!iIiqIih")  # fields, then (type oid, bytes, value) of utc and of offset_minutes


class PreciseDatetimeLoader(Loader):
    """tsql.datetime2 in binary."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> datetime.datetime:
        return precise.datetime_of(_TICKS.unpack(data)[0])


class PreciseTimeLoader(Loader):
    """tsql.time in binary."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> datetime.time:
        return precise.time_of(_TICKS.unpack(data)[0])


class DateTimeOffsetLoader(Loader):
    """tsql.datetimeoffset in binary: an aware datetime in its own offset."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> datetime.datetime:
        _, _, _, ticks, _, _, minutes = _COMPOSITE.unpack(data)
        zone = datetime.timezone(datetime.timedelta(minutes=minutes))
        return precise.datetime_of(ticks + minutes * precise.MINUTE_TICKS, zone)


_LOADERS: Final[Mapping[str, type[Loader]]] = {
    "datetime2": PreciseDatetimeLoader,
    "time": PreciseTimeLoader,
    "datetimeoffset": DateTimeOffsetLoader,
}


def read_own_types(connection: psycopg.Connection[Any]) -> Mapping[int, TsqlType]:
    """Return the T-SQL types of PostgreSQL types that the emulator made, by their oids."""
    found = connection.execute(
        "SELECT typname::text, oid::bigint FROM pg_type WHERE typnamespace = 'tsql'::regnamespace"
    ).fetchall()
    return {oid: TsqlType(name, scale=SEVEN_DIGITS) for name, oid in found if name in _LOADERS}


class RowReader:
    """Loads results of one connection."""

    def __init__(self, connection: psycopg.Connection[Any], own_types: Mapping[int, TsqlType]) -> None:
        adapters = connection.adapters
        for oid, type_ in own_types.items():
            adapters.register_loader(oid, _LOADERS[type_.name])
        for oid in _MORE_TEXT:
            adapters.register_loader(oid, TextBinaryLoader)
        self._transformer = Transformer(connection)

    def rows(self, result: PGresult) -> list[Row]:
        if result.ntuples == 0:
            return []
        self._transformer.set_pgresult(result, set_loaders=True, format=pq.Format.BINARY)
        return self._transformer.load_rows(0, result.ntuples, tuple)
