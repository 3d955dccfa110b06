"""``BrokerReports``: the errors of a topic's broker, and the reasons that librdkafka reports while a call waits for it.

A call that gets no answer ends with a timeout or a lost connection. Why there is none, a refused login for instance,
only a callback shows, in a poll.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError

from floodmark.core.errors import FloodmarkError, SourceLoginError, SourceUnavailableError
from floodmark.sources.event_stream.kafka_topic import KafkaTopic

_LOGIN = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)
_HANDSHAKES = 3
"""So many handshakes of TLS have to fail: one also fails where the broker ends meanwhile."""


class BrokerReports:
    """The errors of one consumer."""

    def __init__(self, at: KafkaTopic) -> None:
        self._at = at
        self._reported: list[Any] = []

    def note(self, error: Any) -> None:
        """Keep an error; librdkafka's callback."""
        self._reported.append(error)

    def refusal(self) -> FloodmarkError | None:
        """Return the error of a broker that refuses: to wait for it is of no use."""
        login = next((each for each in self._reported if each.code() in _LOGIN), None)
        if login is not None:
            return self._refused_login(login)
        handshakes = [each for each in self._reported if each.code() == KafkaError._SSL]
        return self._no_trust(handshakes[-1]) if len(handshakes) >= _HANDSHAKES else None

    def translated(self, error: Any) -> FloodmarkError:
        """Return the error of a call that failed, with the reason that was reported."""
        if error.code() in _LOGIN:
            return self._refused_login(error)
        return self.refusal() or self.unavailable((self._reported or [error])[-1].str())

    def unavailable(self, cause: str) -> SourceUnavailableError:
        hint = "Check the broker and the connection of the stream. It is retried automatically."
        return SourceUnavailableError(str(self._at), f"the topic cannot be read: {cause}.", hint)

    def _refused_login(self, error: Any) -> SourceLoginError:
        return SourceLoginError(
            str(self._at), f"the broker refused the login ({error.name()}).", "Correct the connection of the stream."
        )

    def _no_trust(self, error: Any) -> SourceLoginError:
        hint = "Correct ssl.ca.location or security.protocol in the connection of the stream."
        return SourceLoginError(str(self._at), f"there is no secure connection: {error.str()}.", hint)
