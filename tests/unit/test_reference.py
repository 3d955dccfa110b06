"""The generated reference leaves nothing out: each verdict has a situation, and each alert of the code is described."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from documents.kinds import KINDS
from documents.situations import list_verdicts
from documents.source_text import module_of, text_of
from floodmark.core import alerts
from floodmark.core.alerts import ALERT_KINDS, standing_of
from floodmark.core.progress import Standing
from floodmark.core.snapshot import Verdict

SOURCE = Path(__file__).resolve().parents[2] / "src"
FROM_ERRORS = {Verdict.NOT_PLANNABLE, Verdict.DEFINITION_CHANGED, Verdict.REFUSED}
"""Their sentences are those of an error."""
FAILED = "kind"
"""The argument that ``run_failed`` passes on: one of the kinds that end in ``failed``."""


def raised_kinds() -> Iterator[str]:
    """Yield the kind of each ``Alert`` that the code makes."""
    for path in sorted(SOURCE.glob("floodmark/**/*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "Alert(" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Alert":
                module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
                for value in (each.value for each in node.keywords if each.arg == "kind"):
                    if isinstance(value, ast.Constant):
                        yield value.value
                    elif isinstance(value, ast.Name) and value.id != FAILED:
                        yield getattr(import_module(module), value.id)


def test_each_alert_of_the_code_is_described_and_no_other() -> None:
    failed = {kind for kind in ALERT_KINDS if kind.endswith("_failed")}
    assert set(raised_kinds()) - {"test"} == ALERT_KINDS.keys() - failed
    from floodmark.core import alerts

    assert failed == {value for name, value in vars(alerts).items() if name.endswith("_FAILED")}


def test_a_failed_run_alone_is_an_incident() -> None:
    assert [kind for kind in ALERT_KINDS if standing_of(kind) is Standing.INCIDENT] == [alerts.RUN_FAILED]
    assert standing_of("of_an_older_version") is Standing.ATTENTION


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_has_a_meaning_and_a_situation(verdict: Verdict) -> None:
    assert text_of(module_of(Verdict.__module__).classes["Verdict"].attributes[verdict.name])
    found = {each.verdict for kind in KINDS for each in list_verdicts(kind)}
    assert verdict in found | FROM_ERRORS


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_each_verdict_that_a_kind_of_source_gives_itself_is_among_its_situations(kind: str) -> None:
    named = {
        Verdict[name]
        for path in (SOURCE / "floodmark" / "sources" / kind).glob("**/*.py")
        for name in re.findall(r"\bVerdict\.([A-Z_]+)\b", path.read_text(encoding="utf-8"))
    }
    (described,) = ({verdict.verdict for verdict in list_verdicts(each)} for each in KINDS if each.name == kind)
    assert named <= described


def test_no_sentence_of_a_situation_is_empty() -> None:
    assert [each for kind in KINDS for each in list_verdicts(kind) if not each.cause] == []
