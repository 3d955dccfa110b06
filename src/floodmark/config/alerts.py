"""The part of ``pipelines.yaml`` about alerts: the channels that alerts are sent to.

What is secret about a channel, such as an address with a token in it or a password, is in an Airflow connection.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from floodmark.config.fields import ConnectionId

ChannelName = Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=100)]
LOG_CHANNEL = "log"
"""The name of the log as a channel, which no configured channel may have."""


def _check_address(value: str) -> str:
    name, at, host = value.rpartition("@")
    if not (name and at and "." in host) or any(letter.isspace() or letter in ",;<>" for letter in value):
        raise ValueError(f"not an email address: {value!r} (expected one such as oncall@example.com)")
    return value


EmailAddress = Annotated[str, AfterValidator(_check_address)]


class _Channel(BaseModel):
    """The settings that all kinds of channels have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    conn_id: ConnectionId
    """The connection of the channel."""
    name: ChannelName | None = None
    """The channel's name in the log and the ledger; None: the connection's."""

    @property
    def label(self) -> str:
        """Return the name, or else the connection's."""
        return self.name or self.conn_id


class EmailConfig(_Channel):
    """A channel that sends email through an Airflow connection of type smtp."""

    kind: Literal["email"]
    to: tuple[EmailAddress, ...] = Field(min_length=1)
    """The receivers."""
    sender: EmailAddress | None = None
    """The sender; None: the connection's ``from_email``."""


class WebhookConfig(_Channel):
    """A channel that posts to an Airflow connection of type slackwebhook or http, which takes Slack's messages."""

    kind: Literal["webhook"]


class AppriseConfig(_Channel):
    """A channel of apprise: an Airflow connection of type apprise or generic, with the URL as its password."""

    kind: Literal["apprise"]


ChannelConfig = Annotated[EmailConfig | WebhookConfig | AppriseConfig, Field(discriminator="kind")]


class AlertsConfig(BaseModel):
    """The section ``alerts``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    channels: tuple[ChannelConfig, ...] = ()
    """The channels in addition to the log, which receives every alert."""

    @field_validator("channels")
    @classmethod
    def _check_names(cls, value: tuple[ChannelConfig, ...]) -> tuple[ChannelConfig, ...]:
        """Raise ValueError for duplicate names: the ledger records by its name which channel was notified."""
        names = Counter(channel.label for channel in value)
        duplicates = [name for name, count in names.items() if count > 1]
        if duplicates:
            raise ValueError(f"duplicate channel name {', '.join(duplicates)}: give each channel a name of its own")
        if LOG_CHANNEL in names:
            raise ValueError(f"the channel name {LOG_CHANNEL} is reserved for the log: choose another name")
        return value
