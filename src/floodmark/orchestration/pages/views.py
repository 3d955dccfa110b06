"""What Floodmark adds to Airflow's menu *Browse*: its status page, and the data docs where they are served."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf

DATA_DOCS_URL_VARIABLE = "FLOODMARK_DATA_DOCS_URL"
PAGES_PREFIX = "/floodmark"
"""Where Floodmark's own pages are at Airflow's API server."""


def external_views(status_path: str) -> list[dict[str, Any]]:
    """For ``AirflowPlugin.external_views``. The data docs are among them where FLOODMARK_DATA_DOCS_URL says at which
    address they are served: a page of the browser cannot open a folder of this machine."""
    # Airflow may be served below a path, which a link of a plugin has to name.
    below = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    status = {
        "name": "Floodmark status", "href": f"{below}{PAGES_PREFIX}{status_path}", "destination": "nav",
        "category": "browse", "url_route": "floodmark_status",
    }  # fmt: skip
    url = os.environ.get(DATA_DOCS_URL_VARIABLE)
    docs = {"name": "Data quality", "href": url, "destination": "nav", "category": "browse"}
    return [status, *([docs] if url else [])]
