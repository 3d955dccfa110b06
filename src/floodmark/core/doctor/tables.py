"""The checks of ``doctor`` on one table that are the same for each kind of source: key, columns, and the view of the
login."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.doctor.finding import Finding, Grade
from floodmark.core.errors import ConfigError, FloodmarkError, NoKeyError
from floodmark.core.policies import SecurityFiltered
from floodmark.core.settings import TableSettings
from floodmark.core.source.scripts import bracket
from floodmark.core.source.snapshot import CaptureInstance, TableSnapshot, Validity, Verdict
from floodmark.core.source.verdicts import INCIDENTS
from floodmark.core.types import warehouse_type
from floodmark.core.window.net_source import check_net
from floodmark.core.window.planning import with_key
from floodmark.core.window.readers_view import grant_unmask, list_masked


def examine_verdict(settings: TableSettings, validity: Validity, feed: str, fix: str) -> Iterator[Finding]:
    """Yield the finding on the verdict.

    feed: what is read, "" where the table has none. fix: the statements that make it readable.
    """
    subject = str(settings.source)
    if validity.verdict in INCIDENTS:
        check = "permissions" if validity.verdict is Verdict.NO_PERMISSION else "instance"
        yield Finding(Grade.PROBLEM, check, subject, validity.cause, fix)
    elif feed:
        # Without the ledger, it is unknown what has been read: every table counts as not started here.
        state = "can be read" if validity.verdict is Verdict.NOT_STARTED else validity.verdict.value
        yield Finding(Grade.GOOD, "instance", subject, f"{feed}: {state}.")


def examine_key(settings: TableSettings, instance: CaptureInstance) -> Iterator[Finding]:
    """Yield the finding on the columns by which rows are merged."""
    subject = str(settings.source)
    try:
        found = with_key(settings, instance)
    except NoKeyError as error:
        yield Finding(Grade.PROBLEM, "key", subject, error.message, error.hint)
    else:
        yield Finding(Grade.GOOD, "key", subject, f"rows are merged by ({', '.join(found.table.key)}).")


def refused_net(settings: TableSettings, instance: CaptureInstance) -> FloodmarkError | None:
    """Return why the source's net changes cannot be merged, None where they can."""
    try:
        check_net(settings, with_key(settings, instance), instance.table.key)
    except NoKeyError:  # found by examine_key
        return None
    except ConfigError as error:
        return error
    return None


def examine_types(settings: TableSettings, instance: CaptureInstance) -> Iterator[Finding]:
    """Yield a finding on each column of a type that cannot be carried."""
    subject = str(settings.source)
    for column in instance.table.stored_columns:
        try:
            warehouse_type(instance.table, column, settings.temporal)
        except FloodmarkError as error:
            yield Finding(Grade.PROBLEM, "types", subject, error.message, error.hint)


def examine_view(settings: TableSettings, table_snapshot: TableSnapshot, user: str) -> Iterator[Finding]:
    """Yield the findings on values and rows that the source hides from the login."""
    subject = str(settings.source)
    if masked := list_masked(table_snapshot):
        text = f"the login reads masks in place of the values of {', '.join(masked)}: the table is not loaded."
        fix = grant_unmask(settings.source, bracket(user))
        yield Finding(Grade.PROBLEM, "masked columns", subject, text, fix)
    if not table_snapshot.filters:
        return
    policies = ", ".join(table_snapshot.filters)
    if settings.security_filtered is SecurityFiltered.ACCEPT:
        text = f"security policy {policies} filters its rows, as accepted: loads read what the login may see."
        yield Finding(Grade.NOTE, "security policy", subject, text, "Expect differences from floodmark verify.")
    else:
        text = f"security policy {policies} filters its rows: the table is not loaded."
        fix = "Let the login see all rows in the policy's predicate, or set security_filtered: accept for the table."
        yield Finding(Grade.PROBLEM, "security policy", subject, text, fix)
