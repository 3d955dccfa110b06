"""The channels of alerts, each from its Airflow connection."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from floodmark.config.alerts import AppriseConfig, ChannelConfig, EmailConfig, WebhookConfig
from floodmark.core.errors import ConfigError
from floodmark.wiring.connections import read_connection, read_flag, required_field

if TYPE_CHECKING:
    from floodmark.core.alert import AlertMessage
    from floodmark.sync.alerts import Channel

_SLACK = "https://hooks.slack.com/services"


class ConnectedChannel:
    """``sync.alerts.Channel``. The connection is read at each send, so a wrong one fails only this channel."""

    def __init__(self, config: ChannelConfig) -> None:
        self.name = config.label
        self._config = config

    def send(self, message: AlertMessage) -> None:
        _open(self._config).send(message)


def _open(config: ChannelConfig) -> Channel:
    match config:
        case EmailConfig():
            return _open_email(config)
        case WebhookConfig():
            return _open_webhook(config)
        case AppriseConfig():
            return _open_apprise(config)


def _open_email(config: EmailConfig) -> Channel:
    """Return an e-mail channel from a connection of the SMTP provider.

    Extras: from_email, disable_ssl and disable_tls (which is STARTTLS).
    """
    from floodmark.channels.services import MailServer, email_channel

    found = read_connection(config.conn_id, "smtp")
    extras = found.extra_dejson
    plain = read_flag(extras.get("disable_tls", False), config.conn_id, "disable_tls")
    without_ssl = read_flag(extras.get("disable_ssl", False), config.conn_id, "disable_ssl")
    sender = config.sender or extras.get("from_email") or ""
    if not sender:
        raise ConfigError(
            f"connection {config.conn_id}", "it has no from_email, and the channel no sender.", "Set one of them."
        )
    server = MailServer(
        host=required_field(found.host, config.conn_id, "host"),
        port=found.port,
        user=found.login or "",
        password=found.password or "",
        mode="ssl" if not without_ssl else "insecure" if plain else "starttls",
    )
    return email_channel(config.label, server, sender, config.to)


def _open_webhook(config: WebhookConfig) -> Channel:
    """Return a webhook channel. The address is the password, or host and password, as in Airflow's Slack provider."""
    from floodmark.channels.services import webhook_channel

    found = read_connection(config.conn_id, "slackwebhook", "http")
    token = required_field(found.password, config.conn_id, "password (the address of the webhook, or its token)")
    base = found.host or _SLACK
    if "://" not in base:
        base = f"{found.schema or 'https'}://{base}" + (f":{found.port}" if found.port else "")
    url = token if "://" in token else f"{base.rstrip('/')}/{token.lstrip('/')}"
    # Libraries that log requests, at level DEBUG, log only the path.
    _mask(urlsplit(url).path)
    return webhook_channel(config.label, url)


def _open_apprise(config: AppriseConfig) -> Channel:
    from floodmark.channels.services import apprise_channel

    found = read_connection(config.conn_id, "apprise", "generic")
    url = required_field(found.password, config.conn_id, "password (a URL of apprise)")
    for part in urlsplit(url).path.split("/"):
        _mask(part)
    return apprise_channel(config.label, url)


def _mask(secret: str) -> None:
    from airflow.sdk.log import mask_secret

    if len(secret.strip("/")) >= _SHORTEST_MASKED:
        mask_secret(secret)


_SHORTEST_MASKED = 6
"""The length below which a part is not masked: it may be a common word of the log."""
