"""The generated pages agree with the code, and the site has no dead link and loads nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from documents.pages import PAGES, page
from documents.site import SITE, SOURCE, build_site, copy_documents

REPOSITORY = Path(__file__).resolve().parents[2]
MARKER = re.compile(r"(?:[-*+]|\d+\.) ")
LOADED = re.compile(r"<(?:script|img|link)\b[^>]*?\b(?:src|href)=\"?(https?://[^\s\">]+)")


@pytest.mark.parametrize("place", PAGES)
def test_generated_page_is_what_the_code_says(place: str) -> None:
    assert (REPOSITORY / place).read_text(encoding="utf-8") == page(place), "run `make reference`"


def test_site_is_built_whole_and_loads_nothing_from_elsewhere() -> None:
    build_site()
    pages = {path.relative_to(SITE): path.read_text(encoding="utf-8") for path in SITE.rglob("*.html")}
    assert {Path("index.html"), Path("docs/operations.html"), Path("emulator/docs/emulator.html")} <= pages.keys()
    assert {str(path): LOADED.findall(text) for path, text in pages.items() if LOADED.search(text)} == {}


def broken_lists(markdown: str) -> Iterator[int]:
    """Yield each line that is part of a list in the repository, and that the site shows as part of another paragraph.

    GitHub takes a block under the text of its item; the builder of the site wants four spaces, and a blank line between
    such a block and the next item.
    """
    in_list, in_block, fenced, above = False, False, False, ""
    for number, line in enumerate(markdown.splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        starts_block = in_list and bool(line.strip()) and (not above.strip() or line.lstrip().startswith("```"))
        if not fenced and starts_block and 0 < indent < 4:
            yield number
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and MARKER.match(line):
            if in_list and in_block and above.strip():
                yield number
            in_list, in_block = True, False
        elif not fenced and not indent and line.strip() and not above.strip():
            in_list = False
        in_block = in_block or (starts_block and indent > 0)
        above = line


@pytest.mark.parametrize(
    ("markdown", "broken"),
    [
        ("1. a\n   b\n2. c\n\nd\n", []),
        ("1. a\n\n    ```sql\n  b\n    ```\n\n    c\n\n2. d\n", []),
        ("1. a\n\n   ```sql\n   b\n   ```\n\n2. c\n", [3]),
        ("1. a\n\n    b\n2. c\n", [4]),
        ("* a\n\n  b\n", [3]),
        ("a\n\n  b\n", []),
    ],
)
def test_list_that_the_site_would_break_is_found(markdown: str, broken: list[int]) -> None:
    assert list(broken_lists(markdown)) == broken


def broken_tables(markdown: str) -> Iterator[int]:
    """Yield each row of a table that is cut, or that is below no head of a table."""
    fenced, above = False, ""
    lines = markdown.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("|"):
            below = lines[number] if number < len(lines) else ""
            if not line.endswith("|") or not (above.startswith("|") or below.startswith("|--")):
                yield number
        above = line


@pytest.mark.parametrize(
    ("markdown", "broken"),
    [
        ("a\n\n| b | c |\n|---|---|\n| d | e |\n\n```\n| f\n```\n", []),
        ("| b | c |\n|---|---|\n| d | e\nf |\n| g | h |\n", [3, 5]),
    ],
)
def test_table_that_is_cut_is_found(markdown: str, broken: list[int]) -> None:
    assert list(broken_tables(markdown)) == broken


@pytest.mark.parametrize("broken", [broken_lists, broken_tables])
def test_lists_and_tables_are_whole_on_the_site(broken: Callable[[str], Iterator[int]]) -> None:
    copy_documents()
    found = {
        path.relative_to(SOURCE).as_posix(): lines
        for path in SOURCE.rglob("*.md")
        if (lines := list(broken(path.read_text(encoding="utf-8"))))
    }
    assert found == {}
