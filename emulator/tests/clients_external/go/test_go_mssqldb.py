"""Go's go-mssqldb, unmodified, in the program of this folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_PROGRAM = Path(__file__).parents[4] / "build" / "clients" / "go" / "go-client-tests"
_BUILD_SECONDS = 280
_SECONDS = 60

ANSWERS = """\
true 255 -9223372036854775808 0.1
-123456789.99 naïve 🌊 Größe € [0 1 254 255] false 12345678-9ABC-DEF0-1234-56789ABCDEF0
9999-12-31T23:59:59.9999999Z 2024-02-29T12:30:00.5-03:30
changed 1 1 false 1815-12-10
committed false [Ada]
committed true [Ada Béla]
refused true 515 16
row 21
called 42 in! 3
loaded 1000 1000 249750
prepared 1.5 <nil>
prepared 499.5 <nil>
prepared 0 sql: no rows in result set
"""


@pytest.fixture(scope="module")
def program() -> Path:
    """Build the program and return its path. Its modules are those of go.sum; no other toolchain is fetched."""
    go = shutil.which("go")
    assert go, "these tests need go"
    build = [go, "build", "-mod=readonly", "-o", str(_PROGRAM), "."]
    subprocess.run(build, cwd=_HERE, env={**os.environ, "GOTOOLCHAIN": "local"}, check=True, timeout=_BUILD_SECONDS)
    return _PROGRAM


@pytest.mark.parametrize("encryption", ["disable", "false", "true", "strict"])
def test_go_mssqldb_reads_changes_calls_and_loads(
    encryption: str, program: Path, server_variables: dict[str, str]
) -> None:
    done = subprocess.run(
        [program],
        env={**os.environ, **server_variables, "ENCRYPTION": encryption},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert (done.stdout, done.returncode) == (ANSWERS, 0)
