"""The message of ``make run`` when a task has failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from floodmark_laptop.main_job import last_error

OURS = {"level": "error", "event": "window 1: Spark did not start.", "logger": "floodmark.orchestration.tasks"}
AIRFLOWS = {"level": "error", "event": "Task failed with exception", "logger": "task", "error_detail": [{"frames": []}]}
INFO = {"level": "info", "event": "::endgroup::", "logger": "task"}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([OURS, AIRFLOWS, INFO], "window 1: Spark did not start."),
        ([INFO, AIRFLOWS], "Task failed with exception"),
        ([INFO], json.dumps(INFO)),
        ([], ""),
    ],
)
def test_error_of_a_task_is_our_message_without_airflows_stack_trace(
    tmp_path: Path, entries: list[dict[str, object]], message: str
) -> None:
    log = tmp_path / "attempt=1.log"
    log.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    assert last_error(log) == message


def test_line_that_is_no_json_does_not_hide_the_error(tmp_path: Path) -> None:
    log = tmp_path / "attempt=1.log"
    log.write_text(f"Killed\n{json.dumps(OURS)}\n7\n")
    assert last_error(log) == "window 1: Spark did not start."
