"""The comparison of ``floodmark_laptop`` by commands that are forked and import nothing.

For stories about what is in the warehouse; ``test_main_job`` compares by the command as users start it.
"""

from __future__ import annotations

from floodmark_laptop import comparison
from floodmark_laptop.comparison import Comparison
from floodmark_laptop.stack import Stack
from forked_floodmark import begin

_LIMIT_SECONDS = 300


def compare(stack: Stack, pipeline: str = "shop") -> list[Comparison]:
    """Compare all tables of a pipeline row by row."""
    return comparison.compare(stack, pipeline, run=_run_forked)


def _run_forked(stack: Stack, arguments: tuple[str, ...]) -> tuple[int, str, str]:
    command = begin(arguments, stack.airflow.environment())
    return command.wait(_LIMIT_SECONDS), command.output, command.output
