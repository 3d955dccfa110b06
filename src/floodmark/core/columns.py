"""The settings of a table's columns: which of them reach the target, and the types of those that are masked there.

Also the columns that a filter reads, which need not reach it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from floodmark.core.naming import why_not_named
from floodmark.core.schema import MAX_LENGTH, TRACKED_COLUMN, SourceColumn, SourceTable
from floodmark.core.settings import (
    Cast,
    ColumnSettings,
    ComparedWith,
    Filter,
    FilterColumn,
    Mask,
    Naming,
    NetSource,
    NewColumns,
    TableOptions,
)
from floodmark.core.snapshot import Feed

HASH_DIGITS = 64
_TEXT = frozenset({"char", "varchar", "nchar", "nvarchar", "text", "ntext", "sysname"})
_DATES = frozenset({"date", "datetime", "smalldatetime", "datetime2", "datetimeoffset"})
_NUMBERS = frozenset({
    "tinyint", "smallint", "int", "bigint", "decimal", "numeric", "money", "smallmoney", "float", "real"
})  # fmt: skip
_FOR = {
    Mask.LAST4: (_TEXT, "texts"),
    Mask.YEAR: (_DATES, "dates"),
    Mask.ROUND: (_NUMBERS, "numbers"),
}
"""The types that a mask is for, and their name. The other masks are for every type."""
_NUMERIC = _NUMBERS | {"bit"}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_MOMENTS = ("datetime", "smalldatetime", "datetime2")
_CASTS = {
    Cast.DATE: ("date", *_MOMENTS),
    Cast.TEXT: (*_WHOLE, "bit", "decimal", "numeric", "money", "smallmoney", "uniqueidentifier", "date", *_MOMENTS),
    Cast.INT: _WHOLE[:3],
    Cast.BIGINT: _WHOLE,
}
"""The types that a cast is for: each of their values has one value of the other type. Not datetimeoffset, whose day
depends on a time zone, and not float and real, which have no exact decimal text."""
_CAST_TEXT_LENGTH = 64
"""More than the longest text of a cast value, a decimal with 38 digits, has."""
_COMPARABLE = {
    ComparedWith.NUMBER: (_NUMERIC, "a number"),
    ComparedWith.TEXT: (_TEXT | _DATES | {"time", "uniqueidentifier"}, "a text"),
    ComparedWith.BYTES: (frozenset({"binary", "varbinary", "timestamp", "rowversion"}), "bytes"),
    ComparedWith.PATTERN: (_TEXT, "a pattern"),
}
"""The types that a filter may compare with a literal, and its name: the server would convert the values of others, and
fail at the first one that it cannot convert."""
_NOT_IN_EVENTS = frozenset({"binary", "datetimeoffset", "real", "time", "timestamp", "rowversion"})
"""The types whose comparison by the server is not that of their values in events."""
_TO_TEXT = frozenset({Mask.HASH, Mask.REDACT})
_OLD_LOBS = frozenset({"text", "ntext", "image"})
_KEYS = frozenset({
    "char", "varchar", "nchar", "nvarchar", "sysname", "tinyint", "smallint", "int", "bigint", "decimal", "numeric",
    "uniqueidentifier", "binary", "varbinary"
})  # fmt: skip
"""The types of a key that may be hashed: a value has one text, which no other scale or type of these changes."""
_FIXED = frozenset({"char", "nchar", "binary"})
"""Of these, those whose length no index lets be changed."""


# --------------------------------------------------------------------------------------------------------------------
# The columns that are read, and their types in the target.


def maps_columns(settings: TableOptions) -> bool:
    """Return whether the ledger records the columns of a table: a column that it does not have is new."""
    return (
        settings.naming is not Naming.KEEP
        or bool(settings.columns)
        or new_columns_of(settings) is not NewColumns.FOLLOW
    )


def new_columns_of(settings: TableOptions) -> NewColumns:
    """Return what is done with a new column of a table. Where others are hidden, it waits for a decision."""
    if settings.new_columns is not None:
        return settings.new_columns
    is_hiding = any(column.is_hidden for column in settings.columns)
    return NewColumns.HOLD if is_hiding else NewColumns.FOLLOW


def chosen_names(settings: TableOptions) -> dict[str, str] | None:
    """Return the names that the configuration gives to columns; None where the ledger records no columns."""
    if not maps_columns(settings):
        return None
    return {column.name: column.target for column in settings.columns if column.target}


def list_new(settings: TableOptions, names: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the columns that are neither known nor named in the configuration. known: none for a first load."""
    named = {column.name for column in settings.columns}
    return [name for name in names if known and name not in named and name not in known]


def select_columns(settings: TableOptions, table: SourceTable, known: Collection[str]) -> SourceTable:
    """Return a table with the columns that are read from the source. known: as for ``list_new``."""
    left_out = {column.name for column in settings.columns if column.is_dropped}
    if new_columns_of(settings) is NewColumns.DROP:
        left_out.update(list_new(settings, (column.name for column in table.columns), known))
    return replace(table, columns=tuple(column for column in table.columns if column.name not in left_out))


def retype_columns(settings: TableOptions, table: SourceTable) -> SourceTable:
    """Return a table with the types that masked and cast columns have in the target.

    Masked ones stay what a change may leave out.
    """
    masks, casts = masks_of(settings), casts_of(settings)
    if not masks and not casts:
        return table
    columns = (_masked(column, masks[column.name]) if column.name in masks else column for column in table.columns)
    columns = (_cast(column, casts[column.name]) if column.name in casts else column for column in columns)
    return replace(table, columns=tuple(columns))


def _cast(column: SourceColumn, to: Cast) -> SourceColumn:
    plain = replace(column, precision=0, scale=0, max_length=0)
    if to is Cast.TEXT:
        return replace(plain, type_name="nvarchar", max_length=_CAST_TEXT_LENGTH)
    return replace(plain, type_name=to.value)


def _masked(column: SourceColumn, how: ColumnSettings) -> SourceColumn:
    if how.mask not in _TO_TEXT:
        return column
    if column.type_name in _OLD_LOBS:
        return replace(column, type_name="ntext", max_length=0)
    return replace(column, type_name="nvarchar", max_length=MAX_LENGTH if column.is_lob else HASH_DIGITS)


def masks_of(settings: TableOptions) -> dict[str, ColumnSettings]:
    """Return the settings of the masked columns, by their names at the source."""
    return {column.name: column for column in settings.columns if column.mask is not None}


def casts_of(settings: TableOptions) -> dict[str, Cast]:
    """Return the casts of columns, by their names at the source."""
    return {column.name: column.cast for column in settings.columns if column.cast is not None}


def hides_key(settings: TableOptions, table: SourceTable) -> bool:
    """Return whether values of a table's key must be in no ledger, log or error."""
    return not masks_of(settings).keys().isdisjoint(table.key)


def has_hash(settings: TableOptions) -> bool:
    """Return whether a column of a table is masked by a hash, which needs a secret."""
    return any(column.mask is Mask.HASH for column in settings.columns)


# --------------------------------------------------------------------------------------------------------------------
# Settings that no table can have, and those that a table cannot have.


def why_no_columns(settings: TableOptions) -> str:
    """Return why no table can have these settings of columns, as a clause; "" where one can."""
    folded = {name.casefold() for name in settings.key}
    for column in settings.columns:
        if column.name.casefold() in folded and (why := _why_not_in_key(column)):
            return why
        if column.cast is not None and column.mask in _TO_TEXT:
            return f"mask: {column.mask.value} of {column.name} makes a text, which has no cast: remove one of the two"
        if column.target and (why := why_not_named(column.target)):
            return f"as: {column.target} of {column.name} {why}"
    if has_hash(settings) and settings.mask_key_conn_id is None:
        return "mask: hash needs mask_key_conn_id, the connection with the secret of its hashes"
    return ""


def why_no_derived(settings: TableOptions) -> str:
    """Return why no table can have these derived columns, as a clause; "" where one can."""
    taken = {each.target.casefold() for each in settings.columns if each.target}
    for derived in settings.derived:
        if why := why_not_named(derived.name):
            return f"{derived.name} {why}"
        if derived.name.casefold() in taken:
            return f"{derived.name} is the name of two columns"
        taken.add(derived.name.casefold())
    return ""


def why_not_of_table(settings: TableOptions, table: SourceTable, known: Collection[str]) -> str:
    """Return why a table cannot have its settings of columns, as a clause; "" where it can.

    table: with all columns and its key. known: the columns that the ledger has, which may have gone. Any other name
    that is not there is a mistake, by which the values of a column would be seen.
    """
    found = {column.name: column for column in table.columns}
    if missing := [each.name for each in settings.columns if each.name not in found and each.name not in known]:
        return f"there is no captured column {', '.join(missing)} in this spelling"
    for each in settings.columns:
        if each.name in table.key and (why := _why_not_in_key(each, found.get(each.name), settings.key)):
            return why
        kinds, words = _FOR.get(each.mask, (None, "")) if each.mask else (None, "")
        if kinds is not None and each.name in found and found[each.name].type_name not in kinds:
            its = found[each.name].declared_type
            return f"mask: {describe_mask(each)} is for {words}, and {each.name} is {its}"
        if each.cast and each.name in found and found[each.name].type_name not in _CASTS[each.cast]:
            its, types = found[each.name].declared_type, ", ".join(_CASTS[each.cast])
            return f"cast: {each.cast.value} is for {types}, and {each.name} is {its}"
    return ""


def why_not_of_members(settings: TableOptions, feed: Feed) -> str:
    """Return why the members of a feed, or its spelling, refuse settings of columns, as a clause; "" if they do not."""
    if any(each.name == feed.member_column for each in settings.columns):
        return f"{feed.member_column} has the names of devices, by which their rows are found: it stays as it is"
    spelled = {each.name.casefold(): each.name for each in settings.columns}
    for column in feed.table.columns:
        # As a new column, it would bring the values of one that is masked or left out.
        if (name := spelled.get(column.name.casefold(), column.name)) != column.name:
            who = "first device" if feed.member_column else "source"
            return f"the {who} spells {name} as {column.name}: write it in this spelling"
    return ""


def why_not_tracked(settings: TableOptions, table: SourceTable, known: Collection[str]) -> str:
    """Return why versions of a table cannot be tracked by the columns of its settings, as a clause; "" where they can.

    table: with all columns. known: the columns that the ledger has, which may have gone.
    """
    if not settings.track:
        return ""
    found = {column.name for column in table.stored_columns}
    if missing := [name for name in settings.track if name not in found and name not in known]:
        return f"there is no captured column {', '.join(missing)} in this spelling"
    left_out = {column.name for column in settings.columns if column.is_dropped}
    if dropped := [name for name in settings.track if name in left_out]:
        return f"the target has no column {', '.join(dropped)}, which columns leaves out (drop)"
    if taken := [name for name in found if name.casefold() == TRACKED_COLUMN]:
        return f"the table has a column {taken[0]}, and the view gets one of this name"
    return ""


def why_names_clash(columns: Mapping[str, str]) -> str:
    """Return why columns cannot have their names in the target, as a clause; "" where they can.

    columns: the names in the target, by those at the source. Names that differ in case alone are the same for some
    engines.
    """
    taken: dict[str, str] = {}
    for source, target in columns.items():
        if (other := taken.setdefault(target.casefold(), source)) != source:
            return f"{other} and {source} would both be {target} in the target"
    return ""


def why_no_filter(settings: TableOptions) -> str:
    """Return why no table can have this filter with its other settings, as a clause; "" where one can."""
    if settings.where is not None and settings.net is NetSource.SERVER:
        return "net: server has no image before a change, which shows that a row left the filter: use net: spark"
    return ""


def why_not_filtered(settings: TableOptions, feed: Feed, known: Collection[str]) -> str:
    """Return why a table cannot have its filter, as a clause; "" where it can.

    feed: with all columns. known: as for ``list_new``.

    A change row leaves out a LOB that it did not change. So the row that an update brings into the filter would lack
    it. Net changes of the source have all values of the row.
    """
    if settings.where is None:
        return ""
    found = {column.name: column for column in feed.table.stored_columns}
    reasons = [_why_not_compared(found.get(each.name), each) for each in settings.where.columns]
    if feed.has_events:
        reasons += _why_not_of_events(settings.where, feed.table)
    elif not feed.delivers_net:
        reasons += [why_no_filter(settings), _why_incomplete(select_columns(settings, feed.table, known))]
    return next(filter(None, reasons), "")


def _why_not_of_events(where: Filter, table: SourceTable) -> list[str]:
    """Return why the filter cannot be evaluated over events, as clauses, some of them empty.

    A whole event has all values of the row before and after a change.
    """
    named = {each.name for each in where.columns}
    unlike = [each for each in table.stored_columns if each.name in named and each.type_name in _NOT_IN_EVENTS]
    reasons = [f"{each.name} is {each.declared_type}, which a filter of events does not compare" for each in unlike]
    if table.is_partial:
        reasons.append(
            "its events leave out columns, or the values before a change, so that nothing shows whether the row passes:"
            " add the table to its stream group again with @include_all_columns = 1 and"
            " @include_old_values = 1"
        )
    return reasons


def list_filtering(settings: TableOptions, feed: Feed) -> tuple[SourceColumn, ...]:
    """Return the columns that the filter reads from events, which need not reach the target. feed: with all columns."""
    if settings.where is None or not feed.has_events:
        return ()
    read = {column.name for column in settings.where.columns}
    return tuple(column for column in feed.table.stored_columns if column.name in read)


def hides_values(settings: TableOptions) -> bool:
    """Return whether some values of a table at the source must not be kept, such as in a message as it came."""
    is_whole = new_columns_of(settings) is NewColumns.FOLLOW and settings.where is None
    return not is_whole or any(column.is_hidden for column in settings.columns)


def _why_incomplete(table: SourceTable) -> str:
    if lobs := [column.name for column in table.stored_columns if column.is_lob]:
        return (
            f"the change that brings a row into the filter may lack {', '.join(lobs)}, because a change leaves out a"
            " value of any length that it did not change: leave such columns out (columns: drop)"
        )
    return ""


def list_filled(settings: TableOptions, table: SourceTable) -> tuple[str, ...]:
    """Return the columns that the filter reads and that are never NULL, but those of the key. table: with all."""
    read = {column.name for column in settings.where.columns} if settings.where else set()
    names = (column.name for column in table.columns if not column.nullable)
    return tuple(name for name in names if name in read and name not in table.key)


def _why_not_compared(column: SourceColumn | None, how: FilterColumn) -> str:
    if column is None:
        return f"there is no captured column {how.name} in this spelling, or it is computed"
    known = frozenset[str]().union(*(types for types, _ in _COMPARABLE.values()))
    if column.is_lob or column.type_name not in known:
        return f"{column.name} is {column.declared_type}, which no filter compares"
    types, what = _COMPARABLE.get(how.compared, (known, ""))
    if column.type_name not in types:
        return f"{column.name} is {column.declared_type}, and is compared with {what}"
    return ""


def _why_not_in_key(column: ColumnSettings, source: SourceColumn | None = None, declared: Collection[str] = ()) -> str:
    """Return why a column of a key cannot have its settings, as a clause; "" where it can. Hashes keep keys apart."""
    part = f"{column.name} is part of the key, by which rows are merged"
    if column.mask is Mask.HASH:
        if declared and source is not None and source.type_name in _FIXED:
            return f"{part}. Its values are padded, so that hashes of a declared key change with the length of " + (
                source.declared_type
            )
        if source is None or (source.type_name in _KEYS and not source.scale):
            return ""
        return f"{part}: there mask: hash is for texts, whole numbers, uniqueidentifier and bytes, and not for " + (
            source.declared_type
        )
    if column.mask is not None:
        return f"{part}, and mask: {describe_mask(column)} may give two keys one value: use mask: hash"
    return f"{part}, and cannot be {'dropped' if column.is_dropped else 'cast'}" if column.is_other else ""


def describe_column(column: ColumnSettings) -> str:
    """Return the settings of a column in words."""
    if column.is_dropped:
        return "drop"
    words = [f"as {column.target}" if column.target else "", f"mask {describe_mask(column)}" if column.mask else ""]
    words.append(f"cast {column.cast.value}" if column.cast else "")
    return " ".join(filter(None, words)) or "keep"


def describe_mask(column: ColumnSettings) -> str:
    """Return the mask of a column in words; "" where it has none."""
    if column.mask is None:
        return ""
    return f"round {column.digits}" if column.mask is Mask.ROUND else column.mask.value
