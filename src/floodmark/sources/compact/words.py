"""The sentences of verdicts about a fleet of devices. Those about one device are in ``faults``."""

from __future__ import annotations

from floodmark.core.drift.words import CDC_DRIFT_WORDS, DriftWords
from floodmark.core.policies import DriftClass
from floodmark.core.position import Position
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.source.words import Sentences, SourceWords


class CompactWords(SourceWords):
    """The sentences about edge databases."""

    def describe_capture(self, capture_running: bool | None) -> str:
        return "each device records its changes itself"

    def not_enabled(self, database: str) -> Sentences:
        return Sentences(
            f"there is no file of a device in {database}.",
            "Check that the folder is mounted, and the path of the source. A device that is away for a while is no"
            " incident, but all of them are.",
        )

    def no_permission(self) -> Sentences:
        return Sentences("the files cannot be read.", "Let Floodmark's user read and write them.")

    def no_feed(self, wanted: str | None, others: tuple[str, ...], read: InstanceIdentity | None) -> Sentences:
        return Sentences(
            "no device tracks the table.",
            "Check its name (schema main), and enable its tracking on the devices (ChangeTracking.enable_tracking).",
        )

    def replaced(self, found: InstanceIdentity, known: InstanceIdentity) -> str:
        return "the table was read from another kind of source before."

    def expired(self, watermark: Position, low_end: str) -> Sentences:
        return Sentences(f"changes after {watermark} have been purged.", "run more often.")


COMPACT_WORDS = CompactWords()

COMPACT_DRIFT_WORDS = DriftWords(
    {
        **CDC_DRIFT_WORDS.effects,
        DriftClass.COLUMN_ADDED: "It is loaded from now on, from the devices that have it; on the others it is NULL. "
        "The values of rows that a device had before are not changes.",
        DriftClass.COLUMN_DROPPED: "No device has it any more. The target keeps the column and the values it has.",
        DriftClass.TYPE_NARROWED: "The target's column stays as wide as it is.",
        DriftClass.TABLE_DROPPED: "No device has the table any more. The target stays as it is.",
        DriftClass.CDC_DISABLED: "No device tracks the table any more. The target stays as it is.",
    },
    {
        **CDC_DRIFT_WORDS.advice,
        DriftClass.COLUMN_ADDED: "Where these values are needed, read the devices as a whole: floodmark source "
        "reload-device.",
        DriftClass.KEY_CHANGED: "Give the target the same key by hand, or change it back on the devices; then end the "
        "hold.",
        DriftClass.CDC_DISABLED: "Enable the tracking on the devices (ChangeTracking.enable_tracking).",
    },
    effect_of_obstacle="Its values can never reach the target.",
    keeps_ddl=False,
    has_instances=False,
)
