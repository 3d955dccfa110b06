"""The connection to a source: a value that travels as JSON in an environment variable and hides its password.

``driver`` builds the connection string.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

Encrypt = Literal["yes", "no", "strict"]


@dataclass(frozen=True, slots=True)
class SqlServerConnection:
    """A SQL Server database and the login that opens it. Raises ValueError for an unknown ``encrypt``."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(default="", repr=False)
    encrypt: Encrypt = "yes"
    """``yes`` (TLS 1.2 inside TDS), ``strict`` (TDS 8) or ``no``."""
    trust_server_certificate: bool = False
    """Do not check the certificate."""
    ca_file: str = ""
    """The file (PEM) with the only trusted authorities; empty for those of the system."""

    def __post_init__(self) -> None:
        if self.encrypt not in get_args(Encrypt):
            raise ValueError(f"encrypt is {self.encrypt!r}, expected one of {', '.join(get_args(Encrypt))}")

    @classmethod
    def from_json(cls, text: str) -> SqlServerConnection:
        """Return the connection that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return the connection as JSON, with the password: for an environment variable, never an argument or a log."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}/{self.database}"
