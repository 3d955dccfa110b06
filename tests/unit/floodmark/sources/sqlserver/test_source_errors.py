"""Every error number a pipeline can meet has an error of ours."""

import re

import pymssql
import pytest

from floodmark.core.errors import (
    CdcNotEnabledError,
    FloodmarkBugError,
    FloodmarkError,
    SourceAdminError,
    SourceLoginError,
    SourcePermissionError,
    SourceUnavailableError,
    WindowExpiredError,
)
from floodmark.sources.sqlserver import errors

MET_BY_A_READER = """
18456 4060 911 916 229 230 262 297 300 22981 22904 208 2812 22901 22931 22960 22985 313 314 207 1205 1222 3960 701 8645
976 978 983 601 823 824 4221 35250 6005 17142 922 40197 40501 40613 49918 10928 596 10054
3906 20003 20004 20006 20009 20017 20047 241 2628 8115 41145 22105 22117 3952
"""


@pytest.mark.parametrize("number", [int(text) for text in MET_BY_A_READER.split()])
def test_number_that_a_reader_can_meet_is_mapped(number: int) -> None:
    assert not isinstance(errors.by_number("dbo.T", number, "text"), FloodmarkBugError)


@pytest.mark.parametrize(
    ("number", "kind", "retryable"),
    [
        (18456, SourceLoginError, False),
        (4060, SourceLoginError, False),
        (229, SourcePermissionError, False),
        (22981, SourcePermissionError, False),
        (208, CdcNotEnabledError, False),
        (22105, CdcNotEnabledError, False),
        (22117, SourceAdminError, False),
        (3952, SourceUnavailableError, True),
        (313, WindowExpiredError, False),
        (1205, SourceUnavailableError, True),
        (1222, SourceUnavailableError, True),
    ],
)
def test_number_becomes_the_error_of_who_must_act(number: int, kind: type[FloodmarkError], retryable: bool) -> None:
    error = errors.by_number("dbo.Orders", number, "Anmeldung fehlgeschlagen")
    assert type(error) is kind
    assert error.retryable is retryable
    assert re.match(rf"dbo\.Orders: .*{number}: Anmeldung fehlgeschlagen\.( \S|$)", str(error))
    assert error.hint or retryable


@pytest.mark.parametrize("number", [245, 8114, 241, 2628, 8115, 123456])
def test_values_of_rows_that_the_server_quotes_are_in_no_message(number: int) -> None:
    error = errors.by_number("dbo.Orders", number, "Conversion failed when converting the varchar value '4711'")
    assert "4711" not in str(error)
    assert str(number) in str(error)
    assert ("4711" in error.in_full) is (number not in (245, 2628))


@pytest.mark.parametrize(
    ("number", "message", "kind"),
    [
        (22832, "… is enabled … The error returned was 1222: 'Lock request time out'", SourceUnavailableError),
        (22833, "… The error returned was 1205: 'Deadlock'", SourceUnavailableError),
        (22832, "… Table [dbo].[1222]. Der Fehler war 9002: 'Das Protokoll ist voll'", SourceAdminError),
        (22832, "whatever", SourceAdminError),
        (22840, "The value returned from the request was -1", SourceUnavailableError),
    ],
)
def test_error_of_a_change_of_capture_is_as_what_it_quotes(
    number: int, message: str, kind: type[FloodmarkError]
) -> None:
    assert type(errors.by_number("dbo.Orders", number, message)) is kind


def test_unknown_number_is_our_bug_and_names_the_number() -> None:
    error = errors.by_number("dbo.Orders", 123456, "what")
    assert type(error) is FloodmarkBugError
    assert "123456" in str(error)


@pytest.mark.parametrize("outcomes", [errors.BY_NUMBER, errors.AT_CONNECT, errors.AT_CLIENT])
def test_outcome_is_an_error_of_the_tree_with_a_hint_unless_a_retry_is_enough(outcomes: dict) -> None:
    for kind, hint in outcomes.values():
        assert issubclass(kind, FloodmarkError)
        assert hint or kind.retryable


@pytest.mark.parametrize("state", sorted({*errors.AT_CONNECT, *errors.AT_CLIENT}))
def test_sqlstate_is_recognised_by_the_text_that_mssql_python_has_for_it(state: str) -> None:
    from mssql_python.exceptions import sqlstate_to_exception

    from floodmark.sources.sqlserver.driver import _sqlstate

    assert _sqlstate(sqlstate_to_exception(state, "anything"), sorted({*errors.AT_CONNECT, *errors.AT_CLIENT})) == state


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (pymssql.OperationalError((18456, b"Login failed")), 18456),
        (pymssql.OperationalError(313, b"An insufficient number"), 313),
        (pymssql.ProgrammingError(((208, b"Invalid object name"),)), 208),
        (pymssql.InterfaceError("Connection is closed."), None),
    ],
)
def test_pymssql_error_gives_its_number(error: Exception, number: int | None) -> None:
    assert errors.pymssql_number(error) == number
