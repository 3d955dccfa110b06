"""The alerts of a configuration: its ledger and its channels put together, each channel from its Airflow connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from floodmark.config.alerts import AppriseConfig, ChannelConfig, EmailConfig, WebhookConfig
from floodmark.core.alert import Alert, build_raised_message
from floodmark.core.errors import ConfigError, FloodmarkError
from floodmark.orchestration.alert_notes import VariableNotes
from floodmark.sync.alerts import AlertDesk, Alerts
from floodmark.wiring import read_connection, read_flag, required_field, warehouse_connection

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.core.alert import AlertMessage
    from floodmark.sync.alerts import AlertLedger, Channel

_SLACK = "https://hooks.slack.com/services"


def alerts_of(config: Config) -> Alerts:
    """For every alert about its sources and pipelines. Nothing is connected to before there is something to say."""

    def ledger() -> AlertLedger:
        from floodmark.ledger.alerts import PostgresAlertLedger  # noqa: PLC0415

        return PostgresAlertLedger(warehouse_connection(config.warehouse.conn_id))

    return AlertDesk(ledger, channels_of(config), VariableNotes(), {*config.pipelines, *config.sources})


def channels_of(config: Config) -> Sequence[Channel]:
    """Beside the log. A connection is read when there is a message to send, so that a wrong one is a channel that
    cannot be reached."""
    return [_ConnectedChannel(channel) for channel in config.alerts.channels]


def try_channels(config: Config) -> Mapping[str, str]:
    """Sends a message to every channel. By name, why it was not taken, "" where it was."""
    alert = Alert(
        kind="test", subject="floodmark", what="Somebody tries whether alerts arrive.",
        means="This channel works.", do="Nothing.", event_key="test",
    )  # fmt: skip
    message = build_raised_message(alert, datetime.now(UTC))
    return {channel.name: _try(channel, message) for channel in channels_of(config)}


def _try(channel: Channel, message: AlertMessage) -> str:
    try:
        channel.send(message)
    except FloodmarkError as error:
        return str(error)
    return ""


class _ConnectedChannel:
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
    """The connection is the SMTP provider's: extras from_email, disable_ssl and disable_tls (which is STARTTLS)."""
    from floodmark.channels.services import MailServer, email_channel  # noqa: PLC0415

    found = read_connection(config.conn_id, "smtp")
    extras = found.extra_dejson
    plain = read_flag(extras.get("disable_tls", False), config.conn_id, "disable_tls")
    without_ssl = read_flag(extras.get("disable_ssl", False), config.conn_id, "disable_ssl")
    sender = config.sender or extras.get("from_email") or ""
    if not sender:
        raise ConfigError(
            f"connection {config.conn_id}", "it has no from_email, and the channel no sender.", "Say who writes."
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
    """The address is the password, or host and password together, as Airflow's Slack provider has it."""
    from floodmark.channels.services import webhook_channel  # noqa: PLC0415

    found = read_connection(config.conn_id, "slackwebhook", "http")
    token = required_field(found.password, config.conn_id, "password (the address of the webhook, or its token)")
    base = found.host or _SLACK
    if "://" not in base:
        base = f"{found.schema or 'https'}://{base}" + (f":{found.port}" if found.port else "")
    url = token if "://" in token else f"{base.rstrip('/')}/{token.lstrip('/')}"
    # Libraries that log requests, at the level DEBUG, log the path alone.
    _mask(urlsplit(url).path)
    return webhook_channel(config.label, url)


def _open_apprise(config: AppriseConfig) -> Channel:
    from floodmark.channels.services import apprise_channel  # noqa: PLC0415

    found = read_connection(config.conn_id, "apprise", "generic")
    url = required_field(found.password, config.conn_id, "password (a URL of apprise)")
    for part in urlsplit(url).path.split("/"):
        _mask(part)
    return apprise_channel(config.label, url)


def _mask(secret: str) -> None:
    from airflow.sdk.log import mask_secret  # noqa: PLC0415

    if len(secret.strip("/")) >= _SHORTEST_MASKED:
        mask_secret(secret)


_SHORTEST_MASKED = 6
"""Shorter ones are words that logs need."""
