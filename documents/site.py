"""The site: the repository's Markdown in the folders where it lies, built by Zensical.

The files are copied with their folders, so that a link works on the site as it does in the repository.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from documents.source_text import REPOSITORY

SITE = REPOSITORY / "build/site"
"""Where the built site is."""
SOURCE = REPOSITORY / "build/site-source"
"""Where its builder reads the documents."""
_CONFIG = REPOSITORY / "zensical.toml"
_FOLDERS = ("docs", "emulator/docs", "compact_tracking/docs")
_FILES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "benchmarks/README.md",
    "benchmarks/report.md",
    "benchmarks/peers/report.md",
    "compact_tracking/README.md",
    "dags/floodmark_dags.py",
    "documents/site.css",
    "emulator/CONTRIBUTING.md",
    "emulator/README.md",
    "include/sql/README.md",
    "plugins/README.md",
    "spark_jobs/README.md",
)
_FOLDER_LINK = re.compile(r"\]\(((?:\.\./)*(?:[\w-]+/)+)\)")


def build_site() -> None:
    """Build the site. Ends the process with the builder's status, which is not 0 for a warning or a dead link."""
    copy_documents()
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(_CONFIG)], check=False
    )
    if done.returncode:
        sys.exit(done.returncode)
    print(f"{SITE / 'index.html'}")


def copy_documents() -> None:
    """Copy the documents to where the builder reads them."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for folder in _FOLDERS:
        shutil.copytree(REPOSITORY / folder, SOURCE / folder)
    for name in _FILES:
        _copy(REPOSITORY / name, SOURCE / name)
    for path in SOURCE.rglob("*.md"):
        path.write_text(_FOLDER_LINK.sub(_to_page, path.read_text(encoding="utf-8")), encoding="utf-8")


def _copy(origin: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(origin, place)


def _to_page(link: re.Match[str]) -> str:
    """Return a link to a folder as one to the page that the site has for it."""
    return f"]({link[1]}README.md)"
