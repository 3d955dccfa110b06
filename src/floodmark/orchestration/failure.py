"""Retry or fail: the only place that decides it, and the message in the log of a failed task.

The error itself holds the decision (``FloodmarkError.retryable``). Any other exception is left alone: Airflow prints
its traceback and retries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from floodmark.core.errors import FloodmarkError
from floodmark.orchestration.callbacks import leave_failure

_log = logging.getLogger(__name__)


def as_airflow_error(error: FloodmarkError) -> Exception:
    """Return the error for Airflow: AirflowFailException ends the task, AirflowException lets it be retried."""
    kind = AirflowException if error.retryable else AirflowFailException
    failure: Exception = kind(str(error))
    return failure


@contextmanager
def explained() -> Iterator[None]:
    """Pass our errors to Airflow as one message, without a traceback."""
    try:
        yield
    except FloodmarkError as error:
        retry = "The task is retried while it has retries left." if error.retryable else "The task is not retried."
        _log.error("%s %s", error.in_full, retry)
        leave_failure(error)
        raise as_airflow_error(error) from None
