"""Logins that are proved elsewhere: by a token of Microsoft Entra ID, or by Kerberos. Control procedures say who may.

Owns the key of the token service, and the login that each name becomes. They live until the server stops.
"""

from __future__ import annotations

import threading

from sqlserver_emulator.errors import SqlServerError

AUDIENCE = "https://database.windows.net/"
"""The resource that a token must be for, in the public cloud."""
TOKEN_USER = "<token-identified principal>"  # noqa: S105  (a name in messages)
"""The name in messages of a client that brings a token."""
_NOT_CONFIGURED, _MALFORMED, _OTHER_AUDIENCE, _EXPIRED, _UNKNOWN = 102, 103, 104, 105, 132
"""States of 18456, of those that SQL Server has for Entra; which one means what is the emulator's choice."""


class ExternalLogins:
    """Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key = ""
        self._subjects: dict[str, str] = {}
        self._principals: dict[str, str] = {}

    def accept_tokens(self, key: str, subject: str, login: str) -> None:
        """Let tokens that ``key`` (PEM, public) has signed log in as ``login`` where they are of ``subject``.

        Another key than before makes the subjects of the former one unknown. Raises ValueError for what is no RSA key.
        """
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

        if not isinstance(load_pem_public_key(key.encode()), RSAPublicKey):
            raise ValueError("not an RSA key")
        with self._lock:
            if key != self._key:
                self._subjects.clear()
            self._key = key
            self._subjects[subject.casefold()] = login

    def accept_principal(self, principal: str, login: str) -> None:
        """Let a principal of Kerberos, ``name@REALM``, log in as ``login``."""
        with self._lock:
            self._principals[principal] = login

    def login_of_principal(self, principal: str) -> str:
        """Return the login that a principal becomes. Raises SqlServerError 18456."""
        with self._lock:
            found = self._principals.get(principal)
        if found is None:
            raise SqlServerError(18456, f"Login failed for user '{principal}'.", severity=14)
        return found

    def login_of_token(self, token: str) -> str:
        """Return the login that a token becomes. Raises SqlServerError 18456.

        The subject is the application (``appid``, or ``azp`` in tokens of version 2), else the object (``oid``).
        """
        import jwt  # noqa: PLC0415  (slow, and few clients bring a token)

        with self._lock:
            key, subjects = self._key, dict(self._subjects)
        if not key:
            raise _refused(_NOT_CONFIGURED, " The server is not currently configured to accept this token.")
        try:
            claims = jwt.decode(
                token, key, algorithms=["RS256"], audience=AUDIENCE, options={"require": ["exp", "aud"]}
            )
        except jwt.InvalidAudienceError:
            raise _refused(_OTHER_AUDIENCE) from None
        except jwt.ExpiredSignatureError:
            raise _refused(_EXPIRED) from None
        except jwt.PyJWTError:
            raise _refused(_MALFORMED) from None
        subject = str(claims.get("appid") or claims.get("azp") or claims.get("oid") or "")
        found = subjects.get(subject.casefold())
        if found is None:
            raise _refused(_UNKNOWN)
        return found


def _refused(state: int, more: str = "") -> SqlServerError:
    return SqlServerError(18456, f"Login failed for user '{TOKEN_USER}'.{more}", severity=14, state=state)
