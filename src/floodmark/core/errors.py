"""Every error Floodmark raises, sorted by who must act.

FloodmarkError
├── ConfigError            the author of pipelines.yaml
│   └── TableNotPlannableError the next window of a table cannot be planned (verdict not_plannable)
│       └── DefinitionChangedError its columns or filter are not those of its target (verdict definition_changed)
├── SourceAdminError       the DBA of the source
│   ├── SourceLoginError       wrong user or password, database not open to the login
│   ├── SourcePermissionError  a right is missing
│   ├── CdcNotEnabledError     database or table not tracked, unknown table
│   └── NoKeyError             neither a primary key nor a declared key
├── OperatorError          the operator
│   ├── OtherDatabaseError     the connection leads to another database (verdict other_database)
│   ├── WindowExpiredError     the validity interval has passed the watermark (verdict expired)
│   ├── SourceRewoundError     the watermark is ahead of the source (verdict ahead_of_source)
│   ├── TargetLostError        the target is not the one that the watermark belongs to (verdict target_lost)
│   ├── InstanceReplacedError  another capture instance has the name (verdict instance_replaced)
│   ├── CaptureStoppedError    the capture job does not run (verdict capture_stopped)
│   ├── TableRefusedError      the load refused a table (verdict refused)
│   ├── LoadStartError         Java or Spark did not start, so that the load job never began
│   ├── TableHeldError         schema drift holds every table (verdict held)
│   ├── WatermarkConflictError another run moved the watermark or holds the window
│   └── WarehouseAdminError    login, rights or space in the warehouse
│       └── TargetRefusedError     a right, a constraint or an object in the warehouse is in the way of one target
├── DataQualityError       the owner of the data
├── TransientError         no one: it is retried
│   ├── SourceUnavailableError
│   ├── SourceBehindError      the copy of the database that answered does not have what was planned
│   ├── WarehouseUnavailableError
│   ├── LoadKilledError        the load job was stopped before it reported its result
│   ├── WindowBusyError        another load of the window is running
│   ├── TableBusyError         transactions use the source table, so that its capture cannot be changed now
│   ├── NotCapturedYetError    the capture job has not reached the table (verdict not_captured_yet)
│   └── AlertNotSentError      a channel of the alerts did not accept a message
└── FloodmarkBugError      the developers of Floodmark
    └── DuplicateKeyError      duplicate key in staging

The message starts with the table (or the pipeline, where several tables are concerned), reports what happened, and ends
with what to do. It never contains a password or a value of a row. A server's message that is not for others is the
error's ``detail``, which only the log of the process that received it shows. It has no value of a row either.
"""

from __future__ import annotations

import shlex
from typing import ClassVar


def command_line(*words: object) -> str:
    """Return a command of Floodmark for a hint. Words are quoted for a shell: a table may have a blank in its name."""
    return shlex.join(["floodmark", *map(str, words)])


class FloodmarkError(Exception):
    """An error with its subject, what happened, and what to do. It survives pickling between Spark processes.

    ``subject`` is the table or pipeline, ``hint`` what to do. ``detail``, such as the message of a server, is
    in no text of the error except ``in_full``, and in no alert. It has no value of a row.
    """

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
        """Return the message with its detail, for the log of a task and for a terminal only."""
        return f"{self} ({self.detail})" if self.detail else str(self)


class ConfigError(FloodmarkError):
    """The configuration is wrong."""


class TableNotPlannableError(ConfigError):
    """The next window of a table cannot be planned: its configuration and its capture do not fit."""


class DefinitionChangedError(TableNotPlannableError):
    """The columns of a table or its filter have other settings than those with which its target was loaded."""


class SourceAdminError(FloodmarkError):
    """Something must change at the source."""


class SourceLoginError(SourceAdminError):
    """The source refused the login."""


class SourcePermissionError(SourceAdminError):
    """The login lacks a right at the source."""


class CdcNotEnabledError(SourceAdminError):
    """The database or the table is not tracked."""


class SourceDamagedError(SourceAdminError):
    """A file of the source is damaged: it is cut off, or its parts do not fit."""


class NoKeyError(SourceAdminError):
    """The table has no key to merge by."""


class OperatorError(FloodmarkError):
    """The operator has to decide or repair something."""


class OtherDatabaseError(OperatorError):
    """The connection leads to another database than the one that the watermarks are of."""


class WindowExpiredError(OperatorError):
    """Changes after the watermark have been cleaned up at the source."""


class SourceRewoundError(OperatorError):
    """The source is behind the watermark: it was restored or failed over."""


class TargetLostError(OperatorError):
    """The target is not the table that the watermark belongs to."""


class InstanceReplacedError(OperatorError):
    """The capture instance is not the one that was read before."""


class CaptureStoppedError(OperatorError):
    """The capture job does not run."""


class UnknownFormatError(OperatorError):
    """The source sends a version of its format that this Floodmark cannot read."""


class TableRefusedError(OperatorError):
    """The load of a window refused a table."""


class LoadStartError(OperatorError):
    """Java or Spark did not start: their installation or their options are wrong."""


class TableHeldError(OperatorError):
    """Every table of the pipeline is held because of a schema drift."""


class WatermarkConflictError(OperatorError):
    """Another run moved the watermark first, or is still running."""


class WarehouseAdminError(OperatorError):
    """The warehouse refused the login, a right or the space."""


class TargetRefusedError(WarehouseAdminError):
    """The target refused rows or a change of its columns: a constraint, a dependent object, a missing right."""


class DataQualityError(FloodmarkError):
    """A rule or expectation is broken."""


class TransientError(FloodmarkError):
    """A retry may succeed."""

    retryable: ClassVar[bool] = True


class SourceUnavailableError(TransientError):
    """The source cannot be reached or cut the connection."""


class SourceBehindError(TransientError):
    """The copy of the database that answered does not have what was planned."""


class WarehouseUnavailableError(TransientError):
    """The warehouse cannot be reached or cut the connection."""


class LoadKilledError(TransientError):
    """The load job ended without reporting a result: it was killed."""


class WindowBusyError(TransientError):
    """Another load of the same window is running: when it has ended, the window is merged or free again."""


class TableBusyError(TransientError):
    """Transactions use the source table, so that its capture cannot be changed now."""


class NotCapturedYetError(TransientError):
    """The capture job has not processed sp_cdc_enable_table for the table yet."""


class AlertNotSentError(TransientError):
    """A channel did not accept the message; it is sent again when the alert is raised again."""


class FloodmarkBugError(FloodmarkError):
    """An invariant of Floodmark is violated."""


class DuplicateKeyError(FloodmarkBugError):
    """A duplicate key in staging. In a first load the source can cause it; in changes nothing can."""
