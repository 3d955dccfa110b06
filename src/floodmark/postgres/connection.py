"""The connection to the warehouse: a value that travels as JSON in an environment variable and hides its password."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from urllib.parse import quote, urlencode

from psycopg.conninfo import make_conninfo

from floodmark.carried_file import path_of, read_file
from floodmark.core.hosts import is_loopback

_CONNECT_TIMEOUT_SECONDS = 15


def default_sslmode(host: str) -> str:
    """Return the ``sslmode`` of a connection that names none: only what stays on this machine is not verified."""
    return "prefer" if host.startswith(("/", "@")) or is_loopback(host) else "verify-full"


@dataclass(frozen=True, slots=True)
class WarehouseConnection:
    """A PostgreSQL database and the user that opens it."""

    host: str
    """A name, an address, or the folder of a Unix socket."""
    port: int
    database: str
    user: str
    password: str = field(default="", repr=False)
    sslmode: str = "prefer"
    """The ``sslmode`` of libpq. A connection of a user gets ``default_sslmode``."""
    sslrootcert: str = ""
    """The file with the certificates of the authorities; empty for libpq's default."""
    root_pem: str = field(default="", repr=False)
    """The contents of ``sslrootcert``, where the connection has travelled to another machine."""

    @classmethod
    def from_json(cls, text: str) -> WarehouseConnection:
        """Return the connection that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return the connection as JSON, with the password: for an environment variable, never an argument or a log."""
        return json.dumps(asdict(self))

    def portable(self) -> WarehouseConnection:
        """Return the connection with the contents of its file, for other machines. Raises ValueError."""
        # libpq takes "system" for the authorities of the machine that connects.
        if self.sslrootcert in ("", "system"):
            return self
        return replace(self, root_pem=read_file(self.sslrootcert, str(self), "sslrootcert"))

    def conninfo(self) -> str:
        """Return the connection string for libpq and psycopg. It holds the password."""
        return make_conninfo(
            "",
            **self._named(),
            host=self.host,
            port=self.port,
            dbname=self.database,
            user=self.user,
            password=self.password or None,
        )

    def uri(self) -> str:
        """Return the URI for ADBC. It holds the password."""
        login = quote(self.user, safe="") + (f":{quote(self.password, safe='')}" if self.password else "")
        # The folder of a socket is not valid in the host part of a URI.
        query = urlencode({"host": self.host, "port": self.port, **self._named()}, quote_via=quote)
        return f"postgresql://{login}@/{quote(self.database, safe='')}?{query}"

    def _named(self) -> dict[str, str]:
        named = {
            "application_name": "floodmark",
            # ADBC sends texts in UTF-8, whatever the role or the database sets.
            "client_encoding": "UTF8",
            "connect_timeout": str(_CONNECT_TIMEOUT_SECONDS),
            # The session that holds a load is idle for as long as the load takes.
            "keepalives_idle": "60",
            "sslmode": self.sslmode,
        }
        root = path_of(self.root_pem) if self.root_pem else self.sslrootcert
        return named | ({"sslrootcert": root} if root else {})

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}/{self.database}"
