"""How to reach a source: a value that travels as JSON in an environment variable and hides its password.

What the drivers make of it is in ``driver``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

Encrypt = Literal["yes", "no", "strict"]


@dataclass(frozen=True, slots=True)
class SqlServerConnection:
    """A SQL Server database.

    encrypt: "yes" (TLS 1.2 inside TDS), "strict" (TDS 8) or "no". The certificate is checked against the system's
    authorities, or against ``ca_file`` (PEM) alone; ``trust_server_certificate`` gives that check up.
    Raises ValueError for another ``encrypt``.
    """

    host: str
    port: int
    database: str
    user: str
    password: str = field(default="", repr=False)
    encrypt: Encrypt = "yes"
    trust_server_certificate: bool = False
    ca_file: str = ""

    def __post_init__(self) -> None:
        if self.encrypt not in get_args(Encrypt):
            raise ValueError(f"encrypt is {self.encrypt!r}, expected one of {', '.join(get_args(Encrypt))}")

    @classmethod
    def from_json(cls, text: str) -> SqlServerConnection:
        """Raises ValueError or TypeError when the text is not what ``to_json`` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Holds the password: for an environment variable, never for an argument or a log."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}/{self.database}"
