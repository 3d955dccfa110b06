"""``floodmark lake``: the tables of a lake, their upkeep, and their snapshots by position of the log."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from floodmark.app.upkeep import find_snapshots, keep_lake, list_lake, register_lake
from floodmark.cli.process import ConfigFile, PipelineName, Wide, explained, open_app, out, print_table
from floodmark.core.upkeep import format_bytes

lake_app = typer.Typer(no_args_is_help=True, help="Lakes: the files of their tables, upkeep, and snapshots.")


@lake_app.command("list")
def list_tables(wide: Wide = False, config: ConfigFile = None) -> None:
    """List the tables of all pipelines as readers see them, with their files. Rows include those marked as deleted."""
    with explained():
        found = list_lake(open_app(config))
    rows = [
        (
            "yellow" if each.is_due else "",
            (
                str(each.target),
                f"{each.rows:,}",
                str(each.files),
                str(each.delete_files),
                format_bytes(each.size),
                str(len(each.snapshots)),
                "due" if each.is_due else "",
                each.location,
            ),
        )
        for each in found
    ]
    headings = ("table", "rows", "files", "delete files", "size", "snapshots", "upkeep", "metadata")
    numbers = ("rows", "files", "delete files", "size", "snapshots")
    print_table(out, "lake", headings, rows, numbers=numbers, wide=wide)


@lake_app.command("upkeep")
def keep(
    keep_days: Annotated[
        float | None,
        typer.Option(min=0, help="For how many days readers can go back.", show_default="warehouse.upkeep.keep"),
    ] = None,
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Compact all tables, also where it is not due.")] = False,
    config: ConfigFile = None,
) -> None:
    """Compact tables where it is due, expire snapshots, and remove files that no snapshot has. A table with an
    unfinished window is left alone."""
    with explained():
        app = open_app(config)
        keep = app.config.warehouse.lake_upkeep.keep if keep_days is None else timedelta(days=keep_days)
        for target, done in keep_lake(app, keep, rewrites=rewrite):
            typer.echo(f"{target}: {done}.")


@lake_app.command("register")
def register(config: ConfigFile = None) -> None:
    """Register all published tables in the REST catalog of warehouse.catalog_conn_id, as each run does with its own."""
    with explained():
        moved = register_lake(open_app(config))
        for target in moved:
            typer.echo(f"{target}: registered.")
        if not moved:
            typer.echo("All published tables are registered.")


@lake_app.command("as-of")
def as_of(
    pipeline: PipelineName,
    position: Annotated[str, typer.Argument(help="A position of the source's log, as status shows it.")],
    config: ConfigFile = None,
) -> None:
    """Print, for each table, the snapshot that has all changes up to a position and none after it, for VERSION AS OF
    and other engines."""
    with explained():
        found = find_snapshots(open_app(config).pipeline(pipeline), position)
    rows = [("", (str(target), str(snapshot or "-"), to or "-")) for target, snapshot, to in found]
    print_table(out, pipeline, ("table", "snapshot", "changes up to"), rows)
