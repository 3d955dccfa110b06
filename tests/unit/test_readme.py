"""The commands that the README and the pages on first steps show exist, and what the README links to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from floodmark.config.loading import load_config

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PAGES = ("tutorial", "production")


def _console_lines(text: str) -> list[str]:
    blocks: list[str] = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_readme_make_targets_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"`make (\w+)`", README)) | {
        line.split()[1] for line in _console_lines(README) if line.startswith("make ")
    }
    assert {"run", "test", "up", "down"} <= targets
    assert [target for target in sorted(targets) if f"\n{target}:" not in makefile] == []


@pytest.mark.parametrize("page", PAGES)
def test_floodmark_commands_of_a_page_exist_with_their_options(page: str) -> None:
    from typer.main import get_command

    from floodmark.cli.main import app

    used = [
        line.split()[1:]
        for line in _console_lines((REPOSITORY / "docs" / f"{page}.md").read_text(encoding="utf-8"))
        if line.startswith(".venv/bin/floodmark ")
    ]
    assert used
    for words in used:
        command = get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= options


def test_readme_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


def test_page_on_production_exports_the_connections_that_its_commands_name() -> None:
    text = (REPOSITORY / "docs" / "production.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"floodmark init --source (\w+) --warehouse (\w+)", text)
    assert [name.lower() for name in re.findall(r"AIRFLOW_CONN_(\w+)=", text)] == list(named)


def test_pipeline_of_the_readme_is_a_valid_configuration(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    path = tmp_path / "pipelines.yaml"
    path.write_text(example, encoding="utf-8")
    assert [str(table.target) for table in load_config(path).settings("sales").tables] == [
        "sales.customers",
        "sales.orders",
    ]
