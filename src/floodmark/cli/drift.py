"""``floodmark drift``: changes of the source's schema, held tables, and the decisions of the operator."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from floodmark.app.operate import approve_switch, is_proposal, list_switches, reject_switch, run_switches
from floodmark.app.upkeep import approve_drift, list_drift, list_not_taken, release_table
from floodmark.cli.process import AsJson, ConfigFile, PipelineName, Wide, explained, open_app, out, print_table
from floodmark.core.drift import describe, describe_ddl, describe_effect
from floodmark.sync.drift_watch import describe_shared_proposal, proposed_with

if TYPE_CHECKING:
    from floodmark.core.drift import DriftWords, InstanceSwitch
    from floodmark.sync.records import DriftEvent


# --------------------------------------------------------------------------------------------------------------------
# Drift events as a table and as JSON.


_COLUMNS = ("event", "table", "what", "held in", "decided", "found (UTC)", "policy", "source")
_OPTIONAL = ("source", "policy", "found (UTC)", "decided")


def print_drift(console: Console, events: Sequence[DriftEvent], *, wide: bool) -> None:
    """Print one row per event. The proposed statements are in ``drift_details``."""
    rows = []
    for event in events:
        policies = ", ".join(f"{pipeline}: {policy.value}" for pipeline, policy in sorted(event.policies.items()))
        how = "rejected" if event.is_rejected else "approved"
        decided = f"{how} {event.approved_at:%Y-%m-%d %H:%M} by {event.approved_by}" if event.approved_at else "-"
        cells = (
            str(event.event_id),
            str(event.table),
            describe(event.explained.difference),
            ", ".join(event.held) or "-",
            decided,
            f"{event.found_at:%Y-%m-%d %H:%M}",
            policies,
            event.source,
        )
        rows.append(("red" if event.held else "", cells))
    print_table(console, "schema drift", _COLUMNS, rows, numbers=("event",), optional=_OPTIONAL, wide=wide)


def drift_details(events: Sequence[DriftEvent], words_of: Callable[[DriftEvent], DriftWords]) -> str:
    """Return the DDL behind each event, its effect, and the proposed T-SQL. words_of: by the kind of its source."""
    lines = []
    for event in events:
        words = words_of(event)
        lines.append(f"Event {event.event_id}, {event.table}: {describe_ddl(event.explained, words)}")
        lines.append(f"  {describe_effect(event.explained.difference, event.policies, words)}")
        if event.proposal and event.approved_at is None:
            lines += [f"  {shared}"] if (shared := describe_shared_proposal(proposed_with(event, events))) else []
            lines += [f"  To capture it, floodmark drift approve {event.event_id} runs:", event.proposal]
    return "\n".join(lines)


def switch_lines(switches: Sequence[InstanceSwitch]) -> str:
    """Return the progress of each switch according to the ledger."""
    lines = []
    for switch in switches:
        lines.append(
            f"Switch {switch.switch_id} of {switch.table}: from {switch.old.name} to {switch.name}, with "
            f"{', '.join(switch.added)}; {switch.state.value}, approved by {switch.approved_by}."
        )
        for each in switch.pipelines:
            window = f"window {each.window_id} loads" if each.window_id else "no window loads"
            filled = "its new columns are loaded" if each.is_filled else f"{window} the new columns"
            lines.append(f"  {each.pipeline} reads {switch.name} after {each.watermark}; {filled}.")
    return "\n".join(lines)


def drift_json(events: Sequence[DriftEvent]) -> str:
    """Return the drift events as JSON."""
    return json.dumps([_document(event) for event in events], indent=2)


def _document(event: DriftEvent) -> dict[str, Any]:
    difference = event.explained.difference
    return {
        "event_id": event.event_id,
        "source": event.source,
        "table": str(event.table),
        "capture_instance": event.identity.name,
        "kind": difference.kind.value,
        "column": difference.column,
        "before": difference.before,
        "after": difference.after,
        "obstacle": difference.obstacle,
        "ddl": [
            {"lsn": str(entry.position), "at": entry.at.isoformat(), "text": entry.text}
            for entry in event.explained.entries
        ],
        "policies": {pipeline: policy.value for pipeline, policy in event.policies.items()},
        "held": list(event.held),
        "proposal": event.proposal,
        "found_at": event.found_at.isoformat(),
        "approved_at": event.approved_at.isoformat() if event.approved_at else None,
        "approved_by": event.approved_by,
        "is_rejected": event.is_rejected,
    }


# --------------------------------------------------------------------------------------------------------------------


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
        under_way, not_taken = list_switches(app), list_not_taken(app)
    if as_json:
        typer.echo(drift_json(events))
    elif not events:
        typer.echo("No drift." if everything else "There is no undecided drift. See also --all.")
    else:
        print_drift(out, events, wide=wide)
        typer.echo(drift_details(events, lambda event: app.source(event.source).drift_words()))
    if under_way and not as_json:
        typer.echo(switch_lines(under_way))
    for pipeline, table in not_taken if not as_json else []:
        typer.echo(f"Pipeline {pipeline}: {table.table}: {table.reason}.")


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
        found = approve_drift(app, event, getpass.getuser())
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
    pipeline: PipelineName, table: Annotated[str, typer.Argument(help="schema.table")], config: ConfigFile = None
) -> None:
    """End every hold on a TABLE of PIPELINE. The table continues with the next run."""
    with explained():
        release_table(open_app(config).pipeline(pipeline), table)
    typer.echo(f"{table} continues in {pipeline}.")
