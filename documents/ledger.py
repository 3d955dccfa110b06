"""The page of the ledger's tables, from the statements that make them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp

from documents.source_text import table
from floodmark.postgres.sql import read_sql


@dataclass
class _Table:
    columns: dict[str, str] = field(default_factory=dict)
    """The type by name."""
    comments: dict[str, str] = field(default_factory=dict)
    """The text by column; "" is the table itself."""


def ledger_page() -> str:
    """Return the page."""
    lines = [
        "# Tables of the ledger",
        "",
        "The schema `floodmark` of the warehouse, as `floodmark` makes it. [What Floodmark keeps in the",
        "warehouse](../warehouse.md) says what each table is for. Read them; Floodmark alone writes them.",
        "",
    ]
    for name, each in sorted(_tables().items()):
        lines += [f"## {name}", ""]
        if "" in each.comments:
            lines += [f"{each.comments['']}.", ""]
        rows = [[f"`{column}`", f"`{kind}`", each.comments.get(column, "")] for column, kind in each.columns.items()]
        lines += table(["column", "type", "meaning"], rows)
    return "\n".join(lines).rstrip() + "\n"


def _tables() -> dict[str, _Table]:
    """Return the tables as the statements leave them, in their order."""
    # Blocks of PL/pgSQL change what older versions made: a new ledger has the same without them.
    text = re.sub(r"DO \$\$.*?\$\$;", "", read_sql("ensure_schema"), flags=re.DOTALL)
    found: dict[str, _Table] = {}
    for statement in sqlglot.parse(text, read="postgres"):
        if isinstance(statement, exp.Create) and statement.kind == "TABLE":
            made = found.setdefault(statement.this.this.name, _Table())
            made.columns |= {each.name: _type(each) for each in statement.this.find_all(exp.ColumnDef)}
        elif isinstance(statement, exp.Alter) and statement.this.name in found:
            for action in statement.args["actions"]:
                _change(found[statement.this.name], action)
        elif isinstance(statement, exp.Comment):
            _comment(found, statement)
    return found


def _change(changed: _Table, action: exp.Expr) -> None:
    if isinstance(action, exp.ColumnDef):
        changed.columns[action.name] = _type(action)
    elif isinstance(action, exp.Drop) and action.args.get("kind") == "COLUMN":
        changed.columns.pop(action.this.name, None)


def _type(column: exp.ColumnDef) -> str:
    return column.args["kind"].sql(dialect="postgres").lower() if column.args.get("kind") else ""


def _comment(found: dict[str, _Table], statement: exp.Comment) -> None:
    text = statement.args["expression"].name
    if statement.args["kind"] == "COLUMN":
        found[statement.this.table].comments[statement.this.name] = text
    elif statement.args["kind"] == "TABLE":
        found[statement.this.name].comments[""] = text
