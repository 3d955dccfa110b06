"""The lines that a load job writes to standard output: one when it begins, and one with its result.

``spark_jobs/load_window.py`` prints them; the last one is success or error, never both. Airflow's operator and the CLI
read them. An error arrives with its class, so that the class decides between retry and failure, and not a message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from floodmark.core import errors
from floodmark.core.errors import FloodmarkBugError, FloodmarkError
from floodmark.core.window.plan import TableCounts

STARTED = "FLOODMARK_STARTED"
"""The first line: Java, Spark and Python have started, and the job itself begins."""
PREFIX = "FLOODMARK_RESULT "


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load job."""

    window_id: int
    counts: Mapping[str, TableCounts] = field(default_factory=dict)
    """The rows by source table, as text."""
    error: FloodmarkError | None = None
    """None: the window is merged."""


def format_load_result(result: LoadResult) -> str:
    """Return one line, without the newline."""
    document: dict[str, object] = {"window_id": result.window_id}
    if result.error is None:
        document["tables"] = {table: asdict(counts) for table, counts in result.counts.items()}
    else:
        error = result.error
        document["error"] = {
            "type": type(error).__name__,
            "subject": error.subject,
            "message": error.message,
            "hint": error.hint,
            "detail": error.detail,
        }
    return PREFIX + json.dumps(document, ensure_ascii=False)


def parse_load_result(line: str) -> LoadResult | None:
    """Return the result in a line of output, None for any other line.

    Raises FloodmarkBugError for a line that begins like a result and is not one.
    """
    if not line.startswith(PREFIX):
        return None
    try:
        document = json.loads(line.removeprefix(PREFIX))
        counts = {table: TableCounts(**rows) for table, rows in document.get("tables", {}).items()}
        found = document.get("error")
        return LoadResult(document["window_id"], counts, _error(found) if found else None)
    except (ValueError, TypeError, KeyError) as problem:
        raise FloodmarkBugError(
            "load", "the job's result could not be read.", "", f"{problem}: {line.strip()}"
        ) from problem


def _error(fields: Mapping[str, str]) -> FloodmarkError:
    kind = getattr(errors, fields["type"], None)
    if isinstance(kind, type) and issubclass(kind, FloodmarkError):
        return kind(fields["subject"], fields["message"], fields["hint"], fields.get("detail", ""))
    return FloodmarkBugError(
        fields["subject"], f"{fields['type']}: {fields['message']}", fields["hint"], fields.get("detail", "")
    )


def format_error(error: FloodmarkError) -> str:
    """Return one table's error as text, for a row of a task's results."""
    return format_load_result(LoadResult(0, error=error))


def parse_error(text: str) -> FloodmarkError:
    """Return the error that ``format_error`` wrote. Raises ValueError for any other text."""
    found = parse_load_result(text)
    if found is None or found.error is None:
        raise ValueError("the text has no error")
    return found.error
