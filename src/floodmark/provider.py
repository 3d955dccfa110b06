"""Floodmark as a provider of Airflow, by the entry point ``apache_airflow_provider`` of the package."""

from __future__ import annotations

PACKAGE = "floodmark"
_FLAG = {"type": ["boolean", "null"]}
_TEXT = {"type": ["string", "null"]}
_SQL_SERVER_FIELDS = {
    "encrypt": {"label": "Encrypt", "schema": _TEXT | {"enum": ["yes", "strict", "no"]}},
    "trust_server_certificate": {"label": "Trust any server certificate", "schema": _FLAG},
    "ca_file": {"label": "File (PEM) with the only trusted authorities", "schema": _TEXT},
    "application_intent": {"label": "Application intent", "schema": _TEXT | {"enum": ["ReadWrite", "ReadOnly"]}},
    "multi_subnet_failover": {"label": "Multi-subnet failover", "schema": _FLAG},
}


def get_provider_info() -> dict[str, object]:
    """Return what ``airflow providers list`` shows, the hook of Floodmark's connections, and what reads asset URIs.

    Its form is Airflow's ``provider_info.schema.json``.
    """
    return {
        "package-name": PACKAGE,
        "name": "Floodmark",
        "description": "SQL Server change data capture into a warehouse, in batches, on Airflow and Spark",
        "asset-uris": [
            {
                "schemes": ["floodmark"],
                "handler": None,
                "to_openlineage_converter": "floodmark.orchestration.asset_lineage.dataset_of_asset",
            }
        ],
        "connection-types": [
            {
                "connection-type": "floodmark_mssql",
                "hook-class-name": "floodmark.orchestration.mssql_hook.FloodmarkMsSqlHook",
                "hook-name": "Microsoft SQL Server (Floodmark)",
                "ui-field-behaviour": {"relabeling": {"schema": "Database"}},
                "conn-fields": _SQL_SERVER_FIELDS,
            }
        ],
    }
