"""One translator with the fake catalog, for the tests of this folder."""

from __future__ import annotations

from sqlserver_emulator.engine.translate.translator import TsqlTranslator
from sqlserver_emulator.engine.translation import LiteralParameter, Translated
from translate_catalog import FakeCatalog, tsql_type


def translate(
    sql: str, translator: TsqlTranslator | None = None, catalog: FakeCatalog | None = None, **variables: str
) -> Translated:
    types = {f"@{name}": tsql_type(type) for name, type in variables.items()}
    return (translator or TsqlTranslator()).translate(
        sql, catalog=catalog or FakeCatalog(), database="Shop", variable_types=types
    )


def literals(translated: Translated) -> list[object]:
    return [p.value for p in translated.parameters if isinstance(p, LiteralParameter)]
