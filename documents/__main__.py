"""``python -m documents reference``: write the generated pages. ``python -m documents site``: build the site."""

from __future__ import annotations

import sys

from documents.pages import write_pages
from documents.site import build_site

COMMANDS = {"reference": write_pages, "site": build_site}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"usage: python -m documents {' | '.join(COMMANDS)}")
    COMMANDS[sys.argv[1]]()
