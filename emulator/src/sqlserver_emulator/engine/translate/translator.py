"""`TsqlTranslator`: the text of one T-SQL statement to PostgreSQL SQL, through the cache of translations."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

from sqlserver_emulator.engine.translate import statements, undeclared
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.lexical import lexemes
from sqlserver_emulator.engine.translate.lexical.lexemes import Lexemes
from sqlserver_emulator.engine.translate.statement_cache import StatementCache, Template, template_of
from sqlserver_emulator.engine.translate.values import type_rules
from sqlserver_emulator.engine.translation import CatalogReader, Translated
from sqlserver_emulator.types import TsqlType


@dataclass(frozen=True, slots=True)
class _Context:
    """Where a statement is translated."""

    catalog: CatalogReader
    database: str
    variable_types: Mapping[str, TsqlType]


_Translate = Callable[[str, Emission], Translated]


class TsqlTranslator:
    """Implements ``translation.StatementTranslator``."""

    def __init__(self) -> None:
        self._cache = StatementCache()
        self._serials: weakref.WeakKeyDictionary[CatalogReader, int] = weakref.WeakKeyDictionary()
        self._next_serial = itertools.count(1)

    def translate(
        self, statement: str, *, catalog: CatalogReader, database: str, variable_types: Mapping[str, TsqlType]
    ) -> Translated:
        context = _Context(catalog, database, variable_types)
        return self._through_cache(statement, context, "", statements.translate_statement)

    def translate_expression(
        self,
        expression: str,
        *,
        catalog: CatalogReader,
        database: str,
        variable_types: Mapping[str, TsqlType],
        condition: bool,
        as_type: TsqlType | None,
    ) -> Translated:
        def translate(text: str, emission: Emission) -> Translated:
            return statements.translate_expression(text, emission, condition=condition, as_type=as_type)

        context = _Context(catalog, database, variable_types)
        return self._through_cache(expression, context, (condition, as_type), translate)

    def undeclared_types(
        self, statement: str, *, catalog: CatalogReader, database: str, variable_types: Mapping[str, TsqlType]
    ) -> dict[str, TsqlType | None]:
        return undeclared.undeclared_types(statement, catalog=catalog, database=database, variable_types=variable_types)

    def postgres_type(self, type: TsqlType) -> str:
        return type_rules.storage_type(type)

    def _through_cache(self, text: str, context: _Context, kind: Hashable, translate: _Translate) -> Translated:
        cut = lexemes.cut(text)
        key: tuple[Hashable, ...] = (cut.shape, context.database, context.catalog.version, kind)
        own_key = key
        template = None
        # A text that names temp tables or table variables means something else in every session.
        if "#" in cut.shape or "@" in cut.shape:
            own_key = (*key, self._serial(context.catalog))
            template = self._cache.find(own_key, cut, context.variable_types)
        if template is None:
            template = self._cache.find(key, cut, context.variable_types)
        if template is None:
            template = self._translated(cut, context, translate, (key, own_key))
        return template.fill(cut)

    def _translated(
        self, cut: Lexemes, context: _Context, translate: _Translate, keys: tuple[Hashable, Hashable]
    ) -> Template:
        emission = Emission(
            cut.literals_by_offset(),
            catalog=context.catalog,
            database=context.database,
            variable_types=context.variable_types,
            folded=cut.columns is not None,
        )
        translated = replace(translate(cut.sample, emission), databases=frozenset(emission.databases))
        template = template_of(translated, emission.parameters)
        # A literal that did not become a parameter has gone into the SQL, or into its meaning.
        pins = emission.pins | {(ordinal, "value") for ordinal in emission.unlifted(len(cut.kinds))}
        key = keys[1] if emission.session_bound else keys[0]
        self._cache.store(key, cut, context.variable_types, template, pins=pins, variables=emission.variables)
        return template

    def _serial(self, catalog: CatalogReader) -> int:
        serial = self._serials.get(catalog)
        if serial is None:
            serial = self._serials[catalog] = next(self._next_serial)
        return serial
