"""What the person on call is told about how long a source keeps its changes."""

from __future__ import annotations

from floodmark.core.alert import Alert
from floodmark.core.retention import RetentionStep

LOW = "retention_low"
EXHAUSTED = "retention_exhausted"
_MEANS = (
    "When cleanup has passed a watermark, changes that nobody has read are gone, and the table has to be loaded anew."
)


def retention_low(source: str, step: RetentionStep) -> Alert:
    """By the usual retention there is too little time; what was done about it is in the reason."""
    return Alert(
        kind=LOW,
        subject=source,
        what=f"With the usual retention {step.usual}. Now {step.reason}",
        means=_MEANS,
        do="Bring the pipeline to run: its state and the reason are in `floodmark status`.",
        event_key=f"{LOW}:{source}",
    )


def retention_exhausted(source: str, step: RetentionStep) -> Alert:
    """Policy and ceiling leave nothing more that Floodmark could do."""
    return Alert(
        kind=EXHAUSTED,
        subject=source,
        what=f"Whatever the policy does, {step.forecast}; {step.reason}",
        means=_MEANS,
        do="Bring the pipeline to run, or give it time: a higher ceiling, or on_low: hold_cleanup, under sources."
        f"{source}.retention in pipelines.yaml.",
        event_key=f"{EXHAUSTED}:{source}",
    )
