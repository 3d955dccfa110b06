"""The definition of a table: the settings of its columns and the filter of its rows with which its target was loaded,
recorded in the ledger.

While it is another one than that of the configuration, the table is left out: rows of two definitions in one target
would mean two things, and a mask would hide nothing of what is there already.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from floodmark.core.columns import (
    chosen_names,
    describe_mask,
    has_hash,
    list_filtering,
    list_new,
    new_columns_of,
    select_columns,
    why_names_clash,
    why_no_columns,
    why_not_filtered,
    why_not_of_members,
    why_not_of_table,
    why_not_tracked,
)
from floodmark.core.errors import ConfigError, DefinitionChangedError, command_line
from floodmark.core.naming import map_columns, rename_columns
from floodmark.core.schema import MappedColumn
from floodmark.core.settings import ColumnSettings, Mask, Naming, NewColumns, PipelineSettings, TableSettings
from floodmark.core.snapshot import Feed, TableState

NAMING_KEY = ""
"""The key of a definition that has the naming and the filter; no column has this name."""
_FINGERPRINT = "fingerprint"
_HIDING = ("mask", "key", "cast")
_IN_ORDER = ("drop", "as", "mask", "cast", "key")
"""The settings as messages have them. The ledger keeps no order."""

# --------------------------------------------------------------------------------------------------------------------
# The definition, as the ledger records it: the settings of each column that has some, the naming, and the filter.


def fingerprint(secret: str) -> str:
    """Return what differs for another secret of hashes, and does not show it: 16 hexadecimal digits."""
    return hmac.digest(secret.encode(), b"\0which secret", "sha256").hex()[:16]


def with_fingerprints(settings: PipelineSettings, read_secret: Callable[[str], str]) -> PipelineSettings:
    """Return the settings with the fingerprints of the secrets of hashes. A secret that cannot be read has none.

    read_secret: reads that of a connection, or raises ConfigError.
    """

    def marked(table: TableSettings) -> TableSettings:
        if not has_hash(table) or table.mask_key_conn_id is None:
            return table
        try:
            return replace(table, mask_key_print=fingerprint(read_secret(table.mask_key_conn_id)))
        except ConfigError:
            # The load, which needs the secret, refuses the table. Its status is shown without it.
            return table

    return replace(settings, tables=tuple(map(marked, settings.tables)))


def define(settings: TableSettings, names: Collection[str]) -> dict[str, Mapping[str, str]]:
    """Return the definition of a table. names: its columns in the target, by their names at the source.

    A column that is named before the source has it is no part of it, unless it will never be read.
    """
    where = {"where": settings.where.sql} if settings.where else {}
    chosen: dict[str, Mapping[str, str]] = {NAMING_KEY: {"naming": settings.naming.value} | where}
    for each in settings.columns:
        if (each.is_dropped or each.name in names) and (found := _defined(each, settings)):
            chosen[each.name] = found
    return chosen


def defined_naming(definition: Mapping[str, Mapping[str, str]]) -> Naming:
    """Return the naming of a recorded definition."""
    return Naming(definition.get(NAMING_KEY, {}).get("naming", Naming.KEEP.value))


def has_other_filter(settings: TableSettings, definition: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether the rows of a target were filtered otherwise when it was loaded."""
    return _defined_filter(definition) != (settings.where.sql if settings.where else "")


def _defined_filter(definition: Mapping[str, Mapping[str, str]]) -> str:
    return definition.get(NAMING_KEY, {}).get("where", "")


@dataclass(frozen=True, slots=True)
class ChangedColumn:
    """A column whose settings are not those with which its table was loaded."""

    name: str
    before: Mapping[str, str]
    now: Mapping[str, str]

    @property
    def is_renamed(self) -> bool:
        """Return whether the column gets another name in the target."""
        return self.before.get("as") != self.now.get("as")

    @property
    def is_hidden_otherwise(self) -> bool:
        """Return whether rows of the target may have values that the settings do not allow, or that mean another."""
        if "drop" in self.before:
            return False
        return "drop" in self.now or (
            _has_other_secret(self.before, self.now)
            or any(self.before.get(key) != self.now.get(key) for key in _HIDING)
        )

    def __str__(self) -> str:
        if _without_fingerprint(self.before) == _without_fingerprint(self.now):
            return f"{self.name} (mask: hash, now by another secret: the password of {self.now['key']} was changed)"
        return f"{self.name} ({_described(self.before)}, now {_described(self.now)})"


def list_changed(
    settings: TableSettings, definition: Mapping[str, Mapping[str, str]], names: Iterable[str], known: Collection[str]
) -> list[ChangedColumn]:
    """Return the columns of a loaded table whose settings are not those of its definition.

    names: the columns of the source. known: those that the ledger has; none where it records no columns. Others are
    new, and may have any settings.
    """
    now = {each.name: _defined(each, settings) for each in settings.columns}
    pairs = {name: (definition.get(name, {}), now.get(name, {})) for name in names}
    return [
        ChangedColumn(name, *pair)
        for name, pair in pairs.items()
        if _differ(*pair) and (not known or name in known or name in definition)
    ]


def _defined(column: ColumnSettings, settings: TableSettings) -> dict[str, str]:
    if column.is_dropped:
        return {"drop": "true"}
    found = {"as": column.target} if column.target else {}
    if column.mask is not None:
        found["mask"] = describe_mask(column)
    if column.cast is not None:
        found["cast"] = column.cast.value
    if column.mask is Mask.HASH and settings.mask_key_conn_id is not None:
        found["key"] = settings.mask_key_conn_id
        if settings.mask_key_print:
            found[_FINGERPRINT] = settings.mask_key_print
    return found


def _differ(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether settings differ. A secret differs from another that is known: old ledgers have none."""
    return _has_other_secret(before, now) or _without_fingerprint(before) != _without_fingerprint(now)


def _has_other_secret(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return _FINGERPRINT in before and _FINGERPRINT in now and before[_FINGERPRINT] != now[_FINGERPRINT]


def _without_fingerprint(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if key != _FINGERPRINT}


def _described(settings: Mapping[str, str]) -> str:
    words = ["drop" if key == "drop" else f"{key}: {settings[key]}" for key in _IN_ORDER if key in settings]
    return ", ".join(words) or "as it is"


# --------------------------------------------------------------------------------------------------------------------
# The columns of a plan.


def with_columns(settings: TableSettings, feed: Feed, state: TableState | None) -> Feed:
    """Return the feed with the columns that are read. Raises ConfigError for settings that the table cannot have.

    state: that of the ledger, whose columns are not new. Raises DefinitionChangedError for a new column that waits.
    """
    known = state.known_columns if state else frozenset()
    why = why_no_columns(settings) or why_not_of_table(settings, feed.table, known)
    if not why and (settings.columns or settings.new_columns):
        why = why_not_of_members(settings, feed)
    if why:
        raise ConfigError(str(settings.source), f"columns: {why}.", "Correct the table in pipelines.yaml.")
    if why := why_not_filtered(settings, feed, known):
        raise ConfigError(str(settings.source), f"where: {why}.", "Correct the table in pipelines.yaml.")
    if why := why_not_tracked(settings, feed.table, known):
        raise ConfigError(str(settings.source), f"track: {why}.", "Correct the table in pipelines.yaml.")
    if state is not None:
        _refuse_new_columns(settings, state, [column.name for column in feed.table.stored_columns])
    filtering = list_filtering(settings, feed)
    return replace(feed, table=select_columns(settings, feed.table, known), filtering=filtering)


def name_columns(
    settings: TableSettings, feed: Feed, state: TableState | None, *, renames: bool = False
) -> tuple[MappedColumn, ...]:
    """Return the columns of a plan with their names in the target. Raises ConfigError where two have the same.

    state: that of the ledger, with the names that the target has. renames: a load gives it those of the configuration;
    otherwise it keeps them.
    """
    dropped = {column.name for column in settings.columns if column.is_dropped}
    known = tuple(column for column in state.columns if column.source not in dropped) if state else ()
    names = [column.name for column in feed.table.stored_columns]
    name = rename_columns if renames else map_columns
    columns = name(settings.naming, names, known, feed.member_column, chosen_names(settings))
    if why := why_names_clash({column.source: column.target for column in columns}) if settings.columns else "":
        raise ConfigError(str(settings.source), f"columns: {why}.", "Choose another name in pipelines.yaml (as).")
    return columns


# --------------------------------------------------------------------------------------------------------------------
# Whether the definition is that of the configuration.


def as_loaded(settings: TableSettings, state: TableState | None) -> TableSettings:
    """Return the settings of a table with the naming that its target has."""
    if state is None or not state.is_loaded:
        return settings
    return replace(settings, naming=defined_naming(state.definition))


def is_renamed(settings: TableSettings, state: TableState, names: Iterable[str]) -> bool:
    """Return whether a load gives columns of the target other names. names: the columns of the source."""
    return defined_naming(state.definition) is not settings.naming or any(
        each.is_renamed for each in list_changed(settings, state.definition, names, state.known_columns)
    )


def list_renewed(settings: TableSettings, state: TableState, names: Iterable[str]) -> tuple[str, ...]:
    """Return the columns whose values in the target were masked otherwise, or not at all."""
    changed = list_changed(settings, state.definition, names, state.known_columns)
    return tuple(each.name for each in changed if each.is_hidden_otherwise)


def refuse_other_definition(settings: TableSettings, state: TableState | None, names: Sequence[str]) -> None:
    """Raise DefinitionChangedError for a table whose target was loaded with other settings of its columns.

    names: the columns of the source. A load of the whole table applies the settings.
    """
    if state is None or not state.is_loaded:
        return
    before, found = defined_naming(state.definition), []
    if before is not settings.naming:
        found.append(f"naming: {before.value}, and pipelines.yaml has naming: {settings.naming.value} now")
    if is_filtered_otherwise := has_other_filter(settings, state.definition):
        was, now = _defined_filter(state.definition), settings.where.sql if settings.where else ""
        found.append(f"where: {was or 'none'}, and pipelines.yaml has where: {now or 'none'} now")
    if changed := list_changed(settings, state.definition, names, state.known_columns):
        found.append(f"other settings of columns: {'; '.join(map(str, changed))}")
    if found:
        raise DefinitionChangedError(
            str(settings.source),
            f"it was loaded with {', and with '.join(found)}.",
            _how_to_reload(
                settings,
                must_go=any(each.is_hidden_otherwise for each in changed),
                renames=bool(changed) or before is not settings.naming,
                filters=is_filtered_otherwise,
            ),
        )
    _refuse_new_columns(settings, state, names)


def _how_to_reload(settings: TableSettings, *, must_go: bool, renames: bool, filters: bool) -> str:
    command = command_line("reload", "PIPELINE", settings.source)
    if must_go:
        return (
            "Restore the settings. Or rename or drop the target, which has rows by the old settings, and reload the "
            f"table: {command}."
        )
    does = ["renames the columns of its target"] if renames else []
    does += ["brings the rows that pass, and deletes the others"] if filters else []
    follow = "; queries, rules and views of your own must follow" if renames else ""
    return f"Restore the settings. Or reload the table ({command}), which {' and '.join(does)}{follow}."


def _refuse_new_columns(settings: TableSettings, state: TableState, names: Sequence[str]) -> None:
    """Raise DefinitionChangedError for a new column that waits for a decision."""
    new = list_new(settings, names, state.known_columns if state.is_loaded else ())
    if new and new_columns_of(settings) is NewColumns.HOLD:
        raise DefinitionChangedError(
            str(settings.source),
            f"the source has a new column {', '.join(new)}, and new columns wait for a decision (new_columns: hold).",
            "Name it in columns of the table: with a mask, with drop, or with keep for its values as they are.",
        )
