"""The ticket of Kerberos by which this process logs in, by the system's libgssapi_krb5, which the driver uses too."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass

_LIBRARIES = ("libgssapi_krb5.so.2", "libgssapi_krb5.dylib")
_ERRORS = 0xFFFF0000
_ROUTINE_ERRORS = 0x00FF0000
_EXPIRED = 11 << 16
"""GSS_S_CREDENTIALS_EXPIRED, which has no text: the call succeeded, and the ticket is of no use."""
_INITIATE = 1
_INDEFINITE = 0xFFFFFFFF
_GENERAL_CODE, _MECHANISM_CODE = 1, 2
_UNREACHABLE = -1765328228
"""KRB5_KDC_UNREACH."""
_SKEWED = (-1765328347, -1765328236)
"""KRB5KRB_AP_ERR_SKEW, as a KDC answers, and KRB5_KDCREP_SKEW, as the client finds its answer."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """The ticket that the process has, or gets from its keytab."""

    principal: str
    seconds: int
    """How long it still lasts."""


class NoTicketError(Exception):
    """There is no ticket, or it has expired. code: of the library, 0 for none."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.is_unreachable = code == _UNREACHABLE
        """Whether the KDC did not answer."""
        self.is_skewed = code in _SKEWED
        """Whether the clocks of this machine and of the KDC differ too much."""


class _Buffer(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


def read_ticket() -> Ticket:
    """Return the ticket of the process, from its cache or by its keytab. Raises NoTicketError."""
    library, minor = _load(), c_uint32()
    credential, name, seconds, text = c_void_p(), c_void_p(), c_uint32(), _Buffer()
    major = library.gss_acquire_cred(
        byref(minor), None, c_uint32(_INDEFINITE), None, _INITIATE, byref(credential), None, byref(seconds)
    )
    _check(library, major, minor)
    try:
        # The first use of a keytab asks the KDC.
        major = library.gss_inquire_cred(byref(minor), credential, byref(name), byref(seconds), None, None)
        _check(library, major, minor)
        _check(library, library.gss_display_name(byref(minor), name, byref(text), None), minor)
        library.gss_release_name(byref(c_uint32()), byref(name))
        return Ticket(_take(library, text), seconds.value)
    finally:
        library.gss_release_cred(byref(c_uint32()), byref(credential))


def _load() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        for function in (library.gss_acquire_cred, library.gss_inquire_cred, library.gss_display_name):
            function.restype = c_uint32
        return library
    raise NoTicketError(f"this machine has no {_LIBRARIES[0]} (Debian: libgssapi-krb5-2)")


def _check(library: ctypes.CDLL, major: int, minor: c_uint32) -> None:
    if not major & _ERRORS:
        return
    if major & _ROUTINE_ERRORS == _EXPIRED:
        raise NoTicketError("the ticket in the cache has expired")
    text = _Buffer()
    code, kind = (minor, _MECHANISM_CODE) if minor.value else (c_uint32(major), _GENERAL_CODE)
    library.gss_display_status(byref(c_uint32()), code, kind, None, byref(c_uint32()), byref(text))
    raise NoTicketError(_take(library, text), ctypes.c_int32(minor.value).value)


def _take(library: ctypes.CDLL, text: _Buffer) -> str:
    data = ctypes.string_at(text.value, text.length) if text.length else b""
    library.gss_release_buffer(byref(c_uint32()), byref(text))
    return data.decode(errors="replace")
