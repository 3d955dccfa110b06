"""The questions of a translation to the catalog, and whether another catalog answers them alike.

A translation depends on the catalog through these answers alone: where they are the same, so is the translation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar, TypeVarTuple, cast

from sqlserver_emulator.collations import Collation
from sqlserver_emulator.engine.translation import (
    CatalogObject,
    CatalogReader,
    InlineFunction,
    ScalarFunction,
    SequenceObject,
    Synonym,
)
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import TsqlType

_T = TypeVar("_T")
_Arguments = TypeVarTuple("_Arguments")

_OF_SESSION: Final = "pg_temp"
"""The PostgreSQL schema of temp tables, table variables and the images of a trigger."""


@dataclass(frozen=True, slots=True)
class _Read:
    """One question and its answer."""

    method: str
    """The name of a method of ``CatalogReader``."""
    arguments: tuple[object, ...]
    answer: object
    any_id: bool
    """Whether a table that differs in its object_id only is the same answer."""

    def holds_in(self, catalog: CatalogReader) -> bool:
        answer = getattr(catalog, self.method)(*self.arguments)
        return bool((_without_id(answer) if self.any_id else answer) == self.answer)


@dataclass(frozen=True, slots=True)
class CatalogReads:
    """The questions of one translation, in their order, with their answers."""

    reads: tuple[_Read, ...]

    def hold_in(self, catalog: CatalogReader) -> bool:
        """Return whether the catalog gives the same answers. Raises what a translation would raise now."""
        # A question is asked only if those before it were answered alike, which a translation would ask as well.
        return all(read.holds_in(catalog) for read in self.reads)


class RecordedCatalog:
    """A catalog whose answers are noted. Implements ``translation.CatalogReader``."""

    def __init__(self, catalog: CatalogReader) -> None:
        self._catalog = catalog
        self._answers: dict[tuple[str, tuple[object, ...]], object] = {}
        self._has_failed = False

    @property
    def version(self) -> int:
        return self._catalog.version

    def database(self, name: str) -> str | None:
        return self._ask(self._catalog.database, name)

    def collation(self, database: str) -> Collation:
        return self._ask(self._catalog.collation, database)

    def table(self, database: str, schema: str | None, name: str) -> CatalogObject | None:
        return self._ask(self._catalog.table, database, schema, name)

    def inline_function(self, database: str, schema: str, name: str) -> InlineFunction | None:
        return self._ask(self._catalog.inline_function, database, schema, name)

    def scalar_function(self, database: str, schema: str, name: str) -> str | None:
        return self._ask(self._catalog.scalar_function, database, schema, name)

    def sequence(self, database: str, schema: str | None, name: str) -> SequenceObject | None:
        return self._ask(self._catalog.sequence, database, schema, name)

    def user_function(self, database: str, schema: str, name: str) -> ScalarFunction | None:
        return self._ask(self._catalog.user_function, database, schema, name)

    def user_type(self, database: str, schema: str | None, name: str) -> TsqlType | None:
        return self._ask(self._catalog.user_type, database, schema, name)

    def synonym(self, database: str, schema: str | None, name: str) -> Synonym | None:
        return self._ask(self._catalog.synonym, database, schema, name)

    def reads(self, *used: CatalogObject | None) -> CatalogReads | None:
        """Return what was asked; None where an answer was an error, which no later answer can be compared with.

        ``used``: tables whose object_id is part of the translation.
        """
        if self._has_failed:
            return None
        ids = {table.object_id for table in used if table is not None}
        return CatalogReads(tuple(_read(*question, answer, ids) for question, answer in self._answers.items()))

    def _ask(self, ask: Callable[[*_Arguments], _T], *arguments: *_Arguments) -> _T:
        question = (ask.__name__, arguments)
        if question not in self._answers:
            try:
                self._answers[question] = ask(*arguments)
            except SqlServerError:
                self._has_failed = True
                raise
        return cast(_T, self._answers[question])


def _read(method: str, arguments: tuple[object, ...], answer: object, used_ids: set[int]) -> _Read:
    # Each session makes its own temp tables, so that their ids differ where everything else is the same.
    any_id = (
        isinstance(answer, CatalogObject) and answer.postgres_schema == _OF_SESSION and answer.object_id not in used_ids
    )
    return _Read(method, arguments, _without_id(answer) if any_id else answer, any_id)


def _without_id(answer: object) -> object:
    return replace(answer, object_id=0) if isinstance(answer, CatalogObject) else answer
