"""A real broker with TLS that asks for a login is read, and each refusal is one clear message without the secret."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks.java_packages import MissingPackagesError
from cutting_proxy import cutting_proxy
from floodmark.core.errors import ConfigError, FloodmarkError, SourceLoginError, SourceUnavailableError
from floodmark.sources.event_stream import kafka
from floodmark.sources.event_stream.doctor import RemovalRules
from floodmark.sources.event_stream.kafka import KafkaStream
from floodmark.sources.event_stream.transport import KafkaTopic
from kafka_broker import PASSWORD, USER, KafkaBroker, kafka_broker
from sqlserver_emulator.server.certificate import provide_certificate

TOPIC = "guarded"
_REFUSED_SECONDS = 15.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    try:
        with kafka_broker(tmp_path_factory.mktemp("kafka") / "broker") as started:
            started.create_topic(TOPIC, 1)
            started.send(TOPIC, [(0, b"first"), (0, b"second")])
            yield started
    except MissingPackagesError as error:
        pytest.skip(str(error))


def stream(
    broker: KafkaBroker, topic: str = TOPIC, *, password: str = PASSWORD, ca_file: Path, servers: str = ""
) -> KafkaStream:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    return KafkaStream(KafkaTopic(servers or broker.secure_servers, topic, login, password, str(ca_file)))


def refusal_of(stream: KafkaStream, secret: str) -> FloodmarkError:
    """Return the error of a read; it comes long before the time is over, and does not have the secret."""
    began = time.monotonic()
    with pytest.raises(FloodmarkError) as caught:
        stream.read_ends()
    assert time.monotonic() - began < _REFUSED_SECONDS
    assert secret not in caught.value.in_full
    assert "\n" not in str(caught.value)
    return caught.value


def test_topic_is_read_over_tls_with_a_login(broker: KafkaBroker) -> None:
    (found,) = stream(broker, ca_file=broker.ca_file).read(0, 0, 2)
    assert [each.body for each in found] == [b"first", b"second"]


def test_rules_of_a_topic_are_read_where_the_login_may_describe_it(broker: KafkaBroker) -> None:
    found = stream(broker, ca_file=broker.ca_file).read_retention([(0, 0)])
    assert (found.rules, found.refusal) == (RemovalRules(timedelta(days=7)), "")
    assert found.times.keys() == {(0, 0)}
    broker.create_topic("closed", 1)
    broker.send("closed", [(0, b"first")])
    broker.restrict_topic("closed", USER)
    closed = stream(broker, "closed", ca_file=broker.ca_file)
    found = closed.read_retention([(0, 0)])
    assert (found.rules, found.refusal) == (None, "TOPIC_AUTHORIZATION_FAILED")
    assert found.times.keys() == {(0, 0)}


def test_wrong_password_is_a_refused_login(broker: KafkaBroker) -> None:
    refusal = refusal_of(stream(broker, password="another-Secret", ca_file=broker.ca_file), "another-Secret")
    assert isinstance(refusal, SourceLoginError)
    assert "the broker refused the login" in str(refusal)


def test_certificate_of_another_authority_is_not_trusted(broker: KafkaBroker, tmp_path: Path) -> None:
    other = provide_certificate(tmp_path, "127.0.0.1").ca_file
    refusal = refusal_of(stream(broker, ca_file=other), PASSWORD)
    assert isinstance(refusal, SourceLoginError)
    assert "there is no secure connection" in str(refusal)
    assert "certificate verify failed" in str(refusal)
    assert "ssl.ca.location" in refusal.hint


def test_missing_topic_is_named(broker: KafkaBroker) -> None:
    refusal = refusal_of(stream(broker, "mistyped", ca_file=broker.ca_file), PASSWORD)
    assert isinstance(refusal, ConfigError)
    assert str(refusal).startswith(f"mistyped at {broker.secure_servers}: there is no such topic.")


def test_broker_that_is_not_there_is_retried_and_says_why(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_TIMEOUT_SECONDS", 2.0)
    nowhere = KafkaStream(KafkaTopic("127.0.0.1:1", TOPIC))
    with pytest.raises(SourceUnavailableError, match="Connection refused"):
        nowhere.read_ends()


@pytest.mark.parametrize("cut_after", range(300, 3500, 400))
def test_connection_that_is_cut_during_its_login_is_no_refusal(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, cut_after: int
) -> None:
    monkeypatch.setattr(kafka, "_TIMEOUT_SECONDS", 1.0)
    with (
        cutting_proxy(broker.secure_port, cut_after) as proxy,
        pytest.raises(SourceUnavailableError, match="the topic cannot be read"),
    ):
        stream(broker, ca_file=broker.ca_file, servers=f"127.0.0.1:{proxy.port}").read_ends()
    assert proxy.cuts > 0
