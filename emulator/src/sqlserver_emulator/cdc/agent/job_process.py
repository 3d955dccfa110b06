"""A capture job's process as the agent holds it: started, notified, asked to end.

A notification is a line of JSON on its standard input; it answers with a line when that is done (see ``process``).
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO

from sqlserver_emulator.cdc.jobs import Job

GIVEN_UP = 2
"""Exit code of a capture job that failed in each of its attempts."""
_POLL_SECONDS = 0.1


class JobProcess:
    """A running capture job. ``stopping``: it was asked to end. ``send_settings`` may be called by any thread.

    ``on_end`` is called, in another thread, when the process has ended for whatever reason.
    """

    def __init__(
        self,
        job: Job,
        conninfo: str,
        interval_seconds: float | None,
        settings: Mapping[str, object],
        on_end: Callable[[], None],
    ) -> None:
        command = [
            sys.executable,
            "-m",
            "sqlserver_emulator.cdc.agent.process",
            "--conninfo",
            conninfo,
            "--database-id",
            str(job.database_id),
            "--settings",
            json.dumps(settings),
        ]
        if interval_seconds is not None:
            command += ["--interval", str(interval_seconds)]
        self.job = job
        self.stopping = False
        # Signals to the server's process group do not reach the job: the agent ends it. The pipes are not buffered,
        # because `select` sees only what is still in a pipe.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
        )
        self._input, self._output = _opened(self.process.stdin), _opened(self.process.stdout)
        self._lock = threading.Lock()
        self._on_end = on_end
        threading.Thread(target=self._wait, name=f"cdc-job-{job.database_id}", daemon=True).start()

    def send_settings(self, settings: Mapping[str, object], limit_seconds: float) -> bool:
        """Notify the job and wait until that is done; False when it ended instead. Raises TimeoutError."""
        # One at a time: an answer does not say which line it answers.
        with self._lock:
            try:
                self._input.write(json.dumps(settings).encode() + b"\n")
            except (OSError, ValueError):
                return False
            return self._await_answer(time.monotonic() + limit_seconds)

    def ask_to_end(self) -> None:
        """Close the job's standard input, at which it ends."""
        self.stopping = True
        self._input.close()

    def forget(self) -> None:
        """Close the pipes of a process that has ended."""
        self._input.close()
        self._output.close()

    def _wait(self) -> None:
        self.process.wait()
        self._on_end()

    def _await_answer(self, deadline: float) -> bool:
        while time.monotonic() < deadline:
            try:
                # In short waits: `forget` may close the pipe in another thread meanwhile.
                readable, _, _ = select.select([self._output], [], [], _POLL_SECONDS)
                if readable:
                    # An empty line is the end of the pipe: the process has ended.
                    return bool(self._output.readline())
            except (OSError, ValueError):
                return False
        raise TimeoutError(f"the capture job of database {self.job.database_id} does not answer")


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the capture job's process was started without pipes")
    return pipe
