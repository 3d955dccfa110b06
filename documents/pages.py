"""The generated pages, by their place in the repository."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from documents.alerts import alerts_page
from documents.commands import commands_page
from documents.dags import dags_page
from documents.decisions import decisions_page
from documents.emulator import emulator_page
from documents.errors import errors_page
from documents.ledger import ledger_page
from documents.metrics import metrics_page
from documents.settings import settings_page
from documents.source_text import REPOSITORY
from documents.verdicts import verdicts_page

NOTE = "<!-- Generated from the code by `make reference`. Change the code, not this page. -->\n"
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/adr/README.md": decisions_page,
    "docs/reference/alerts.md": alerts_page,
    "docs/reference/commands.md": commands_page,
    "docs/reference/dags.md": dags_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/ledger.md": ledger_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/settings.md": settings_page,
    "docs/reference/verdicts.md": verdicts_page,
    "emulator/docs/surface.md": emulator_page,
}


def page(place: str) -> str:
    """Return the text of a generated page."""
    head, _, rest = PAGES[place]().partition("\n")
    return f"{head}\n\n{NOTE}{rest}"


def write_pages(repository: Path = REPOSITORY) -> None:
    """Write all generated pages."""
    for place in PAGES:
        (repository / place).write_text(page(place), encoding="utf-8")
        print(place)
