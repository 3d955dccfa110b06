"""``ChannelContract``: what every ``sync.alerts.Channel`` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from floodmark.core.alert import Alert, build_ended_message, build_raised_message
from floodmark.core.errors import AlertNotSentError
from floodmark.sync.alerts import Channel

SECRET = "s3cretTokenOfTheChannel"
RAISED = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
ALERT = Alert(
    kind="run_failed",
    subject="shop",
    what="Ä table is gone.",
    means="No new rows arrive.",
    do="Read the log.",
    event_key="run_failed:shop",
)
MESSAGE = build_raised_message(ALERT, RAISED)
ENDED = build_ended_message(ALERT, RAISED, RAISED.replace(hour=13))


@dataclass
class ChannelRig:
    """A channel with what it leads to."""

    channel: Channel
    received: Callable[[], Sequence[str]]
    """Returns the messages that came out at the other end, as text."""
    refuse: Callable[[], None] = lambda: None
    """Makes the other end refuse messages, where it can."""


class ChannelContract:
    """A test class of an adapter derives from it, with a fixture ``rig``."""

    def test_message_arrives_with_all_of_its_parts(self, rig: ChannelRig) -> None:
        rig.channel.send(MESSAGE)
        (text,) = rig.received()
        for part in ("run failed: shop", ALERT.what, ALERT.means, ALERT.do, "2026-05-01 12:30"):
            assert part in text

    def test_end_of_an_alert_arrives_as_a_message_of_its_own(self, rig: ChannelRig) -> None:
        rig.channel.send(MESSAGE)
        rig.channel.send(ENDED)
        raised, ended = rig.received()
        assert "ended: run failed: shop" in ended
        assert "ended: run failed: shop" not in raised

    def test_message_that_is_sent_again_arrives_again(self, rig: ChannelRig) -> None:
        for _ in range(2):
            rig.channel.send(MESSAGE)
        assert len(rig.received()) == 2

    def test_name_is_that_of_the_configuration_and_stays(self, rig: ChannelRig) -> None:
        before = rig.channel.name
        rig.channel.send(MESSAGE)
        assert rig.channel.name == before != ""


class RemoteChannelContract:
    """The same for channels whose other end may refuse a message, with a fixture ``remote_rig``."""

    def test_refused_message_is_an_error_that_names_the_channel_without_its_secret(
        self, remote_rig: ChannelRig
    ) -> None:
        remote_rig.refuse()
        with pytest.raises(AlertNotSentError) as refused:
            remote_rig.channel.send(MESSAGE)
        assert remote_rig.channel.name in str(refused.value)
        assert SECRET not in refused.value.in_full
