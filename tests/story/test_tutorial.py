"""The tutorial, followed line by line in a fresh clone: every command of it ends as the text says.

It sets up the clone, so that it is no part of ``make test``: ``make test-tutorial`` runs it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

REPOSITORY = Path(__file__).parents[2]
TUTORIAL = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
TRY_AGAIN = 75
LIMIT_SECONDS = 240
OF_THIS_ENVIRONMENT = {"VENV", "VIRTUAL_ENV", "PYTHONPATH", "FLOODMARK_STATE", "FLOODMARK_CONFIG", "AIRFLOW_HOME"}
"""The reader's shell knows nothing of the environment of the tests."""


class Shell:
    """The reader's shell: a command's environment is there for those after it."""

    def __init__(self, clone: Path) -> None:
        self._clone = clone
        own = {name: value for name, value in os.environ.items() if name not in OF_THIS_ENVIRONMENT}
        self._environment = {**own, "COLUMNS": "80"}
        self.file = ""
        """The file that ``make up`` names, once it has run."""

    def run(self, command: str) -> str:
        """Run a command of the tutorial, again while it says so. Returns its output; fails for another status."""
        if command == ". FILE":
            self._environment["BASH_ENV"] = self.file
            return ""
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self._clone,
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == TRY_AGAIN and time.monotonic() < deadline:
                time.sleep(1)
                continue
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            return done.stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Copy what a clone would have, with the changes that are not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    folder = tmp_path / "floodmark"
    for name in filter(None, listed.stdout.split("\0")):
        if os.path.lexists(REPOSITORY / name):  # a file that was deleted is listed until that is committed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name, follow_symlinks=False)
    return folder


@pytest.fixture
def shell(clone: Path) -> Iterator[Shell]:
    made = Shell(clone)
    try:
        yield made
    finally:
        made.run("make down")
        assert list_processes(clone) == []


def list_processes(folder: Path) -> list[str]:
    """Return the command lines of the processes that run from a folder."""
    found = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    return [line for line in found if f"{folder}/" in line]


def commands() -> list[str]:
    """The commands on the emulator, in their order."""
    followed = TUTORIAL.partition("## Your own SQL Server")[0]
    blocks = re.findall(r"```console\n(.*?)```", followed, re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Wait as the reader does."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(1)


@pytest.mark.skipif("FLOODMARK_TEST_TUTORIAL" not in os.environ, reason="make test-tutorial sets up a clone for it")
@pytest.mark.timeout(1200)
def test_every_command_of_the_tutorial_does_what_the_text_says(shell: Shell) -> None:
    def is_loaded() -> bool:
        (pipeline,) = json.loads(shell.run(".venv/bin/floodmark status --json"))
        return all(table["watermark"] for table in pipeline["tables"])

    said: dict[str, str] = {}
    for command in commands():
        if "dags trigger" in command:
            log = Path(shell.file).parent / "up.log"
            wait_until(lambda log=log: "was added at the source" in log.read_text(), "the new column")
        said[command] = shell.run(command)
        if command == "make up":
            shell.file = re.findall(r"in a shell: \. (\S+)", said[command])[0]
        if command.endswith("floodmark status"):
            wait_until(is_loaded, "the first load")
        if command.endswith("drift list"):
            wait_until(lambda command=command: "Newsletter" in shell.run(command), "the drift")
    assert "status page: http://127.0.0.1:" in said["make up"]
    assert "dbo.Customers" in said[".venv/bin/floodmark status"]
    assert "no row in quarantine" in said[".venv/bin/floodmark quarantine list"]
    assert "stopped" in said["make down"]
