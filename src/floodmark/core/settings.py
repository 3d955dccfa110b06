"""What the author of ``pipelines.yaml`` decided about a pipeline, as plain values: ``config`` reads them, planning uses
them, and neither knows the other."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.policies import (
    DEFAULT_POLICIES,
    Backfill,
    Deletes,
    DriftPolicies,
    NetSource,
    OnGap,
    Rule,
    TemporalPolicy,
    WhenAdded,
)
from floodmark.core.schema import TableName


@dataclass(frozen=True, slots=True)
class TableSettings:
    """key: declared key columns, () for the server's. capture_instance: the one to read, None for the table's newest
    (or the one that was read before). partitions: 0 lets the reader choose. backfill: see ``core.switch``."""

    source: TableName
    target: TableName
    deletes: Deletes = Deletes.SOFT
    net: NetSource = NetSource.SPARK
    temporal: TemporalPolicy = TemporalPolicy.TRUNCATE
    rules: tuple[Rule, ...] = ()
    key: tuple[str, ...] = ()
    capture_instance: str | None = None
    partitions: int = 0
    first_load_chunk_rows: int = 500_000
    drift: DriftPolicies = DEFAULT_POLICIES
    first_load_parallel_reads: int = 4
    first_load_when_added: WhenAdded = WhenAdded.IN_WINDOW
    on_gap: OnGap = OnGap.FAIL
    backfill: Backfill = Backfill.ALL


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """One pipeline. lag_limit_seconds: how old the newest entry of the source's log may be before capture counts as
    lagging; an idle source makes an entry every five minutes."""

    name: str
    tables: tuple[TableSettings, ...]
    lag_limit_seconds: float = 900.0

    @property
    def sources(self) -> tuple[TableName, ...]:
        return tuple(table.source for table in self.tables)
