"""``floodmark quarantine``: the rows that broke a rule and are not in the targets, and what becomes of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from floodmark.app.operate import discard_rows, release_rows
from floodmark.app.status import json_text
from floodmark.cli.process import AsJson, ConfigFile, PipelineName, Wide, explained, open_app, out
from floodmark.cli.tables import print_line, print_table
from floodmark.core.recovery import Release

quarantine_app = typer.Typer(no_args_is_help=True, help="Rows that broke a rule.")
Table = Annotated[str, typer.Argument(help="schema.table at the source.")]
_COLUMNS = ("table", "rule", "rows", "last (UTC)", "pipeline")


@quarantine_app.command("list")
def list_rules(
    pipeline: Annotated[str | None, typer.Argument(help="One pipeline (default: all).")] = None,
    as_json: AsJson = False,
    wide: Wide = False,
    config: ConfigFile = None,
) -> None:
    """Count the rows that wait in quarantine, by table and rule. Keys and values are in floodmark.quarantine of the
    warehouse."""
    with explained():
        app = open_app(config)
        names = [app.pipeline(pipeline).name] if pipeline else list(app.pipelines)
        found = [(name, each) for name in names for each in app.status_ledger.list_quarantined(name)]
    if as_json:
        keys = ("table", "rule", "rows", "last_at")
        typer.echo(json_text([{"pipeline": name} | {key: getattr(each, key) for key in keys} for name, each in found]))
        return
    if not found:
        print_line(out, "There is no row in quarantine.")
        return
    rows = [
        ("", (each.table, each.rule, f"{each.rows:,}", f"{each.last_at:%Y-%m-%d %H:%M}", name)) for name, each in found
    ]
    print_table(out, "quarantine", _COLUMNS, rows, numbers=("rows",), optional=("pipeline", "last (UTC)"), wide=wide)


@quarantine_app.command("release")
def release(pipeline: PipelineName, table: Table, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Merge the rows of TABLE that break no rule any more, because the rule or the row was corrected.

    The other rows stay in quarantine. A row that has a later change in the target is overtaken, and needs nothing.
    """
    with explained():
        found = release_rows(open_app(config).pipeline(pipeline), table)
    if as_json:
        typer.echo(json_text(asdict(found)))
        return
    for line in _release_lines(pipeline, table, found):
        print_line(out, line)


@quarantine_app.command("discard")
def discard(
    pipeline: PipelineName,
    table: Table,
    rule: Annotated[str | None, typer.Option(help="Only the rows that broke this rule.")] = None,
    config: ConfigFile = None,
) -> None:
    """Settle the rows of TABLE without a merge. The target stays as it is; later changes of the rows are loaded."""
    with explained():
        count = discard_rows(open_app(config).pipeline(pipeline), table, rule)
    which = f" of rule {rule}" if rule else ""
    print_line(out, f"{table}: entries{which} discarded: {count:,}.")


def _release_lines(pipeline: str, table: str, found: Release) -> list[str]:
    remaining = sum(found.remaining.values())
    if not (found.released or found.overtaken or remaining):
        return [f"{table}: there is no row in quarantine."]
    lines = [f"{table}: entries released: {found.released:,}; overtaken by later changes: {found.overtaken:,}."]
    if found.window_id is not None:
        counts = f"rows inserted: {found.inserted_rows:,}; updated: {found.updated_rows:,}"
        lines.append(f"Window {found.window_id}: {counts}.")
    if remaining:
        rules = ", ".join(f"{rule}: {count:,}" for rule, count in found.remaining.items())
        lines.append(f"Entries that stay: {remaining:,} ({rules}).")
    if found.unfit:
        lines.append(
            f"Rows that break no rule and cannot be merged: {found.unfit:,}. They lack a column or a LOB, or their key "
            f"was changed. Load them from the source: floodmark reload {pipeline} {table} --where ..."
        )
    return lines
