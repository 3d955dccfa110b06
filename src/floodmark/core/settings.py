"""The settings of a pipeline as plain values.

``config`` reads them from ``pipelines.yaml``, planning uses them, and neither imports the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.core.policies import (
    DEFAULT_POLICIES,
    Backfill,
    Deletes,
    DriftPolicies,
    KeySpelling,
    NetSource,
    OnGap,
    Rule,
    SecurityFiltered,
    TemporalPolicy,
    UnstorablePolicy,
    WhenAdded,
)
from floodmark.core.schema import TableName

DEFAULT_LOB_BATCH_BYTES = 32_000_000
DEFAULT_MAX_READS = 4


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of a table, with every default filled in."""

    source: TableName
    target: TableName
    deletes: Deletes = Deletes.SOFT
    net: NetSource = NetSource.SPARK
    temporal: TemporalPolicy = TemporalPolicy.TRUNCATE
    rules: tuple[Rule, ...] = ()
    key: tuple[str, ...] = ()
    """The declared key columns; () for the server's."""
    capture_instance: str | None = None
    """The instance to read; None: the one that was read before, or else the table's newest."""
    partitions: int = 0
    """0 lets the reader choose."""
    first_load_chunk_rows: int = 500_000
    drift: DriftPolicies = DEFAULT_POLICIES
    first_load_parallel_reads: int = 4
    max_reads: int = DEFAULT_MAX_READS
    """How many statements of a load read the source at a time."""
    first_load_when_added: WhenAdded = WhenAdded.IN_WINDOW
    on_gap: OnGap = OnGap.FAIL
    backfill: Backfill = Backfill.ALL
    """See ``core.drift.switch``."""
    lob_batch_bytes: int = DEFAULT_LOB_BATCH_BYTES
    """The bytes at which a batch of rows with LOBs ends."""
    unstorable: UnstorablePolicy = UnstorablePolicy.QUARANTINE
    security_filtered: SecurityFiltered = SecurityFiltered.REFUSE
    key_spelling: KeySpelling = KeySpelling.REFUSE


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The settings of a pipeline."""

    name: str
    tables: tuple[TableSettings, ...]
    lag_limit_seconds: float = 900.0
    """How old the newest entry of the source's log may be before capture counts as lagging; an idle source makes an
    entry every five minutes."""

    source_name: str = "SOURCE"
    """The name of the source in the configuration, for the commands in hints."""

    @property
    def sources(self) -> tuple[TableName, ...]:
        """Return the names of the source tables."""
        return tuple(table.source for table in self.tables)
