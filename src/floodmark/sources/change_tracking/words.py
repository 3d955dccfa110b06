"""The sentences of verdicts and of drift about a source that is read by change tracking."""

from __future__ import annotations

from floodmark.core.drift.words import CDC_DRIFT_WORDS, DriftWords
from floodmark.core.policies import DriftClass
from floodmark.core.position import Position
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.source.words import Sentences, SourceWords


class TrackingWords(SourceWords):
    """The sentences about SQL Server Change Tracking."""

    def describe_capture(self, capture_running: bool | None) -> str:
        return "each transaction records its changes itself"

    def not_enabled(self, database: str) -> Sentences:
        return Sentences(
            f"change tracking is not enabled in database {database}.",
            "Run ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 7 DAYS) there, then ALTER TABLE"
            " ... ENABLE CHANGE_TRACKING for the table.",
        )

    def no_permission(self) -> Sentences:
        return Sentences(
            "the login may not read the changes of the table.",
            "Grant the login SELECT and VIEW CHANGE TRACKING on the table.",
        )

    def no_feed(self, wanted: str | None, others: tuple[str, ...], read: InstanceIdentity | None) -> Sentences:
        was = " It was when it was read last: the changes since then are only in the table itself." if read else ""
        return Sentences(
            f"change tracking is not enabled for the table, or the login may not see that it is.{was}",
            "Run ALTER TABLE ... ENABLE CHANGE_TRACKING for it, and grant the login VIEW CHANGE TRACKING on it.",
        )

    def describe_feed(self, identity: InstanceIdentity) -> str:
        table, _, begin = identity.name.rpartition("@")
        return f"change tracking of {table} since version {begin} (object {identity.object_id})"

    def replaced(self, found: InstanceIdentity, known: InstanceIdentity) -> str:
        if found.object_id != known.object_id:
            return "the table was dropped and created again. The changes of the earlier table are lost."
        return (
            "the table was truncated, or its change tracking was switched off and on: what happened before that is "
            "not in the changes."
        )

    def unproven(self, watermark: Position) -> Sentences:
        return Sentences(
            f"the table is read as a whole: its tracking began at the watermark {watermark}, and whether it has begun "
            "again since (TRUNCATE TABLE, off and on) is not known of it.",
            "This ends with the first tracked change of the database. Where the login shall see it before: GRANT VIEW "
            "DEFINITION on the table, which shows the side table in sys.internal_tables.",
        )

    def expired(self, watermark: Position, low_end: str) -> Sentences:
        return Sentences(
            f"changes after the watermark {watermark} have been cleaned up: they are complete from {low_end} on.",
            "raise the retention (ALTER DATABASE ... SET CHANGE_TRACKING (CHANGE_RETENTION = ...)) or run more often.",
        )


TRACKING_WORDS = TrackingWords()

_EFFECTS = {
    **CDC_DRIFT_WORDS.effects,
    DriftClass.COLUMN_ADDED: "It is read from now on. The values that existing rows got by its default are no changes: "
    "in the target they are NULL until the row changes.",
    DriftClass.TYPE_NARROWED: "The target's column stays as wide as it is.",
    DriftClass.TABLE_RENAMED: "Its changes are still recorded, but the configured table does not exist.",
    DriftClass.TABLE_DROPPED: "Its changes were dropped with it. The target stays as it is.",
    DriftClass.CDC_DISABLED: "Later changes are not recorded. The target stays as it is.",
    DriftClass.INSTANCE_REPLACED: "Changes between the two are not recorded.",
}
_ADVICE = {
    **CDC_DRIFT_WORDS.advice,
    DriftClass.COLUMN_ADDED: "Where these values are needed, load them: floodmark reload.",
    DriftClass.KEY_CHANGED: "Give the target the same key by hand, or change it back at the source; then end the hold.",
    DriftClass.CDC_DISABLED: "Run ALTER TABLE ... ENABLE CHANGE_TRACKING and reload the table: changes made in between "
    "are only in the table itself.",
}
TRACKING_DRIFT_WORDS = DriftWords(
    _EFFECTS,
    _ADVICE,
    effect_of_obstacle="Its values can never reach the target. All columns of a table are read but the computed ones: "
    "unless it is computed, the table is left out of windows (not_plannable) as long as it has the column.",
    keeps_ddl=False,
    has_instances=False,
)
