"""The workflows of the public repository, as far as they can be checked without it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
WORKFLOWS = REPOSITORY / ".github" / "workflows"


def read(name: str) -> Any:
    return yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))


def test_parts_of_the_workflow_are_those_of_ci_run() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    parts = re.findall(r"\btimed [\w-]+ ((?:make|bin/).+?)(?: ;;)?$", script, flags=re.MULTILINE)
    assert len(parts) > 6
    assert read("ci.yml")["jobs"]["part"]["strategy"]["matrix"]["command"] == parts


def test_release_names_commands_and_services_that_exist() -> None:
    steps = "\n".join(step.get("run", "") for step in read("release.yml")["jobs"]["build"]["steps"])
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}:" in makefile for target in re.findall(r"\bmake (\w+)", steps))
    compose = yaml.safe_load((REPOSITORY / "docker-compose.yaml").read_text(encoding="utf-8"))
    (service,) = re.findall(r"docker compose build (\S+)", steps)
    assert "build" in compose["services"][service]
    assert all(
        f"{name}=" in steps for name in re.findall(r"\$\{(\w+):\?\}", (REPOSITORY / "docker-compose.yaml").read_text())
    )
