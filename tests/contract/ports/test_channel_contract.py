"""The contract of an alert channel, on every channel there is."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from channel_contract import SECRET, ChannelContract, ChannelRig, RemoteChannelContract

from alert_receivers import Mails, Posts, http_receiver, smtp_receiver
from floodmark.channels import MailServer, apprise_channel, email_channel, webhook_channel
from floodmark.sync.alerts import LogChannel

REMOTE = ["webhook", "apprise", "email"]


@pytest.fixture
def posts() -> Iterator[Posts]:
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def mails() -> Iterator[Mails]:
    with smtp_receiver(("oncall", SECRET)) as receiver:
        yield receiver


@pytest.fixture
def log_rig(caplog: pytest.LogCaptureFixture) -> ChannelRig:
    caplog.set_level(logging.INFO)
    return ChannelRig(LogChannel(), lambda: caplog.messages)


@pytest.fixture
def webhook_rig(posts: Posts) -> ChannelRig:
    channel = webhook_channel("chat", f"http://127.0.0.1:{posts.port}/services/{SECRET}")
    return ChannelRig(channel, lambda: posts.texts, lambda: refuse_posts(posts))


@pytest.fixture
def apprise_rig(posts: Posts) -> ChannelRig:
    channel = apprise_channel("phone", f"json://oncall:{SECRET}@127.0.0.1:{posts.port}/ring")
    return ChannelRig(
        channel, lambda: [f"{body['title']}\n{body['message']}" for _, body in posts.taken], lambda: refuse_posts(posts)
    )


@pytest.fixture
def email_rig(mails: Mails) -> ChannelRig:
    server = MailServer("127.0.0.1", "insecure", mails.port, "oncall", SECRET)
    channel = email_channel("mail", server, "floodmark@example.com", ["dba@example.com"])
    return ChannelRig(channel, lambda: read_mails(mails), lambda: setattr(mails, "login", ("oncall", "another")))


@pytest.fixture(params=["log", *REMOTE])
def rig(request: pytest.FixtureRequest) -> ChannelRig:
    found: ChannelRig = request.getfixturevalue(f"{request.param}_rig")
    return found


@pytest.fixture(params=REMOTE)
def remote_rig(request: pytest.FixtureRequest) -> ChannelRig:
    found: ChannelRig = request.getfixturevalue(f"{request.param}_rig")
    return found


def refuse_posts(posts: Posts) -> None:
    posts.status = 403


def read_mails(mails: Mails) -> list[str]:
    """Return subject and text of the mails that were taken."""
    texts = []
    for mail in mails.taken:
        body = mail.get_body(("plain",))
        assert body is not None
        texts.append(f"{mail['Subject']}\n{body.get_content()}")
    return texts


class TestChannel(ChannelContract):
    """With the fixture ``rig`` of every channel."""


class TestRemoteChannel(RemoteChannelContract):
    """With the fixture ``remote_rig`` of every service."""
