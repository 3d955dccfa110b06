from __future__ import annotations

from sqlserver_emulator.tds.prelogin import SERVER_VERSION
from sqlserver_emulator.tsql.state import server_facts


def test_version_is_the_one_of_the_handshake() -> None:
    assert server_facts.VERSION[:3] == SERVER_VERSION
    assert ".".join(map(str, server_facts.VERSION)) in server_facts.VERSION_TEXT


def test_version_text_fits_its_variable() -> None:
    assert len(server_facts.VERSION_TEXT) <= 300
