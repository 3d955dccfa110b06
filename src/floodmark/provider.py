"""Floodmark as a provider of Airflow, by the entry point ``apache_airflow_provider`` of the package."""

from __future__ import annotations

PACKAGE = "floodmark"


def get_provider_info() -> dict[str, object]:
    """Return what ``airflow providers list`` shows, and what reads the URIs of the targets' assets.

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
    }
