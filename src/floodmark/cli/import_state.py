"""``floodmark import-state``: continue where another tool has stopped."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from floodmark.app.operate import import_state, read_state_table
from floodmark.app.status import json_text
from floodmark.cli.process import EXIT_FAILED, AsJson, ConfigFile, PipelineName, Wide, explained, open_app, out
from floodmark.cli.tables import print_line, print_table
from floodmark.core.errors import ConfigError
from floodmark.core.imported import (
    TableImport,
    ToolState,
    parse_airbyte_state,
    parse_debezium_offsets,
    parse_ssis_state,
)

_COLUMNS = ("table", "", "position", "verdict", "target")


class Tool(StrEnum):
    """A tool whose state can be imported."""

    SSIS = "ssis"
    DEBEZIUM = "debezium"
    AIRBYTE = "airbyte"


class ImportAliases(TyperGroup):
    """The commands, with the names that ``import-state`` had before for each tool."""

    _TOOLS: ClassVar[Mapping[str, Tool]] = {
        "import-ssis-state": Tool.SSIS,
        "import-debezium-offsets": Tool.DEBEZIUM,
        "import-airbyte-state": Tool.AIRBYTE,
    }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        tool = self._TOOLS.get(args[0])
        if tool is None:
            return super().resolve_command(ctx, args)
        _, command, rest = super().resolve_command(ctx, ["import-state", "--from", tool.value, *args[1:]])
        return args[0], command, rest


def import_tool_state(
    context: typer.Context,
    pipeline: PipelineName,
    file: Annotated[Path | None, typer.Argument(help="A file with the state (default: standard input).")] = None,
    *,
    tool: Annotated[Tool, typer.Option("--from", help="The tool that has kept the state.")],
    state_table: Annotated[
        str | None,
        typer.Option(help="SSIS: read the state from this table of the source's database, such as dbo.cdc_states."),
    ] = None,
    state_name: Annotated[str | None, typer.Option(help="SSIS: the name of the state in that table.")] = None,
    connector: Annotated[str | None, typer.Option(help="Debezium: the connector, where there are several.")] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="Only this table, schema.table of the source (default: all). May be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check, and show what would be set.")] = False,
    as_json: AsJson = False,
    wide: Wide = False,
    config: ConfigFile = None,
) -> None:
    """Continue where another tool has stopped: set the watermarks of PIPELINE to the position of its state, for tables
    whose targets the tool has filled. Nothing is loaded. Exit status 1 when a table is refused.

    The state is a CDC state of SSIS, the offset of a connector of Debezium, or the state of a connection of Airbyte.
    The transaction of an offset is read again.
    """
    with explained():
        opened = open_app(config).pipeline(pipeline)
        for option, value, owner in (
            ("--state-table", state_table, Tool.SSIS),
            ("--state-name", state_name, Tool.SSIS),
            ("--connector", connector, Tool.DEBEZIUM),
        ):
            if value is not None and tool is not owner:
                raise ConfigError(str(context.info_name), f"{option} is for a state of {owner.value} only.")
        if state_name is not None and state_table is None:
            raise ConfigError(str(context.info_name), "--state-name is the name of a state in --state-table.")
        if state_table is None:
            text = _read_text(file)
        elif file is None:
            text = read_state_table(opened, state_table, state_name)
        else:
            raise ConfigError(str(context.info_name), "give a file or --state-table, not both.")
        state: ToolState
        match tool:
            case Tool.SSIS:
                state = parse_ssis_state(text)
            case Tool.DEBEZIUM:
                state = parse_debezium_offsets(text, connector)
            case Tool.AIRBYTE:
                state = parse_airbyte_state(text)
        found = import_state(opened, state, table or (), dry_run=dry_run)
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
                    str(each.after),
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
        "position": str(each.after),
        "verdict": each.verdict or None,
        "window_id": each.window_id,
        "refusal": each.refusal or None,
        "hint": each.hint or None,
    }
