"""Dates and times as TDS counts them: days since year 1 or 1900, ticks of the declared scale, 1/300 seconds."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone

from sqlserver_emulator import precise
from sqlserver_emulator.system_types.sizes import time_bytes

DAY_MICROSECONDS = 86_400_000_000
EPOCH_1900 = date(1900, 1, 1).toordinal()
EPOCH_1970 = date(1970, 1, 1).toordinal()
DAY_TICKS_300 = 86_400 * 300


def encode_time(value: time, scale: int) -> bytes:
    """``scale`` of datetime2 and the like too: time part only, without a length byte. Finer digits are cut."""
    return (precise.time_ticks(value) // precise.UNITS[scale]).to_bytes(time_bytes(scale), "little")


def encode_datetime2(value: datetime, scale: int) -> bytes:
    """Units of 10^-scale seconds, then the days since year 1. Finer digits are cut."""
    return _encode_ticks(precise.ticks(value), scale)


def _encode_ticks(ticks: int, scale: int) -> bytes:
    size = time_bytes(scale)
    days, of_day = divmod(ticks, precise.DAY_TICKS)
    return (days << (8 * size) | of_day // precise.UNITS[scale]).to_bytes(size + 3, "little")


def encode_datetimeoffset(value: datetime, scale: int) -> bytes:
    offset = value.utcoffset()
    if offset is None:
        raise ValueError("a datetimeoffset value has no offset")
    minutes = offset // timedelta(minutes=1)
    utc = precise.ticks(value) - minutes * precise.MINUTE_TICKS
    return _encode_ticks(utc, scale) + minutes.to_bytes(2, "little", signed=True)


def datetime_parts(value: datetime) -> tuple[int, int]:
    """Days since 1900 and 1/300 s of the day, rounded as SQL Server rounds."""
    ticks = (precise.time_ticks(value) * 3 + 50_000) // 100_000
    days = value.toordinal() - EPOCH_1900
    return (days + 1, 0) if ticks == DAY_TICKS_300 else (days, ticks)


def smalldatetime_parts(value: datetime) -> tuple[int, int]:
    """Days since 1900 and minutes, seconds rounded."""
    minutes = (value.hour * 3600 + value.minute * 60 + value.second + 30) // 60
    days = value.toordinal() - EPOCH_1900
    return (days + 1, 0) if minutes == 1440 else (days, minutes)


def _moment(day_ordinal: int, microseconds: int) -> datetime:
    return datetime.fromordinal(day_ordinal) + timedelta(microseconds=microseconds)


def decode_date(data: bytes) -> date:
    return date.fromordinal(int.from_bytes(data, "little") + 1)


def decode_time(data: bytes, scale: int) -> time:
    ticks = _ticks_of(data, scale)
    return precise.time_of(ticks) if scale == precise.DIGITS else precise.coarse_time(ticks)


def decode_datetime2(data: bytes, scale: int) -> datetime:
    ticks = _moment_ticks(data, scale)
    return precise.datetime_of(ticks) if scale == precise.DIGITS else precise.coarse_datetime(ticks)


def _ticks_of(data: bytes, scale: int) -> int:
    return int.from_bytes(data, "little") * precise.UNITS[scale]


def _moment_ticks(data: bytes, scale: int) -> int:
    return int.from_bytes(data[-3:], "little") * precise.DAY_TICKS + _ticks_of(data[:-3], scale)


def decode_datetimeoffset(data: bytes, scale: int) -> datetime:
    minutes = int.from_bytes(data[-2:], "little", signed=True)
    local = _moment_ticks(data[:-2], scale) + minutes * precise.MINUTE_TICKS
    return precise.datetime_of(local, timezone(timedelta(minutes=minutes)))


def decode_datetime(days: int, ticks: int) -> datetime:
    """To the millisecond, as SQL Server shows it: .000, .003, .007."""
    milliseconds = (ticks * 10 + 1) // 3
    return _moment(EPOCH_1900 + days, milliseconds * 1000)


def decode_smalldatetime(days: int, minutes: int) -> datetime:
    return _moment(EPOCH_1900 + days, minutes * 60_000_000)
