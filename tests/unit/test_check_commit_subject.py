"""The check of commit messages that the commit-msg hook makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bin" / "check_commit_subject.py"
LONGEST = "docs: add " + "x" * 62


def _check(folder: Path, message: str) -> subprocess.CompletedProcess[str]:
    file = folder / "COMMIT_EDITMSG"
    file.write_text(message, encoding="utf-8")
    return subprocess.run([sys.executable, "-I", SCRIPT, file], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    "message",
    [
        "emulator: move the parser to syntax/\n",
        "embedded_postgres: start the server as nobody\n\nRoot cannot run it.\n",
        "docs, tests: name every alert",
        "# a comment of git\n\nspark: read in chunks\n# Please enter the commit message\n",
        "spark: read in chunks\n# ------------------------ >8 ------------------------\ndiff --git a b\n+long"
        + "x" * 99,
        LONGEST,
        "Merge branch 'main' into topic",
        'Revert "Spark: read."',
        "fixup! spark: read in chunks",
    ],
)
def test_a_subject_with_area_and_verb_is_accepted(tmp_path: Path, message: str) -> None:
    done = _check(tmp_path, message)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("Move the parser\n", "is not `area: verb …`"),
        ("emulator: Move the parser\n", "is not `area: verb …`"),
        ("emulator:move the parser\n", "is not `area: verb …`"),
        ("emulator: move\n", "is not `area: verb …`"),
        ("\n# only comments\n", "is not `area: verb …`"),
        (LONGEST + "x", "has 73 characters; 72 are allowed"),
        ("emulator: move the parser.\n", "ends with a full stop"),
        ("emulator: move the parser\nbecause of its size\n", "is not empty"),
    ],
)
def test_another_subject_is_refused_with_what_to_do(tmp_path: Path, message: str, fault: str) -> None:
    done = _check(tmp_path, message)
    assert done.returncode == 1
    assert fault in done.stderr


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    assert len(_check(tmp_path, "x" * 80 + ".\nbody").stderr.splitlines()) == 4


def test_a_call_without_a_file_is_refused() -> None:
    done = subprocess.run([sys.executable, "-I", SCRIPT], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: check_commit_subject.py FILE\n")
