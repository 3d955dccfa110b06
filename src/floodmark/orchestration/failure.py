"""Retry or fail: the one place that decides it, and what a person reads in the log of a failed task.

The decision is the error's own (``FloodmarkError.retryable``). Anything that is no ``FloodmarkError`` is left alone:
Airflow prints it whole and retries.
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
    """What Airflow is to see: AirflowFailException ends the task, AirflowException lets its retries run."""
    kind = AirflowException if error.retryable else AirflowFailException
    failure: Exception = kind(str(error))
    return failure


@contextmanager
def explained() -> Iterator[None]:
    """Let our errors reach Airflow as one message, without the calls that led to them."""
    try:
        yield
    except FloodmarkError as error:
        again = (
            "It is tried again, as long as the task has tries left." if error.retryable else "It is not tried again."
        )
        _log.error("%s %s", error.in_full, again)
        leave_failure(error)
        raise as_airflow_error(error) from None
