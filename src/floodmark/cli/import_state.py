"""``floodmark import-…``: the commands that continue where another tool has stopped."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from floodmark.app.configure import import_state, read_state_table
from floodmark.app.status import json_text
from floodmark.cli.process import EXIT_FAILED, AsJson, ConfigFile, PipelineName, Wide, explained, open_app, out
from floodmark.cli.tables import print_line, print_table
from floodmark.core.errors import ConfigError
from floodmark.core.imported import TableImport, parse_airbyte_state, parse_debezium_offsets, parse_ssis_state

StateFile = Annotated[Path | None, typer.Argument(help="A file with the state (default: standard input).")]
Tables = Annotated[
    list[str] | None,
    typer.Option("--table", help="Only this table, schema.table of the source (default: all). May be repeated."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check, and show what would be set.")]
_COLUMNS = ("table", "", "position", "verdict", "target")


def import_ssis_state(  # noqa: PLR0917  (typer gives them by name)
    pipeline: PipelineName,
    file: StateFile = None,
    state_table: Annotated[
        str | None,
        typer.Option(help="Read the state from this table of the source's database, such as dbo.cdc_states."),
    ] = None,
    state_name: Annotated[str | None, typer.Option(help="The name of the state in that table.")] = None,
    table: Tables = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    wide: Wide = False,
    config: ConfigFile = None,
) -> None:
    """Continue where SSIS has stopped: set the watermarks of PIPELINE to the position of a CDC state, for tables whose
    targets SSIS has filled. Nothing is loaded. Exit status 1 when a table is refused."""
    with explained():
        opened = open_app(config).pipeline(pipeline)
        if state_table is None:
            text = _read_text(file)
        elif file is None:
            text = read_state_table(opened, state_table, state_name)
        else:
            raise ConfigError("import-ssis-state", "give a file or --state-table, not both.")
        found = import_state(opened, parse_ssis_state(text), table or (), dry_run=dry_run)
    _show(found, dry_run=dry_run, as_json=as_json, wide=wide)


def import_debezium_offsets(  # noqa: PLR0917  (typer gives them by name)
    pipeline: PipelineName,
    file: StateFile = None,
    connector: Annotated[str | None, typer.Option(help="The connector, where there are several.")] = None,
    table: Tables = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    wide: Wide = False,
    config: ConfigFile = None,
) -> None:
    """Continue where Debezium has stopped: set the watermarks of PIPELINE before the transaction of the connector's
    offset, for tables whose targets a sink has filled. Nothing is loaded. Exit status 1 when a table is refused."""
    with explained():
        app, state = open_app(config), parse_debezium_offsets(_read_text(file), connector)
        found = import_state(app.pipeline(pipeline), state, table or (), dry_run=dry_run)
    _show(found, dry_run=dry_run, as_json=as_json, wide=wide)


def import_airbyte_state(  # noqa: PLR0917  (typer gives them by name)
    pipeline: PipelineName,
    file: StateFile = None,
    table: Tables = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    wide: Wide = False,
    config: ConfigFile = None,
) -> None:
    """Continue where Airbyte has stopped: set the watermarks of PIPELINE before the transaction of the offset in the
    state of a connection, for tables that Airbyte has synced. Nothing is loaded. Exit status 1 when a table is
    refused."""
    with explained():
        app, state = open_app(config), parse_airbyte_state(_read_text(file))
        found = import_state(app.pipeline(pipeline), state, table or (), dry_run=dry_run)
    _show(found, dry_run=dry_run, as_json=as_json, wide=wide)


def _read_text(file: Path | None) -> str:
    """Return the text of a file or of standard input: UTF-8, or UTF-16 with its mark, as PowerShell writes it."""
    name = str(file or "standard input")
    try:
        content = sys.stdin.buffer.read() if file is None else file.read_bytes()
        is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return content.decode("utf-16" if is_wide else "utf-8-sig")
    except OSError as error:
        raise ConfigError(name, f"it cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(name, "it is not text in UTF-8.") from None


def _show(found: Sequence[TableImport], *, dry_run: bool, as_json: bool, wide: bool) -> None:
    """Print the outcome, and end with an exit status that says whether a table was refused."""
    if as_json:
        typer.echo(json_text([_fields(each) for each in found]))
    else:
        done = "would be set" if dry_run else "set"
        rows = [
            (
                "red" if each.refusal else "",
                (
                    str(each.source),
                    "refused" if each.refusal else done,
                    str(each.after_lsn),
                    each.verdict or "-",
                    str(each.target),
                ),
            )
            for each in found
        ]
        print_table(out, "import", _COLUMNS, rows, optional=("target", "verdict", "position"), wide=wide)
        for each in found:
            if each.refusal:
                print_line(out, f"{each.source}: {each.refusal} {each.hint}".rstrip())
    if any(each.refusal for each in found):
        raise typer.Exit(EXIT_FAILED)


def _fields(each: TableImport) -> dict[str, str | int | None]:
    return {
        "table": str(each.source),
        "target": str(each.target),
        "position": str(each.after_lsn),
        "verdict": each.verdict or None,
        "window_id": each.window_id,
        "refusal": each.refusal or None,
        "hint": each.hint or None,
    }
