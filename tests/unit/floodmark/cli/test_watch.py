"""``floodmark status --watch``."""

from __future__ import annotations

import time

import pytest
from typer.testing import CliRunner

from floodmark.cli import runs
from floodmark.cli.main import app
from floodmark.core.errors import ConfigError, WarehouseUnavailableError
from floodmark.core.status import PipelineStatus, TableStatus

SHOP = PipelineStatus("shop", None, None, (TableStatus("dbo.Orders", "shop.orders"),))


def watch(monkeypatch: pytest.MonkeyPatch, *answers: list[PipelineStatus] | Exception) -> tuple[int, str, list[float]]:
    """Watch until the last answer, when Ctrl-C is pressed. Returns exit status, output and pauses."""
    left, pauses = list(answers), []

    def read(*_: object, **__: object) -> list[PipelineStatus]:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if not left:
            raise KeyboardInterrupt

    monkeypatch.setattr(runs, "_read_statuses", read)
    monkeypatch.setattr(time, "sleep", sleep)
    result = CliRunner().invoke(app, ["status", "--watch", "2"])
    return result.exit_code, result.output, pauses


def test_status_is_printed_again_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output, pauses = watch(monkeypatch, [SHOP], [SHOP])
    assert (code, pauses) == (0, [2.0, 2.0])
    assert output.count("dbo.Orders") == output.count("UTC, every 2 s") == 2
    assert "\x1b" not in output


def test_warehouse_that_is_away_for_a_while_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    away = WarehouseUnavailableError("warehouse", "it cannot be reached.", "Start it.")
    code, output, pauses = watch(monkeypatch, [SHOP], away, [SHOP])
    assert (code, len(pauses)) == (0, 3)
    assert output.count("it cannot be reached.") == 1
    assert output.count("dbo.Orders") == 2


def test_wrong_configuration_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch, [SHOP], ConfigError("pipelines.yaml", "1 problem."))[0] == 2


@pytest.mark.parametrize("other", ["--check", "--json"])
def test_option_that_needs_an_end_is_refused(other: str) -> None:
    result = CliRunner().invoke(app, ["status", "--watch", "2", other])
    assert (result.exit_code, "excludes --check and --json" in " ".join(result.output.split())) == (2, True)
