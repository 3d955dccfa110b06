"""The lines by which a load job reports its progress to the process that started it. They contain no value of a row."""

from __future__ import annotations

import json
from dataclasses import asdict

from floodmark.core.schema import TableName
from floodmark.core.status.read_progress import ReadKind, ReadProgress, StepProgress

PROGRESS_PREFIX = "FLOODMARK_PROGRESS "


def format_progress_line(progress: ReadProgress | StepProgress) -> str:
    """Return one line, without the newline."""
    if isinstance(progress, StepProgress):
        return PROGRESS_PREFIX + json.dumps({"step": asdict(progress)})
    return PROGRESS_PREFIX + json.dumps({"read": asdict(progress) | {"kind": progress.kind.value}})


def parse_progress_line(line: str) -> ReadProgress | StepProgress | None:
    """Return the progress in a line of output, None for any other line.

    A line that begins like one and is not one is like any other: it is not worth the load.
    """
    if not line.startswith(PROGRESS_PREFIX):
        return None
    try:
        document = json.loads(line.removeprefix(PROGRESS_PREFIX))
        if "step" in document:
            return StepProgress(**document["step"])
        found = document["read"]
        return ReadProgress(**found | {"table": TableName(**found["table"]), "kind": ReadKind(found["kind"])})
    except (ValueError, TypeError, KeyError):
        return None
