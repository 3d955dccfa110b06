"""Settings that a capture job receives in the middle of a scan."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import IO, Any, cast

import pytest

from sqlserver_emulator.cdc.agent.process import CaptureJob
from sqlserver_emulator.cdc.jobs import CAPTURE, DEFAULTS
from sqlserver_emulator.cdc.scan.capture import Capture, ScanResult

_LONG_SECONDS = 60.0


@dataclass
class InformedCapture:
    """A capture of one transaction. It pauses after it has checked whether it is to stop, as the real one does."""

    send_settings: Callable[[], object]
    is_stopped: Callable[[], bool] = lambda: False
    waited_seconds: list[float] = field(default_factory=list)

    def has_news(self) -> bool:
        return True

    def scan(self, _most: int, *, delay_seconds: float, pause: Callable[[], object]) -> ScanResult:
        self.send_settings()
        self.is_stopped()
        began = time.monotonic()
        pause()
        self.waited_seconds.append(time.monotonic() - began)
        return ScanResult(1, drained=True)

    def show_holding(self, *, is_holding: bool) -> None:
        assert not is_holding


@pytest.fixture
def job_input(monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[bytes]]:
    """The input of a job that is made after it."""
    ours, theirs = os.pipe()
    with closing(os.fdopen(ours, "rb")) as read, closing(os.fdopen(theirs, "wb", buffering=0)) as write:
        monkeypatch.setattr("sys.stdin", read)
        yield write


def scan(job_input: IO[bytes], at_first: dict[str, Any], line: bytes) -> float:
    """Return how long a scan pauses that receives the line in its middle."""
    job = CaptureJob("", 5, None)
    job.take_settings(at_first)
    capture = InformedCapture(lambda: job_input.write(line + b"\n"), job._is_stopped)
    job._scan(cast("Capture", capture), DEFAULTS[CAPTURE], everything=False)
    (seconds,) = capture.waited_seconds
    return seconds


def test_scan_that_hears_how_slow_scans_are_to_be_is_not_slow_itself(job_input: IO[bytes]) -> None:
    assert scan(job_input, {}, b'{"scan_seconds": 60}') < _LONG_SECONDS / 2


def test_slow_scan_that_hears_that_scans_are_not_slow_any_more_goes_on(job_input: IO[bytes]) -> None:
    assert scan(job_input, {"scan_seconds": _LONG_SECONDS}, b'{"scan_seconds": 0}') < _LONG_SECONDS / 2


def test_scan_is_as_slow_as_was_said_before_it(job_input: IO[bytes]) -> None:
    assert scan(job_input, {"scan_seconds": 0.2}, b'{"delay_seconds": 0}') >= 0.2
