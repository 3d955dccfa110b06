"""Translations by the shape of their text, so that a text that differs from an earlier one in its literals only is not
parsed again.

Three levels: shape and database give a slot; in it, the literal properties that its translations depend on and the
types of the variables they use give a variant; in that, the answers of the catalog give the template. The answers are
compared once for each version of the catalog. Thread-safe: what another thread may read is replaced, never changed.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlserver_emulator.engine.translate.catalog_reads import CatalogReads
from sqlserver_emulator.engine.translate.expressions.emission import FACETS
from sqlserver_emulator.engine.translate.lexical.lexemes import Lexemes, Literal, array_text, text_of
from sqlserver_emulator.engine.translation import (
    CatalogReader,
    LiteralParameter,
    ParameterSource,
    Translated,
    VariableParameter,
)
from sqlserver_emulator.types import TsqlType

_SLOTS_MAX = 2000
_VARIANTS_MAX = 200
_SHAPE_MAX = 100_000
_TEMPLATES_MAX = 20
_VERSIONS_MAX = 100


@dataclass(frozen=True, slots=True)
class Template:
    """A translation whose parameters are still places: literal ordinals and variables."""

    translated: Translated
    places: tuple[int | VariableParameter, ...]

    def fill(self, lexemes: Lexemes) -> Translated:
        made = self.translated
        if not self.places:
            return made
        return Translated(
            made.command,
            made.sql,
            _sources(self.places, lexemes),
            made.returns_rows,
            made.assigned_variables,
            made.column_types,
            made.column_names,
            made.read_only,
            made.identity_of,
            made.deferred_update_of,
            made.ddl,
            made.assigned_columns,
            made.max_recursion,
            made.of_catalog,
            made.column_collations,
            made.sent_sql,
            made.unit_columns,
            made.tracking_context,
            made.assigned_ids,
            made.databases,
        )


def _sources(places: tuple[int | VariableParameter, ...], lexemes: Lexemes) -> tuple[ParameterSource, ...]:
    kinds, texts, columns = lexemes.kinds, lexemes.lexemes, lexemes.columns
    if columns is not None:
        return tuple(
            [
                LiteralParameter(array_text(kinds[place], columns[place])) if isinstance(place, int) else place
                for place in places
            ]
        )
    return tuple(
        [LiteralParameter(text_of(kinds[place], texts[place])) if isinstance(place, int) else place for place in places]
    )


def template_of(translated: Translated, places: Sequence[int | VariableParameter]) -> Template:
    """Return the template without the parameters that the translation did not need in the end (`LOWER('a') = NULL`).

    PostgreSQL refuses a parameter that it cannot find in the text, since it has no type.
    """
    used = {int(number) for number in _PLACE.findall(translated.sql) if number}
    kept = [number for number in range(1, len(places) + 1) if number in used]
    if len(kept) == len(places):
        return Template(translated, tuple(places))
    numbers = {str(old): new for new, old in enumerate(kept, 1)}
    texts = (translated.sql, translated.sent_sql)
    sql, sent_sql = (_PLACE.sub(lambda at: f"${numbers[at[1]]}" if at[1] else at[0], text) for text in texts)
    return Template(replace(translated, sql=sql, sent_sql=sent_sql), tuple(places[number - 1] for number in kept))


_PLACE: Final = re.compile(r"""'[^']*'|"[^"]*"|\$(\d+)""")
"""A parameter. Literals and quoted names are matched so that what is in them is none."""


@dataclass(frozen=True, slots=True)
class Found:
    """A template that was made, and what it depends on."""

    template: Template
    reads: CatalogReads
    version: int
    """The version of the catalog that was read."""


class _Variant:
    """The templates of one text, from catalogs that gave different answers."""

    def __init__(self) -> None:
        self._all: tuple[Found, ...] = ()
        self._by_version: dict[int, Template] = {}

    def find(self, catalog: CatalogReader, version: int) -> Template | None:
        known = self._by_version.get(version)
        if known is not None:
            return known
        for found in self._all:
            if found.reads.hold_in(catalog):
                self._note(version, found.template)
                return found.template
        return None

    def add(self, found: Found) -> None:
        # The newest is compared first: it is the most likely one.
        self._all = (found, *self._all[: _TEMPLATES_MAX - 1])
        self._note(found.version, found.template)

    def _note(self, version: int, template: Template) -> None:
        # All numbers are dropped together; each costs no more than one comparison.
        if len(self._by_version) >= _VERSIONS_MAX:
            self._by_version = {}
        self._by_version[version] = template


@dataclass(frozen=True, slots=True)
class _Slot:
    pins: tuple[tuple[int, str], ...]
    variables: tuple[str, ...]
    variants: OrderedDict[Hashable, _Variant] = field(default_factory=OrderedDict)


class StatementCache:
    """Templates of translations, by the shape of their text."""

    def __init__(self) -> None:
        self._slots: OrderedDict[Hashable, _Slot] = OrderedDict()
        self._lock = threading.Lock()

    def find(
        self,
        key: Hashable,
        lexemes: Lexemes,
        variable_types: Mapping[str, TsqlType],
        catalog: CatalogReader,
        version: int,
    ) -> Template | None:
        # Read without the lock: a slot is replaced as a whole.
        slot = self._slots.get(key)
        if slot is None:
            return None
        variant = slot.variants.get(_variant_key(slot, lexemes, variable_types))
        return variant.find(catalog, version) if variant is not None else None

    def store(
        self,
        key: Hashable,
        lexemes: Lexemes,
        variable_types: Mapping[str, TsqlType],
        found: Found,
        *,
        pins: set[tuple[int, str]],
        variables: set[str],
    ) -> None:
        """Keep a template, unless its text is too big to be kept.

        What it depends on is added to what the slot's others depend on (those are dropped then).
        """
        if len(lexemes.shape) > _SHAPE_MAX:
            return
        with self._lock:
            slot = self._slots.get(key)
            # A new dependency makes the slot's older variants ambiguous: their keys did not contain it.
            if slot is None or not pins <= set(slot.pins) or not variables <= set(slot.variables):
                known_pins = set(slot.pins) if slot is not None else set()
                known_variables = set(slot.variables) if slot is not None else set()
                slot = _Slot(tuple(sorted(pins | known_pins)), tuple(sorted(variables | known_variables)))
                self._slots[key] = slot
            slot.variants.setdefault(_variant_key(slot, lexemes, variable_types), _Variant()).add(found)
            if len(slot.variants) > _VARIANTS_MAX:
                # The oldest variant goes; literals that are pinned by value could fill the memory otherwise.
                slot.variants.popitem(last=False)
            if len(self._slots) > _SLOTS_MAX:
                self._slots.popitem(last=False)


def _variant_key(slot: _Slot, lexemes: Lexemes, variable_types: Mapping[str, TsqlType]) -> Hashable:
    if not slot.pins and not slot.variables:
        return ()
    kinds, texts = lexemes.kinds, lexemes.lexemes
    return (
        *[FACETS[facet](Literal(ordinal, kinds[ordinal], texts[ordinal])) for ordinal, facet in slot.pins],
        *[variable_types.get(name) for name in slot.variables],
    )
