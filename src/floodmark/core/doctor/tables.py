"""The checks of ``doctor`` on one table: its instance, rights, key, net changes, command ids and columns."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.doctor.finding import Finding, Grade
from floodmark.core.doctor.server_facts import ServerFacts
from floodmark.core.errors import ConfigError, FloodmarkError, NoKeyError
from floodmark.core.lsn import Lsn
from floodmark.core.policies import NetSource, SecurityFiltered
from floodmark.core.settings import TableSettings
from floodmark.core.source.scripts import bracket, disable_instance, enable_table, grant_select
from floodmark.core.source.snapshot import CaptureInstance, TableSnapshot, Validity, Verdict
from floodmark.core.source.verdicts import INCIDENTS
from floodmark.core.types import warehouse_type
from floodmark.core.window.net_source import check_net
from floodmark.core.window.planning import with_key
from floodmark.core.window.readers_view import grant_unmask, list_masked


def examine_table(
    settings: TableSettings, validity: Validity, table_snapshot: TableSnapshot, facts: ServerFacts
) -> Iterator[Finding]:
    """Yield the findings on a table. Without a capture instance, only those that need none."""
    subject = str(settings.source)
    if validity.verdict in INCIDENTS:
        check = "permissions" if validity.verdict is Verdict.NO_PERMISSION else "instance"
        yield Finding(Grade.PROBLEM, check, subject, validity.cause, _fix_of_verdict(settings, validity, facts))
    instance = table_snapshot.instance
    if instance is None:
        return
    if validity.verdict not in INCIDENTS:
        # Without the ledger, it is unknown what has been read: every table counts as not started here.
        state = "can be read" if validity.verdict is Verdict.NOT_STARTED else validity.verdict.value
        yield Finding(Grade.GOOD, "instance", subject, f"{instance.identity.name}: {state}.")
    yield from _role(subject, table_snapshot, facts)
    yield from _key(settings, instance)
    yield from _net(settings, instance)
    yield from _columns(settings, instance, facts)
    yield from _view_of_reader(settings, table_snapshot, facts)
    if not instance.has_command_id:
        yield Finding(
            Grade.RISK,
            "command id",
            subject,
            "its change table has no __$command_id: the order of changes within a transaction is uncertain.",
            "Install a current cumulative update of SQL Server, then in this database: EXEC sys.sp_cdc_vupgrade;",
        )
    else:
        yield Finding(Grade.GOOD, "command id", subject, "changes within a transaction have an order.")


def _view_of_reader(settings: TableSettings, table_snapshot: TableSnapshot, facts: ServerFacts) -> Iterator[Finding]:
    """Yield the findings on values and rows that the source hides from the login."""
    subject = str(settings.source)
    if masked := list_masked(table_snapshot):
        text = f"the login reads masks in place of the values of {', '.join(masked)}: the table is not loaded."
        fix = grant_unmask(settings.source, bracket(facts.user))
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


def _fix_of_verdict(settings: TableSettings, validity: Validity, facts: ServerFacts) -> str:
    name = settings.source
    if validity.verdict is Verdict.INSTANCE_MISSING:
        return enable_table(name)
    if validity.verdict is Verdict.NO_PERMISSION:
        change_table = f"{settings.capture_instance or f'{name.schema}_{name.name}'}_CT"
        return f"{grant_select(name.schema, name.name, facts.user)} {grant_select('cdc', change_table, facts.user)}"
    return validity.hint


def _role(subject: str, table_snapshot: TableSnapshot, facts: ServerFacts) -> Iterator[Finding]:
    """Yield the finding on the gating role of the instance.

    A login that can read where an instance begins may read its changes: as a member of its role, or as db_owner
    (docs/reference/sqlserver_cdc.md, "Scalar functions").
    """
    assert table_snapshot.instance is not None  # noqa: S101  (ensured by examine_table)
    name = table_snapshot.instance.identity.name
    role = facts.roles.get(name)
    if role and isinstance(table_snapshot.min_lsn, Lsn):
        text = f"capture instance {name} is gated by role {role}, and the login may read it."
        yield Finding(Grade.GOOD, "permissions", subject, text)
    elif role:
        text = f"capture instance {name} is gated by role {role}, which the login must be a member of."
        fix = f"ALTER ROLE {bracket(role)} ADD MEMBER {bracket(facts.user)};"
        yield Finding(Grade.NOTE, "permissions", subject, text, fix)


def _key(settings: TableSettings, instance: CaptureInstance) -> Iterator[Finding]:
    subject = str(settings.source)
    try:
        found = with_key(settings, instance)
    except NoKeyError as error:
        yield Finding(Grade.PROBLEM, "key", subject, error.message, error.hint)
    else:
        yield Finding(Grade.GOOD, "key", subject, f"rows are merged by ({', '.join(found.table.key)}).")


def _net(settings: TableSettings, instance: CaptureInstance) -> Iterator[Finding]:
    subject, name = str(settings.source), instance.identity.name
    if instance.supports_net_changes and (refused := _refused_net(settings, instance)):
        yield Finding(Grade.PROBLEM, "net changes", subject, refused.message, refused.hint)
    elif instance.supports_net_changes:
        yield Finding(Grade.GOOD, "net changes", subject, f"{name} supports them; computed by {settings.net.value}.")
    elif settings.net is NetSource.SERVER:
        yield Finding(
            Grade.PROBLEM,
            "net changes",
            subject,
            f"net: server, but {name} does not support net changes.",
            "Set net: spark in pipelines.yaml; or create the instance again, then reload the table: "
            f"{disable_instance(settings.source, name)} {enable_table(settings.source, net_changes=True)}",
        )
    else:
        yield Finding(Grade.GOOD, "net changes", subject, "computed in Spark; the server has no index for them.")


def _refused_net(settings: TableSettings, instance: CaptureInstance) -> FloodmarkError | None:
    try:
        check_net(settings, with_key(settings, instance), instance.table.key)
    except NoKeyError:  # found by _key
        return None
    except ConfigError as error:
        return error
    return None


def _columns(settings: TableSettings, instance: CaptureInstance, facts: ServerFacts) -> Iterator[Finding]:
    subject, columns = str(settings.source), instance.table.columns
    computed = [column.name for column in columns if column.is_computed]
    if computed:
        text = f"computed columns ({', '.join(computed)}) are NULL in the change table; the target does not have them."
        yield Finding(Grade.NOTE, "computed columns", subject, text, "Compute them in the warehouse.")
    others = facts.other_collations.get(settings.source)
    if others:
        yield Finding(
            Grade.RISK,
            "collation",
            subject,
            f"{', '.join(others)}: not the collation of the database, {facts.collation}; characters beyond ASCII may"
            " be wrong in the change table.",
            "Change the columns to nvarchar, or to the collation of the database.",
        )
    for column in instance.table.stored_columns:
        try:
            warehouse_type(instance.table, column, settings.temporal)
        except FloodmarkError as error:
            yield Finding(Grade.PROBLEM, "types", subject, error.message, error.hint)
