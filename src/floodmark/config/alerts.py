"""The part of ``pipelines.yaml`` about alerts: the channels that are told of them. What is secret about a channel, such
as an address with a token in it or a password, stands in an Airflow connection."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from floodmark.config.fields import ConnectionId

ChannelName = Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=100)]
LOG_CHANNEL = "log"


def _check_address(value: str) -> str:
    name, at, host = value.rpartition("@")
    if not (name and at and "." in host) or any(letter.isspace() or letter in ",;<>" for letter in value):
        raise ValueError(f"not an email address: {value!r} (expected one such as oncall@example.com)")
    return value


EmailAddress = Annotated[str, AfterValidator(_check_address)]


class _Channel(BaseModel):
    """name: in the log and the ledger, by default the connection's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    conn_id: ConnectionId
    name: ChannelName | None = None

    @property
    def label(self) -> str:
        return self.name or self.conn_id


class EmailConfig(_Channel):
    """conn_id: an Airflow connection of type smtp. sender: None for the connection's ``from_email``."""

    kind: Literal["email"]
    to: tuple[EmailAddress, ...] = Field(min_length=1)
    sender: EmailAddress | None = None


class WebhookConfig(_Channel):
    """conn_id: an Airflow connection of type slackwebhook or http, to whatever takes Slack's messages."""

    kind: Literal["webhook"]


class AppriseConfig(_Channel):
    """conn_id: an Airflow connection of type apprise or generic, with a URL of apprise as its password."""

    kind: Literal["apprise"]


ChannelConfig = Annotated[EmailConfig | WebhookConfig | AppriseConfig, Field(discriminator="kind")]


class AlertsConfig(BaseModel):
    """channels: beside the log, which is always told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    channels: tuple[ChannelConfig, ...] = ()

    @field_validator("channels")
    @classmethod
    def _check_names(cls, value: tuple[ChannelConfig, ...]) -> tuple[ChannelConfig, ...]:
        """The ledger knows by its name who was told."""
        names = Counter(channel.label for channel in value)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise ValueError(f"two channels are called {', '.join(twice)}: give them a name each")
        if LOG_CHANNEL in names:
            raise ValueError(f"{LOG_CHANNEL} is the name of the channel that is always there")
        return value
