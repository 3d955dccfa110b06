"""``floodmark forget``: the right to erasure. Values of keys are in no output and no error."""

from __future__ import annotations

import getpass
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from floodmark.app.operate import forget_key
from floodmark.app.status import json_text
from floodmark.cli.process import (
    AsJson,
    ConfigFile,
    PipelineName,
    explained,
    open_app,
    out,
    print_line,
    print_table,
    read_document,
)
from floodmark.core.errors import ConfigError
from floodmark.core.recovery import Forgotten

_SUBJECT = "forget"
_STDIN = "-"


def forget(  # noqa: PLR0917  (typer gives them by name)
    pipeline: PipelineName,
    table: Annotated[str, typer.Argument(help="schema.table at the source.")],
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="A column of the key at the source, and its value. May be repeated."),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(help="A file with the key as a JSON object, - for standard input: no history of a shell has it."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Delete all that the warehouse has of one key of TABLE: the right to erasure. Delete the row at the source first,
    and run the pipeline.

    It waits for no window: exit status 75 while one of the table is unfinished.
    """
    with explained():
        if (key is None) is (key_file is None):
            raise ConfigError(_SUBJECT, "give --key or --key-file.")
        if key_file is not None:
            found_key = parse_key_document(read_document(None if str(key_file) == _STDIN else key_file))
        else:
            found_key = parse_key_pairs(key or ())
        opened = open_app(config).pipeline(pipeline)
        found = forget_key(opened, table, found_key, getpass.getuser(), is_dry_run=dry_run)
    if as_json:
        typer.echo(json_text(_document(pipeline, table, found)))
        return
    _print(table, found)


def parse_key_pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return the values of COLUMN=VALUE by column. Raises ConfigError, without a value."""
    found: dict[str, str] = {}
    for text in texts:
        name, is_pair, value = text.partition("=")
        if not (name and is_pair):
            raise ConfigError(_SUBJECT, "a --key is not COLUMN=VALUE.", "For a column with = in its name: --key-file.")
        if name in found:
            raise ConfigError(_SUBJECT, f"two values of {name} are given.", "A call forgets one key.")
        found[name] = value
    return found


def parse_key_document(text: str) -> dict[str, str]:
    """Return the values of a JSON object by column, numbers as written. Raises ConfigError, without a value."""
    try:
        document = json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ConfigError(_SUBJECT, f"the key is no JSON (line {error.lineno}, column {error.colno}).") from None
    if not isinstance(document, dict) or not document:
        raise ConfigError(
            _SUBJECT, 'the key is no JSON object with a value for each column, such as {"CustomerID": 5}.'
        )
    found = {name: str(value).lower() if isinstance(value, bool) else value for name, value in document.items()}
    for name, value in found.items():
        if not isinstance(value, str):
            raise ConfigError(_SUBJECT, f"the value of {name} is no text, number or boolean.", "No row has such a key.")
    return found


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ConfigError(_SUBJECT, "two values of a column are given.", "A call forgets one key.")
    return found


def _document(pipeline: str, table: str, found: Forgotten) -> dict[str, object]:
    return {
        "pipeline": pipeline,
        "table": table,
        "dry_run": found.receipt is None,
        "receipt": found.receipt,
        "counts": dict(found.counts),
        "still_exists": found.still_exists,
        "unread_messages": found.unread_messages,
    }


def _print(table: str, found: Forgotten) -> None:
    rows = [("", (place.replace("_", " "), f"{count:,}")) for place, count in found.counts.items() if count]
    title = "would be deleted" if found.receipt is None else "deleted"
    if rows:
        print_table(out, title, ("place", "number"), rows, numbers=("number",))
    else:
        print_line(
            out, f"{table}: the warehouse has nothing of this key. Check how it is written: SQL compares it exactly."
        )
    if found.receipt is not None:
        print_line(out, f"{table}: the key is forgotten, with receipt {found.receipt} in floodmark.forgotten.")
    if found.still_exists:
        print_line(
            out,
            "The row was not deleted at the source, as far as the windows show: its next change or a reload brings it "
            "back. Delete it there, run the pipeline, and forget it again.",
        )
    if found.unread_messages:
        print_line(
            out,
            f"Messages of the table that could not be read: {found.unread_messages:,}. They may have the key: check "
            "floodmark.quarantined_messages.",
        )
