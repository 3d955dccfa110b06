"""A capture job's process as the agent holds it: started, told things, asked to end.

What it is told is a line of JSON on its standard input; it answers with a line when that is done (see ``process``).
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import IO

from sqlserver_emulator.cdc.jobs import Job

_LOOK_SECONDS = 0.1


class JobProcess:
    """``stopping``: it was asked to end. ``tell`` may be called by any thread."""

    def __init__(self, job: Job, conninfo: str, interval_seconds: float | None, told: Mapping[str, object]) -> None:
        command = [
            sys.executable, "-m", "sqlserver_emulator.cdc.agent.process",
            "--conninfo", conninfo, "--database-id", str(job.database_id), "--told", json.dumps(told),
        ]  # fmt: skip
        if interval_seconds is not None:
            command += ["--interval", str(interval_seconds)]
        self.job = job
        self.stopping = False
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
        )
        self._input, self._output = _opened(self.process.stdin), _opened(self.process.stdout)
        self._lock = threading.Lock()

    def tell(self, told: Mapping[str, object], limit_seconds: float) -> bool:
        """Tell it and wait until that is done; False when it ended instead. Raises TimeoutError."""
        with self._lock:
            try:
                self._input.write(json.dumps(told).encode() + b"\n")
            except (OSError, ValueError):
                return False
            return self._await_answer(time.monotonic() + limit_seconds)

    def ask_to_end(self) -> None:
        self.stopping = True
        self._input.close()

    def forget(self) -> None:
        """Its end has been seen."""
        self._input.close()
        self._output.close()

    def _await_answer(self, deadline: float) -> bool:
        while time.monotonic() < deadline:
            try:
                readable, _, _ = select.select([self._output], [], [], _LOOK_SECONDS)
                if readable:
                    return bool(self._output.readline())
            except (OSError, ValueError):
                return False
        raise TimeoutError(f"the capture job of database {self.job.database_id} does not answer")


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the capture job's process was started without pipes")
    return pipe
