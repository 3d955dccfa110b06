"""``floodmark source`` and ``floodmark rename``: decisions of the operator about sources and names."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from floodmark.app.source import confirm_database, reload_member, rename_pipeline, rename_target
from floodmark.cli.process import ConfigFile, explained, open_app

source_app = typer.Typer(no_args_is_help=True, help="Sources: which database they are.")


def rename(
    old: Annotated[str, typer.Argument(help="The name that the pipeline had.")],
    new: Annotated[str, typer.Argument(help="The name that it has in the configuration now.")],
    config: ConfigFile = None,
) -> None:
    """Let a pipeline that was renamed in the configuration go on with the watermarks, windows and quarantine that the
    ledger has under its OLD name."""
    with explained():
        tables = rename_pipeline(open_app(config), old, new)
    typer.echo(f"{new} goes on where {old} ended, with {len(tables)} tables: {', '.join(map(str, tables))}.")


def rename_table(
    pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.")],
    table: Annotated[str, typer.Argument(help="Source table, as in the configuration.")],
    config: ConfigFile = None,
) -> None:
    """Let TABLE go on at its watermark after its target was renamed, in the warehouse and in the configuration."""
    with explained():
        before, now = rename_target(open_app(config), pipeline, table)
    typer.echo(f"{table} goes on in {now}, which was {before}.")


@source_app.command("confirm")
def confirm(
    source: Annotated[str, typer.Argument(help="Name of the source in the configuration.")], config: ConfigFile = None
) -> None:
    """Confirm that SOURCE is now the database that its connection leads to, after a move or a change of the connection.
    Watermarks stay as they are: the next run compares them with the log of that database."""
    with explained():
        confirmed = confirm_database(open_app(config), source, getpass.getuser())
    for each in confirmed:
        changed = f"; before, it followed {each.before}" if each.before and each.before != each.now else ""
        typer.echo(f"{each.pipeline} follows {each.now}{changed}.")
    if not confirmed:
        typer.echo(f"No pipeline reads {source}.")


@source_app.command("reload-device")
def reload_device(
    pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.")],
    table: Annotated[str, typer.Argument(help="Source table, as in the configuration.")],
    device: Annotated[str, typer.Argument(help="Name of the device: that of its file without the extension.")],
    config: ConfigFile = None,
) -> None:
    """Let the next run read all rows of TABLE on DEVICE, and delete in the target what the device no longer has. For a
    device whose changes since its last sync are lost."""
    with explained():
        reload_member(open_app(config), pipeline, table, device)
    typer.echo(f"The next run of {pipeline} reads all rows of {table} on {device}.")
