"""The status of pipelines as JSON, for ``floodmark status --json`` and for the page in Airflow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from floodmark.core.status.report import PipelineStatus


def status_json(statuses: Sequence[PipelineStatus]) -> str:
    """Return the status of the pipelines as JSON."""
    return json_text([asdict(status) for status in statuses])


def json_text(document: Any) -> str:
    """Return a document of lists, dictionaries, plain values and times as JSON."""
    return json.dumps(document, default=_as_text, indent=2)


def _as_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")
