"""The page of the verdicts: the meaning of each, its effect, and the sentences of a log for each kind of source."""

from __future__ import annotations

from documents.errors import acts
from documents.kinds import KINDS
from documents.situations import list_verdicts
from documents.source_text import module_of, table, text_of
from floodmark.core.errors import TableHeldError
from floodmark.core.planning import PLANNED
from floodmark.core.progress import judge
from floodmark.core.snapshot import Validity, Verdict
from floodmark.core.verdicts import GAPS, INCIDENTS, LEFT_OUT

_EVERY_KIND = "every"
_FROM_ERRORS = (Verdict.NOT_PLANNABLE, Verdict.DEFINITION_CHANGED, Verdict.REFUSED)
"""Cause and hint are those of the error that was met."""


def verdicts_page() -> str:
    """Return the page."""
    found = {kind.name: list(list_verdicts(kind)) for kind in KINDS}
    lines = [
        "# Verdicts",
        "",
        "Each run gives each table a verdict: whether its next window may be read, and if not, why. The log, the",
        "ledger, `floodmark status` and the alert `table_left_out` have it with its cause and a hint.",
        "[What to do](../operations.md#what-to-do-for-a-verdict) has the steps that a hint cannot have.",
        "",
        *table(
            ["verdict", "kinds of source", "status", "the run", "who acts"],
            [[f"[`{each.value}`](#{each.value})", *_effects(each, found)] for each in Verdict],
        ),
        "A run without another table to read is skipped; where every table is held, it fails.",
        "",
        "The lists below have the causes and the hints as a log shows them, with the names and numbers of an example.",
        "",
    ]
    for each in Verdict:
        lines += [f"## {each.value}", "", _meaning(each), ""]
        if each in GAPS:
            lines += ["With `on_gap: repair` the next run starts the load of the table by itself.", ""]
        if each in _FROM_ERRORS:
            lines += ["Cause and hint are those of the [error](errors.md) that was met.", ""]
        rows = _sentences(each, found)
        # A list, since a table with whole sentences is hard to read.
        lines += [f"* {kinds}: {' '.join(filter(None, texts))}" for kinds, *texts in rows] + [""] * bool(rows)
    return "\n".join(lines).rstrip() + "\n"


def _meaning(verdict: Verdict) -> str:
    return text_of(module_of(Verdict.__module__).classes[Verdict.__name__].attributes[verdict.name])


def _effects(verdict: Verdict, found: dict[str, list[Validity]]) -> list[str]:
    """Return the cells about a verdict: its kinds, its standing, what the run does, and who acts."""
    kinds = [name for name, validities in found.items() if any(each.verdict is verdict for each in validities)]
    everywhere = verdict in _FROM_ERRORS or len(kinds) == len(found)
    standing, _ = judge(verdict, None, None, lag_limit_seconds=0.0)
    error = INCIDENTS.get(verdict, TableHeldError if verdict is Verdict.HELD else None)
    names = _EVERY_KIND if everywhere else ", ".join(f"`{kind}`" for kind in kinds)
    return [names, standing.name.lower(), _run(verdict), acts(error) if error else ""]


def _run(verdict: Verdict) -> str:
    """Return what a run does that finds the verdict."""
    if verdict in PLANNED:
        return "reads the table"
    if verdict in LEFT_OUT:
        return "publishes the others, then fails"
    if verdict in INCIDENTS:
        return "fails, and is retried" if INCIDENTS[verdict].retryable else "fails"
    return "publishes the others"


def _sentences(verdict: Verdict, found: dict[str, list[Validity]]) -> list[list[str]]:
    """Return the kinds of source, the cause and the hint, for each pair of cause and hint."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, validities in found.items():
        for each in validities:
            names = kinds.setdefault((each.cause, each.hint), []) if each.verdict is verdict else []
            if name not in names:
                names.append(name)
    return [
        [_EVERY_KIND if len(names) == len(found) else ", ".join(f"`{name}`" for name in names), cause, hint]
        for (cause, hint), names in kinds.items()
    ]
