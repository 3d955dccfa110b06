"""``python -m sqlserver_emulator``: the same as the command ``sqlserver-emulator``."""

from __future__ import annotations

import sys

from sqlserver_emulator.cli import main

if __name__ == "__main__":
    sys.exit(main())
