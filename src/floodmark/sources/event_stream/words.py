"""The sentences of verdicts and of drift about an event stream."""

from __future__ import annotations

from floodmark.core.drift.words import CDC_DRIFT_WORDS, DriftWords
from floodmark.core.policies import DriftClass
from floodmark.core.position import Position
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.source.words import Sentences, SourceWords

_ADD = "Run sys.sp_add_object_to_event_stream_group for it"


class StreamWords(SourceWords):
    """The sentences about change event streaming."""

    def describe_capture(self, capture_running: bool | None) -> str:
        return "the server streams changes as events"

    def not_enabled(self, database: str) -> Sentences:
        return Sentences(
            f"change event streaming is not enabled in database {database}.",
            "Run sys.sp_enable_event_stream there, create a stream group, and add the tables to it.",
        )

    def no_permission(self) -> Sentences:
        return Sentences("the login may not read the table.", "Grant the login SELECT on it.")

    def no_feed(self, wanted: str | None, others: tuple[str, ...], read: InstanceIdentity | None) -> Sentences:
        was = " It was when it was read last: the changes since then are only in the table itself." if read else ""
        return Sentences(f"the changes of the table are not streamed.{was}", f"{_ADD}.")

    def describe_feed(self, identity: InstanceIdentity) -> str:
        return f"the events of {identity.name} (object {identity.object_id})"

    def replaced(self, found: InstanceIdentity, known: InstanceIdentity) -> str:
        return "the table was dropped and created again, or the stream was set up again. Changes in between are lost."

    def expired(self, watermark: Position, low_end: str) -> Sentences:
        return Sentences("events after the marks are no longer in the stream.", "run more often.")


STREAM_WORDS = StreamWords()

STREAM_DRIFT_WORDS = DriftWords(
    {
        **CDC_DRIFT_WORDS.effects,
        DriftClass.COLUMN_ADDED: "It is read from now on. The values that existing rows got by its default are no "
        "events: in the target they are NULL until the row changes.",
        DriftClass.TYPE_NARROWED: "The target's column stays as wide as it is.",
        DriftClass.TABLE_DROPPED: "Its changes are no longer streamed. The target stays as it is.",
        DriftClass.CDC_DISABLED: "Later changes are not streamed. The target stays as it is.",
        DriftClass.INSTANCE_REPLACED: "Changes between the two are not streamed.",
    },
    {
        **CDC_DRIFT_WORDS.advice,
        DriftClass.COLUMN_ADDED: "Where these values are needed, load them: floodmark reload.",
        DriftClass.KEY_CHANGED: "Give the target the same key by hand, or change it back at the source; then end the "
        "hold.",
        DriftClass.CDC_DISABLED: f"{_ADD} and reload the table: changes made in between are only in the table itself.",
    },
    effect_of_obstacle="Events leave such a column out. Its values can never reach the target.",
    keeps_ddl=False,
    has_instances=False,
)
