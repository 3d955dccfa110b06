"""The parts of ``pipelines.yaml`` about schema drift: how often a source is looked at, and what each class leads to."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from floodmark.config.fields import Cron
from floodmark.core.policies import ALLOWED, DriftClass, DriftPolicies, DriftPolicy


class DriftWatchConfig(BaseModel):
    """schedule: of the source's drift DAG, in UTC; None to run it on demand only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schedule: Cron | None = "*/5 * * * *"


class DriftConfig(BaseModel):
    """A policy for each class of drift. What is None comes from the pipeline, and there from ``core.drift.ALLOWED``."""

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
            raise ValueError(f"{value.value} cannot be done about it (expected {', '.join(p.value for p in allowed)})")
        return value

    def chosen(self) -> dict[DriftClass, DriftPolicy]:
        """What is said here."""
        return {kind: policy for kind in DriftClass if (policy := getattr(self, kind.value)) is not None}


def drift_policies(pipeline: DriftConfig, table: DriftConfig, *, repairs: bool = False) -> DriftPolicies:
    """What a table says itself, and what its pipeline says beside that, where it is not the default.

    repairs: a table whose capture instance was replaced is loaded anew, and does not wait for somebody.
    """
    said = {DriftClass.INSTANCE_REPLACED: DriftPolicy.ALERT} if repairs else {}
    said |= pipeline.chosen() | table.chosen()
    # In one order, so that two configurations that say the same are equal.
    kinds = [kind for kind in DriftClass if kind in said and said[kind] is not ALLOWED[kind][0]]
    return DriftPolicies(tuple((kind, said[kind]) for kind in kinds))
