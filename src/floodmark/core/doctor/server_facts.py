"""The facts about a server that ``doctor`` reads in addition to a snapshot. None: the login may not see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from floodmark.core.doctor.hazards import Hazards
from floodmark.core.schema import TableName
from floodmark.core.source.editions import AZURE_SQL_DATABASE


@dataclass(frozen=True, slots=True)
class Jobs:
    """The capture and cleanup jobs of a database."""

    has_capture: bool
    retention_minutes: int | None
    """Of the cleanup job; None: there is none."""
    is_continuous: bool = True
    """Of the capture job; False: the job scans by a schedule of its own."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts about a server and a database that each kind of source needs."""

    product_version: str
    engine_edition: int
    database: str
    user: str
    is_db_owner: bool
    may_view_state: bool
    taken_at_utc: datetime
    utc_offset_minutes: int


@dataclass(frozen=True, slots=True)
class CdcFacts(ServerFacts):
    """The facts about a database with change data capture."""

    collation: str
    lob_limit_bytes: int | None
    """``max text repl size``, -1 for none."""
    agent_running: bool | None
    jobs: Jobs | None
    other_collations: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """The columns of tracked tables whose non-Unicode texts have another collation than the database."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """The gating role by capture instance."""
    hazards: Hazards = field(default_factory=Hazards)

    @property
    def has_agent(self) -> bool:
        """Return whether the edition has SQL Server Agent."""
        return self.engine_edition not in AZURE_SQL_DATABASE


SNAPSHOT_ON = 1
"""In ``snapshot_isolation_state``: transactions may use SNAPSHOT. 0 is off, 2 and 3 are on the way to off and to on."""


@dataclass(frozen=True, slots=True)
class TrackingFacts(ServerFacts):
    """The facts about a database with change tracking."""

    retention_minutes: int | None
    """None where change tracking is off."""
    cleans_up: bool
    """AUTO_CLEANUP."""
    allows_snapshot: int
    """``snapshot_isolation_state`` of the database."""
    oldest_seconds: int | None
    """The age of the oldest commit that is still recorded; None where there is none, or the login may not see it."""
    sees_policies: bool = True
    """Whether security policies that do not appear in the catalog do not exist."""
    truncating: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """The modules that truncate a table."""
