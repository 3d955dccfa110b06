"""Where a server and the conformance suite disagree, as a Markdown report.

Hooks of pytest, imported by ``tests/conformance/conftest.py``. The report is written when FLOODMARK_TEST_MSSQL names a
real server, or when FLOODMARK_CONFORMANCE_REPORT names the file (otherwise ``build/conformance.md``). Each assertion
compares what the server said, on the left, with what the suite expects, on the right.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

VARIABLE = "FLOODMARK_TEST_MSSQL"
FILE_VARIABLE = "FLOODMARK_CONFORMANCE_REPORT"
DEFAULT_FILE = Path(__file__).parents[2] / "build" / "conformance.md"
_FOLDER = "conformance"
_LONGEST_VALUE = 400


@dataclass(frozen=True)
class Difference:
    """``actual`` and ``expected`` are empty where the test failed otherwise than by a comparison."""

    test: str
    message: str
    actual: str = ""
    expected: str = ""


@dataclass
class Findings:
    passed: int = 0
    skipped: int = 0
    differences: list[Difference] = field(default_factory=list)
    compared: tuple[object, object] | None = None


_KEY = pytest.StashKey[Findings]()


def _findings(config: pytest.Config) -> Findings:
    return config.stash.setdefault(_KEY, Findings())


def pytest_assertrepr_compare(config: pytest.Config, op: str, left: object, right: object) -> None:
    """Called for a comparison that does not hold; remembers its sides and leaves the explanation to pytest."""
    _findings(config).compared = (left, right)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _FOLDER not in item.path.parts:
        return report
    findings = _findings(item.config)
    if report.failed:
        findings.differences.append(_difference(item, call, findings.compared))
        findings.compared = None
    elif report.skipped:
        findings.skipped += 1
    elif report.when == "call":
        findings.passed += 1
    return report


def _difference(item: pytest.Item, call: pytest.CallInfo[None], compared: tuple[object, object] | None) -> Difference:
    error = call.excinfo
    message = error.exconly().splitlines()[0] if error is not None else ""
    is_comparison = error is not None and error.errisinstance(AssertionError) and compared is not None
    actual, expected = map(_shown, compared) if is_comparison and compared is not None else ("", "")
    return Difference(item.nodeid.rpartition(f"{_FOLDER}/")[2], message, actual, expected)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def pytest_sessionfinish(session: pytest.Session) -> None:
    findings = _findings(session.config)
    named = os.environ.get(FILE_VARIABLE, "")
    if not (named or os.environ.get(VARIABLE)) or not (findings.passed or findings.differences):
        return
    path = Path(named) if named else DEFAULT_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(build_report(findings, _server_name()), "utf-8")


def _server_name() -> str:
    """Return what the server says it is; its address and password are nobody's business."""
    if not os.environ.get(VARIABLE):
        return "sqlserver_emulator"
    from conformance_server import server_under_test

    client = server_under_test(_no_emulator).connect("master")
    try:
        return str(client.scalar("@@VERSION")).splitlines()[0]
    finally:
        client.close()


def _no_emulator() -> NoReturn:
    raise AssertionError("a real server is named")


def build_report(findings: Findings, server: str) -> str:
    different = len(findings.differences)
    lines = [
        "# Conformance",
        "",
        f"Server: {server}",
        "",
        f"{findings.passed} tests agree, {different} differ, {findings.skipped} do not apply.",
    ]
    for difference in findings.differences:
        lines += ["", f"## {difference.test}", ""]
        if difference.actual or difference.expected:
            lines += [f"* the suite expects: `{difference.expected}`", f"* the server says: `{difference.actual}`"]
        else:
            lines.append(f"* {difference.message}")
    return "\n".join(lines) + "\n"
