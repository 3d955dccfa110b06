"""Channels over the library apprise: email, webhooks that accept Slack's messages, and any service with an apprise URL.

URLs, users and passwords are secrets here. They appear in no error and in no log: apprise's own messages are kept from
the log and repeated in the error, without any part of a secret.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import apprise
from apprise.exception import AppriseImproperlyConfigured
from apprise.plugins.custom_json import NotifyJSON
from apprise.plugins.email.base import NotifyEmail

from floodmark.core.alert import AlertMessage
from floodmark.core.errors import AlertNotSentError, ConfigError

_ASSET = apprise.AppriseAsset(app_id="Floodmark", app_desc="Floodmark", app_url="", async_mode=False)
_TEXT = apprise.NotifyFormat.TEXT
# The text is the only part of Slack's messages that all receivers support; an empty value leaves a part out.
_SLACK_PAYLOAD = {"message": "text", "version": "", "title": "", "attachments": "", "type": ""}
_SECRET_PART_LENGTH = 4

# Its messages may contain a part of a secret; the error repeats them without it.
logging.getLogger("apprise").propagate = False


@dataclass(frozen=True, slots=True)
class MailServer:
    """The connection to a mail server. Its certificate is always verified."""

    host: str
    mode: str
    """The encryption: ssl, starttls or insecure."""
    port: int | None = None
    user: str = ""
    password: str = field(default="", repr=False)


class ServiceChannel:
    """``sync.alerts.Channel`` over one service of apprise. secrets: texts that are removed from errors."""

    def __init__(self, name: str, service: Any, secrets: Sequence[str]) -> None:
        self.name = name
        self._service = service
        self._secrets = secrets

    def send(self, message: AlertMessage) -> None:
        notifier = apprise.Apprise(asset=_ASSET)
        notifier.add(self._service)
        title, body = self._texts(message)
        kind = apprise.NotifyType.SUCCESS if message.is_over else apprise.NotifyType.FAILURE
        with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as log:
            is_accepted = notifier.notify(body=body, title=title, notify_type=kind, body_format=_TEXT)
            lines = str(log.getvalue()).strip().splitlines()
        if not is_accepted:
            reason = _without(lines[0], self._secrets) if lines else "it gave no reason."
            raise AlertNotSentError(
                f"channel {self.name}", f"{self._service.service_name} did not accept the message: {reason}"
            )

    def _texts(self, message: AlertMessage) -> tuple[str, str]:
        """Return the title, a single line, and the body."""
        return _title(message), "\n\n".join(f"{heading}: {text}" for heading, text in message.lines)


class _WebhookChannel(ServiceChannel):
    def _texts(self, message: AlertMessage) -> tuple[str, str]:
        """Return no title and one text. Three characters have a meaning for Slack and are escaped."""
        lines = (f"*{_title(message)}*", *(f"*{heading}:* {text}" for heading, text in message.lines))
        text = "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return "", text


def email_channel(name: str, server: MailServer, sender: str, to: Sequence[str]) -> ServiceChannel:
    """Return a channel that sends email. Raises ConfigError for an invalid server or address."""
    try:
        service = NotifyEmail(
            asset=_ASSET,
            smtp_host=server.host,
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            secure=server.mode != "insecure",
            secure_mode=server.mode,
            from_addr=f"Floodmark <{sender}>",
            targets=list(to),
            format=_TEXT,
        )
    except AppriseImproperlyConfigured:
        raise ConfigError(f"channel {name}", "its server, sender or receivers are invalid.") from None
    return ServiceChannel(name, service, [part for part in (server.user, server.password) if part])


def webhook_channel(name: str, url: str) -> ServiceChannel:
    """Return a channel that posts to a webhook. url: http or https, with its token. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"channel {name}", "its connection has no http or https address.")
    service = NotifyJSON(
        asset=_ASSET,
        secure=parts.scheme == "https",
        host=parts.hostname,
        port=port,
        fullpath=parts.path or "/",
        params=dict(parse_qsl(parts.query)),
        payload=_SLACK_PAYLOAD,
        format=_TEXT,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )
    service.service_name = "The webhook"
    return _WebhookChannel(name, service, _parts(url))


def apprise_channel(name: str, url: str) -> ServiceChannel:
    """Return a channel over any service of apprise. url: such as ``pover://user@token``. Raises ConfigError."""
    with apprise.LogCapture(level=logging.WARNING):
        service = apprise.Apprise.instantiate(url, asset=_ASSET, suppress_exceptions=True)
    if service is None:
        raise ConfigError(
            f"channel {name}",
            "the password of its connection is not a URL that apprise supports.",
            "Test the URL with the command apprise.",
        )
    return ServiceChannel(name, service, _parts(url))


def _title(message: AlertMessage) -> str:
    return " ".join(message.title.split())


def _parts(url: str) -> list[str]:
    """Return all parts of a URL that may be a secret, the longest first."""
    found = {part for text in (url, unquote(url)) for part in re.split(r"[/:@?&=+\s]+", text.partition("://")[2])}
    return sorted((part for part in found if len(part) >= _SECRET_PART_LENGTH), key=len, reverse=True)


def _without(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
