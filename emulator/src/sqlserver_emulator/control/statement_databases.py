"""Which databases a statement is in, as its text shows: the session's, and those that its three-part names begin with.

Faults ask. It reads names, not statements: one in a string or a comment counts too.
"""

from __future__ import annotations

import re
from typing import Final

# A name has at most 128 characters: without the limit, a text full of brackets would take quadratic time.
_NAME: Final = r'(?:\[[^\]]{1,128}\]|"[^"]{1,128}"|[^\W\d][\w@#$]*)'
# The middle of a longer name is not read as its beginning. A long text or number would take quadratic time.
_IN_DATABASE: Final = rf"(?<![\w@#$.\]\"])(?P<database>{_NAME})\s*\.\s*{_NAME}?\s*\.\s*{_NAME}"
_NAMED: Final = re.compile(_IN_DATABASE)
_TOP: Final = r"(?:\s+TOP\s*\([^)]*\))?"
_WRITTEN: Final = re.compile(
    rf"\b(?:INSERT{_TOP}\s+INTO|INSERT\s+BULK|INSERT{_TOP}|UPDATE{_TOP}|DELETE{_TOP}\s+FROM|DELETE{_TOP}|"
    rf"MERGE{_TOP}\s+INTO|MERGE{_TOP}|INTO|(?:CREATE|ALTER|DROP|TRUNCATE)\s+\w+(?:\s+IF\s+EXISTS)?)\s+"
    rf"(?P<target>{_NAME}(?:\s*\.\s*(?:{_NAME})?){{0,2}})",
    re.IGNORECASE,
)


def databases_of(statement: str, current: str) -> frozenset[str]:
    """In lower case. ``current``: the session's database."""
    return frozenset([current.lower(), *(_bare(found["database"]) for found in _NAMED.finditer(statement))])


def written_database(statement: str, current: str) -> str:
    """The database of the table that a writing statement is about, in lower case."""
    found = _WRITTEN.search(statement)
    target = found["target"] if found else ""
    # A name of three parts has its database; otherwise it may be the alias of such a name in FROM.
    named = re.match(_IN_DATABASE, target) or _aliased(statement, target)
    return _bare(named["database"]) if named else current.lower()


def _aliased(statement: str, target: str) -> re.Match[str] | None:
    """The three-part name that ``target`` is an alias of: UPDATE a SET ... FROM Shop.dbo.t AS a."""
    return re.search(rf"{_IN_DATABASE}\s+(?:AS\s+)?{re.escape(target)}(?![\w@#$])", statement, re.IGNORECASE)


def _bare(name: str) -> str:
    return name.strip('[]"').lower()
