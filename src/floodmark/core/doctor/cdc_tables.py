"""The checks of ``doctor`` on one table with CDC: its instance, rights, net changes, command ids and columns."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.doctor.finding import Finding, Grade
from floodmark.core.doctor.server_facts import CdcFacts
from floodmark.core.doctor.tables import examine_key, examine_types, examine_verdict, examine_view, refused_net
from floodmark.core.policies import NetSource
from floodmark.core.position import Position
from floodmark.core.settings import TableSettings
from floodmark.core.source.scripts import bracket, disable_instance, enable_table, grant_select
from floodmark.core.source.snapshot import CaptureInstance, TableSnapshot, Validity, Verdict, WiderInstance


def examine_table(
    settings: TableSettings, validity: Validity, table_snapshot: TableSnapshot, facts: CdcFacts
) -> Iterator[Finding]:
    """Yield the findings on a table. Without a capture instance, only those that need none."""
    subject = str(settings.source)
    instance = table_snapshot.instance
    feed = instance.identity.name if instance else ""
    yield from examine_verdict(settings, validity, feed, _fix_of_verdict(settings, validity, facts))
    if instance is None:
        return
    yield from _role(subject, table_snapshot, facts)
    yield from examine_key(settings, instance)
    yield from _net(settings, instance)
    yield from _instance(settings, instance, table_snapshot.wider)
    yield from _columns(settings, instance, facts)
    yield from examine_types(settings, instance)
    yield from examine_view(settings, table_snapshot, facts.user)
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


def _fix_of_verdict(settings: TableSettings, validity: Validity, facts: CdcFacts) -> str:
    name = settings.source
    if validity.verdict is Verdict.INSTANCE_MISSING:
        return enable_table(name)
    if validity.verdict is Verdict.NO_PERMISSION:
        change_table = f"{settings.capture_instance or f'{name.schema}_{name.name}'}_CT"
        return f"{grant_select(name.schema, name.name, facts.user)} {grant_select('cdc', change_table, facts.user)}"
    return validity.hint


def _role(subject: str, table_snapshot: TableSnapshot, facts: CdcFacts) -> Iterator[Finding]:
    """Yield the finding on the gating role of the instance.

    A login that can read where an instance begins may read its changes: as a member of its role, or as db_owner
    (docs/reference/sqlserver_cdc.md, "Scalar functions").
    """
    assert table_snapshot.instance is not None  # noqa: S101  (ensured by examine_table)
    name = table_snapshot.instance.identity.name
    role = facts.roles.get(name)
    if role and isinstance(table_snapshot.min_lsn, Position):
        text = f"capture instance {name} is gated by role {role}, and the login may read it."
        yield Finding(Grade.GOOD, "permissions", subject, text)
    elif role:
        text = f"capture instance {name} is gated by role {role}, which the login must be a member of."
        fix = f"ALTER ROLE {bracket(role)} ADD MEMBER {bracket(facts.user)};"
        yield Finding(Grade.NOTE, "permissions", subject, text, fix)


def _net(settings: TableSettings, instance: CaptureInstance) -> Iterator[Finding]:
    subject, name = str(settings.source), instance.identity.name
    if instance.supports_net_changes and (refused := refused_net(settings, instance)):
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


def _instance(settings: TableSettings, instance: CaptureInstance, wider: WiderInstance | None) -> Iterator[Finding]:
    """Yield the finding on an instance that nobody chose, and that has fewer columns than an older one."""
    if wider is not None and settings.capture_instance is None:
        name = instance.identity.name
        yield Finding(Grade.RISK, "captured columns", str(settings.source), wider.describe(name), wider.advise(name))


def _columns(settings: TableSettings, instance: CaptureInstance, facts: CdcFacts) -> Iterator[Finding]:
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
