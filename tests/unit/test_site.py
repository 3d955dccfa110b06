"""The generated pages agree with the code, and the site has no dead link and loads nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documents.pages import PAGES, page
from documents.site import SITE, build_site

REPOSITORY = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"<(?:script|img|link)\b[^>]*?\b(?:src|href)=\"?(https?://[^\s\">]+)")


@pytest.mark.parametrize("place", PAGES)
def test_generated_page_is_what_the_code_says(place: str) -> None:
    assert (REPOSITORY / place).read_text(encoding="utf-8") == page(place), "run `make reference`"


def test_site_is_built_whole_and_loads_nothing_from_elsewhere() -> None:
    build_site()
    pages = {path.relative_to(SITE): path.read_text(encoding="utf-8") for path in SITE.rglob("*.html")}
    assert {Path("index.html"), Path("docs/operations.html"), Path("emulator/docs/emulator.html")} <= pages.keys()
    assert {str(path): LOADED.findall(text) for path, text in pages.items() if LOADED.search(text)} == {}
