"""The parts of ``pipelines.yaml`` about schema drift: how often a source is checked, and the policy for each class."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from floodmark.config.fields import Cron
from floodmark.core.policies import ALLOWED, DriftClass, DriftPolicies, DriftPolicy


class DriftWatchConfig(BaseModel):
    """The section ``drift`` of a source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schedule: Cron | None = "*/5 * * * *"
    """The schedule of the source's drift DAG, in UTC; None to run it on demand only."""


class DriftConfig(BaseModel):
    """A policy for each class of drift.

    A policy of a table that is not set comes from the pipeline, and otherwise from ``core.policies.ALLOWED``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    column_added: DriftPolicy | None = None
    column_dropped: DriftPolicy | None = None
    type_widened: DriftPolicy | None = None
    type_narrowed: DriftPolicy | None = None
    type_changed: DriftPolicy | None = None
    nullability_changed: DriftPolicy | None = None
    key_changed: DriftPolicy | None = None
    table_renamed: DriftPolicy | None = None
    table_dropped: DriftPolicy | None = None
    cdc_disabled: DriftPolicy | None = None
    instance_replaced: DriftPolicy | None = None
    unknown: DriftPolicy | None = None

    @field_validator("*")
    @classmethod
    def _check_policy(cls, value: DriftPolicy | None, info: ValidationInfo) -> DriftPolicy | None:
        allowed = ALLOWED[DriftClass(info.field_name)]
        if value is not None and value not in allowed:
            raise ValueError(f"{value.value} is not an allowed policy (expected {', '.join(p.value for p in allowed)})")
        return value

    def chosen(self) -> dict[DriftClass, DriftPolicy]:
        """Return the policies that are configured here."""
        return {kind: policy for kind in DriftClass if (policy := getattr(self, kind.value)) is not None}


def drift_policies(
    pipeline: DriftConfig,
    table: DriftConfig,
    defaults: Mapping[DriftClass, DriftPolicy] | None = None,
    *,
    repairs: bool = False,
) -> DriftPolicies:
    """Return the policies of a table: its own ones, then those of its pipeline, without those that are the default.

    defaults: those of the kind of the source, where they differ. repairs: a table whose capture instance was replaced
    is reloaded, and does not wait for the operator.
    """
    chosen = {**(defaults or {}), **({DriftClass.INSTANCE_REPLACED: DriftPolicy.ALERT} if repairs else {})}
    chosen |= pipeline.chosen() | table.chosen()
    # The order is fixed, so that two configurations with the same policies are equal.
    kinds = [kind for kind in DriftClass if kind in chosen and chosen[kind] is not ALLOWED[kind][0]]
    return DriftPolicies(tuple((kind, chosen[kind]) for kind in kinds))
