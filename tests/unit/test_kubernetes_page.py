"""The page on Kubernetes names versions, variables, extras and commands that exist, and its values are consistent."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from floodmark.cli.main import app

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "kubernetes.md").read_text(encoding="utf-8")
COMPOSE = (REPOSITORY / "docker-compose.yaml").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK: dict[str, Any] = tomllib.loads((REPOSITORY / "uv.lock").read_text(encoding="utf-8"))


def values() -> dict[str, Any]:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    return dict(yaml.safe_load(block))


@pytest.mark.parametrize("text", [PAGE, COMPOSE], ids=["page", "compose"])
def test_image_has_the_airflow_of_the_lock(text: str) -> None:
    (locked,) = (each["version"] for each in LOCK["package"] if each["name"] == "apache-airflow")
    assert set(re.findall(r"apache/airflow:(\S+)", text)) == {locked}
    assert set(re.findall(r'airflowVersion: "(.+)"', text)) <= {locked}


def test_named_variables_and_extras_exist() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "src/floodmark").rglob("*.py"))
    named = set(re.findall(r"\bFLOODMARK_[A-Z_]+\b", PAGE))
    assert named
    assert [name for name in sorted(named) if f'"{name}"' not in code] == []
    extras = set(re.findall(r"--extra (\w+)", PAGE))
    assert extras
    assert extras <= PROJECT["optional-dependencies"].keys()


def test_commands_of_floodmark_exist() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    named = set(re.findall(r"(?:-- |&& |`)floodmark ([a-z][a-z-]+)", PAGE))
    assert {"archive-classes", "doctor", "status"} <= named
    assert named <= commands.keys()


def test_each_volume_is_mounted_and_each_named_object_is_made() -> None:
    chart = values()
    assert {each["name"] for each in chart["volumes"]} == {each["name"] for each in chart["volumeMounts"]}
    made = set(re.findall(r"kubectl create (?:configmap|secret generic) (\S+)", PAGE))
    of_volumes = {
        (each.get("configMap") or {}).get("name") or each["secret"]["secretName"] for each in chart["volumes"]
    }
    assert of_volumes | {each["secretName"] for each in chart["secret"]} == made
    keys = set(re.findall(r"--from-file=(\w+)=", PAGE))
    assert {each["secretKey"] for each in chart["secret"]} <= keys
    (mount,) = (each for each in chart["volumeMounts"] if each["name"] == "floodmark-config")
    (variable,) = chart["env"]
    assert variable == {"name": "FLOODMARK_CONFIG", "value": f"{mount['mountPath']}/pipelines.yaml"}


def services() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPOSE)["services"])


def test_services_of_compose_that_share_the_image_are_built_once() -> None:
    of_image = {name: each for name, each in services().items() if each.get("image") == "floodmark"}
    assert len(of_image) == 7
    assert [name for name, each in of_image.items() if "build" in each] == ["airflow-init"]
    assert {each["pull_policy"] for each in of_image.values()} == {"never"}


def test_services_of_compose_wait_for_what_they_need_and_are_started_again() -> None:
    found = services()
    waits = [each["depends_on"] for each in found.values() if "depends_on" in each]
    assert set().union(*waits) == {"airflow-init", "mssql", "mssql-init", "spark-master", "warehouse"}
    conditions = [pair for each in waits if isinstance(each, dict) for pair in each.items()]
    assert all("healthcheck" in found[name] for name, how in conditions if how["condition"] == "service_healthy")
    for name, each in found.items():
        if name.endswith("-init"):
            assert each.get("restart") != "always"  # It would run again and again.
        elif "profiles" not in each:
            assert each["restart"] == "always"
            assert "healthcheck" in each or name.startswith("spark")


def test_files_that_compose_mounts_exist_and_its_secrets_are_written_by_the_first_service() -> None:
    found = services()
    for each in found.values():
        for volume in each.get("volumes", ()):
            at = volume.partition(":")[0]
            assert not at.startswith(".") or (REPOSITORY / at).exists()
    (script,) = found["airflow-init"]["command"]
    needed = set(re.findall(r"/opt/floodmark-secrets/([\w.]+)", COMPOSE))
    assert needed == set(re.findall(r'"((?:fernet|jwt|secret)_\w+|passwords\.json)"', script))
