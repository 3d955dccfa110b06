"""The README's commands exist, and what it links to is there."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def _console_lines() -> list[str]:
    blocks: list[str] = re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_readme_make_targets_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"`make (\w+)`", README)) | {
        line.split()[1] for line in _console_lines() if line.startswith("make ")
    }
    assert {"run", "test", "up", "down"} <= targets
    assert [target for target in sorted(targets) if f"\n{target}:" not in makefile] == []


def test_readme_floodmark_commands_exist() -> None:
    from typer.main import get_command

    from floodmark.cli.main import app

    commands = getattr(get_command(app), "commands")  # noqa: B009
    used = {line.split()[1] for line in _console_lines() if line.startswith(".venv/bin/floodmark ")}
    assert used
    assert used <= set(commands)


def test_readme_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


def test_readme_names_the_connections_of_the_sample_pipeline() -> None:
    pipelines = (REPOSITORY / "include" / "pipelines.yaml").read_text(encoding="utf-8")
    named = re.findall(r"AIRFLOW_CONN_(\w+)=", README)
    assert named
    assert [name for name in named if f"conn_id: {name.lower()}" not in pipelines] == []
