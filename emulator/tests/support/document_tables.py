"""The tables of docs/emulator.md as lists of entries, and the examples that hold each of them true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "emulator.md"
EXAMPLES = ROOT / "tests" / "emulator_document" / "examples.toml"
HEADINGS = {"there": "## What is there", "refused": "## What is not"}
_SEPARATOR = re.compile(r"[,;]\s+(?![^(]*\))")
"""Between entries; not inside parentheses."""


def read_entries(kind: str) -> list[str]:
    """Every entry of the second column of the table under that heading."""
    _, _, after = DOCUMENT.read_text("utf-8").partition(HEADINGS[kind] + "\n")
    section = after.partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [entry.strip() for row in rows for entry in _SEPARATOR.split(row.split("|")[2])]


def read_examples() -> dict[str, dict[str, Any]]:
    return tomllib.loads(EXAMPLES.read_text("utf-8"))


def batches_of(example: Any) -> list[str]:
    return [example] if isinstance(example, str) else list(example)
