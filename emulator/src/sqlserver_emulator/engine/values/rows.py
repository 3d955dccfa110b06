"""PostgreSQL results to Python values, as ``events.Rows`` documents them, by psycopg's C loaders."""

from __future__ import annotations

import datetime
import struct
from typing import Any

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Loader, Transformer
from psycopg.pq.abc import PGresult
from psycopg.types.string import TextBinaryLoader

Row = tuple[object, ...]

# psycopg has no binary text loader for these by default, so they would come as bytes.
_MORE_TEXT = (18, 142, 705)  # "char", xml, unknown
_POSTGRES_EPOCH = datetime.datetime(2000, 1, 1)
_COMPOSITE = struct.Struct("!iIiqIih")  # fields, then (type oid, bytes, value) of utc and of offset_minutes


class DateTimeOffsetLoader(Loader):
    """tsql.datetimeoffset in binary: an aware datetime in its own offset."""

    format = pq.Format.BINARY

    def load(self, data: Buffer) -> datetime.datetime:
        _, _, _, microseconds, _, _, minutes = _COMPOSITE.unpack(data)
        utc = _POSTGRES_EPOCH + datetime.timedelta(microseconds=microseconds)
        zone = datetime.timezone(datetime.timedelta(minutes=minutes))
        return (utc + datetime.timedelta(minutes=minutes)).replace(tzinfo=zone)


class RowReader:
    """Loads results of one connection."""

    def __init__(self, connection: psycopg.Connection[Any], datetimeoffset_oid: int) -> None:
        adapters = connection.adapters
        adapters.register_loader(datetimeoffset_oid, DateTimeOffsetLoader)
        for oid in _MORE_TEXT:
            adapters.register_loader(oid, TextBinaryLoader)
        self._transformer = Transformer(connection)

    def rows(self, result: PGresult) -> list[Row]:
        if result.ntuples == 0:
            return []
        self._transformer.set_pgresult(result, set_loaders=True, format=pq.Format.BINARY)
        return self._transformer.load_rows(0, result.ntuples, tuple)
