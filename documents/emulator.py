"""The page of the emulator's surface: its start options, procedures, functions and views, from its registries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest.mock import Mock

import sqlserver_emulator
from documents.source_text import table
from sqlserver_emulator.cdc.postgres import SpareConnections
from sqlserver_emulator.cdc.procedures.registry import procedures_of_capture
from sqlserver_emulator.cli import build_parser
from sqlserver_emulator.contract import ProcedureRegistry, SystemProcedure
from sqlserver_emulator.control.procedures import control_procedures, describe_parameters
from sqlserver_emulator.engine.procedures import PROCEDURES as ENGINE_PROCEDURES
from sqlserver_emulator.engine.translate.expressions.functions import (
    aggregates,
    dates,
    json,
    metadata,
    numbers,
    session,
    text,
    tracking,
)
from sqlserver_emulator.event_stream.destination import NoDestination
from sqlserver_emulator.event_stream.procedures import procedures_for
from sqlserver_emulator.tsql.calls import Calls
from sqlserver_emulator.tsql.catalog.registry import LANGUAGE_PROCEDURES
from sqlserver_emulator.tsql.cursors.server_cursors import ServerCursors
from sqlserver_emulator.tsql.dynamic_sql import DynamicSql

_CODE = Path(sqlserver_emulator.__file__).parent
_VIEW = re.compile(r'CREATE (?:OR REPLACE )?VIEW (?:emulator_)?(:?\w+)\."?(\w+)"? AS')
_FUNCTION = re.compile(r"CREATE OR REPLACE FUNCTION :sys\.(fn_cdc_\w+)")
_EMPTY_VIEW = re.compile(r"^ +\('(\w+)', '\w+ \w", flags=re.MULTILINE)
_SCHEMAS = {
    "sys": "sys",
    "information_schema": "INFORMATION_SCHEMA",
    ":sys": "sys",
    ":dbo": "msdb.dbo",
}
"""The schema of a view by the one that it is installed under. Others are of no client's concern."""
_FAMILIES = {
    "Text": text,
    "Dates and times": dates,
    "Numbers": numbers,
    "Metadata and conversion": metadata,
    "System and session": session,
    "JSON": json,
    "Aggregates and windows": aggregates,
    "Change Tracking": tracking,
}
_PROCEDURES: dict[str, ProcedureRegistry] = {
    "Change data capture and SQL Server Agent": procedures_of_capture(SpareConnections("")),
    "Change event streaming": procedures_for(NoDestination()),
    "Objects, rights and locks": ENGINE_PROCEDURES,
    "Catalog": LANGUAGE_PROCEDURES,
}


def emulator_page() -> str:
    """Return the page."""
    lines = [
        "# Surface of the emulator",
        "",
        "What a client can call, and the options to start it with. [The manual](emulator.md) says how it behaves, and",
        "lists the statements, types and clauses, and what is refused.",
        "",
        "## Start options",
        "",
        *table(["option", "meaning"], list(_options())),
        "## Control procedures",
        "",
        "Schema `emulator`. [Control](emulator.md#control) has the rules that they share.",
        "",
        *_procedure_table(control_procedures(Mock(), Mock())),
        "## System procedures",
        "",
        "### The interpreter",
        "",
        _names(_interpreted()),
        "",
    ]
    for title, registry in _PROCEDURES.items():
        documented = {name: each for name, each in registry.items() if "." not in name}
        lines += [f"### {title}", "", *_procedure_table(documented)]
    lines += ["## Functions", ""]
    for title, family in _FAMILIES.items():
        lines += [f"### {title}", "", _names(name.upper() for name in family.FUNCTIONS if " " not in name), ""]
    lines += ["### Change data capture", "", _names(f"sys.{name}" for name in _cdc_functions()), ""]
    lines += [
        "Each capture instance has `cdc.fn_cdc_get_all_changes_…`, and `…_net_changes_…` where it supports them.",
        "",
    ]
    lines += ["## Views", ""]
    for schema, names in sorted(_views().items()):
        lines += [f"### {schema}", "", _names(names), ""]
    return "\n".join(lines).rstrip() + "\n"


def _options() -> Iterator[list[str]]:
    """Yield the options of the command, each with its argument and its help."""
    parser = build_parser()
    for action in parser._actions[1:]:
        value = action.metavar or (" or ".join(map(str, action.choices)) if action.choices else "")
        value = value or ("" if action.nargs == 0 else action.dest.upper())
        yield [f"`{' '.join((*action.option_strings, str(value))).strip()}`", (action.help or "") % vars(action)]


def _procedure_table(registry: ProcedureRegistry) -> list[str]:
    """Return the table of procedures; what one does, where that is known, is above its parameters."""
    rows = [
        [f"`{name}`", "<br>".join(filter(None, (each.does, _parameters(each))))]
        for name, each in sorted(registry.items())
    ]
    return table(["procedure", "parameters"], rows)


def _parameters(procedure: SystemProcedure) -> str:
    return ", ".join(f"`{each}`" for each in describe_parameters(procedure))


def _interpreted() -> Iterable[str]:
    """Return the procedures that take their arguments as they come."""
    calls = Calls(Mock(), Mock(), {})
    ServerCursors(Mock(), Mock(), calls, DynamicSql(Mock(), Mock(), calls))
    return calls.builtins


def _cdc_functions() -> set[str]:
    return set(_FUNCTION.findall((_CODE / "cdc/sql/database.sql").read_text(encoding="utf-8")))


def _views() -> dict[str, set[str]]:
    """Return the names of the views by their schema, from the statements that make them."""
    found: dict[str, set[str]] = {}
    for path in sorted(_CODE.glob("**/*.sql")):
        written = path.read_text(encoding="utf-8")
        for installed, name in _VIEW.findall(written):
            if installed in _SCHEMAS:
                found.setdefault(_SCHEMAS[installed], set()).add(name)
        if path.name == "sys_views_tools.sql":
            found["sys"].update(_EMPTY_VIEW.findall(written))
    return found


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
