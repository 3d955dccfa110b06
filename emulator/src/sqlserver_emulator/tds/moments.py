"""Dates and times as TDS counts them: days since year 1 or 1900, ticks of the declared scale, 1/300 seconds."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone

from sqlserver_emulator.system_types.sizes import time_bytes

DAY_MICROSECONDS = 86_400_000_000
EPOCH_1900 = date(1900, 1, 1).toordinal()
EPOCH_1970 = date(1970, 1, 1).toordinal()
DAY_TICKS_300 = 86_400 * 300


def microseconds_of_day(value: datetime | time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def to_ticks(microseconds: int, scale: int) -> int:
    """Units of 10^-scale seconds; finer digits are cut."""
    return microseconds * 10 if scale == 7 else microseconds // 10 ** (6 - scale)


def from_ticks(ticks: int, scale: int) -> int:
    """Microseconds; Python has no tenth of one, so the seventh digit is cut."""
    return ticks // 10 if scale == 7 else ticks * 10 ** (6 - scale)


def encode_time(value: time, scale: int) -> bytes:
    """``scale`` of datetime2 and the like too: time part only, without a length byte."""
    return to_ticks(microseconds_of_day(value), scale).to_bytes(time_bytes(scale), "little")


def encode_datetime2(value: datetime, scale: int) -> bytes:
    size = time_bytes(scale)
    ticks = to_ticks(microseconds_of_day(value), scale)
    return ((value.toordinal() - 1) << (8 * size) | ticks).to_bytes(size + 3, "little")


def encode_datetimeoffset(value: datetime, scale: int) -> bytes:
    offset = value.utcoffset()
    if offset is None:
        raise ValueError("a datetimeoffset value has no offset")
    minutes = offset // timedelta(minutes=1)
    utc = value.replace(tzinfo=None) - offset
    return encode_datetime2(utc, scale) + minutes.to_bytes(2, "little", signed=True)


def datetime_parts(value: datetime) -> tuple[int, int]:
    """Days since 1900 and 1/300 s of the day, rounded as SQL Server rounds."""
    ticks = (microseconds_of_day(value) * 3 + 5_000) // 10_000
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
    return _moment(1, from_ticks(int.from_bytes(data, "little"), scale)).time()


def decode_datetime2(data: bytes, scale: int) -> datetime:
    microseconds = from_ticks(int.from_bytes(data[:-3], "little"), scale)
    return _moment(int.from_bytes(data[-3:], "little") + 1, microseconds)


def decode_datetimeoffset(data: bytes, scale: int) -> datetime:
    zone = timezone(timedelta(minutes=int.from_bytes(data[-2:], "little", signed=True)))
    return decode_datetime2(data[:-2], scale).replace(tzinfo=UTC).astimezone(zone)


def decode_datetime(days: int, ticks: int) -> datetime:
    """To the millisecond, as SQL Server shows it: .000, .003, .007."""
    milliseconds = (ticks * 10 + 1) // 3
    return _moment(EPOCH_1900 + days, milliseconds * 1000)


def decode_smalldatetime(days: int, minutes: int) -> datetime:
    return _moment(EPOCH_1900 + days, minutes * 60_000_000)
