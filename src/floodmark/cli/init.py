"""``floodmark init``: the first configuration, from the tables of a source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from floodmark.app.first_config import chosen_tables, enabling_script, write_config
from floodmark.cli.grid import Column, Grid, GridRow, print_line
from floodmark.cli.process import explained, out
from floodmark.core.source.survey import SurveyedTable
from floodmark.wiring.places import config_path
from floodmark.wiring.sources import survey

_COLUMNS = (Column("table", 3), Column("rows", 2, is_number=True), Column("primary key", 1), Column("captured", 2))


def init(
    source: Annotated[str, typer.Option(prompt="Airflow connection of the source, of type mssql", help="Its id.")],
    warehouse: Annotated[
        str, typer.Option(prompt="Airflow connection of the warehouse, of type postgres", help="Its id.")
    ] = "warehouse",
    name: Annotated[
        str, typer.Option(prompt="Name of the pipeline, and of the schema of its targets", help="Of the pipeline.")
    ] = "shop",
    table: Annotated[
        list[str] | None, typer.Option(help="A table, schema.name (default: all). May be repeated.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The file to write (default: FLOODMARK_CONFIG, include/pipelines.yaml).")
    ] = None,
) -> None:
    """List the tables of a source, write a configuration for them, and print the T-SQL that enables CDC.

    Nothing is changed at the source.
    """
    with explained():
        path = output or config_path()
        found = survey(source)
        tables = chosen_tables(found, table or [])
        _print_tables(found.database, tables)
        write_config(path, name, source, warehouse, tables)
        script = enabling_script(found, tables)
    print_line(out, f"\n{path} is written. Read it, and remove the tables that you do not need.")
    if script:
        who = "a member of db_owner" if found.has_cdc else "a member of sysadmin"
        print_line(out, f"Enable change data capture, as {who}:\n")
        typer.echo(script)
    doctor = f"floodmark doctor {name}" + (f" --config {output}" if output else "")
    print_line(out, f"\nThen run this, which shows what is missing: {doctor}")
    print_line(out, f"The rights that Floodmark's login needs: {doctor} --grants LOGIN")


def _print_tables(database: str, tables: list[SurveyedTable]) -> None:
    rows = [
        GridRow(
            (
                str(each.name),
                "-" if each.rows is None else f"{each.rows:,}",
                ", ".join(each.key) or "none",
                "yes" if each.has_cdc else "no",
            ),
            "" if each.key else "yellow",
        )
        for each in tables
    ]
    Grid(f"database {database}", _COLUMNS, rows).print(out)
