"""A command on its way: as a person starts it or, for loads without Spark, forked from one that has imported it all."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import TextIO, cast

import forked_floodmark
from command_line import FLOODMARK
from torture_command import RunningCommand


def begin(arguments: Sequence[str], environment: Mapping[str, str], *, with_spark: bool) -> RunningCommand:
    """Begin a command in a session of its own. Without Spark it saves the seconds of a start and its imports."""
    if not with_spark:
        return RunningCommand(arguments, *forked_floodmark.start(arguments, environment))
    process = subprocess.Popen(
        [FLOODMARK, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return RunningCommand(arguments, process, cast("TextIO", process.stdout))
