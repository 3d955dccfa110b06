"""The clock of a SQL Server, and the times of commits in UTC that its local times are.

The server has commits with the local time of its clock, and the time zone of the clock since SQL Server 2022.
"""

from __future__ import annotations

from floodmark.core.capture import bracket
from floodmark.sources.sqlserver.driver import SourceSession

COMMITTED_AT = "__$committed_at"
"""The name of the time of a commit in UTC."""
LOCAL_TIME = "at"
"""The name of the local time of a commit."""


def select_clock() -> str:
    """Return the SELECT of the time zone of the server's clock, NULL before SQL Server 2022, and of its offset now."""
    return (
        "SET NOCOUNT ON; DECLARE @zone nvarchar(128);"
        " BEGIN TRY EXEC sys.sp_executesql N'SELECT @zone = CURRENT_TIMEZONE_ID()', N'@zone nvarchar(128) OUTPUT',"
        " @zone = @zone OUTPUT; END TRY BEGIN CATCH SELECT @zone = NULL; END CATCH;"
        " SELECT @zone AS zone, DATEDIFF(minute, GETUTCDATE(), GETDATE()) AS offset_minutes"
    )


def read_clock(session: SourceSession, *, is_guessed: bool) -> tuple[object, ...]:
    """Return the parameters of ``select_utc`` for the clock of the server. The first is a text where it has a zone."""
    [(zone, offset_minutes)] = session.fetch(select_clock())
    return (zone,) * (1 if is_guessed else 3) if zone else (-offset_minutes,)


def select_utc(local: str, commit: str, *, has_zone: bool, is_guessed: bool) -> str:
    """Return the SELECT of commits with their times in UTC.

    local: the SELECT of the commits with their local times (``LOCAL_TIME``). commit: the name of the column of a commit
    there. Parameters: the time zone, once for a guess, else three times; without it the offset in minutes, negative
    east of Greenwich; then those of ``local``. A time is NULL where the clock has shown it twice, because it was set
    back by an hour: nothing in the row shows which of the two it was. is_guessed: it is the one that the server takes.
    """
    columns = f"{bracket(commit)}, %s AS {bracket(COMMITTED_AT)}"
    if not has_zone:
        return f"SELECT {columns % f'DATEADD(minute, ?, l.{LOCAL_TIME})'} FROM ({local}) AS l"  # noqa: S608
    utc = (
        f"SELECT {bracket(commit)}, l.{LOCAL_TIME},"  # noqa: S608
        f" CAST(l.{LOCAL_TIME} AT TIME ZONE ? AT TIME ZONE N'UTC' AS datetime2(3)) AS utc FROM ({local}) AS l"
    )
    if is_guessed:
        return f"SELECT {columns % 'u.utc'} FROM ({utc}) AS u"  # noqa: S608
    again = " OR ".join(
        f"CAST(DATEADD(hour, {hours}, u.utc) AT TIME ZONE N'UTC' AT TIME ZONE ? AS datetime2(3)) = u.{LOCAL_TIME}"
        for hours in (-1, 1)
    )
    return f"SELECT {columns % f'CASE WHEN {again} THEN NULL ELSE u.utc END'} FROM ({utc}) AS u"  # noqa: S608
