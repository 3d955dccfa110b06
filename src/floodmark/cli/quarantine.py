"""``floodmark quarantine``: the rows that broke a rule and are not in the targets."""

from __future__ import annotations

from typing import Annotated

import typer

from floodmark.app.status import list_quarantined
from floodmark.app.status_json import json_text
from floodmark.cli.grid import Column, Grid, GridRow, print_line
from floodmark.cli.process import AsJson, ConfigFile, Wide, explained, open_app, out

quarantine_app = typer.Typer(no_args_is_help=True, help="Rows that broke a rule.")
_COLUMNS = (
    Column("table", 5),
    Column("rule", 4),
    Column("rows", 3, is_number=True),
    Column("last (UTC)", 2),
    Column("pipeline", 1),
)


@quarantine_app.command("list")
def list_rules(
    pipeline: Annotated[str | None, typer.Argument(help="One pipeline (default: all).")] = None,
    as_json: AsJson = False,
    wide: Wide = False,
    config: ConfigFile = None,
) -> None:
    """Count the rows in quarantine by table and rule. Keys and values are in floodmark.quarantine of the warehouse.

    A row stays in quarantine when a later change of it was loaded.
    """
    with explained():
        app = open_app(config)
        names = [pipeline] if pipeline else list(app.config.pipelines)
        found = [(name, each) for name in names for each in list_quarantined(app, name)]
    if as_json:
        keys = ("table", "rule", "rows", "last_at")
        typer.echo(json_text([{"pipeline": name} | {key: getattr(each, key) for key in keys} for name, each in found]))
        return
    if not found:
        print_line(out, "There is no row in quarantine.")
        return
    rows = [
        GridRow((each.table, each.rule, f"{each.rows:,}", f"{each.last_at:%Y-%m-%d %H:%M}", name))
        for name, each in found
    ]
    Grid("quarantine", _COLUMNS, rows).print(out, wide=wide)
