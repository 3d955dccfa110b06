"""The state of one translation: parameters given out so far, what the cache must know, and whom to ask for names.

A literal of the text becomes a parameter unless someone needs its value, its exact type or another property: that
property is then *pinned*, i.e. part of the key under which the translation is found again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from sqlglot import exp

from sqlserver_emulator.collations import Collation, find_collation
from sqlserver_emulator.engine.translate.lexical import lexemes
from sqlserver_emulator.engine.translate.lexical.dialect import MONEY, START
from sqlserver_emulator.engine.translate.lexical.lexemes import Literal
from sqlserver_emulator.engine.translate.values import type_rules
from sqlserver_emulator.engine.translate.values.value import LITERAL_CAST, LiteralValue, Value, literal_type
from sqlserver_emulator.engine.translation import CatalogObject, CatalogReader, VariableParameter
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.system_types import names_where
from sqlserver_emulator.types import BIGINT, INT, NVARCHAR_MAX, TsqlType

FACETS: Final[Mapping[str, Callable[[Literal], object]]] = {
    "value": lambda literal: literal.lexeme,
    "type": literal_type,
    "pattern": lambda literal: "[" in literal.lexeme,
    "wildcard": lambda literal: "_" in literal.lexeme,
    "open_ended": lambda literal: literal.lexeme.endswith("%'"),
}
"""Properties of a literal that a translation can depend on."""

FOLDED_ROWS: Final = "folded_rows"
"""The alias of the rows of a folded multi-row INSERT."""

_SMALLINT = TsqlType("smallint")
_GLOBAL_TYPES: Final = {
    "@@identity": TsqlType("numeric", precision=38),
    "@@scope_identity": TsqlType("numeric", precision=38),
    "@@rowcount": INT,
    "@@error": INT,
    "@@trancount": INT,
    "@@fetch_status": INT,
    "@@spid": _SMALLINT,
    "@@datefirst": TsqlType("tinyint"),
    "@@dbts": TsqlType("varbinary", 8),
    "@@rowcount_big": BIGINT,
    "@@version": TsqlType("nvarchar", 300),
    "@@servername": TsqlType("nvarchar", 128),
    "@@servicename": TsqlType("nvarchar", 128),
    "@@language": TsqlType("nvarchar", 128),
    "@@error_message": TsqlType("nvarchar", 4000),
    "@@error_procedure": TsqlType("nvarchar", 128),
    "@@error_number": INT,
    "@@error_severity": INT,
    "@@error_state": INT,
    "@@error_line": INT,
    "@@xact_state": _SMALLINT,
}


class MaskWatch:
    """Whether a masked column was read. ``is_masked`` is true from then on."""

    def __init__(self) -> None:
        self.is_masked = False


class Emission:
    """The state of one translation."""

    def __init__(
        self,
        literals: Mapping[int, Literal],
        *,
        catalog: CatalogReader,
        database: str,
        variable_types: Mapping[str, TsqlType],
        folded: bool = False,
    ) -> None:
        self.catalog = catalog
        self.database = database
        self.variable_types = variable_types
        self.variables: set[str] = set()
        self.pins: set[tuple[int, str]] = set()
        self.parameters: list[int | VariableParameter] = []
        self.read_only = True
        self.table_kinds: set[str] = set()
        self.databases: set[str] = set()
        self.identity_of: CatalogObject | None = None
        self.deferred_update_of: CatalogObject | None = None
        self.assigned_columns: set[str] = set()
        self.assigned_ids: list[int] = []
        self.max_recursion: int | None = None
        self.masks = MaskWatch()
        self._literals = literals
        self._folded = folded
        self._places: dict[int | str, str] = {}
        self._inline = 0
        self._names = 0

    @property
    def collation(self) -> Collation:
        """The collation of the database, which literals and variables have."""
        return self.catalog.collation(self.database)

    def named_collation(self, name: str) -> Collation:
        """The collation that COLLATE names. Raises 448."""
        return self.collation if name.lower() == "database_default" else find_collation(name)

    @property
    def is_folded(self) -> bool:
        return self._folded

    @contextmanager
    def inline_literals(self, when: bool = True) -> Iterator[None]:
        """Within, literals stay in the SQL: PostgreSQL compares expressions of GROUP BY with their constants."""
        self._inline += when
        try:
            yield
        finally:
            self._inline -= when

    @contextmanager
    def watched_masks(self) -> Iterator[MaskWatch]:
        """Watch what is read within; the surroundings notice it too."""
        outside, self.masks = self.masks, MaskWatch()
        try:
            yield self.masks
        finally:
            outside.is_masked = outside.is_masked or self.masks.is_masked
            self.masks = outside

    @contextmanager
    def unwatched_masks(self) -> Iterator[None]:
        """Within, reading a masked column goes unnoticed."""
        outside, self.masks = self.masks, MaskWatch()
        try:
            yield
        finally:
            self.masks = outside

    def shift_literals(self, by: int) -> None:
        """The text was parsed with something of this length put in front of it."""
        self._literals = {start + by: literal for start, literal in self._literals.items()}

    def new_name(self) -> str:
        """An alias that no T-SQL text uses."""
        self._names += 1
        return f'"\x01{self._names}"'.replace("\x01", "~")

    def literal(self, node: exp.Expression) -> Value:
        """A literal node as a value. Nodes made by rewriting have no place in the text and stay as they are."""
        literal = self._literals.get(node.meta.get(START, -1))
        if literal is None:
            return _constant(node)
        return LiteralValue(literal, self._bind, self._describe)

    def constant(self, node: exp.Expression) -> str:
        """The text of a literal that must be known now (a style, a date part); pins its value."""
        literal = self._literals.get(node.meta.get(START, -1))
        if literal is None:
            return str(node.name)
        self.pins.add((literal.ordinal, "value"))
        return literal.text or ""

    def facet(self, value: LiteralValue, facet: str) -> object:
        self.pins.add((value.literal.ordinal, facet))
        return FACETS[facet](value.literal)

    def variable(self, name: str) -> Value:
        """``name`` lower-case with its @. Raises 137 when it is not declared."""
        type = self.variable_types.get(name)
        self.variables.add(name)
        if type is None and name.startswith("@@"):
            type = _GLOBAL_TYPES.get(name, NVARCHAR_MAX)
        if type is None:
            raise SqlServerError(137, f'Must declare the scalar variable "{name}".', severity=15)
        place = self._place(name, VariableParameter(name))
        # The same variable has one place, however often the statement names it.
        return Value(f"{place}::{_variable_storage(type)}", type, constant=True)

    @property
    def folded_ordinals(self) -> list[int]:
        """The literals of a folded row that are used, in the order of their parameters."""
        return [source for source in self.parameters if isinstance(source, int)]

    def folded_cast(self, ordinal: int) -> str:
        literal = next(literal for literal in self._literals.values() if literal.ordinal == ordinal)
        # Folded rows are arrays, one for each literal of the row: the cast is that of the class.
        return LITERAL_CAST[literal.kind]

    def unlifted(self, count: int) -> set[int]:
        """Ordinals of literals that did not become parameters."""
        return set(range(count)) - {ordinal for ordinal in self.parameters if isinstance(ordinal, int)}

    def _place(self, key: int | str, source: int | VariableParameter) -> str:
        place = self._places.get(key)
        if place is None:
            self.parameters.append(source)
            place = self._places[key] = f"${len(self.parameters)}"
        return place

    def _describe(self, literal: Literal) -> TsqlType:
        # The type of these classes does not depend on the digits, so it need not be pinned.
        if literal.kind in (lexemes.INT, lexemes.FLOAT, lexemes.MONEY):
            return literal_type(literal)
        self.pins.add((literal.ordinal, "type"))
        return literal_type(literal)

    def _bind(self, literal: Literal, cast: str) -> str:
        if self._folded:
            self._place(literal.ordinal, literal.ordinal)
            return f"{FOLDED_ROWS}.l{literal.ordinal}"
        if self._inline:
            # The text becomes a part of the SQL, so the template holds for this value only.
            self.pins.add((literal.ordinal, "value"))
            return f"{quote_text(literal.text or '')}::{cast}"
        return f"{self._place(literal.ordinal, literal.ordinal)}::{cast}"


_TEXTS_OF_A_LENGTH = names_where(lambda type: type.has_collation and not type.is_legacy_lob)


def _variable_storage(type: TsqlType) -> str:
    """Strings are bound without their length: a comparison with a varchar column must be able to use its index."""
    if type.name in _TEXTS_OF_A_LENGTH:
        return "text"
    return type_rules.storage_type(type)


def quote_text(text: str) -> str:
    """Return a PostgreSQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _constant(node: exp.Expression) -> Value:
    # A rewritten node's text is not a literal of the statement and cannot be lifted.
    if isinstance(node, exp.Literal) and not node.is_string and not node.meta.get(MONEY):
        kind = lexemes.classify(node.name)
        return Value(node.name, literal_type(Literal(0, kind, node.name)))
    text = node.name
    return Value(f"{quote_text(text)}::text", type_rules.varchar(len(text)))
