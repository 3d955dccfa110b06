"""Application locks of a session that a connection pool takes back."""

from __future__ import annotations

from collections.abc import Callable

from engine_client import Client


def test_lock_of_a_session_is_released_when_its_connection_is_reset(
    client: Client, connect: Callable[..., Client]
) -> None:
    other = connect()
    call = "DECLARE @r int; EXEC @r = sp_getapplock N'pooled', 'Exclusive', 'Session', 0; SELECT @r"
    assert client.value(call) == 0
    assert other.value(call) == -1
    client.session.reset()
    assert other.value(call) == 0
