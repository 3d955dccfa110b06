"""The page of the command line, from the commands themselves."""

from __future__ import annotations

import re
import subprocess
import sys

from documents.source_text import REPOSITORY


def commands_page() -> str:
    """Return the page, as Typer writes it. Raises CalledProcessError where Typer fails."""
    command = [sys.executable, "-m", "typer", "floodmark.cli.main", "utils", "docs", "--name", "floodmark"]
    written = subprocess.run(
        [*command, "--title", "Command line"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True, text=True
    ).stdout
    # Typer writes for HTML, and leaves our docstrings' double backticks.
    return re.sub(r"(?<!`)``(?!`)", "`", written.replace("&#x27;", "'")).rstrip() + "\n"
