"""What ``doctor`` knows of a server beyond a snapshot. None stands for what the login may not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from floodmark.core.doctor.hazards import Hazards
from floodmark.core.schema import TableName
from floodmark.core.source.editions import AZURE_SQL_DATABASE


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of a database. The retention is that of the cleanup job. is_continuous: of the capture job; where it is
    not, the job scans by a schedule of its own."""

    has_capture: bool
    retention_minutes: int | None
    is_continuous: bool = True


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """other_collations: the columns of tracked tables whose non-Unicode texts have another collation than the database.
    roles: the gating role by capture instance. lob_limit_bytes: ``max text repl size``, -1 for none."""

    product_version: str
    engine_edition: int
    database: str
    user: str
    is_db_owner: bool
    collation: str
    lob_limit_bytes: int | None
    agent_running: bool | None
    may_view_state: bool
    taken_at_utc: datetime
    utc_offset_minutes: int
    jobs: Jobs | None
    other_collations: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    hazards: Hazards = field(default_factory=Hazards)

    @property
    def has_agent(self) -> bool:
        return self.engine_edition not in AZURE_SQL_DATABASE
