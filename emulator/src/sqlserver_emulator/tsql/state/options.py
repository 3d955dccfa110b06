"""SET options of a session: which are obeyed, which are remembered, which are refused.

Options that say what every modern client says anyway (ANSI_NULLS ON…) are accepted in that position and refused
by name in the other, because the emulator has one behaviour. Statistics and hints that change no result are remembered.
ARITHIGNORE and ARITHABORT are shown and change nothing: with ANSI_WARNINGS ON a division by zero and an overflow are
errors in each position (SET ARITHIGNORE (Transact-SQL), Remarks; SET ARITHABORT (Transact-SQL), Remarks).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.tsql.state import text_size
from sqlserver_emulator.tsql.state.system_variables import SystemVariables

_ONLY_POSITION: Final = {
    "ANSI_DEFAULTS": True,
    "ANSI_NULLS": True,
    "ANSI_PADDING": True,
    "ANSI_WARNINGS": True,
    "CONCAT_NULL_YIELDS_NULL": True,
    "FIPS_FLAGGER": False,
    "NOEXEC": False,
    "NUMERIC_ROUNDABORT": False,
    "PARSEONLY": False,
    "QUOTED_IDENTIFIER": True,
    "SHOWPLAN_ALL": False,
    "SHOWPLAN_TEXT": False,
    "SHOWPLAN_XML": False,
}
"""Switches that must stay as they are."""
# The documented bits of @@OPTIONS.
_OPTION_BITS: Final = {
    "IMPLICIT_TRANSACTIONS": 2,
    "CURSOR_CLOSE_ON_COMMIT": 4,
    "ANSI_WARNINGS": 8,
    "ANSI_PADDING": 16,
    "ANSI_NULLS": 32,
    "ARITHABORT": 64,
    "ARITHIGNORE": 128,
    "QUOTED_IDENTIFIER": 256,
    "NOCOUNT": 512,
    "ANSI_NULL_DFLT_ON": 1024,
    "ANSI_NULL_DFLT_OFF": 2048,
    "CONCAT_NULL_YIELDS_NULL": 4096,
    "NUMERIC_ROUNDABORT": 8192,
    "XACT_ABORT": 16384,
}
_DEFAULT_ON: Final = frozenset(
    {"ANSI_WARNINGS", "ANSI_PADDING", "ANSI_NULLS", "QUOTED_IDENTIFIER", "ANSI_NULL_DFLT_ON", "CONCAT_NULL_YIELDS_NULL"}
)
# The order of the documentation's example; options that it does not have set come behind these.
_SHOWN_FIRST: Final = (
    "QUOTED_IDENTIFIER",
    "ARITHABORT",
    "ANSI_NULL_DFLT_ON",
    "ANSI_WARNINGS",
    "ANSI_PADDING",
    "ANSI_NULLS",
    "CONCAT_NULL_YIELDS_NULL",
)
_DATE_FORMATS: Final = frozenset(("mdy", "dmy", "ymd", "ydm", "myd", "dym"))
_US_ENGLISH: Final = frozenset({"us_english", "english"})


@dataclass(slots=True)
class Options:
    """The options in force. ``switched_on``: the switches that are ON."""

    switched_on: frozenset[str] = _DEFAULT_ON
    nocount: bool = False
    xact_abort: bool = False
    implicit_transactions: bool = False
    fmtonly: bool = False
    rowcount: int = 0
    textsize: int = text_size.UNLIMITED
    datefirst: int = 7
    lock_timeout: int = -1
    date_format: str = "mdy"
    isolation: str = "READ COMMITTED"
    remembered: dict[str, object] = field(default_factory=dict)

    def copy(self) -> Options:
        """Return a copy, so that a scope's changes can be undone."""
        return replace(self, remembered=dict(self.remembered))

    def switch(self, option: str, on: bool) -> None:
        """Turn a switch. Raises NotSupportedByEmulatorError for a position that the emulator does not have."""
        if _ONLY_POSITION.get(option, on) is not on:
            raise NotSupportedByEmulatorError(f"SET {option} {'ON' if on else 'OFF'}")
        self.switched_on = self.switched_on | {option} if on else self.switched_on - {option}
        match option:
            case "NOCOUNT":
                self.nocount = on
            case "XACT_ABORT":
                self.xact_abort = on
            # SET ANSI_DEFAULTS ON turns implicit transactions on among the others.
            case "IMPLICIT_TRANSACTIONS" | "ANSI_DEFAULTS":
                self.implicit_transactions = on
            case "FMTONLY":
                self.fmtonly = on

    def assign(self, option: str, value: object) -> None:
        """Set an option that has a value. Raises NotSupportedByEmulatorError or the server's error for a bad value."""
        match option:
            case "ROWCOUNT":
                self.rowcount = _whole_number(option, value, least=0)
            case "LOCK_TIMEOUT":
                self.lock_timeout = _whole_number(option, value, least=-1)
            case "DATEFIRST":
                self.datefirst = _datefirst(value)
            case "TEXTSIZE":
                # SET TEXTSIZE 0 means the default of 4096 bytes.
                self.textsize = _whole_number(option, value, least=-1) or text_size.DEFAULT
            case "LANGUAGE":
                if str(value).lower() not in _US_ENGLISH:
                    raise NotSupportedByEmulatorError(f"SET LANGUAGE {value} (only us_english)")
            case "DATEFORMAT":
                self.date_format = _date_format(str(value).lower())
            # Options that change no result are kept only, so that a scope's end can restore them.
            case _:
                self.remembered[option] = value

    def listed(self) -> list[tuple[str, str]]:
        """Return names and values as DBCC USEROPTIONS has them, but for the isolation level."""
        values = {
            "textsize": self.textsize,
            "language": "us_english",
            "dateformat": self.date_format,
            "datefirst": self.datefirst,
            "lock_timeout": self.lock_timeout,
        }
        switches = [name for name in dict.fromkeys((*_SHOWN_FIRST, *_OPTION_BITS)) if name in self.switched_on]
        return [*((name, str(value)) for name, value in values.items()), *((name.lower(), "SET") for name in switches)]

    def show(self, system: SystemVariables) -> None:
        """Set the @@ variables that show options."""
        system.options.value = sum(bit for name, bit in _OPTION_BITS.items() if name in self.switched_on)
        system.lock_timeout.value = self.lock_timeout
        system.datefirst.value = self.datefirst
        system.textsize.value = self.textsize


def _whole_number(option: str, value: object, *, least: int) -> int:
    if not isinstance(value, int) or value < least:
        raise SqlServerError(1058, f"The value {value} is not valid for SET {option}.", severity=15)
    return value


def _date_format(value: str) -> str:
    if value not in _DATE_FORMATS:
        raise SqlServerError(2741, f"SET DATEFORMAT date order '{value}' is invalid.")
    if value not in ("mdy", "ymd"):
        raise NotSupportedByEmulatorError(f"SET DATEFORMAT {value} (only mdy and ymd)")
    return value


def _datefirst(value: object) -> int:
    if not isinstance(value, int) or not 1 <= value <= 7:
        raise SqlServerError(2744, f"The SET DATEFIRST value {value} is out of range; it must be 1 to 7.")
    return value
