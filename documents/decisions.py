"""The list of the decisions, from their own headings."""

from __future__ import annotations

from documents.source_text import REPOSITORY


def decisions_page() -> str:
    """Return the page."""
    lines = ["# Decisions", "", "The architecture decision records, in their order.", ""]
    for path in sorted((REPOSITORY / "docs/adr").glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"* [{title}]({path.name})")
    return "\n".join(lines) + "\n"
