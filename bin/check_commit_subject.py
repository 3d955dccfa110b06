#!/usr/bin/env python3
"""Check a commit message: ``check_commit_subject.py FILE``. The commit-msg hook calls it. Standard library only.

The subject is ``area: verb …``, as in ``emulator: move the parser to syntax/``: at most 72 characters, a lower-case
area and verb, no full stop. A body is allowed after an empty line. Subjects that git writes itself are accepted.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LONGEST = 72
_SUBJECT = re.compile(r"[a-z][a-z0-9_.-]*(?:(?:, |/)[a-z][a-z0-9_.-]*)*: [a-z]+ \S")
_SCISSORS = re.compile(r"^# -+ >8 -+\n.*", flags=re.MULTILINE | re.DOTALL)
_WRITTEN_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")


def find_faults(message: str) -> list[str]:
    """Return a sentence for each rule that the message breaks."""
    lines = [line.rstrip() for line in _SCISSORS.sub("", message).splitlines() if not line.startswith("#")]
    subject = next((line for line in lines if line), "")
    if subject.startswith(_WRITTEN_BY_GIT):
        return []
    body = lines[lines.index(subject) + 1 :] if subject else []
    faults = []
    if not _SUBJECT.match(subject):
        faults.append("The subject is not `area: verb …` in lower case, such as `docs: add the release checklist`.")
    if len(subject) > LONGEST:
        faults.append(f"The subject has {len(subject)} characters; {LONGEST} are allowed. Put the why into the body.")
    if subject.endswith("."):
        faults.append("The subject ends with a full stop. Remove it.")
    if body and body[0]:
        faults.append("The line after the subject is not empty. Put an empty line before the body.")
    return faults


def main() -> int:
    """Print the faults of the message in the file that the first argument names. Return 1 if there are any."""
    if len(sys.argv) != 2:
        print("usage: check_commit_subject.py FILE", file=sys.stderr)
        return 2
    faults = find_faults(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for fault in faults:
        print(f"commit message: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
