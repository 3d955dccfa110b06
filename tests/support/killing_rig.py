"""The rig of ``torture_rig`` with commands that can be killed at what they say, and that are forked without Spark."""

from __future__ import annotations

import subprocess
from typing import TextIO, cast

import forked_floodmark
from command_line import FLOODMARK
from torture_command import RunningCommand
from torture_rig import TortureRig


class KillingRig(TortureRig):
    def begin(self, *arguments: str) -> RunningCommand:
        """A command, in a session of its own."""
        if not self._with_spark:
            return RunningCommand(arguments, *forked_floodmark.start(arguments, self._environment()))
        process = subprocess.Popen(
            [FLOODMARK, *arguments],
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        return RunningCommand(arguments, process, cast("TextIO", process.stdout))
