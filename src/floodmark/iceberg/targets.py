"""The targets of a lake for previews and for switches of capture instances: read from metadata, without a Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from floodmark.core.errors import ConfigError, TargetLostError, TargetRefusedError
from floodmark.core.plan import LoadKind, TablePlan
from floodmark.iceberg.lake import PUBLISHED, LakeCatalog
from floodmark.iceberg.limits import refuse_table
from floodmark.iceberg.metadata import read_metadata, refuse_lost
from floodmark.iceberg.tables import find_narrow, refuse_other_style

_SPARK_NAMES = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
"""Spark's names of Iceberg's types, where they differ."""


class LakeTargets:
    """The tables that readers see. It holds no session."""

    def __init__(self, catalog: LakeCatalog) -> None:
        self._catalog = catalog

    def check_target(self, plan: TablePlan) -> frozenset[str]:
        """Return the columns of the plan's target, none where the table does not exist yet.

        Raises ConfigError where a window with this plan could not be merged into it.
        """
        try:
            refuse_table(plan)
            if not self._catalog.exists():
                return frozenset()
            found = frozenset(self._check(plan))
            if plan.is_history:
                self._check(plan.ended_versions)
            return found
        except (TargetLostError, TargetRefusedError) as error:
            raise ConfigError(error.subject, error.message, error.hint) from None

    def _check(self, plan: TablePlan) -> Mapping[str, str]:
        found = self._catalog.read_locations([plan.target]).get((PUBLISHED, plan.target))
        if plan.kind is LoadKind.CHANGES or plan.where:
            refuse_lost(self._catalog.folder, plan, self._catalog.list_published([plan.target]).get(plan.target), found)
        metadata = read_metadata(self._catalog.folder, found)
        if metadata is None:
            return {}
        types = _read_types(metadata)
        refuse_other_style(plan, types)
        while free := [each for each in plan.columns if each.was in types and each.target not in types]:
            types[free[0].target] = types.pop(free[0].was)
        find_narrow(plan, types)
        return types


def _read_types(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of a table with Spark's names of their types; a list of texts is none that is widened."""
    [schema] = [each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"]]
    return {
        each["name"]: _SPARK_NAMES.get(each["type"], each["type"].replace(", ", ","))
        if isinstance(each["type"], str)
        else "array<string>"
        for each in schema["fields"]
    }
