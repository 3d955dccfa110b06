"""``make fuzz``: atheris over all targets for FUZZ_SECONDS (60), starting from the kept corpus.

What it finds new goes into a folder that is thrown away; an input that breaks a target is left in fuzz/found and named.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["sqlserver_emulator.tds", "sqlserver_emulator.syntax"]):
    from fuzz.targets import read_anything

HERE = Path(__file__).parent


def main() -> None:
    seconds = int(os.environ.get("FUZZ_SECONDS", "60"))
    found = HERE / "found"
    found.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="floodmark-fuzz-") as new:
        options = [f"-max_total_time={seconds}", "-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"]
        atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={found}/", new, str(HERE / "corpus")], read_anything)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
