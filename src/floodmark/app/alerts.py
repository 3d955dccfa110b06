"""Alerts: a test message for the channels, and the alert about a failed run on the command line."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.core.alert import Alert, build_raised_message
from floodmark.core.alerts.runs import RUN_FAILED, RunFailure, run_failed
from floodmark.core.errors import FloodmarkBugError, FloodmarkError, NotCapturedYetError, WindowBusyError
from floodmark.sync.recovery.gaps import report_left_out
from floodmark.wiring.alerts import wire_channels
from floodmark.wiring.pipelines import wire, wire_ledger

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.core.alert import AlertMessage
    from floodmark.sync.alerts import Channel, OpenAlert

_LOG = logging.getLogger(__name__)
_PRINTED = "See the output of the command."


def send_test_message(app: AppContext) -> Mapping[str, str]:
    """Send a message to every channel. Return by channel name why it was not accepted, "" where it was."""
    alert = Alert(
        kind="test",
        subject="floodmark",
        what="A test message was sent to every channel.",
        means="This channel works.",
        do="Nothing.",
        event_key="test",
    )
    message = build_raised_message(alert, datetime.now(UTC))
    return {channel.name: _try(channel, message) for channel in wire_channels(app.config)}


def list_open_alerts(app: AppContext) -> Sequence[OpenAlert]:
    """Return the open alerts about the pipelines and sources of the configuration, the oldest first."""
    subjects = {*app.config.pipelines, *app.config.sources}
    return [each for each in wire_ledger(app.config).alerts().list_open() if each.alert.subject in subjects]


def _try(channel: Channel, message: AlertMessage) -> str:
    try:
        channel.send(message)
    except FloodmarkError as error:
        return str(error)
    return ""


@contextmanager
def reported_failure(app: AppContext, pipeline: str) -> Iterator[None]:
    """Raise the alert about a failed run when the block fails; what was raised goes on to the caller.

    It is the same alert that a failed run in Airflow raises. It ends when any run succeeds. Airflow raises it after the
    last retry of a run; a command has no retries. No alert is raised where another run is active, or where there is
    nothing to read yet. Raises ConfigError for a pipeline that is not in the configuration.
    """
    app.config.pipeline(pipeline)
    try:
        yield
    except (NotCapturedYetError, WindowBusyError):
        raise
    except FloodmarkError as error:
        _report(app, pipeline, error)
        raise
    except Exception as error:
        _report(app, pipeline, FloodmarkBugError(pipeline, f"the run ended with {type(error).__name__}.", _PRINTED))
        raise


def _report(app: AppContext, pipeline: str, error: FloodmarkError) -> None:
    alert = run_failed(RUN_FAILED, pipeline, RunFailure.of(error), dag_id="", run_id="", task_id="")
    where = f"pipeline {pipeline}, floodmark run on {socket.gethostname()}"
    app.alerts().raise_alert(replace(alert, where=where, do=error.hint or _PRINTED))
    report_tables(app, pipeline)


def report_tables(app: AppContext, pipeline: str) -> None:
    """Raise the alerts about the tables that are left out, after a run that failed. An error is only logged."""
    try:
        wiring = wire(app.config, pipeline)
        report_left_out(wiring.settings, wiring.ledger.windows(), app.alerts())
    except FloodmarkError as error:
        _LOG.warning("Could not check which tables of %s are left out: %s", pipeline, error)
