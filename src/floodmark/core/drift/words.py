"""The sentences about drift that depend on the kind of a source: its effect, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodmark.core.policies import DriftClass
from floodmark.core.source.feed import InstanceIdentity

_EFFECTS = {
    DriftClass.COLUMN_ADDED: "Its values do not reach the target: an update of this column alone makes no change row. "
    "All other columns are loaded as before.",
    DriftClass.COLUMN_DROPPED: "The target keeps the column and the values it has; they are no longer written. What "
    "was written to it between the last window and the drop is not in the target.",
    DriftClass.TYPE_WIDENED: "The next run widens the target's column before it merges.",
    DriftClass.TYPE_NARROWED: "The target's column stays as wide as it is. A value that does not fit can stop the "
    "capture job (see sys.dm_cdc_errors).",
    DriftClass.TYPE_CHANGED: "The target's column cannot hold the new values.",
    DriftClass.NULLABILITY_CHANGED: "The target takes NULL in every column but the key; nothing changes there.",
    DriftClass.KEY_CHANGED: "Rows would be merged by another key than the target's.",
    DriftClass.TABLE_RENAMED: "The capture instance still works, but the configured table does not exist.",
    DriftClass.TABLE_DROPPED: "Its capture instance and change table were dropped with it. The target stays as it is.",
    DriftClass.CDC_DISABLED: "Later changes are in no change table. The target stays as it is.",
    DriftClass.INSTANCE_REPLACED: "Changes between the two instances are in neither of them.",
    DriftClass.UNKNOWN: "As far as Floodmark can see, nothing changes for the target.",
}
_ADVICE = {
    DriftClass.COLUMN_ADDED: "Decide whether the column is needed.",
    DriftClass.COLUMN_DROPPED: "Drop the target's column by hand if its old values are not needed.",
    DriftClass.TYPE_WIDENED: "Make sure that readers of the target accept the wider type.",
    DriftClass.TYPE_NARROWED: "Ask the data owner whether values were truncated.",
    DriftClass.TYPE_CHANGED: "Give the target's column the new type by hand (ALTER TABLE ... ALTER COLUMN ... TYPE ... "
    "USING ...), or move the target out of the way for a new first load; then end the hold.",
    DriftClass.NULLABILITY_CHANGED: "Make sure that readers of the target accept NULL.",
    DriftClass.KEY_CHANGED: "Give the target the same key by hand, or declare the old one (key: [..] in "
    "pipelines.yaml); then end the hold.",
    DriftClass.TABLE_RENAMED: "Rename the table back, or add the new name to pipelines.yaml: for Floodmark it is "
    "another table, with a target of its own.",
    DriftClass.TABLE_DROPPED: "If this was intended, remove the table from pipelines.yaml. Floodmark does not drop the "
    "target.",
    DriftClass.CDC_DISABLED: "Enable it again with the name of the dropped instance (sys.sp_cdc_enable_table, "
    "@capture_instance) and reload the table: changes made in between are only in the table itself.",
    DriftClass.INSTANCE_REPLACED: "Reload the table before you end the hold.",
    DriftClass.UNKNOWN: "Read the statement.",
}


@dataclass(frozen=True, slots=True)
class DriftWords:
    """The sentences of one kind of source. The defaults are those of change data capture."""

    effects: Mapping[DriftClass, str]
    """What happens next."""
    advice: Mapping[DriftClass, str]
    """What to do."""
    effect_of_obstacle: str = "Its values can never reach the target. All other columns are loaded as before."
    """What happens next for an added column that cannot be loaded."""
    keeps_ddl: bool = True
    """Whether the source has a history of DDL."""
    has_instances: bool = True
    """Whether a table may have several feeds. Otherwise one that is found takes the place of each former one."""

    def where(self, identity: InstanceIdentity) -> str:
        """Return the feed of a table as the end of a list of places."""
        return f", capture instance {identity.name}" if self.has_instances else ""


CDC_DRIFT_WORDS = DriftWords(_EFFECTS, _ADVICE)
