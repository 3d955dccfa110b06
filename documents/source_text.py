"""Docstrings and annotations as they are written in the code, read without running it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import griffe

REPOSITORY = Path(__file__).resolve().parents[1]
_CODE = re.compile(r"``([^`]*)``")


@cache
def module_of(name: str) -> griffe.Module:
    """Return a module by its full name, such as ``floodmark.config.models``: it alone, and not its whole package."""
    file = (REPOSITORY / "src").joinpath(*name.split(".")).with_suffix(".py")
    return griffe.visit(name, filepath=file, code=file.read_text(encoding="utf-8"))


def text_of(element: griffe.Object | griffe.Alias) -> str:
    """Return the docstring of an element in Markdown, its paragraphs joined; "" for an element without one."""
    return as_markdown(element.docstring.value) if element.docstring else ""


def as_markdown(docstring: str) -> str:
    """Return a docstring with each paragraph in one line, and code in single backticks."""
    paragraphs = re.split(r"\n\s*\n", docstring.strip())
    return "\n\n".join(_CODE.sub(r"`\1`", " ".join(paragraph.split())) for paragraph in paragraphs)


def cell(text: str) -> str:
    """Return a text that fits into a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table, and an empty line after it."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return [*lines, *("| " + " | ".join(cell(each) for each in row) + " |" for row in rows), ""]
