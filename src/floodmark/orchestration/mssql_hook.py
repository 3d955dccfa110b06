"""``FloodmarkMsSqlHook``: Airflow's hook for SQL Server on Floodmark's driver, for the connections of Floodmark.

The provider's hook passes every extra to pymssql, which takes none of those about TLS and availability groups. A module
of its own: Airflow imports it by its path, and nothing else should.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.common.sql.hooks.sql import DbApiHook
from airflow.providers.microsoft.mssql.hooks.mssql import MsSqlHook
from sqlalchemy import Engine, create_engine

from floodmark.app.connections import open_source_database


class FloodmarkMsSqlHook(MsSqlHook):  # type: ignore[misc]
    """A hook that connects as Floodmark does: the same extras, certificates, time limits and messages.

    Airflow makes it for a connection of type floodmark_mssql; by its class it takes one of type mssql too. Extras of a
    connection that Floodmark does not take raise ConfigError.
    """

    conn_type = "floodmark_mssql"
    hook_name = "Microsoft SQL Server (Floodmark)"
    _placeholder = "?"

    def get_conn(self) -> Any:
        """Return a connection of mssql-python, with transactions. Raises from ``core.errors``."""
        found = open_source_database(self.get_conn_id(), self.schema)
        found.autocommit = False
        return found

    # pymssql has methods for it; mssql-python has the attribute that Airflow expects.
    set_autocommit = DbApiHook.set_autocommit
    get_autocommit = DbApiHook.get_autocommit

    def get_sqlalchemy_engine(self, engine_kwargs: dict[str, Any] | None = None) -> Engine:
        """Return an engine over ``get_conn``. Raises NoSuchModuleError with SQLAlchemy before 2.1."""
        return create_engine("mssql+mssqlpython://", creator=self.get_conn, **(engine_kwargs or {}))
