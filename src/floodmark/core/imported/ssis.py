"""The CDC state of SSIS, as its CDC Control Task keeps it (docs/reference/imported_states.md, "SSIS")."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from floodmark.core.errors import OperatorError
from floodmark.core.imported.position import ImportedPosition, parse_log_lsn, unreadable
from floodmark.core.lsn import Lsn

TOOL = "SSIS"
_LSN = r"0[xX][0-9A-Fa-f]{20}"
_STATE = re.compile(
    rf"(?P<name>[A-Z]{{0,16}})(?:/CS/(?P<cs>{_LSN}))?(?:/CE/(?P<ce>{_LSN}))?"
    rf"(?:/IR/(?P<ir_start>{_LSN})/(?P<ir_end>{_LSN})?)?(?:/TS/(?P<updated>[^/]+))?(?:/ER/(?P<error>.*?))?/?",
    re.DOTALL,
)
_FORM = (
    "Give the text of one row of its state table alone, such as TFEND/CS/0x0000025B000001BC0003/TS/"
    "2011-07-17T12:05:58.1001145/"
)


class StateName(Enum):
    """The state names of SSIS."""

    INITIAL = ""
    ILSTART = "ILSTART"
    ILEND = "ILEND"
    ILUPDATE = "ILUPDATE"
    TFSTART = "TFSTART"
    TFEND = "TFEND"
    TFREDO = "TFREDO"
    ERROR = "ERROR"


_UNFINISHED = "Let the package that applies changes run to its end (Mark processed range), so that the state is TFEND."
_REFUSED = {
    StateName.INITIAL: ("no package has run yet.", "There is nothing to continue: floodmark run loads the tables."),
    StateName.ILSTART: (
        "its initial load has begun and has not ended.",
        "Let it run to its end (Mark initial load end), or drop its targets and let floodmark run load the tables.",
    ),
    StateName.ILUPDATE: ("the changes of its initial load are being applied.", _UNFINISHED),
    StateName.TFSTART: ("a range of changes is being applied, or was left unfinished.", _UNFINISHED),
    StateName.TFREDO: ("a range of changes is being applied again after a failure.", _UNFINISHED),
    StateName.ERROR: ("its last operation failed.", f"Correct what failed. {_UNFINISHED}"),
}


@dataclass(frozen=True, slots=True)
class SsisState:
    """A CDC state of SSIS."""

    name: StateName
    cs: Lsn | None = None
    """The last LSN of the last range that was applied."""
    ce: Lsn | None = None
    """The last LSN of the range that is being applied."""
    ir_start: Lsn | None = None
    """The newest LSN before the initial load began."""
    ir_end: Lsn | None = None
    """The LSN of the first change after the initial load had ended."""
    updated: str = ""
    """The time of the last update, as it is spelled."""
    error: str | None = None
    """The text of an error; None for none."""

    def position_in(self, database: str) -> ImportedPosition:
        """Return the position. The state does not name its database. Raises OperatorError, naming the state."""
        cause, hint = _REFUSED.get(self.name, ("", ""))
        if self.error is not None or self.ce is not None:
            cause, hint = cause or "its last operation did not end well.", hint or _UNFINISHED
        if cause:
            raise OperatorError(f"state of {TOOL}", f"{self.name.value or '(initial)'}: {cause}", hint)
        found = self.cs if self.name is StateName.TFEND else self.ir_start
        if found is None:
            component = "CS" if self.name is StateName.TFEND else "IR"
            raise unreadable(TOOL, f"{self.name.value} without {component}.", _FORM)
        return ImportedPosition(TOOL, found, found)


def parse_ssis_state(text: str) -> SsisState:
    """Return the state that a text spells. Raises ConfigError."""
    match = _STATE.fullmatch(text.strip())
    if match is None:
        raise unreadable(TOOL, "the text is not a CDC state.", _FORM)
    try:
        name = StateName(match["name"])
    except ValueError:
        known = ", ".join(each.value for each in StateName if each.value)
        raise unreadable(TOOL, f"{match['name']} is not a state name.", f"The state names are {known}.") from None
    cs, ce, ir_start, ir_end = (_lsn(match[part]) for part in ("cs", "ce", "ir_start", "ir_end"))
    return SsisState(name, cs, ce, ir_start, ir_end, match["updated"] or "", match["error"])


def _lsn(text: str | None) -> Lsn | None:
    if text is None:
        return None
    found = parse_log_lsn(text)
    if found is None:
        raise unreadable(TOOL, "an LSN in the state is not a position in a log.", _FORM)
    return found
