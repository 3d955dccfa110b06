"""The name of a server, and the answers of SQL Server Browser about its instances."""

from __future__ import annotations

import pytest

from floodmark.core.errors import ConfigError, SourceAdminError, SourceUnavailableError
from floodmark.sources.sqlserver import server_name
from floodmark.sources.sqlserver.server_name import ServerName, find_port, parse_server, read_answer, require_host
from sql_browser import answer_of, browser

WHOLE = "ServerName;SRV;InstanceName;REPORTING;IsClustered;No;Version;16.0.1000.6;tcp;50123;np;\\\\SRV\\pipe\\sql;;"


@pytest.mark.parametrize("host", ["db", "db.example.org.", "sql_1", "10.0.0.1", "::1", "fe80::1%eth0", "größe.example"])
def test_host_is_a_name_or_an_address(host: str) -> None:
    require_host(host, "shop")
    assert parse_server(host, None, "shop") == ServerName(host, 1433)
    assert parse_server(host, 1444, "shop") == ServerName(host, 1444)


@pytest.mark.parametrize(
    ("written", "port", "expected"),
    [
        ("srv,1444", None, ServerName("srv", 1444)),
        ("srv, 1444", 1444, ServerName("srv", 1444)),
        ("tcp:srv", None, ServerName("srv", 1433)),
        ("TCP:srv,1444", None, ServerName("srv", 1444)),
        ("tcp:10.0.0.1,1444", None, ServerName("10.0.0.1", 1444)),
        ("srv\\REPORTING", None, ServerName("srv", 0, "REPORTING")),
        ("tcp:srv\\REPORTING", None, ServerName("srv", 0, "REPORTING")),
        ("srv\\REPORTING", 1444, ServerName("srv", 1444)),
        ("srv\\REPORTING,1444", None, ServerName("srv", 1444)),
        ("srv\\MSSQLSERVER", None, ServerName("srv", 1433)),
    ],
)
def test_server_means_what_it_means_to_drivers(written: str, port: int | None, expected: ServerName) -> None:
    assert parse_server(written, port, "shop") == expected


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("\\\\srv\\pipe\\sql\\query", r"is neither a name nor an address"),
        ("srv:1433", r"write srv as the host and 1433 as the port"),
        ("srv,1445", r"has another port than the field port, 1444"),
        ("lpc:srv", r"by which Floodmark connects: write srv as the host"),
        ("np:srv", r"by which Floodmark connects: write srv as the host"),
        ("admin:srv", r"by which Floodmark connects: write srv as the host"),
        ("(local)", r"is neither a name nor an address"),
        ("(localdb)\\MSSQLLocalDB", r"is neither a name nor an address"),
        (".", r"is neither a name nor an address"),
        (".\\SQLEXPRESS", r"is neither a name nor an address"),
        ("[::1]", r"is neither a name nor an address"),
        ("srv;Database=other", r"is neither a name nor an address"),
        (" srv", r"is neither a name nor an address"),
        ("jdbc:sqlserver://srv", r"is neither a name nor an address"),
    ],
)
def test_host_that_may_lead_to_another_server_is_refused(host: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse_server(host, 1444, "connection shop")
    assert not caught.value.retryable
    assert repr(host) in str(caught.value)


@pytest.mark.parametrize("instance", ["GRÖSSE", "A" * 33])
def test_instance_that_no_request_can_name_is_refused(instance: str) -> None:
    with pytest.raises(ConfigError, match="write srv and the port"):
        parse_server(f"srv\\{instance}", None, "shop")


def test_browser_is_asked_for_the_port_of_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    with browser(monkeypatch, lambda _: answer_of(WHOLE)) as asked:
        assert find_port("127.0.0.1", "Reporting", "shop") == 50123
    assert asked[0] == b"\x04Reporting\0"


def test_lost_answer_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_name, "_ANSWER_SECONDS", 0.2)
    answers = iter([None, answer_of(WHOLE)])
    with browser(monkeypatch, lambda _: next(answers)) as asked:
        assert find_port("127.0.0.1", "REPORTING", "shop") == 50123
    assert len(asked[:2]) == 2


@pytest.mark.parametrize("answer", [None, b"\x05", answer_of(WHOLE.replace("REPORTING", "OTHER"))])
def test_server_whose_browser_says_nothing_of_the_instance_is_not_guessed(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | None
) -> None:
    monkeypatch.setattr(server_name, "BROWSER_SECONDS", 0.3)
    with (
        browser(monkeypatch, lambda _: answer),
        pytest.raises(SourceUnavailableError, match=r"which port the instance REPORTING has") as caught,
    ):
        find_port("127.0.0.1", "REPORTING", "shop")
    assert "Start the service SQL Server Browser" in str(caught.value)
    assert "or write the port of the instance into the connection" in str(caught.value)


@pytest.mark.parametrize("port", ["", "0", "65536", "-1", "1433x"])
def test_instance_without_a_port_of_tcp_is_named(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    said = answer_of(WHOLE.replace("tcp;50123", f"tcp;{port}"))
    with browser(monkeypatch, lambda _: said), pytest.raises(SourceAdminError, match="does not listen on TCP"):
        find_port("127.0.0.1", "REPORTING", "shop")


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\x05\x00",
        b"\x04" + answer_of(WHOLE)[1:],
        answer_of(WHOLE)[:-1],
        answer_of(WHOLE) + b";",
        answer_of(WHOLE + 1024 * ";"),
    ],
)
def test_datagram_that_is_no_whole_answer_says_nothing(datagram: bytes) -> None:
    assert read_answer(answer_of(WHOLE), "reporting") is not None
    assert read_answer(datagram, "reporting") is None
