"""Rust's tiberius, unmodified, in the program of this folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sqlserver_emulator.server.certificate import provide_certificate

_HERE = Path(__file__).parent
_BUILD = Path(__file__).parents[4] / "build" / "clients" / "rust"
_BUILD_SECONDS = 280
_SECONDS = 60

ANSWERS = """\
Some(true) Some(255) Some(-9223372036854775808) Some(0.1)
Some(-123456789.99) Some("naïve 🌊") Some("Größe €")
Some([0, 1, 254, 255]) None Some(12345678-9abc-def0-1234-56789abcdef0)
Some(9999-12-31T23:59:59.999999900) Some(0001-01-01)
Some(2024-02-29T12:30:00.500-03:30) Some(9000)
inserted 2
found Some(1) Some(1815-12-10)
ROLLBACK Ada,Béla 🌊
COMMIT Ada,Béla 🌊,COMMIT
refused Some(515)
loaded 2
"""


@pytest.fixture(scope="module")
def program() -> Path:
    """Build the program and return its path. Its crates are those of Cargo.lock."""
    cargo = shutil.which("cargo")
    assert cargo, "these tests need cargo"
    build = [cargo, "build", "--locked", "--quiet", "--target-dir", str(_BUILD)]
    subprocess.run(build, cwd=_HERE, check=True, timeout=_BUILD_SECONDS)
    return _BUILD / "debug" / "tiberius-client-tests"


@pytest.mark.parametrize(("encryption", "encrypted"), [("off", "FALSE"), ("on", "TRUE"), ("required", "TRUE")])
def test_tiberius_reads_changes_and_loads(
    encryption: str, encrypted: str, program: Path, server_variables: dict[str, str]
) -> None:
    assert _run(program, server_variables, encryption) == (0, f"encrypted {encrypted}\n{ANSWERS}")


@pytest.mark.parametrize("encryption", ["off", "required"])
def test_tiberius_verifies_the_certificate_also_for_the_login_alone(
    encryption: str, program: Path, server_variables: dict[str, str], tmp_path: Path
) -> None:
    strange = provide_certificate(tmp_path, "127.0.0.1").ca_file
    status, printed = _run(program, server_variables | {"CA_FILE": str(strange)}, encryption)
    assert status
    assert "certificate" in printed


def _run(program: Path, variables: dict[str, str], encryption: str) -> tuple[int, str]:
    """Run the program; return its status and what it prints on both streams."""
    done = subprocess.run(
        [program],
        env={**os.environ, **variables, "ENCRYPTION": encryption},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout
