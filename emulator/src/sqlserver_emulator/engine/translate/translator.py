"""`TsqlTranslator`: the text of one T-SQL statement to PostgreSQL SQL, through the cache of translations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

from sqlserver_emulator.engine.translate import statements, undeclared
from sqlserver_emulator.engine.translate.catalog_reads import RecordedCatalog
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.lexical import lexemes
from sqlserver_emulator.engine.translate.lexical.lexemes import Lexemes
from sqlserver_emulator.engine.translate.statement_cache import Found, StatementCache, Template, template_of
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
        # Asked before anything else: what a change does to the answers comes under a later number.
        version = context.catalog.version
        key = (cut.shape, context.database, kind)
        template = self._cache.find(key, cut, context.variable_types, context.catalog, version)
        if template is None:
            template = self._translated(cut, context, translate, key, version)
        return template.fill(cut)

    def _translated(
        self, cut: Lexemes, context: _Context, translate: _Translate, key: Hashable, version: int
    ) -> Template:
        catalog = RecordedCatalog(context.catalog)
        emission = Emission(
            cut.literals_by_offset(),
            catalog=catalog,
            database=context.database,
            variable_types=context.variable_types,
            folded=cut.columns is not None,
        )
        translated = replace(translate(cut.sample, emission), databases=frozenset(emission.databases))
        template = template_of(translated, emission.parameters)
        reads = catalog.reads(translated.identity_of, translated.deferred_update_of)
        if reads is not None:
            # A literal that did not become a parameter has gone into the SQL, or into its meaning.
            pins = emission.pins | {(ordinal, "value") for ordinal in emission.unlifted(len(cut.kinds))}
            found = Found(template, reads, version)
            self._cache.store(key, cut, context.variable_types, found, pins=pins, variables=emission.variables)
        return template
