"""What the controls need in PostgreSQL. Run at every start of the emulator, before anything else; may be repeated."""

from __future__ import annotations

from importlib.resources import files

import psycopg


def install_controls(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    connection.execute(files(__package__).joinpath("sql/control.sql").read_text(encoding="utf-8").encode())
