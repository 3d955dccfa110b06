"""The minimum rights of a login at a source with CDC, as a script for its DBA."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from floodmark.core.policies import NetSource
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.scripts import bracket, grant_select, literal
from floodmark.core.source.snapshot import SourceSnapshot


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A table that a pipeline reads."""

    table: TableName
    instance: str | None
    """None: the login cannot see its capture instance."""
    uses_net_function: bool = False
    """Whether net changes are read from the server's function."""

    @property
    def default_instance(self) -> str:
        """Return the name that the capture instance has if no other was chosen."""
        return f"{self.table.schema}_{self.table.name}"


def list_read_tables(settings: PipelineSettings, snapshot: SourceSnapshot) -> list[ReadTable]:
    """Return the tables of a pipeline with the capture instances that a snapshot shows."""
    return [
        ReadTable(
            table.source,
            table_snapshot.instance.identity.name if table_snapshot.instance else table.capture_instance,
            table.net is NetSource.SERVER,
        )
        for table, table_snapshot in zip(settings.tables, snapshot.tables, strict=True)
    ]


def build_grants(database: str, login: str, tables: Iterable[ReadTable], roles: Mapping[str, str]) -> str:
    """Return the script in T-SQL, which may be run repeatedly.

    roles: the gating role by capture instance. SELECT on a table is needed even where only its changes are read: the
    server shows an instance to no other login.
    """
    user = bracket(login)
    lines = [
        f"-- All rights that Floodmark needs with login {login}. To be run by the DBA.",
        f"USE {bracket(database)};",
        create_user(login),
    ]
    for each in sorted(set(tables), key=lambda each: each.table):
        instance = each.instance or each.default_instance
        if each.instance is None:
            lines.append(f"-- {each.table}: its capture instance cannot be seen; {instance} is the name by default.")
        lines.append(grant_select(each.table.schema, each.table.name, login))
        lines.append(grant_select("cdc", f"{instance}_CT", login))
        if each.uses_net_function:
            lines.append(grant_select("cdc", f"fn_cdc_get_net_changes_{instance}", login))
        if role := roles.get(instance):
            lines.append(f"ALTER ROLE {bracket(role)} ADD MEMBER {user};")
    lines += [
        "-- To see whether the capture job runs, and how long changes are kept. Not on Azure SQL Database.",
        "USE msdb;",
        create_user(login),
        grant_select("dbo", "cdc_jobs", login),
        grant_select("dbo", "sysjobactivity", login),
    ]
    return "\n".join(lines) + "\n"


def create_user(login: str) -> str:
    """Return the statement that creates the user of a login where there is none."""
    name = bracket(login)
    return f"IF DATABASE_PRINCIPAL_ID({literal(login)}) IS NULL CREATE USER {name} FOR LOGIN {name};"
