"""A kind of source is its folder and its line of the registry: without both, the rest of Floodmark works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import floodmark
from floodmark.sources.kind import KINDS

PACKAGE = Path(floodmark.__file__).parent
OPTIONAL = tuple(kind for kind in ("compact", "event_stream") if kind in KINDS)
"""The kinds without which ``bin/check-kinds`` runs the tests."""
USE_THE_REST = """
import sys
from pathlib import Path

import floodmark.app.operate, floodmark.app.run, floodmark.app.status
import floodmark.cli.main, floodmark.spark.job, floodmark.spark.tasks
from floodmark.config import load_config
from floodmark.core.errors import ConfigError
from floodmark.sources.kind import KINDS, find_kind
from floodmark.app.pipeline import App

path = Path(sys.argv[1])
for kind in (*KINDS, *sys.argv[2:]):
    path.write_text(
        f"sources: {{shop: {{conn_id: shop, kind: {kind}}}}}\\nwarehouse: {{conn_id: dwh}}\\n"
        "pipelines: {shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}}\\n"
    )
    try:
        source = App(load_config(path)).pipeline("shop").source
    except ConfigError as error:
        print(kind, str(error).splitlines()[-1].strip())
    else:
        source.load_adapters(), source.drift_words()
        print(kind, source.method)
"""


@pytest.mark.parametrize("kind", OPTIONAL)
def test_only_the_registry_names_a_kind_by_its_folder(kind: str) -> None:
    named = re.compile(rf"sources[./]{kind}\b")
    others = (path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE / "sources" / kind)
    found = [line for path in others for line in path.read_text(encoding="utf-8").splitlines() if named.search(line)]
    assert [line.strip().rstrip(",") for line in found] == [f'"{kind}": "{KINDS[kind]}"']


def test_the_rest_works_without_the_folders_and_the_lines(tmp_path: Path) -> None:
    left = tmp_path / "src" / "floodmark"
    shutil.copytree(PACKAGE, left, ignore=shutil.ignore_patterns("__pycache__"))
    registry = left / "sources" / "kind.py"
    lines = registry.read_text(encoding="utf-8").splitlines(keepends=True)
    for kind in OPTIONAL:
        shutil.rmtree(left / "sources" / kind)
        [line] = [line for line in lines if KINDS[kind] in line]
        lines.remove(line)
    registry.write_text("".join(lines), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", USE_THE_REST, tmp_path / "pipelines.yaml", *OPTIONAL],
        env={**os.environ, "PYTHONPATH": str(left.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "cdc SQL Server's own change data capture",
        "change_tracking SQL Server Change Tracking",
        *(f"{kind} sources.shop.kind: input should be 'cdc' or 'change_tracking'" for kind in OPTIONAL),
    ], done.stderr
