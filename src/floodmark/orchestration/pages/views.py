"""The entries of Floodmark in Airflow's menu *Browse*: its status page, and the data docs where they are served."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf

DATA_DOCS_URL_VARIABLE = "FLOODMARK_DATA_DOCS_URL"
PAGES_PREFIX = "/floodmark"
"""The path of Floodmark's own pages at Airflow's API server."""


def external_views(status_path: str) -> list[dict[str, Any]]:
    """Return the entries for ``AirflowPlugin.external_views``.

    The data docs are included where FLOODMARK_DATA_DOCS_URL gives the address at which they are served: a browser
    cannot open a folder of the server.
    """
    # Airflow may be served below a path, which a plugin's link must include.
    below = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    status = {
        "name": "Floodmark status",
        "href": f"{below}{PAGES_PREFIX}{status_path}",
        "destination": "nav",
        "category": "browse",
        "url_route": "floodmark_status",
    }
    url = os.environ.get(DATA_DOCS_URL_VARIABLE)
    docs = {"name": "Data quality", "href": url, "destination": "nav", "category": "browse"}
    return [status, *([docs] if url else [])]
