"""Patterns over the names of tables, and the decision which tables of a source a pipeline takes by them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from floodmark.core.naming import snake_case, with_suffix
from floodmark.core.schema import IDENTIFIER_MAX_BYTES, TableName
from floodmark.core.settings import Naming

# --------------------------------------------------------------------------------------------------------------------
# A pattern is written as a name is: ``dbo.Order*``. An asterisk in brackets is a character of a name.


ANY = "*"
_DIGEST = 8
_BRACKETED = re.compile(r"\[(?:[^\]]|\]\])*\]")


def is_pattern(text: str) -> bool:
    """Return whether a text of the configuration is a pattern, and not the name of one table."""
    return ANY in _BRACKETED.sub("", text)


@dataclass(frozen=True, slots=True)
class TablePattern:
    """A pattern, or the name of one table. Names that differ in case alone are one."""

    name: TableName
    is_wild: bool = True
    """Whether ``*`` is any text."""

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Return what a text spells. Raises ValueError."""
        name = TableName.parse(text)
        if ANY in name.schema and is_pattern(text):
            raise ValueError(f"not a pattern: {text!r} (expected the name of one schema, such as dbo.*)")
        return cls(name, is_pattern(text))

    def matches(self, table: TableName) -> bool:
        """Return whether a table has such a name."""
        schema, name = self.name.folded
        if not self.is_wild:
            return (schema, name) == table.folded
        expression = ".*".join(map(re.escape, name.split(ANY)))
        return schema == table.folded[0] and re.fullmatch(expression, table.folded[1], re.DOTALL) is not None

    def __str__(self) -> str:
        # The asterisks of a name are in brackets, those of a pattern are not.
        return str(TableName(self.name.schema, "x"))[:-1] + self.name.name if self.is_wild else str(self.name)


def fill_target(template: TableName, table: TableName, naming: Naming) -> TableName:
    """Return the target of a table: the template with the table's name in the place of ``*``.

    A name that PostgreSQL could not hold ends in a digest of the table's, and stays distinct.
    """
    own = table.name if naming is Naming.KEEP else snake_case(table.name, "table")
    return TableName(template.schema, shortened(template.name.replace(ANY, own, 1), str(table)))


def shortened(name: str, whole: str) -> str:
    """Return a name that PostgreSQL can hold. A longer one ends in a digest of the whole name, and stays distinct."""
    if len(name.encode()) <= IDENTIFIER_MAX_BYTES:
        return name
    return with_suffix(name, hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST])


# --------------------------------------------------------------------------------------------------------------------
# The tables that the patterns of a pipeline stand for.
#
# A run takes what it finds when it meets a pattern for the first time. After that the set changes only where the
# configuration does, or says that it may (``new_tables: add``): a table that a developer begins to track must not fill
# the warehouse because nobody was asked.


class Listed(Enum):
    """How a pipeline treats a table that one of its patterns matches."""

    TAKEN = "taken"
    """It is a table of the pipeline."""
    KNOWN = "known"
    """The configuration excludes it, or has an entry for it. Without those it is taken."""
    NEW = "new"
    """It came later, and is not part of the pipeline."""
    CLASHING = "clashing"
    """Another table fills its target. It is taken as soon as none does."""


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table of the source that a pattern of a pipeline matches, as the ledger records it."""

    table: TableName
    pattern: str
    state: Listed
    clash: str = field(default="another table fills its target", compare=False)
    """Which table fills its target, in words, for one that is clashing. It is not recorded."""

    @property
    def reason(self) -> str:
        """Return why it is not part of the pipeline although the pattern matches it; "" for a table that is."""
        if self.state is Listed.NEW:
            return f"the new table matches {self.pattern}, and is not part of the pipeline"
        return f"the table matches {self.pattern}, and {self.clash}" if self.state is Listed.CLASHING else ""

    @property
    def fix(self) -> str:
        """Return what the author of the configuration can do where there is a reason."""
        add = ", or set `new_tables: add`" if self.state is Listed.NEW else ""
        return f"In pipelines.yaml, write an entry for {self.table} or add it to `exclude`{add}."


@dataclass(frozen=True, slots=True)
class PatternEntry:
    """An entry of ``tables`` with a pattern."""

    pattern: TablePattern
    exclude: tuple[TablePattern, ...]
    target: TableName
    """The target of its tables, with ``*`` in the place of their names."""
    naming: Naming

    def takes(self, table: TableName) -> bool:
        """Return whether the entry is that of a table."""
        return self.pattern.matches(table) and not any(each.matches(table) for each in self.exclude)


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of a pipeline, and what else the configuration says."""

    entries: tuple[PatternEntry, ...]
    named: frozenset[TableName]
    """The tables that have an entry of their own, as it spells them."""
    filled: Mapping[TableName, str]
    """The targets that are filled by others, and what fills each: entries for one table, and other pipelines."""
    adds: bool
    """Whether a table that comes later is taken."""

    def entry_of(self, table: TableName) -> PatternEntry | None:
        """Return the entry that takes a table, the first in the file; None where there is none."""
        return next((each for each in self.entries if each.takes(table)), None)

    def named_among(self, tables: Collection[TableName]) -> set[TableName]:
        """Return the tables that have an entry of their own.

        tables: all that the patterns match. An entry that spells none of them means the one whose name differs in case
        alone; where the server has both, each entry means its own.
        """
        others = {each.folded for each in self.named.difference(tables)}
        return {each for each in tables if each in self.named or each.folded in others}

    def list_taken(self, recorded: Collection[ListedTable]) -> list[TableName]:
        """Return the tables that are the pipeline's, by the configuration as it is now.

        recorded: what was recorded at the last run.
        """
        named = self.named_among([each.table for each in recorded])
        taken = (each.table for each in recorded if each.state is Listed.TAKEN)
        return [each for each in taken if each not in named and self.entry_of(each) is not None]


def select_tables(
    patterns: Patterns, found: Collection[TableName], recorded: Sequence[ListedTable]
) -> tuple[ListedTable, ...]:
    """Return what is to be recorded: every table that a pattern matches.

    found: the tables whose changes the source records. A taken table stays also where the source no longer has it: its
    verdict then says so. A new one that is gone is forgotten.
    """
    before = {each.table: each for each in recorded}
    kept = {each.table for each in recorded if each.state is Listed.TAKEN}
    met = {each.pattern for each in recorded}
    filled = dict(patterns.filled)
    # Those that have their target already keep it.
    order = sorted({*found, *kept}, key=lambda table: (table not in kept, table))
    named = patterns.named_among(order)
    listed = (_list_table(patterns, table, before.get(table), met, filled, is_named=table in named) for table in order)
    return tuple(sorted((each for each in listed if each is not None), key=lambda each: each.table))


def _list_table(
    patterns: Patterns,
    table: TableName,
    before: ListedTable | None,
    met: Collection[str],
    filled: dict[TableName, str],
    *,
    is_named: bool,
) -> ListedTable | None:
    """Return how a table is recorded. met: the patterns of earlier runs. filled: gets the target of a taken table."""
    matching = [each for each in patterns.entries if each.pattern.matches(table)]
    if not matching:
        return None
    entry = patterns.entry_of(table)
    if entry is None or is_named:
        return ListedTable(table, str(matching[0].pattern), Listed.KNOWN)
    pattern = str(entry.pattern)
    is_new = pattern in met and (before is None or (before.state is Listed.NEW and before.pattern == pattern))
    if is_new and not patterns.adds:
        return ListedTable(table, pattern, Listed.NEW)
    target = fill_target(entry.target, table, entry.naming)
    if (by := filled.setdefault(target, str(table))) != str(table):
        return ListedTable(table, pattern, Listed.CLASHING, f"{by} fills its target {target}")
    return ListedTable(table, pattern, Listed.TAKEN)
