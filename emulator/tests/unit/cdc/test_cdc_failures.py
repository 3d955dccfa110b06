"""Reports of a failure below CDC (docs/reference/sqlserver_cdc.md, "Errors"): 22830 to 22833 quote it; CDC's own
errors stay theirs."""

from __future__ import annotations

import pytest

from sqlserver_emulator.cdc.messages import cdc_error
from sqlserver_emulator.cdc.procedures.results import quoted_failure
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError


def _quoted(number: int, raised: SqlServerError) -> SqlServerError:
    with pytest.raises(SqlServerError) as caught, quoted_failure(number, "[dbo].[t]", "the command"):
        raise raised
    return caught.value


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (22830, "database [dbo].[t] is enabled"),
        (22831, "database [dbo].[t] is not enabled"),
        (22832, "table [dbo].[t] is enabled"),
        (22833, "table [dbo].[t] is not enabled"),
    ],
)
def test_deadlock_inside_is_quoted(number: int, what: str) -> None:
    """EST: clients search it for the text of 1205."""
    deadlock = "Transaction (Process ID 52) was deadlocked on lock resources with another process."
    error = _quoted(number, SqlServerError(1205, deadlock, severity=13))
    assert (error.number, error.severity, error.state) == (number, 16, 1)
    assert error.message.startswith(
        f"Could not update the metadata that indicates {what} for Change Data Capture. The failure occurred when"
        f" executing the command 'the command'. The error returned was 1205: '{deadlock}'."
    )


@pytest.mark.parametrize(
    "own",
    [cdc_error(22939), NotSupportedByEmulatorError("this"), SqlServerError(596, "gone", severity=21)],
    ids=["of CDC", "not supported", "end of the session"],
)
def test_other_failures_are_reported_as_they_are(own: SqlServerError) -> None:
    assert _quoted(22832, own) is own
