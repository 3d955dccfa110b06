"""The connection to a source: a value that travels as JSON in an environment variable and hides its password.

``driver`` builds the connection string.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, get_args

from floodmark.carried_file import path_of, read_file

Encrypt = Literal["yes", "no", "strict"]
ApplicationIntent = Literal["ReadWrite", "ReadOnly"]


@dataclass(frozen=True, slots=True)
class SqlServerConnection:
    """A SQL Server database and the login that opens it. Raises ValueError for an unknown choice."""

    host: str
    """A name or an address: no protocol, instance or port."""
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
    ca_pem: str = field(default="", repr=False)
    """The contents of ``ca_file``, where the connection has travelled to another machine."""

    application_intent: ApplicationIntent = "ReadWrite"
    """``ReadOnly``: a listener of an availability group leads to a readable secondary."""
    multi_subnet_failover: bool = False
    """Try all addresses of a listener at once, instead of one after the other."""

    def __post_init__(self) -> None:
        for name, choices in (("encrypt", get_args(Encrypt)), ("application_intent", get_args(ApplicationIntent))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(choices)}")

    @classmethod
    def from_json(cls, text: str) -> SqlServerConnection:
        """Return the connection that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return the connection as JSON, with the password: for an environment variable, never an argument or a log."""
        return json.dumps(asdict(self))

    def portable(self) -> SqlServerConnection:
        """Return the connection with the contents of its file, for other machines. Raises ValueError."""
        return replace(self, ca_pem=read_file(self.ca_file, str(self), "ca_file")) if self.ca_file else self

    @property
    def ca_path(self) -> str:
        """The path of the trusted authorities on this machine; empty for those of the system."""
        return path_of(self.ca_pem) if self.ca_pem else self.ca_file

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}/{self.database}"
