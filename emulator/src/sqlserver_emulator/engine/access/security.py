"""Who may do what: logins, database users and roles, and the PostgreSQL role that a session's statements run as.

sysadmin stays PostgreSQL's superuser; any other login runs as a role of its own, which has the rights of its users in
all databases (``sql/permissions.sql``). Owns nothing of GRANT itself (``engine.ddl.security.permissions``).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from sqlserver_emulator.errors import SqlServerError

_LOGIN = """
SELECT name, password_salt, password_hash, is_sysadmin, is_disabled, default_database FROM emulator.logins
WHERE lower(name) = lower($1)
"""
_USER = """
SELECT p.name, emulator.login_role($2) FROM emulator.principals p
JOIN emulator.databases d ON d.database_id = p.database_id
WHERE d.name = $1 AND p.type = 'S' AND lower(p.login) = lower($2)
"""
_GUEST = "SELECT 'guest', emulator.login_role($1)"
GUEST_DATABASES = ("master", "tempdb", "msdb")
"""Where every login may go: the user guest can connect to them, on a server as it is installed."""
_ROLES = """
WITH RECURSIVE held AS (
    SELECT p.database_id, p.principal_id FROM emulator.principals p
    JOIN emulator.databases d ON d.database_id = p.database_id
    WHERE d.name = $1 AND p.type = 'S' AND lower(p.login) = lower($2)
    UNION
    SELECT m.database_id, m.role_principal_id FROM emulator.role_members m
    JOIN held h ON h.database_id = m.database_id AND h.principal_id = m.member_principal_id
)
SELECT lower(p.name) FROM held h
JOIN emulator.principals p ON p.database_id = h.database_id AND p.principal_id = h.principal_id
"""


class Fetches(Protocol):
    """The part of SessionAccess that is used."""

    @property
    def connection(self) -> Any: ...

    def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]: ...


class SessionSecurity:
    """Rights of one session: its login, its user in the current database and its PostgreSQL role."""

    def __init__(self, access: Fetches, login: str) -> None:
        self._access = access
        self._login = login
        rows = access.fetch(_LOGIN, [login])
        self.is_sysadmin = bool(rows and rows[0][3])
        access.connection.set_context("emulator.login", login)

    def enter(self, database: str) -> None:
        """Become the login's user in ``database``. Raises 916 when it has none and is no guest."""
        if self.is_sysadmin:
            # A sysadmin is dbo in every database.
            self._access.connection.set_context("emulator.user", "dbo")
            return
        rows = self._access.fetch(_USER, [database, self._login])
        if not rows and database in GUEST_DATABASES:
            rows = self._access.fetch(_GUEST, [self._login])
        if not rows:
            raise SqlServerError(
                916,
                f'The server principal "{self._login}" is not able to access the database "{database}" under the '
                "current security context.",
                severity=14,
                state=2,
            )
        self._access.connection.set_context("emulator.user", str(rows[0][0]))
        self._access.connection.set_context("role", str(rows[0][1]))

    def caller_is(self, role: str, database: str) -> bool:
        """Whether the login has the server role sysadmin, or the database role, directly or through others."""
        if self.is_sysadmin:
            return True
        if role.lower() == "sysadmin":
            return False
        held = {row[0] for row in self._access.fetch(_ROLES, [database, self._login])}
        # db_owner may do what every other database role may.
        return role.lower() in held or "db_owner" in held


def check_login(
    fetch: Callable[[str, Sequence[object]], list[tuple[object, ...]]],
    login: str,
    password: str | None,
    sa_password: str,
) -> str:
    """The login's default database. password: None where it was proved otherwise. Raises 18456."""
    rows = cast(list[tuple[Any, ...]], fetch(_LOGIN, [login]))
    if rows:
        _, salt, stored, _, disabled, default_database = rows[0]
        if password is None:
            accepted = True
        # sa has no stored hash: its password comes from the environment or from the password file.
        elif stored is None:
            # A comparison in constant time does not leak how much of the password was right.
            accepted = hmac.compare_digest(password.encode(), sa_password.encode())
        else:
            accepted = hmac.compare_digest(password_hash(salt, password), stored)
        if accepted and not disabled:
            return str(default_database)
    # One answer for an unknown login, a wrong password and a disabled login, as on a real server.
    raise SqlServerError(18456, f"Login failed for user '{login}'.", severity=14)


def new_salt() -> bytes:
    """Return a random salt for a password."""
    return secrets.token_bytes(16)


def password_hash(salt: bytes, password: str) -> bytes:
    """Return the hash that is stored for a password."""
    return hashlib.sha256(salt + password.encode()).digest()
