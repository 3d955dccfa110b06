"""NEXT VALUE FOR a sequence."""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.emission import quote_text
from sqlserver_emulator.engine.translate.expressions.interfaces import Expressions
from sqlserver_emulator.engine.translate.expressions.scope import invalid_object
from sqlserver_emulator.engine.translate.values.type_rules import storage_type
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.errors import NotSupportedByEmulatorError


def next_value(self: Expressions, node: exp.Expression) -> Value:
    """Raises 208 when there is no such sequence."""
    if node.args.get("order"):
        raise NotSupportedByEmulatorError("NEXT VALUE FOR … OVER")
    parts = [part.name for part in node.this.parts]
    catalog = self.emission.catalog
    database = catalog.database(parts[0]) if len(parts) == 3 else self.emission.database
    schema = parts[-2] if len(parts) > 1 and parts[-2] else None
    found = catalog.sequence(database, schema, parts[-1]) if database else None
    if found is None:
        raise invalid_object(".".join(parts))
    self.emission.read_only = False
    return Value(f"nextval({quote_text(found.postgres_name)})::{storage_type(found.type)}", found.type, nullable=False)
