"""``make bench-peers``: Floodmark next to Debezium, written to ``benchmarks/peers/report.md``.

``python -m benchmarks.peers --tables 3 --changes 20000`` tries one other shape, and prints it.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measuring import Report, temporary_stack
from benchmarks.peers import compare
from benchmarks.peers.debezium_jars import VERSION, MissingPeerError, install

_SHAPES = ((1, 1_000_000), (100, 10_000))
"""Tables, and the changes of each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int)
    parser.add_argument("--changes", type=int, default=20_000)
    options = parser.parse_args()
    try:
        debezium = install()
    except MissingPeerError as error:
        sys.exit(f"bench-peers: {error}")
    report = Report()
    report.add("# Floodmark next to Debezium")
    report.add()
    report.add(
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Python {platform.python_version()}, Debezium {VERSION}."
        " Source, warehouse and reader share the machine; both read the same change tables, one after the other. "
        "`benchmarks/README.md` describes the method."
    )
    report.add()
    with temporary_stack() as (stack, folder):
        for shape in ((options.tables, options.changes),) if options.tables else _SHAPES:
            compare.measure(stack, report, folder, debezium, shape)
    if not options.tables:
        (Path(__file__).parent / "report.md").write_text("\n".join(report.lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
