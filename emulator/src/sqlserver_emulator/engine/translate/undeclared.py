"""The types of parameters that nobody declared, from what is next to them (sp_describe_undeclared_parameters).

The statement is translated once with such parameters as NULLs that listen: what they would be converted to, or compared
with, is their type. Rules: "Parameter selection algorithm" of Microsoft's page on the procedure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sqlserver_emulator.engine.translate import statements
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.lexical import lexemes
from sqlserver_emulator.engine.translate.values.value import UndeclaredValue, Value
from sqlserver_emulator.engine.translation import CatalogReader
from sqlserver_emulator.types import TsqlType


class _ListeningEmission(Emission):
    """``suggested``: what is known so far of each undeclared parameter."""

    suggested: dict[str, TsqlType | None]

    def variable(self, name: str) -> Value:
        if name.startswith("@@") or name in self.variable_types:
            return super().variable(name)
        self.suggested.setdefault(name, None)
        return UndeclaredValue(partial(self._learn, name))

    def _learn(self, name: str, type: TsqlType) -> None:
        if self.suggested[name] is None:
            self.suggested[name] = type


def undeclared_types(
    statement: str, *, catalog: CatalogReader, database: str, variable_types: Mapping[str, TsqlType]
) -> dict[str, TsqlType | None]:
    """Return types by lower-case name with its @, None where none is known. Raises what the translation raises."""
    cut = lexemes.cut(statement)
    emission = _ListeningEmission(
        cut.literals_by_offset(),
        catalog=catalog,
        database=database,
        variable_types=variable_types,
        folded=cut.columns is not None,
    )
    emission.suggested = {}
    statements.translate_statement(cut.sample, emission)
    return emission.suggested
