"""Every error Floodmark raises, sorted by who must act.

FloodmarkError
├── ConfigError            the author of pipelines.yaml
├── SourceAdminError       the DBA of the source
│   ├── SourceLoginError       wrong user or password, database not open to the login
│   ├── SourcePermissionError  a right is missing
│   ├── CdcNotEnabledError     database or table not tracked, unknown table
│   └── NoKeyError             neither a primary key nor a declared key
├── OperatorError          whoever is on call
│   ├── WindowExpiredError     the validity interval has passed the watermark (verdict expired)
│   ├── SourceRewoundError     the watermark is ahead of the source (verdict ahead_of_source)
│   ├── InstanceReplacedError  another capture instance stands under the name (verdict instance_replaced)
│   ├── CaptureStoppedError    the capture job does not run (verdict capture_stopped)
│   ├── LoadStartError         Java or Spark did not start, so that the load job never began
│   ├── TableHeldError         schema drift holds every table (verdict held)
│   ├── WatermarkConflictError another run moved the watermark or holds the window
│   └── WarehouseAdminError    login, rights or space in the warehouse
├── DataQualityError       the owner of the data
├── TransientError         nobody: it is retried
│   ├── SourceUnavailableError
│   ├── WarehouseUnavailableError
│   ├── LoadKilledError        the load job was stopped before it said its result
│   ├── WindowBusyError        another load of the window is at work
│   ├── TableBusyError         transactions use the source table, so that its capture cannot be changed now
│   ├── NotHarvestedYetError
│   └── AlertNotSentError      a channel of the alerts did not take a message
└── FloodmarkBugError      us
    └── DuplicateKeyError      a key stands twice in staging

The message starts with the table (or the pipeline, where there is no one table), says what happened, and ends with what
to do. It never holds a password, nor a value of a row: what a server said in words that may hold one is the error's
``detail``, which only the log of who met it shows.
"""

from __future__ import annotations

from typing import ClassVar


class FloodmarkError(Exception):
    """``subject`` is the table or pipeline, ``hint`` what to do. ``detail`` may hold values of rows: it is in no text
    of the error but ``in_full``, and in no alert. Survives pickling between Spark processes."""

    retryable: ClassVar[bool] = False

    def __init__(self, subject: str, message: str, hint: str = "", detail: str = "") -> None:
        super().__init__(subject, message, hint, detail)
        self.subject = subject
        self.message = message
        self.hint = hint
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}" + (f" {self.hint}" if self.hint else "")

    @property
    def in_full(self) -> str:
        """For the log of a task and for a terminal, and for nothing that leaves the house."""
        return f"{self} ({self.detail})" if self.detail else str(self)


class ConfigError(FloodmarkError):
    """The configuration is wrong."""


class SourceAdminError(FloodmarkError):
    """Something must change at the source."""


class SourceLoginError(SourceAdminError):
    """The source refused the login."""


class SourcePermissionError(SourceAdminError):
    """The login lacks a right at the source."""


class CdcNotEnabledError(SourceAdminError):
    """The database or the table is not tracked."""


class NoKeyError(SourceAdminError):
    """There is no key to merge by."""


class OperatorError(FloodmarkError):
    """Somebody has to decide or repair."""


class WindowExpiredError(OperatorError):
    """Changes after the watermark have been cleaned up at the source."""


class SourceRewoundError(OperatorError):
    """The source is behind the watermark: it was restored or failed over."""


class InstanceReplacedError(OperatorError):
    """The capture instance is not the one that was read before."""


class CaptureStoppedError(OperatorError):
    """The capture job does not run."""


class LoadStartError(OperatorError):
    """Java or Spark did not start: their installation or their options are wrong."""


class TableHeldError(OperatorError):
    """Every table of the pipeline is held because of a schema drift."""


class WatermarkConflictError(OperatorError):
    """Another run was faster, or still runs."""


class WarehouseAdminError(OperatorError):
    """The warehouse refused."""


class DataQualityError(FloodmarkError):
    """A rule or expectation is broken."""


class TransientError(FloodmarkError):
    """Trying again may help."""

    retryable: ClassVar[bool] = True


class SourceUnavailableError(TransientError):
    """The source cannot be reached or cut the connection."""


class WarehouseUnavailableError(TransientError):
    """The warehouse cannot be reached or cut the connection."""


class LoadKilledError(TransientError):
    """The load job ended without saying how: it was killed."""


class WindowBusyError(TransientError):
    """Another load of the same window is alive: when it has ended, the window is merged or free again."""


class TableBusyError(TransientError):
    """Transactions use the source table, so that its capture cannot be changed now."""


class NotCapturedYetError(TransientError):
    """The capture job has not yet processed the enabling of the table."""


class AlertNotSentError(TransientError):
    """A channel did not take the message; it is offered again when the alert is raised again."""


class FloodmarkBugError(FloodmarkError):
    """An invariant of ours is broken."""


class DuplicateKeyError(FloodmarkBugError):
    """A key stands twice in staging. Of a first load the source can explain it; of changes nothing can."""
