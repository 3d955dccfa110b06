"""What Floodmark adds to Airflow's pages: a link to the data docs, where they are served at an address."""

from __future__ import annotations

import os
from typing import Any

DATA_DOCS_URL_VARIABLE = "FLOODMARK_DATA_DOCS_URL"


def external_views() -> list[dict[str, Any]]:
    """For ``AirflowPlugin.external_views``. Empty unless FLOODMARK_DATA_DOCS_URL says where the data docs are served:
    a page of the browser cannot open a folder of this machine."""
    url = os.environ.get(DATA_DOCS_URL_VARIABLE)
    if not url:
        return []
    return [{"name": "Data quality", "href": url, "destination": "nav", "category": "browse"}]
