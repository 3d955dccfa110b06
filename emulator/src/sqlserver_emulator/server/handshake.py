"""From an accepted socket to a session: PRELOGIN, TLS, LOGIN7, the answer to it."""

from __future__ import annotations

import logging
import socket
import ssl
from dataclasses import dataclass

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Command, Info
from sqlserver_emulator.external_logins import TOKEN_USER
from sqlserver_emulator.release import Release
from sqlserver_emulator.server.certificate import CertificateFiles, strict_context, tunnel_context
from sqlserver_emulator.server.channel import Channel
from sqlserver_emulator.server.kerberos import Negotiation
from sqlserver_emulator.server.limits import Capacity
from sqlserver_emulator.server.transport import TLS_RECORD, LoginTunnel, TlsTransport, Transport
from sqlserver_emulator.session import Session, SessionFactory
from sqlserver_emulator.tds import tokens
from sqlserver_emulator.tds.login import FEATURE_COLUMN_ENCRYPTION, FEATURE_FEDERATED, FEATURE_UTF8, Login, parse_login
from sqlserver_emulator.tds.packets import DEFAULT_PACKET_BYTES, PacketType, negotiate_packet_bytes
from sqlserver_emulator.tds.prelogin import Encryption, answer_encryption, build_prelogin_answer, parse_prelogin
from sqlserver_emulator.tds.reading import ProtocolError
from sqlserver_emulator.tds.tokens import DoneStatus, DoneToken, EnvironmentChange

_LOG = logging.getLogger(__name__)
_CANNOT_OPEN_DATABASE = 4060
_LOGIN_FAILED = 18456
_TOO_MANY_CONNECTIONS = 17809
INTERNAL_ERROR = 50000
_SYSTEM_DATABASES = ("master", "tempdb", "model", "msdb")


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """The TLS contexts of TDS 7.4 (``tunnel``) and TDS 8 (``strict``)."""

    tunnel: ssl.SSLContext
    strict: ssl.SSLContext

    @classmethod
    def load(cls, files: CertificateFiles) -> TlsContexts:
        return cls(tunnel_context(files), strict_context(files))


def open_channel(
    connection: socket.socket, contexts: TlsContexts, capacity: Capacity, release: Release
) -> Channel | None:
    """Agree on encryption. None: the client left without a word."""
    stalled_seconds = capacity.limits.stalled_seconds
    transport = Transport(connection, stalled_seconds)
    first_byte = transport.first_byte()
    # TDS 8: TLS comes first, then PRELOGIN inside of it.
    if first_byte == TLS_RECORD:
        strict = TlsTransport(connection, contexts.strict, stalled_seconds)
        strict.handshake()
        channel = Channel(strict, capacity)
        return channel if _answer_prelogin(channel, release) is not None else None
    channel = Channel(transport, capacity)
    if first_byte == PacketType.LOGIN:  # TDS 7.0 knows no PRELOGIN
        return channel
    encryption = _answer_prelogin(channel, release)
    if encryption is None:
        return None
    if encryption is not Encryption.NOT_SUPPORTED:
        kind = TlsTransport if encryption is Encryption.ON else LoginTunnel
        tunnel = kind(connection, contexts.tunnel, stalled_seconds)
        # The client may have sent the beginning of TLS together with its PRELOGIN.
        tunnel.handshake_in_packets(channel.take_read_ahead())
        channel.transport = tunnel
    return channel


def _answer_prelogin(channel: Channel, release: Release) -> Encryption | None:
    message = channel.read_message()
    if message is None:
        return None
    if message.type is not PacketType.PRELOGIN:
        raise ProtocolError(f"the first message is {message.type.name}, not PRELOGIN")
    request = parse_prelogin(message.payload)
    channel.send_message(PacketType.RESPONSE, build_prelogin_answer(request, release))
    return answer_encryption(request.encryption)


def log_in(channel: Channel, factory: SessionFactory, capacity: Capacity) -> Session | None:
    """Check the login and open its session. None: refused (the client has the error), or the client left.

    A session counts in ``capacity.sessions`` until the caller gives it back.
    """
    message = channel.read_message()
    if message is None:
        return None
    if message.type is not PacketType.LOGIN:
        raise ProtocolError(f"message {message.type.name} where LOGIN7 was expected")
    login = parse_login(message.payload)
    # Counted before the password is checked: opening a session costs a connection to PostgreSQL.
    if not capacity.sessions.take(1):
        error = _too_many_sessions(capacity)
        _LOG.warning("login of %r refused: %s", login.user, error)
        _send_refusal(channel, login, error)
        return None
    session: Session | None = None
    try:
        session = _open_session(channel, factory, login)
    finally:
        if session is None:
            capacity.sessions.give_back(1)
    if session is not None:
        # From here on the client is known, and may send messages of full size.
        channel.largest_message_bytes = capacity.limits.message_bytes
    return session


def _too_many_sessions(capacity: Capacity) -> SqlServerError:
    text = (
        f"Could not connect because the maximum number of '{capacity.limits.sessions}' user connections has already "
        "been reached. The connection has been closed."
    )
    return SqlServerError(_TOO_MANY_CONNECTIONS, text, severity=20)


def _open_session(channel: Channel, factory: SessionFactory, login: Login) -> Session | None:
    try:
        _refuse_unsupported(login)
        user, password = _identify(channel, factory, login)
        session = factory.open_session(
            login=user,
            password=password,
            database=login.database,
            application=login.application,
            encrypted=channel.transport.encrypted,
        )
    except SqlServerError as error:
        _LOG.info("login of %r refused: %s", login.user, error)
        _send_refusal(channel, login, error)
        return None
    except Exception as error:
        # A bug, or an engine that cannot take another session: the client learns more than "connection closed".
        text = f"Internal error of sqlserver_emulator ({type(error).__name__}) while logging in."
        _send_refusal(channel, login, SqlServerError(INTERNAL_ERROR, text, severity=20))
        raise
    # The system's databases are in no availability group.
    has_replica = session.database not in _SYSTEM_DATABASES
    route = factory.read_only_route if login.reads_only and has_replica else None
    try:
        _send_acceptance(channel, login, session, route, factory.product)
    # The client left before it knew of its session.
    except BaseException:
        session.close()
        raise
    return session


def _refuse_unsupported(login: Login) -> None:
    if FEATURE_FEDERATED in login.feature_ids and login.token is None:
        raise NotSupportedByEmulatorError("naming a token service to a client that has no token (ADAL)")
    if login.changes_password:
        raise NotSupportedByEmulatorError("changing a password while logging in")


def _identify(channel: Channel, factory: SessionFactory, login: Login) -> tuple[str, str | None]:
    """The name of the login, and its password; None where it was proved by something else. Raises 18456."""
    if login.token is not None:
        return factory.external_logins.login_of_token(login.token), None
    if login.integrated_security:
        return factory.external_logins.login_of_principal(_negotiate(channel, login.sspi)), None
    return login.user, login.password


def _negotiate(channel: Channel, token: bytes) -> str:
    """The principal that the client proves to be. Raises 18452.

    The last answer, which proves the server to the client, is not sent: msodbcsql18 takes none before LOGINACK.
    """
    with Negotiation() as negotiation:
        answer = negotiation.accept(token)
        while not negotiation.principal:
            channel.write(tokens.sspi(answer))
            channel.end_message()
            message = channel.read_message()
            if message is None or message.type is not PacketType.SSPI:
                raise ProtocolError("the client broke off the negotiation of Kerberos")
            answer = negotiation.accept(message.payload)
        return negotiation.principal


def _send_refusal(channel: Channel, login: Login, error: SqlServerError) -> None:
    channel.write(tokens.error(error))
    if error.number == _CANNOT_OPEN_DATABASE:
        # The real server sends both, in this order.
        user = login.user if login.token is None else TOKEN_USER
        failed = SqlServerError(_LOGIN_FAILED, f"Login failed for user '{user}'.", severity=14)
        channel.write(tokens.error(failed))
    channel.write(tokens.done(DoneToken.DONE, DoneStatus.ERROR, Command.NONE.value))
    channel.end_message()


def _send_acceptance(
    channel: Channel, login: Login, session: Session, route: tuple[str, int] | None, release: Release
) -> None:
    # Under TLS a packet has to fit a TLS record.
    packet_bytes = negotiate_packet_bytes(login.packet_bytes, tls=channel.transport.encrypted)
    database = session.database
    for token in (
        tokens.text_change(EnvironmentChange.DATABASE, database, "master"),
        tokens.info(Info(5701, f"Changed database context to '{database}'.", state=2)),
        tokens.collation_change(session.collation.wire),
        tokens.text_change(EnvironmentChange.LANGUAGE, tokens.LANGUAGE),
        tokens.info(Info(5703, f"Changed language setting to {tokens.LANGUAGE}.")),
        tokens.login_acknowledgement(release),
        tokens.routing(*route) if route else b"",
        tokens.text_change(EnvironmentChange.PACKET_SIZE, str(packet_bytes), str(DEFAULT_PACKET_BYTES)),
        tokens.feature_acknowledgement(
            utf8=FEATURE_UTF8 in login.feature_ids,
            federated=login.token is not None,
            column_encryption=FEATURE_COLUMN_ENCRYPTION in login.feature_ids,
        ),
        tokens.done(DoneToken.DONE, DoneStatus.FINAL, Command.NONE.value),
    ):
        channel.write(token)
    channel.end_message()
    channel.column_encryption = FEATURE_COLUMN_ENCRYPTION in login.feature_ids
    # From the next message on: the login's own answer has the default packet size.
    channel.set_packet_bytes(packet_bytes, session.session_id)
