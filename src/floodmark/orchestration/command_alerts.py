"""A run on the command line that fails is told of as one of Airflow's is: the same alert, over when any run succeeds.

Airflow tells when the tries of a run are used up. A command has one, so that it tells at once, but not where all that
has happened is that another run is at work, or that there is nothing yet to be read.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from floodmark.core.errors import FloodmarkBugError, FloodmarkError, NotHarvestedYetError, WindowBusyError
from floodmark.core.run_alerts import RUN_FAILED, RunFailure, run_failed
from floodmark.orchestration.alerting import alerts_of

if TYPE_CHECKING:
    from floodmark.config.models import Config

_PRINTED = "See what the command has printed."


@contextmanager
def tells_failed_run(config: Config, pipeline: str) -> Iterator[None]:
    """Nothing is kept from whoever called: what was raised goes on. Of a pipeline that is not in the configuration
    there is nothing to tell."""
    config.pipeline(pipeline)
    try:
        yield
    except (NotHarvestedYetError, WindowBusyError):
        raise
    except FloodmarkError as error:
        _tell(config, pipeline, error)
        raise
    except Exception as error:
        _tell(config, pipeline, FloodmarkBugError(pipeline, f"the run ended with {type(error).__name__}.", _PRINTED))
        raise


def _tell(config: Config, pipeline: str, error: FloodmarkError) -> None:
    alert = run_failed(RUN_FAILED, pipeline, RunFailure.of(error), dag_id="", run_id="", task_id="")
    where = f"pipeline {pipeline}, floodmark run on {socket.gethostname()}"
    alerts_of(config).raise_alert(replace(alert, where=where, do=error.hint or _PRINTED))
