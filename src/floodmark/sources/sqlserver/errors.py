"""The translation of driver errors to ``core.errors``: by the server's error number, else by SQLSTATE.

Messages are shown and never parsed: the server writes them in the login's language. pymssql reports the number;
mssql-python reports neither number nor SQLSTATE, only its own constant text for the SQLSTATE, so ``driver`` queries
``@@ERROR`` and passes the number in.

The numbers come from SQL Server's list of database engine events and errors; those of DB-Library (2xxxx, pymssql only)
come from sybdb.h.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from floodmark.core.errors import (
    CdcNotEnabledError,
    DataQualityError,
    FloodmarkBugError,
    FloodmarkError,
    InstanceReplacedError,
    SourceAdminError,
    SourceLoginError,
    SourcePermissionError,
    SourceUnavailableError,
    WindowExpiredError,
)

_LOGIN_HINT = "Check user, password and database of the connection, and that the login may open the database."
_DATABASE_HINT = (
    "A database is away during a failover or a restore. If it remains so, check the"
    " database's name, that the login may open it, and that the connection leads to a readable copy."
)
_VALUE_HINT = "A computed column, or the condition of the load, fails on a value of a row."
_TRUST_HINT = "Set ca_file to the authority's certificate, or set trust_server_certificate to skip the check."
_PERMISSION_HINT = (
    "Grant the login what floodmark doctor PIPELINE --grants LOGIN prints: SELECT on the table; SELECT on its change"
    " table and the instance's gating role, if any; or, with change tracking, VIEW CHANGE TRACKING on the table."
)
_CDC_HINT = "Enable it with sys.sp_cdc_enable_db and sys.sp_cdc_enable_table, or correct the configuration."
_TRACKING_HINT = "Run ALTER TABLE ... ENABLE CHANGE_TRACKING for the table, or correct the configuration."
_PRIMARY_HINT = "Change tracking is read from the primary: without application_intent ReadOnly in the connection."
_EXPIRED_HINT = "Changes in this range have been cleaned up at the source, or are not captured yet; check the LSNs."
_REPLACED_HINT = "The capture instance was created again with other columns; reload the table."
_ADMIN_HINT = "Ask the DBA of the source."
_READ_ONLY_HINT = "Change the source over a connection to the primary: without application_intent ReadOnly."
_BUG_HINT = "Please report it, with the server's message in the log."

Outcome = tuple[type[FloodmarkError], str]

_LOGIN: Outcome = (SourceLoginError, _LOGIN_HINT)
_PERMISSION: Outcome = (SourcePermissionError, _PERMISSION_HINT)
_CDC: Outcome = (CdcNotEnabledError, _CDC_HINT)
_TRACKING: Outcome = (CdcNotEnabledError, _TRACKING_HINT)
_PRIMARY: Outcome = (SourceAdminError, _PRIMARY_HINT)
_EXPIRED: Outcome = (WindowExpiredError, _EXPIRED_HINT)
_REPLACED: Outcome = (InstanceReplacedError, _REPLACED_HINT)
_RETRY: Outcome = (SourceUnavailableError, "")
_DATABASE: Outcome = (SourceUnavailableError, _DATABASE_HINT)
_VALUE: Outcome = (DataQualityError, _VALUE_HINT)
_ADMIN: Outcome = (SourceAdminError, _ADMIN_HINT)
_READ_ONLY: Outcome = (SourceAdminError, _READ_ONLY_HINT)
_BUG: Outcome = (FloodmarkBugError, _BUG_HINT)

BY_NUMBER: Mapping[int, Outcome] = {
    # Login and database.
    18456: _LOGIN,  # login failed
    18452: _LOGIN,  # login from an untrusted domain
    18461: _LOGIN,  # single user mode
    18470: _LOGIN,  # account disabled
    18486: _LOGIN,  # account locked
    18487: _LOGIN,  # password expired
    18488: _LOGIN,  # password must be changed
    4060: _LOGIN,  # cannot open the database
    4064: _LOGIN,  # cannot open the user's default database
    911: _LOGIN,  # database does not exist
    916: _LOGIN,  # the login is no user of the database
    40615: _LOGIN,  # Azure SQL: client address not allowed
    # Rights.
    229: _PERMISSION,  # permission denied on object; the CDC functions also report it through their placeholder
    230: _PERMISSION,  # permission denied on column
    262: _PERMISSION,  # permission denied in database
    297: _PERMISSION,  # no permission to perform this action
    300: _PERMISSION,  # VIEW SERVER/DATABASE STATE denied
    22902: _PERMISSION,  # sysadmin required
    22904: _PERMISSION,  # db_owner required
    22914: _PERMISSION,  # db_owner or db_ddladmin required
    22832: _ADMIN,  # the table could not be enabled: the message quotes the original error
    22833: _ADMIN,  # the table could not be disabled: the same
    22981: _PERMISSION,  # object does not exist or access is denied
    # Change data capture.
    208: _CDC,  # invalid object name: the table, or the change table of a dropped instance
    2812: _CDC,  # procedure not found
    22901: _CDC,  # database not enabled
    22910: _CDC,  # cleanup: database not enabled
    22920: _CDC,  # named instance does not exist
    22931: _CDC,  # source table does not exist
    22960: _CDC,  # instance not enabled for the table
    22985: _CDC,  # table not enabled
    22988: _ADMIN,  # edition without CDC
    313: _EXPIRED,  # range outside the validity interval (all and net changes functions)
    314: _EXPIRED,
    207: _REPLACED,  # invalid column name
    # Change tracking.
    22105: _TRACKING,  # table not enabled
    22117: _PRIMARY,  # not on a readable secondary
    # The server is busy, moves, or is going down.
    701: _RETRY,  # not enough memory
    802: _RETRY,  # not enough buffer pool
    976: _RETRY,  # availability group: database not accessible
    978: _RETRY,  # availability group: read intent required
    983: _RETRY,  # availability group: role is resolving
    3906: _READ_ONLY,  # the database is read-only, as on a readable secondary
    601: _RETRY,  # a scan met rows that were being moved
    823: _ADMIN,  # the disk could not be read
    824: _ADMIN,  # a page is damaged
    4221: _RETRY,  # readable secondary: transactions from before it became readable are still open
    35250: _RETRY,  # availability group: the connection to the primary is not active
    1204: _RETRY,  # no locks left
    1205: _RETRY,  # deadlock victim
    1222: _RETRY,  # lock timeout
    22840: _RETRY,  # another session is changing the metadata of change data capture
    3950: _RETRY,  # version store: version is gone
    3952: _RETRY,  # snapshot isolation was switched off meanwhile
    3960: _RETRY,  # snapshot conflict
    3966: _RETRY,  # version store: transaction rolled back
    3980: _RETRY,  # batch was aborted
    41145: _ADMIN,  # availability group: a database has joined already
    5120: _ADMIN,  # file cannot be opened
    6005: _RETRY,  # shutdown in progress
    8628: _RETRY,  # timeout while waiting to optimize
    8645: _RETRY,  # timeout while waiting for memory
    8651: _RETRY,  # memory grant not possible
    9001: _RETRY,  # log not available
    9002: _ADMIN,  # log full
    14258: _RETRY,  # SQL Server Agent is starting
    17142: _RETRY,  # server paused
    17187: _RETRY,  # not ready for connections
    18401: _RETRY,  # server is in script upgrade mode
    18451: _RETRY,  # only administrators may connect now
    922: _RETRY,  # database is being recovered
    921: _RETRY,  # database has not been recovered yet
    924: _RETRY,  # database is open for one user
    942: _ADMIN,  # database is offline
    945: _ADMIN,  # database cannot be opened: files or space
    10928: _RETRY,  # Azure SQL: resource limit
    10929: _RETRY,
    40197: _RETRY,  # Azure SQL: reconfiguration
    40501: _RETRY,  # Azure SQL: busy
    40540: _RETRY,  # Azure SQL: aborted by reconfiguration
    40613: _RETRY,  # Azure SQL: database not available
    42108: _RETRY,  # serverless: resuming
    49918: _RETRY,  # Azure SQL: too busy
    49919: _RETRY,
    49920: _RETRY,
    # The connection.
    -2: _RETRY,  # client's timeout
    64: _RETRY,  # name no longer available
    121: _RETRY,  # semaphore timeout
    233: _RETRY,  # no process at the other end
    596: _RETRY,  # session was killed
    10053: _RETRY,
    10054: _RETRY,  # reset by peer
    10060: _RETRY,  # connect timeout
    10061: _RETRY,  # refused
    11001: _RETRY,  # host not found
    20002: _RETRY,  # DB-Library: login failed on the way (a refused password comes as 18456)
    20003: _RETRY,  # DB-Library: timeout
    20004: _RETRY,  # DB-Library: read failed
    20006: _RETRY,  # DB-Library: write failed
    20009: _RETRY,  # DB-Library: unable to connect
    20017: _RETRY,  # DB-Library: unexpected end from server
    20047: _RETRY,  # DB-Library: connection is dead
    # A value of a row cannot be converted.
    241: _VALUE,  # to a date
    2628: _VALUE,  # text is too long
    8115: _VALUE,  # number is too large
    # Floodmark's statement is wrong.
    102: _BUG,
    156: _BUG,
    137: _BUG,
    245: _BUG,
    8114: _BUG,
    49999: _BUG,  # the emulator does not support the statement
}

AT_CONNECT: Mapping[str, Outcome] = {
    "28000": _LOGIN,  # 18456; msodbcsql18 also reports it for 4060
    "42000": _DATABASE,  # during connect only a refused database: 4060, 916, 976, 978, 983, 40613
    "08001": _RETRY,  # the server cannot be reached, or TLS negotiation failed
    "08004": _LOGIN,
    "08S01": _RETRY,
    "HY000": _RETRY,
    "HYT00": _RETRY,
    "HYT01": _RETRY,
}
"""Errors during connect, by SQLSTATE: mssql-python has no number before there is a connection to query."""

UNREACHABLE = frozenset({"08001", "HYT00", "HYT01"})
"""Of these, what a server reports whose address does not answer."""

AT_CLIENT: Mapping[str, Outcome] = {"HYT00": _RETRY, "HYT01": _RETRY, "HY008": _RETRY}
"""Errors that the driver raises itself while the connection remains open, by SQLSTATE."""


_QUOTES_VALUES = frozenset({220, 232, 244, 245, 248, 1505, 2601, 2627, 2628})
"""The errors whose messages have a value of a row, by the texts of ``sys.messages``."""
_QUOTING = frozenset({22832, 22833})
_QUOTED = re.compile(r"(\d+): ['\"]")
"""Matches the number of the quoted error in a message of any language."""


def by_number(subject: str, number: int, message: str) -> FloodmarkError:
    """Return the error for a number of the server or of DB-Library; FloodmarkBugError for a number not in the map."""
    kind, hint = BY_NUMBER.get(number, _BUG)
    if number in _QUOTING and (behind := _QUOTED.search(message)):
        kind, hint = BY_NUMBER.get(int(behind[1]), (kind, hint))
    if kind in (FloodmarkBugError, DataQualityError):
        detail = "the message quotes a value and is not shown" if number in _QUOTES_VALUES else message
        return kind(subject, f"the source reported error {number}.", hint, detail)
    return kind(subject, f"the source reported error {number}: {message}.", hint)


def database_away(subject: str, message: str) -> FloodmarkError:
    """Return the error for a database that exists and refuses the login, which the server itself accepts."""
    kind, hint = _DATABASE
    return kind(subject, f"the database could not be opened: {message}.", hint)


def database_missing(subject: str, message: str) -> FloodmarkError:
    """Return the error for a database that the server does not have."""
    return SourceLoginError(subject, f"the server has no database of this name: {message}.", _LOGIN_HINT)


def one_of_several_addresses(subject: str, message: str, addresses: int) -> FloodmarkError:
    """Return the error for a server that was not reached, whose name leads to several addresses."""
    hint = (
        f"The host has {addresses} addresses, which are tried one after the other: if one of them does"
        " not answer, set multi_subnet_failover in the connection."
    )
    return SourceUnavailableError(subject, f"{message}.", hint)


def not_trusted(subject: str, message: str) -> FloodmarkError:
    """Return the error for a server whose certificate no known authority has signed."""
    return SourceLoginError(subject, f"{message}.", _TRUST_HINT)


def by_sqlstate(subject: str, sqlstate: str, message: str, outcomes: Mapping[str, Outcome]) -> FloodmarkError:
    """Return the error for a SQLSTATE by one of the maps of this module."""
    kind, hint = outcomes.get(sqlstate, _BUG)
    if kind is FloodmarkBugError:
        return kind(subject, f"the source could not be read (SQLSTATE {sqlstate or 'unknown'}).", hint, message)
    return kind(subject, f"{message} (SQLSTATE {sqlstate or 'unknown'}).", hint)


def cut_off(subject: str, message: str) -> FloodmarkError:
    """Return the error for a connection that is lost, whatever error it reported last."""
    return SourceUnavailableError(subject, f"the connection to the source was cut off: {message}.")


def pymssql_number(error: BaseException) -> int | None:
    """Return the number at the start of pymssql's arguments, which have three forms; None where there is none."""
    first = error.args[0] if error.args else None
    while isinstance(first, tuple) and first:
        first = first[0]
    return first if isinstance(first, int) else None
