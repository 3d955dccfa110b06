"""The tutorial, followed line by line: every command of it ends as the text says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from floodmark_laptop.processes import find_marked

REPOSITORY = Path(__file__).parents[2]
TUTORIAL = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
PROGRAMS = {".venv/bin/": f"{Path(sys.executable).parent}/", "make ": f"{sys.executable} -m floodmark_laptop "}
"""What stands for the places of a clone. ``make up`` calls the same after the set-up, which the tests have done."""
TRY_AGAIN = 75
LIMIT_SECONDS = 240


class Shell:
    """The reader's shell: a command's environment is there for those after it."""

    def __init__(self, state: Path) -> None:
        self._environment = {**os.environ, "FLOODMARK_STATE": str(state), "COLUMNS": "80"}
        self.file = ""
        """The file that ``make up`` names, once it has run."""

    def run(self, command: str) -> str:
        """Run a command of the tutorial, again while it says so. Returns its output; fails for another status."""
        if command == ". FILE":
            self._environment["BASH_ENV"] = self.file
            return ""
        for place, program in PROGRAMS.items():
            command = command.replace(place, program)
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=REPOSITORY,
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
def shell(stack_dir: Path) -> Iterator[Shell]:
    made = Shell(stack_dir / "tutorial")
    try:
        yield made
    finally:
        made.run("make down")
        assert find_marked(stack_dir / "tutorial") == []


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


@pytest.mark.timeout(900)
def test_every_command_of_the_tutorial_does_what_the_text_says(shell: Shell, stack_dir: Path) -> None:
    def is_loaded() -> bool:
        (pipeline,) = json.loads(shell.run(".venv/bin/floodmark status --json"))
        return all(table["watermark"] for table in pipeline["tables"])

    said: dict[str, str] = {}
    for command in commands():
        if "dags trigger" in command:
            log = stack_dir / "tutorial" / "up.log"
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
