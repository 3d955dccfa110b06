"""``floodmark source``: the decisions of the operator about a source."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from floodmark.app.source import confirm_database
from floodmark.cli.process import ConfigFile, explained, open_app

source_app = typer.Typer(no_args_is_help=True, help="Sources: which database they are.")


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
