"""Installation of the controls in PostgreSQL, run at every start of the emulator before anything else."""

from __future__ import annotations

from importlib.resources import files

import psycopg


def install_controls(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Run the controls' SQL, which may be repeated."""
    connection.execute(files(__package__).joinpath("sql/control.sql").read_text(encoding="utf-8").encode())
