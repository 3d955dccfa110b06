"""The address of the warehouse for SQLAlchemy. It holds the password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection


def sqlalchemy_url(warehouse: WarehouseConnection) -> URL:
    """Return the address for SQLAlchemy.

    Its sessions show keys in UTC and floats with all digits, as tombstones were written, and read the texts of rules as
    the gate does.
    """
    parts = conninfo_to_dict(warehouse.conninfo())
    user, password, database = (parts.pop(name, None) for name in ("user", "password", "dbname"))
    settings = "-c timezone=UTC -c standard_conforming_strings=on -c extra_float_digits=1"
    options = f"{parts.pop('options', '')} {settings}".strip()
    query = {name: str(value) for name, value in parts.items() if value is not None} | {"options": options}
    return URL.create(
        "postgresql+psycopg", username=_text(user), password=_text(password), database=_text(database), query=query
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
