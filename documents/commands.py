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
    text = re.sub(r"(?<!`)``(?!`)", "`", written.replace("&#x27;", "'")).rstrip() + "\n"
    return _with_whole_sentences(text)


def _with_whole_sentences(page: str) -> str:
    """Return the page with the first sentence of each command in the lists, of which Typer writes 45 letters."""
    sentences = {
        command: re.split(r"(?<=\.)\s", text.replace("\n", " "), maxsplit=1)[0]
        for command, text in re.findall(r"^#+ `([^`]+)`\n\n(.+?)\n\n", page, re.DOTALL | re.MULTILINE)
    }
    lines, group = [], "floodmark"
    for line in page.splitlines():
        if heading := re.match(r"#+ `([^`]+)`", line):
            group = heading[1]
        elif (item := re.match(r"\* `([^`]+)`: .*\.\.\.$", line)) and (found := sentences.get(f"{group} {item[1]}")):
            line = f"* `{item[1]}`: {found}"  # noqa: PLW2901  (the line in its place)
        lines.append(line)
    return "\n".join(lines) + "\n"
