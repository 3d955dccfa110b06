"""Commands in hints can be pasted into a shell, whatever the names of tables and sources are."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.errors import command_line
from floodmark.core.plan import finishing_command, load_lane, replay_lane
from floodmark.core.position import Interval
from floodmark.core.schema import TableName
from lsns import lsn

SOURCES = Path(__file__).resolve().parents[4] / "src" / "floodmark"
HOSTILE = TableName("dbo", "Order 'Lines'; $(reboot) {x}")
_COMMAND = re.compile(r"\bfloodmark (?!load |run on )(?:[a-z][a-z-]* )+(?:PIPELINE |x )?$")
_NEEDS_NO_QUOTES = re.compile(r"(pipeline|_id|\.name)$")
"""Names of pipelines have no blanks (``config.sections.PipelineName``)."""


@given(st.lists(st.text(min_size=1)))
def test_words_of_a_command_arrive_as_they_are(words: list[str]) -> None:
    assert shlex.split(command_line("reload", *words)) == ["floodmark", "reload", *words]


def test_commands_that_finish_a_window_name_a_table_with_blanks_and_quotes() -> None:
    reload = finishing_command("shop", load_lane(HOSTILE))
    assert shlex.split(reload) == ["floodmark", "reload", "shop", str(HOSTILE)]
    replay = finishing_command("shop", replay_lane(Interval(lsn(1), lsn(2)), [HOSTILE]))
    assert shlex.split(replay)[-2:] == ["--table", str(HOSTILE)]


def unquoted(source: str) -> Iterator[str]:
    """Yield each value that a text puts after a command without quotes, unless it never needs any."""
    for text in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)):
        before = ""
        for part in text.values:
            if isinstance(part, ast.Constant):
                before += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                value = ast.unparse(part.value)
                if _COMMAND.search(before) and not _NEEDS_NO_QUOTES.search(value):
                    yield value
                before += "x"


def test_each_name_after_a_command_in_a_text_is_quoted() -> None:
    found = {str(path): list(unquoted(path.read_text(encoding="utf-8"))) for path in SOURCES.rglob("*.py")}
    assert {path: values for path, values in found.items() if values} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("f'Run: floodmark reload {pipeline} {table}.'", ["table"]),
        ("f'Run: floodmark drift switch {self.source}.'", ["self.source"]),
        ("f'floodmark reload PIPELINE {table.source}'", ["table.source"]),
        ("f'floodmark drift approve {event_id}, of table {table}'", []),
        ("f'floodmark run {pipeline}: {table}'", []),
    ],
)
def test_value_without_quotes_is_found(source: str, found: list[str]) -> None:
    assert list(unquoted(source)) == found
