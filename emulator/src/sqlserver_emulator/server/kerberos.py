"""Kerberos in a login (SPNEGO), by the system's libgssapi_krb5. The service's key is in a keytab, ``KRB5_KTNAME``."""

from __future__ import annotations

import ctypes
import logging
from ctypes import byref, c_size_t, c_uint32, c_void_p
from functools import cache
from types import TracebackType

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

_LOG = logging.getLogger(__name__)
_LIBRARY = "libgssapi_krb5.so.2"
_ERRORS = 0xFFFF0000
_CONTINUE = 1
_MECHANISM_CODE = 2


class _Buffer(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))

    def take(self) -> bytes:
        """The bytes, which are given back to the library."""
        data = ctypes.string_at(self.value, self.length) if self.length else b""
        _library().gss_release_buffer(byref(c_uint32()), byref(self))
        return data


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise NotSupportedByEmulatorError(f"integrated authentication where there is no {_LIBRARY}") from None
    library.gss_accept_sec_context.restype = c_uint32
    return library


class Negotiation:
    """The tokens of one client, until ``principal`` is known."""

    def __init__(self) -> None:
        self.principal = ""
        self._context = c_void_p()

    def __enter__(self) -> Negotiation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context:
            _library().gss_delete_sec_context(byref(c_uint32()), byref(self._context), None)

    def accept(self, token: bytes) -> bytes:
        """Take a token of the client and return the answer to it. Raises SqlServerError 18452."""
        library, minor, name = _library(), c_uint32(), c_void_p()
        data = ctypes.create_string_buffer(token, len(token))
        given, answer = _Buffer(len(token), ctypes.cast(data, c_void_p)), _Buffer()
        major = library.gss_accept_sec_context(
            byref(minor), byref(self._context), None, byref(given), None, byref(name), None, byref(answer),
            None, None, None,
        )  # fmt: skip
        reply = answer.take()
        if major & _ERRORS:
            text = _Buffer()
            library.gss_display_status(byref(c_uint32()), minor, _MECHANISM_CODE, None, byref(c_uint32()), byref(text))
            _LOG.warning("Kerberos refused: %s", text.take().decode(errors="replace"))
            raise SqlServerError(
                18452,
                "Login failed. The login is from an untrusted domain and cannot be used with Integrated "
                "authentication.",
                severity=14,
            )
        if name:
            if not major & _CONTINUE:
                text = _Buffer()
                library.gss_display_name(byref(minor), name, byref(text), None)
                self.principal = text.take().decode()
            library.gss_release_name(byref(minor), byref(name))
        return reply
