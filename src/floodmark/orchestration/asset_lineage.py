"""The targets' assets as datasets of OpenLineage, for Airflow: a task may have an asset as its inlet or outlet.

Airflow imports this module in every process that knows assets, so it imports nothing of OpenLineage before a call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from floodmark.core.schema import TableName

if TYPE_CHECKING:
    from airflow.sdk import Asset
    from openlineage.client.event_v2 import Dataset as LineageDataset

    from floodmark.core.schema import Dataset


def dataset_of_asset(asset: Asset, lineage_context: object) -> LineageDataset:
    """Return the target of an asset ``floodmark://<pipeline>/<schema>/<table>``.

    Raises ConfigError where the configuration or the connection of the warehouse is wrong; Airflow then leaves the
    dataset out of the event.
    """
    from openlineage.client.event_v2 import Dataset as LineageDataset  # noqa: PLC0415  (see above)

    from floodmark.app.pipeline import config_path  # noqa: PLC0415  (see above)

    _, schema, name = asset.uri.removeprefix("floodmark://").split("/")
    found = _name_targets(config_path())(TableName(unquote(schema), unquote(name)))
    return LineageDataset(found.namespace, found.name)


@cache
def _name_targets(config: Path) -> Callable[[TableName], Dataset]:
    """Return the function that names targets. It is kept, since an event may have hundreds of them."""
    from floodmark.app.pipeline import App  # noqa: PLC0415  (see above)
    from floodmark.config.loading import load_config  # noqa: PLC0415  (see above)

    return App(load_config(config, parse_rules=False)).name_target
