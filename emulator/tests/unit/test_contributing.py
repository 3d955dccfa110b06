"""CONTRIBUTING.md names files that exist, and every package of the emulator; the links of all pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

EMULATOR = Path(__file__).parents[2]
PACKAGE = EMULATOR / "src" / "sqlserver_emulator"
TEXT = (EMULATOR / "CONTRIBUTING.md").read_text("utf-8")


def test_every_file_that_is_named_exists() -> None:
    named = {each for each in re.findall(r"`([\w./]+(?:/|\.py|\.md|\.sql|\.toml))`", TEXT) if "/" in each}
    assert len(named) > 30
    places = (PACKAGE, EMULATOR, *PACKAGE.iterdir())
    assert [each for each in sorted(named) if not any((place / each).exists() for place in places)] == []


def test_every_package_and_module_is_in_the_table_of_layers() -> None:
    table = TEXT.partition("## Layers")[2].partition("\n## ")[0]
    modules = {each.name for each in PACKAGE.glob("[a-z]*.py")}
    packages = {f"{each.parent.name}/" for each in PACKAGE.glob("*/__init__.py")}
    missing = [each for each in sorted(modules | packages) if f"`{each}`" not in table]
    assert missing == []


def test_links_lead_somewhere() -> None:
    pages = [EMULATOR / "README.md", *(EMULATOR / "docs").glob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))]
    assert links
    assert [link for page, link in links if not (page.parent / link).exists()] == []
