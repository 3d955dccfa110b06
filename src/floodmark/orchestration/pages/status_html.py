"""The tables of ``floodmark status`` as an HTML page, or a sentence in their place."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from io import StringIO

from rich.console import Console, RenderableType
from rich.text import Text

_COLUMNS = 150
# Only the ledger's page refreshes: a page that is left open must not query the sources again and again.
_REFRESH = '<meta http-equiv="refresh" content="30">\n'
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
%s<title>Floodmark: status</title>
<style>
body {{ color: #000000; background: #ffffff; margin: 1.5em; font-family: sans-serif; }}
pre {{ font-family: Menlo, "DejaVu Sans Mono", Consolas, monospace; font-size: 1em; line-height: 1.3; }}
{stylesheet}
</style>
</head>
<body>
<p>%s</p>
<pre><code>{code}</code></pre>
</body>
</html>
"""
_LEDGER = (
    'State after the last runs. <a href="?live=true">Query the sources too</a> for current verdict, lag and headroom.'
)
_SOURCES = 'State of the sources, at most 15 seconds old. <a href="?live=false">Query only the ledger.</a>'


def status_html(parts: Iterable[RenderableType | str], *, live: bool, read_at: datetime) -> str:
    """Return the page. parts: tables, or sentences in their place. live: whether the sources were queried."""
    console = Console(record=True, width=_COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    for part in parts:
        console.print(Text(part, style="bold red") if isinstance(part, str) else part)
    note = f"{_SOURCES if live else _LEDGER} Read {read_at:%Y-%m-%d %H:%M:%S} UTC."
    return console.export_html(code_format=_PAGE % ("" if live else _REFRESH, note))
