"""The help of the commands, and the version."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer
from typer.core import TyperCommand, TyperGroup
from typer.testing import CliRunner

from floodmark.cli.main import app, unwrap

COMMAND = typer.main.get_command(app)


def walk(command: object) -> Iterator[TyperCommand | TyperGroup]:
    if isinstance(command, TyperCommand | TyperGroup):
        yield command
    if isinstance(command, TyperGroup):
        for each in command.commands.values():
            yield from walk(each)


@pytest.mark.parametrize("command", tuple(walk(COMMAND)), ids=lambda each: str(each.name))
def test_help_has_no_broken_lines_and_no_back_ticks(command: TyperCommand | TyperGroup) -> None:
    assert command.help
    assert "`" not in command.help
    assert [text for text in command.help.split("\n\n") if "\n" in text] == []


def test_commands_are_in_the_order_in_which_a_newcomer_needs_them() -> None:
    assert isinstance(COMMAND, TyperGroup)
    assert list(COMMAND.commands)[:5] == ["init", "doctor", "plan", "run", "status"]


def test_commands_start_without_what_only_loads_and_comparisons_need() -> None:
    heavy = ("airflow", "great_expectations", "numpy", "pandas", "pyarrow", "pyspark")
    statements = f"import sys; sys.modules.update(dict.fromkeys({heavy})); import floodmark.cli.main"
    done = subprocess.run([sys.executable, "-c", statements], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_docstring_is_unwrapped_by_paragraph() -> None:
    assert unwrap("One ``two``\nthree.\n\n    Four\n    five.\n") == "One two three.\n\nFour five."


def test_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"floodmark {importlib.metadata.version('floodmark')}\n")
