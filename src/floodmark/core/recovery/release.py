"""The release of rows from quarantine: its outcome, and the rules that it applies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from floodmark.core.policies import OnFailure, Rule


@dataclass(frozen=True, slots=True)
class Release:
    """The outcome of a release, in entries of quarantine: a row has one for each rule that it broke."""

    released: int = 0
    """Entries whose rows were merged, or had been already."""
    overtaken: int = 0
    """Entries of changes that later ones have replaced: nothing of them is missing in the target."""
    remaining: Mapping[str, int] = field(default_factory=dict)
    """The entries that stay, by rule."""
    unfit: int = 0
    """The rows among them that break no rule, but lack a value that the target needs, or have another key."""
    window_id: int | None = None
    """The window that merged the rows; None where there was none to merge."""
    inserted_rows: int = 0
    updated_rows: int = 0


def release_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules for a release: a row that breaks one that would stop a run stays in quarantine."""
    return tuple(
        replace(rule, on_failure=OnFailure.QUARANTINE) if rule.on_failure is OnFailure.STOP else rule for rule in rules
    )
