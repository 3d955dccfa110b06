"""TypeORM and Sequelize, unmodified, each with the models of a program in this folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).parent
_SECONDS = 60

TYPEORM: list[list[Any]] = [
    ["again", []],
    ["saved", 1, True, True],
    ["changed", {"pages": [1, 2, 3], "version": 2}],
    ["found", [{"name": "Ada 🌊", "born": None, "fee": 12.5}, {"name": "Béla", "born": "1881-03-25", "fee": 0}]],
    ["joined", "Ada 🌊", ["Notes"]],
    ["page", [[{"name": "Ada 🌊"}], 2]],
    ["grouped", [{"name": "Ada 🌊", "books": 2, "longest": "5000"}]],
    ["undone", "undo", 0],
    ["kept", 1, 0],
    ["refused", 2627, 547],
    ["cascaded", 0],
    ["dropped", 0],
]
"""The answers of ``typeorm_models.mjs``. The first is what TypeORM would change after it has made the tables."""

SEQUELIZE: list[list[Any]] = [
    [
        "described",
        [
            ["active", "BIT", True, False],
            ["born", "DATE", True, False],
            ["createdAt", "DATETIMEOFFSET", False, False],
            ["fee", "DECIMAL", True, False],
            ["id", "INT", False, True],
            ["name", "NVARCHAR(40)", False, False],
            ["remark", "NVARCHAR(20)", True, False],
            ["updatedAt", "DATETIMEOFFSET", False, False],
        ],
    ],
    ["created", 1, True, True],
    ["book", 5000, "0001ff", "3", 1],
    ["upsert", False],
    ["findOrCreate", "Dora", True],
    [
        "page",
        {
            "count": 3,
            "rows": [
                {"name": "Béla", "born": "1881-03-25", "fee": 0},
                {"name": "Ada 🌊", "born": "1815-12-10", "fee": 13},
            ],
        },
    ],
    ["joined", [{"name": "Ada 🌊", "Books": [{"pages": "3"}]}]],
    ["sum", 14, 2],
    ["updated", [2]],
    ["undone", "undo"],
    ["kept", [{"name": "Kept"}]],
    ["refused", "SequelizeUniqueConstraintError", "SequelizeForeignKeyConstraintError"],
    ["cascaded", 0],
    ["dropped", []],
]
"""The answers of ``sequelize_models.mjs``."""


@pytest.mark.parametrize(("program", "answers"), [("typeorm_models.mjs", TYPEORM), ("sequelize_models.mjs", SEQUELIZE)])
def test_models_of_node_are_created_stored_and_found(
    program: str, answers: list[list[Any]], server_variables: dict[str, str]
) -> None:
    node = shutil.which("node")
    assert node, "these tests need node"
    done = subprocess.run(
        [node, str(_HERE / program)],
        env={**os.environ, **server_variables, "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert (done.stderr, [json.loads(line) for line in done.stdout.splitlines()]) == ("", answers)
