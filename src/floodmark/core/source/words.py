"""The sentences of verdicts that depend on the kind of a source. The rules do not know kinds (``verdicts``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.core.source.scripts import literal

if TYPE_CHECKING:
    from floodmark.core.position import Position
    from floodmark.core.source.feed import InstanceIdentity


@dataclass(frozen=True, slots=True)
class Sentences:
    """The cause and the hint of a verdict."""

    cause: str
    hint: str = ""


class SourceWords:
    """The sentences about change data capture. Another kind of source overrides them all."""

    def describe_capture(self, capture_running: bool | None) -> str:
        """Return what a log says about how changes are recorded."""
        running = {True: "runs", False: "does not run", None: "cannot be seen"}[capture_running]
        return f"the capture job {running}"

    def not_enabled(self, database: str) -> Sentences:
        """Return the sentences about a database that records no changes."""
        return Sentences(
            f"change data capture is not enabled in database {database}.",
            "Run sys.sp_cdc_enable_db there, then sys.sp_cdc_enable_table for the table.",
        )

    def no_permission(self) -> Sentences:
        """Return the sentences about a table whose changes the login may not read."""
        return Sentences(
            "the login may not read the table's capture instance.",
            "Grant the login SELECT on the table and on its change table, and the gating role if there is one.",
        )

    def no_feed(self, wanted: str | None, others: tuple[str, ...], read: InstanceIdentity | None) -> Sentences:
        """Return the sentences about a table whose changes are not recorded, or not where they were read before.

        wanted: the name of the feed that was searched for. others: the feeds that the table has. The name matters: a
        table that is enabled without one gets an instance that no pipeline reads.
        """
        name = wanted or (read.name if read else None)
        found = f"the table has {' and '.join(others)}, but not the" if others else "the table has no"
        was = f" Capture instance {read.name} was read before." if read else ""
        named = f" with @capture_instance = {literal(name)}" if name else ""
        instead = f", or set capture_instance: {others[0]} in pipelines.yaml" if others else ""
        return Sentences(
            f"{found} capture instance{f' {name}' if name else ''} that can be read.{was}",
            f"Run sys.sp_cdc_enable_table for it{named}{instead}."
            + (" Changes since the watermark are only in the table itself." if was else ""),
        )

    def describe_feed(self, identity: InstanceIdentity) -> str:
        """Return what the changes of a table are read from."""
        return f"capture instance {_describe(identity)}"

    def replaced(self, found: InstanceIdentity, known: InstanceIdentity) -> str:
        """Return why the changes between two feeds of a table are lost."""
        return (
            f"{self.describe_feed(found)} is not {_describe(known)}, which was read before. Changes between "
            "the two instances are in neither."
        )

    def unproven(self, watermark: Position) -> Sentences:
        """Return the sentences about a table that is read as a whole, as its feed may have begun again."""
        return Sentences(f"the feed may have begun again at {watermark}: the table is read as a whole.")

    def expired(self, watermark: Position, low_end: str) -> Sentences:
        """Return the sentences about changes that were cleaned up. The hint continues one that says to reload."""
        return Sentences(
            f"changes after the watermark {watermark} have been cleaned up: the low end is {low_end}.",
            "raise the retention (sys.sp_cdc_change_job) or run more often.",
        )


CDC_WORDS = SourceWords()


def _describe(identity: InstanceIdentity) -> str:
    return f"{identity.name} (object {identity.object_id}, made {identity.created_at:%Y-%m-%d %H:%M:%S})"
