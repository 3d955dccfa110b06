"""Channels of alerts: from the configuration and its Airflow connections to a message that a user receives."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from alert_receivers import Mails, Posts, http_receiver, smtp_receiver
from floodmark.app.pipeline import App
from floodmark.cli.main import app
from floodmark.config import Config, load_config
from floodmark.core.alert import Alert, build_ended_message, build_raised_message
from floodmark.core.errors import AlertNotSentError, ConfigError
from floodmark.postgres.ledger.status import PostgresAlertLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.alerts import AlertService, Channel

SECRET = "s3cretTokenOfTheChannel"
RAISED = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
ALERT = Alert(
    kind="run_failed",
    subject="shop",
    what="Amount < 0 & more.",
    means="No new rows arrive.",
    do="Read the log.",
    event_key="run_failed:shop",
)
MESSAGE = build_raised_message(ALERT, RAISED)
OVER = build_ended_message(ALERT, RAISED, RAISED.replace(hour=13))
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines: {shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}}
"""
Define = Callable[..., None]
Configure = Callable[[str], Config]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    """Sets an Airflow connection."""

    def set_connection(conn_id: str, conn_type: str, **fields: object) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))

    return set_connection


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    def write(channel: str) -> Config:
        path = tmp_path / "pipelines.yaml"
        path.write_text(f"{CONFIG}alerts: {{channels: [{channel}]}}\n", encoding="utf-8")
        return load_config(path)

    return write


@pytest.fixture
def posts() -> Iterator[Posts]:
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def mails() -> Iterator[Mails]:
    with smtp_receiver(("oncall", SECRET)) as receiver:
        yield receiver


@pytest.fixture
def webhook(posts: Posts, define: Define, configure: Configure) -> Channel:
    define("chat", "slackwebhook", host=f"http://127.0.0.1:{posts.port}/services", password=f"T0/B0/{SECRET}")
    return App(configure("{kind: webhook, conn_id: chat}")).channels[0]


@pytest.fixture
def email(mails: Mails, define: Define, configure: Configure) -> Channel:
    define(
        "mail",
        "smtp",
        host="127.0.0.1",
        port=mails.port,
        login="oncall",
        password=SECRET,
        extra={"disable_ssl": True, "disable_tls": "true", "from_email": "floodmark@example.com"},
    )
    return App(configure("{kind: email, conn_id: mail, to: [dba@example.com, data@example.com]}")).channels[0]


def test_webhook_gets_one_text_that_slack_shows_as_it_is(webhook: Channel, posts: Posts) -> None:
    webhook.send(MESSAGE)
    ((path, body),) = posts.taken
    assert path == f"/services/T0/B0/{SECRET}"
    assert list(body) == ["text"]
    assert body["text"].splitlines() == [
        "*Floodmark: run failed: shop*",
        "*What:* Amount &lt; 0 &amp; more.",
        "*Where:* shop",
        "*Since:* 2026-05-01 12:30:00 UTC",
        "*What it means:* No new rows arrive.",
        "*What to do:* Read the log.",
    ]


def test_address_of_a_webhook_may_be_whole_in_the_password_and_have_a_query(
    posts: Posts, define: Define, configure: Configure
) -> None:
    define("chat", "http", password=f"http://127.0.0.1:{posts.port}/v1/spaces/x/messages?key=k&token={SECRET}")
    App(configure("{kind: webhook, conn_id: chat}")).channels[0].send(MESSAGE)
    assert [path for path, _ in posts.taken] == [f"/v1/spaces/x/messages?key=k&token={SECRET}"]


def test_mail_goes_to_every_receiver_with_the_title_as_its_subject(email: Channel, mails: Mails) -> None:
    email.send(MESSAGE)
    assert sorted(mails.receivers) == ["data@example.com", "dba@example.com"]
    mail = mails.taken[0]
    assert (mail["Subject"], mail["From"]) == ("Floodmark: run failed: shop", "Floodmark <floodmark@example.com>")
    body = mail.get_body(("plain",))
    assert body is not None
    assert "What: Amount < 0 & more." in body.get_content().splitlines()
    email.send(OVER)
    assert mails.taken[-1]["Subject"] == "Floodmark: ended: run failed: shop"


def test_any_url_of_apprise_is_a_channel(posts: Posts, define: Define, configure: Configure) -> None:
    define("phone", "apprise", password=f"json://oncall:{SECRET}@127.0.0.1:{posts.port}/ring")
    App(configure("{kind: apprise, conn_id: phone}")).channels[0].send(OVER)
    ((path, body),) = posts.taken
    assert (path, body["title"], body["type"]) == ("/ring", "Floodmark: ended: run failed: shop", "success")
    assert "What to do: Nothing." in body["message"].splitlines()


@pytest.mark.parametrize("kind", ["webhook", "email"])
def test_channel_that_takes_nothing_says_why_and_not_its_secret(
    kind: str, posts: Posts, mails: Mails, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    channel: Channel = request.getfixturevalue(kind)
    posts.status = 403
    mails.login = ("oncall", "another")
    with caplog.at_level(logging.INFO), pytest.raises(AlertNotSentError) as raised:
        channel.send(MESSAGE)
    assert str(raised.value).startswith(f"channel {channel.name}: ")
    assert ("403" if kind == "webhook" else "E-Mail") in str(raised.value)
    assert SECRET not in str(raised.value) + caplog.text


def test_channel_that_nobody_listens_at_says_so_without_its_secret(define: Define, configure: Configure) -> None:
    with http_receiver() as gone:
        port = gone.port
    define("phone", "generic", password=f"json://oncall:{SECRET}@127.0.0.1:{port}/{SECRET}/x")
    with pytest.raises(
        AlertNotSentError, match="channel phone: JSON did not accept the message: A Connection error"
    ) as raised:
        App(configure("{kind: apprise, conn_id: phone}")).channels[0].send(MESSAGE)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("channel", "connection", "problem"),
    [
        ("{kind: webhook, conn_id: c}", {}, "connection c: Airflow does not know it."),
        ("{kind: webhook, conn_id: c}", {"conn_type": "smtp"}, "its type is smtp, expected slackwebhook or http"),
        ("{kind: webhook, conn_id: c}", {"conn_type": "http", "host": "h"}, "it has no password"),
        ("{kind: webhook, conn_id: c}", {"conn_type": "http", "password": f"ftp://h/{SECRET}"}, "no http or https"),
        ("{kind: webhook, conn_id: c}", {"conn_type": "http", "password": f"http://h:99999/{SECRET}"}, "no http"),
        ("{kind: email, conn_id: c, to: [a@b.de]}", {"conn_type": "smtp", "host": "h"}, "it has no from_email"),
        ("{kind: apprise, conn_id: c}", {"conn_type": "apprise", "password": f"nonsense://{SECRET}"}, "not a URL that"),
        ("{kind: apprise, conn_id: c}", {"conn_type": "apprise", "password": f"slack://{SECRET}"}, "not a URL that"),
    ],
)
def test_connection_that_makes_no_channel_is_named_with_what_is_wrong(
    define: Define, configure: Configure, channel: str, connection: dict[str, str], problem: str
) -> None:
    if connection:
        define("c", **connection)
    with pytest.raises(ConfigError) as raised:
        App(configure(channel)).channels[0].send(MESSAGE)
    assert problem in str(raised.value)
    assert SECRET not in str(raised.value)


def test_alert_reaches_its_channels_once_and_a_broken_one_when_it_is_fixed(
    request: pytest.FixtureRequest,
    posts: Posts,
    mails: Mails,
    database: WarehouseConnection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    webhook, email = request.getfixturevalue("webhook"), request.getfixturevalue("email")
    planner = AlertService(lambda: PostgresAlertLedger(database), [webhook, email])
    mails.login = ("oncall", "another")
    planner.raise_alert(ALERT)
    planner.raise_alert(ALERT)
    assert (len(posts.taken), len(mails.taken)) == (1, 0)
    assert "Could not notify channel mail of alert run_failed:shop" in caplog.text
    mails.login = ("oncall", SECRET)
    planner.raise_alert(ALERT)
    planner.raise_alert(ALERT)
    assert (len(posts.taken), len(mails.taken)) == (1, 2)
    planner.end_alert(ALERT.event_key)
    assert posts.texts[1].startswith("*Floodmark: ended: run failed: shop*")
    assert len(mails.taken) == 4
    assert SECRET not in caplog.text


def test_alert_service_of_a_configuration_notifies_its_channels_even_without_a_warehouse(
    posts: Posts, define: Define, configure: Configure
) -> None:
    define("chat", "slackwebhook", host=f"http://127.0.0.1:{posts.port}", password=f"T0/{SECRET}")
    define("warehouse", "postgres", host="127.0.0.1", port=1, login="u", password="p", schema="dwh")
    App(configure("{kind: webhook, conn_id: chat}")).alerts.raise_alert(ALERT)
    assert len(posts.taken) == 1


def test_command_tries_every_channel_and_says_which_takes_nothing(
    posts: Posts, define: Define, configure: Configure, tmp_path: Path
) -> None:
    define("chat", "http", password=f"http://127.0.0.1:{posts.port}/{SECRET}")
    configure("{kind: webhook, conn_id: chat}, {kind: apprise, conn_id: nobody}")
    result = CliRunner().invoke(app, ["alerts", "test", "--config", str(tmp_path / "pipelines.yaml")])
    assert result.exit_code == 1
    assert "chat: sent" in result.stdout.splitlines()
    assert "nobody: connection nobody: Airflow does not know it." in result.stdout
    assert posts.texts[0].splitlines()[0] == "*Floodmark: test: floodmark*"


@pytest.mark.parametrize(
    ("channels", "problem"),
    [
        ("{kind: pager, conn_id: c}", "alerts.channels[0]: input tag 'pager' found using 'kind' does not match"),
        ("{kind: email, conn_id: c, to: []}", "alerts.channels[0].email.to: "),
        ("{kind: email, conn_id: c, to: [nobody]}", "not an email address: 'nobody'"),
        ("{kind: webhook, conn_id: c, url: x}", "alerts.channels[0].webhook.url: unknown key"),
        (
            "{kind: webhook, conn_id: c}, {kind: apprise, conn_id: c}",
            "alerts.channels: duplicate channel name c: give each channel a name of its own",
        ),
        ("{kind: webhook, conn_id: c, name: log}", "the channel name log is reserved for the log: choose another name"),
    ],
)
def test_channels_that_cannot_be_are_refused_by_their_place(configure: Configure, channels: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        configure(channels)
    assert problem in str(raised.value)


def test_channels_may_share_a_connection_under_names_of_their_own(configure: Configure) -> None:
    config = configure("{kind: webhook, conn_id: c}, {kind: webhook, conn_id: c, name: second}")
    assert [channel.name for channel in App(config).channels] == ["c", "second"]
