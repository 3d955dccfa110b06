"""How to reach the warehouse: a value that travels as JSON in an environment variable and hides its password."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from urllib.parse import quote, urlencode

from psycopg.conninfo import make_conninfo

_CONNECT_TIMEOUT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class WarehouseConnection:
    """A PostgreSQL database. ``host`` is a name, an address, or the folder of a unix socket."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(default="", repr=False)
    sslmode: str = "prefer"
    sslrootcert: str = ""

    @classmethod
    def from_json(cls, text: str) -> WarehouseConnection:
        """Raises ValueError or TypeError when the text is not what ``to_json`` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Holds the password: for an environment variable, never for an argument or a log."""
        return json.dumps(asdict(self))

    def conninfo(self) -> str:
        """For libpq and psycopg. Holds the password."""
        return make_conninfo(
            "", **self._named(), host=self.host, port=self.port, dbname=self.database, user=self.user,
            password=self.password or None,
        )  # fmt: skip

    def uri(self) -> str:
        """For ADBC. Holds the password."""
        login = quote(self.user, safe="") + (f":{quote(self.password, safe='')}" if self.password else "")
        # A socket's folder cannot stand in the place of a host.
        query = urlencode({"host": self.host, "port": self.port, **self._named()}, quote_via=quote)
        return f"postgresql://{login}@/{quote(self.database, safe='')}?{query}"

    def _named(self) -> dict[str, str]:
        named = {
            "application_name": "floodmark",
            "connect_timeout": str(_CONNECT_TIMEOUT_SECONDS),
            # The hold on a load idles as long as the load takes.
            "keepalives_idle": "60",
            "sslmode": self.sslmode,
        }
        return named | ({"sslrootcert": self.sslrootcert} if self.sslrootcert else {})

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}/{self.database}"
