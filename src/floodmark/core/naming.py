"""The columns of a source table and their names in the target: the one place where they are mapped.

A column keeps its name in the target for good. So a name that was given once is recorded (``floodmark.tables``), also
of a column that the source has dropped since, and only columns that are not recorded get a new one. Two columns never
share a column of the target, whatever the source calls them.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby

from floodmark.core.schema import (
    IDENTIFIER_MAX_BYTES,
    KEEP_PREFIX,
    PART_COLUMN,
    TARGET_COLUMNS,
    MappedColumn,
    SourceTable,
    TableName,
)
from floodmark.core.settings import Naming, TableSettings

# --------------------------------------------------------------------------------------------------------------------
# The rules of ``snake_case``. docs/warehouse.md explains them with examples.


_DIGEST = 6
"""The length of a suffix, in hexadecimal digits."""


def snake_case(name: str, of_no_word: str = "column") -> str:
    """Return a name in lower case with an underscore between words, of any length.

    The name begins with at most one underscore, so that it is none of Floodmark's own, and with no digit. Names that
    differ may become one. of_no_word: for a name with neither a letter nor a digit.
    """
    normal = unicodedata.normalize("NFC", name)
    parts = ("".join(part) for is_word, part in groupby(normal, key=_is_of_word) if is_word)
    words = [word for part in parts for word in _split(part)]
    spelled = unicodedata.normalize("NFC", "_".join(words).lower()) or of_no_word
    return f"_{spelled}" if normal.startswith("_") or spelled[0].isdigit() else spelled


def _is_of_word(character: str) -> bool:
    """Return whether a character is a letter, a mark on one, or a digit, of any script."""
    return unicodedata.category(character)[0] in "LMN"


def _split(part: str) -> Iterable[str]:
    """Return the words of a name without separators: HTMLPage2Text is HTML, Page2, Text."""
    begin = 0
    for place in range(1, len(part)):
        if _begins_word(part, place):
            yield part[begin:place]
            begin = place
    yield part[begin:]


def _begins_word(part: str, place: int) -> bool:
    if not part[place].isupper():
        return False
    if not part[place - 1].isupper():
        return True
    # The last capital of several begins the next word, but not before the s of a plural: CustomerIDs, but HTMLPage.
    rest = part[place + 1 : place + 3]
    return rest[:1].islower() and not (rest[0] == "s" and not rest[1:].islower())


# --------------------------------------------------------------------------------------------------------------------
# The columns of a table and what the target calls them.


_KEPT_NAMES = frozenset({*TARGET_COLUMNS, PART_COLUMN})
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""The names of PostgreSQL's system columns."""


def why_not_named(name: str) -> str:
    """Return a clause about a name that no column of a target can have; "" for any other."""
    if len(name.encode()) > IDENTIFIER_MAX_BYTES:
        return f"has a name longer than the {IDENTIFIER_MAX_BYTES} bytes that PostgreSQL allows"
    if name in _KEPT_NAMES or name.startswith(KEEP_PREFIX) or name.lower() in _SYSTEM_COLUMNS:
        return "has a name that is reserved in the warehouse"
    return ""


def map_columns(
    naming: Naming,
    names: Iterable[str],
    known: Sequence[MappedColumn] = (),
    own: str = "",
    chosen: Mapping[str, str] | None = None,
) -> tuple[MappedColumn, ...]:
    """Return the columns of a table with their names in the target; none for those that keep their names.

    names: the columns, in the source's order. known: those that the target has names for. They keep them, and come
    first, also where the source no longer has them. own: a column that Floodmark adds, which keeps its name. chosen:
    the names that the configuration gives; None where the ledger records no columns of a table that keeps their names.
    """
    if naming is Naming.KEEP and chosen is None:
        return ()
    kept = [MappedColumn(own, own)] if own else []
    mapped = {column.source: replace(column, was="") for column in (*kept, *known)}
    taken = {column.target for column in mapped.values()} | {*(chosen or {}).values()}
    for name in names:
        if name not in mapped:
            free = name if naming is Naming.KEEP else _free_name(name, taken)
            mapped[name] = MappedColumn(name, (chosen or {}).get(name) or free)
            taken.add(mapped[name].target)
    return tuple(mapped.values())


def rename_columns(
    naming: Naming,
    names: Iterable[str],
    known: Sequence[MappedColumn] = (),
    own: str = "",
    chosen: Mapping[str, str] | None = None,
) -> tuple[MappedColumn, ...]:
    """Return the columns of a table whose target has other names for them until a load of the whole table is merged.

    known: the names that the target has; none where it has those of the source. own, chosen: as for ``map_columns``.
    """
    before = {column.source: column.target for column in known}
    every = [*before, *(name for name in names if name not in before)]
    columns = map_columns(naming, every, own=own, chosen=chosen) or tuple(MappedColumn(name, name) for name in every)
    named = ((column, before.get(column.source, column.source)) for column in columns)
    return tuple(replace(column, was="" if was == column.target else was) for column, was in named)


def _free_name(name: str, taken: Collection[str]) -> str:
    """Return the name of a column; with a suffix where it is another column's, or none that a target can have.

    The suffix depends on the name alone, so that it is the same whatever other columns come and go.
    """
    spelled = snake_case(name)
    if spelled not in taken and not why_not_named(spelled) and any(map(_is_of_word, name)):
        return spelled
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    suffixed = (with_suffix(spelled, digest[: _DIGEST * times]) for times in count(1))
    return next(each for each in suffixed if each not in taken)


def with_suffix(name: str, suffix: str) -> str:
    """Return a name that ends in a suffix, shortened to what a target can have."""
    room = IDENTIFIER_MAX_BYTES - 1 - len(suffix)
    return f"{name.encode()[:room].decode(errors='ignore').rstrip('_')}_{suffix}"


_LIVE = "live"


def live_view_name(target: TableName) -> TableName:
    """Return the name of the view with the rows of a target that are not deleted.

    One that is longer than PostgreSQL allows is shortened, and has a digest of the target's name before its end.
    """
    name = f"{target.name}_{_LIVE}"
    if len(name.encode()) > IDENTIFIER_MAX_BYTES:
        digest = hashlib.sha256(target.name.encode(errors="surrogatepass")).hexdigest()
        name = with_suffix(target.name, f"{digest[:_DIGEST]}_{_LIVE}")
    return TableName(target.schema, name)


def versions_name(target: TableName) -> TableName:
    """Return the name of the table with the ended versions of a history."""
    return TableName(target.schema, f"{target.name}_versions")


def history_view_name(target: TableName) -> TableName:
    """Return the name of the view with all versions of a history."""
    return TableName(target.schema, f"{target.name}_history")


def why_no_versions(target: TableName) -> str:
    """Return why a target cannot have a history, as a clause; "" where it can."""
    longest = max((versions_name(target), history_view_name(target)), key=lambda each: len(each.name.encode()))
    if len(longest.name.encode()) > IDENTIFIER_MAX_BYTES:
        return f"{longest.name} has more than the {IDENTIFIER_MAX_BYTES} bytes of a name: use a shorter target"
    return ""


def strictest_naming(tables: Iterable[TableSettings]) -> Naming:
    """Return how columns are named where pipelines of one table differ: ``keep`` cannot name every column."""
    return Naming.KEEP if any(table.naming is Naming.KEEP for table in tables) else Naming.SNAKE_CASE


def with_names(table: SourceTable, names: Mapping[str, str]) -> SourceTable:
    """Return a table with its columns and its key under other names. names: by the source's; the others stay."""
    # Asked for each table some fifty times in a window; most tables keep their names.
    if all(name == named for name, named in names.items()):
        return table
    columns = tuple(replace(column, name=names.get(column.name, column.name)) for column in table.columns)
    return replace(table, columns=columns, key=tuple(names.get(name, name) for name in table.key))
