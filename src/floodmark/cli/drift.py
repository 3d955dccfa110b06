"""``floodmark drift``: changes of the source's schema, held tables, and the decisions of the operator."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from floodmark.app.drift import approve_drift, list_drift, release_table, words_of
from floodmark.app.switch import approve_switch, is_proposal, list_switches, reject_switch, run_switches
from floodmark.cli.drift_events import drift_details, drift_json, print_drift, switch_lines
from floodmark.cli.process import AsJson, ConfigFile, Pipeline, Wide, explained, open_app, out

drift_app = typer.Typer(no_args_is_help=True, help="Schema drift: changes of the source's tables, and held tables.")


@drift_app.command("list")
def list_events(
    everything: Annotated[bool, typer.Option("--all", help="Also the decided events.")] = False,
    as_json: AsJson = False,
    wide: Wide = False,
    config: ConfigFile = None,
) -> None:
    """List the undecided events, with their DDL, the held tables and the proposed T-SQL, and the switches of capture
    instances in progress."""
    with explained():
        app = open_app(config)
        events = list_drift(app, everything=everything)
        under_way = list_switches(app)
    if as_json:
        typer.echo(drift_json(events))
    elif not events:
        typer.echo("No drift." if everything else "There is no undecided drift. See also --all.")
    else:
        print_drift(out, events, wide=wide)
        typer.echo(drift_details(events, lambda event: words_of(app, event)))
    if under_way and not as_json:
        typer.echo(switch_lines(under_way))


@drift_app.command("approve")
def approve_event(
    event: Annotated[int, typer.Argument(help="The number of the event.")], config: ConfigFile = None
) -> None:
    """Approve an EVENT. Its alert ends, and the tables that it holds continue with the next run. Where a second capture
    instance is proposed, it is created, and the table switches to it."""
    with explained():
        app = open_app(config)
        if is_proposal(app, event):
            typer.echo(approve_switch(app, event, getpass.getuser()))
            return
        found = approve_drift(app, event)
    held = f"; {found.table} continues in {', '.join(found.held)}" if found.held else ""
    typer.echo(f"Event {event} is approved{held}.")


@drift_app.command("reject")
def reject_event(
    event: Annotated[int, typer.Argument(help="The number of the event.")], config: ConfigFile = None
) -> None:
    """Reject the proposal of an EVENT. Its alert ends, and the table continues without the column."""
    with explained():
        typer.echo(reject_switch(open_app(config), event, getpass.getuser()))


@drift_app.command("switch")
def switch_instances(
    source: Annotated[str, typer.Argument(help="Name of the source in the configuration.")], config: ConfigFile = None
) -> None:
    """Advance the approved switches of capture instances of SOURCE as far as they can go now, as its drift DAG does."""
    with explained():
        typer.echo(run_switches(open_app(config), source))


@drift_app.command("release")
def release(
    pipeline: Pipeline, table: Annotated[str, typer.Argument(help="schema.table")], config: ConfigFile = None
) -> None:
    """End every hold on a TABLE of PIPELINE. The table continues with the next run."""
    with explained():
        release_table(open_app(config), pipeline, table)
    typer.echo(f"{table} continues in {pipeline}.")
