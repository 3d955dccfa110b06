"""The connection as a value: what it hides and how it travels."""

from dataclasses import replace

import pytest

from floodmark.core.errors import ConfigError
from floodmark.sources.sqlserver.driver import SqlServerConnection, _connection_string, connect, require_host

CONNECTION = SqlServerConnection("db.example", 1433, "Shop", "reader", "s3cret;{}", ca_file="/etc/ca.pem")


def test_connection_comes_back_from_json() -> None:
    assert SqlServerConnection.from_json(CONNECTION.to_json()) == CONNECTION


@pytest.mark.parametrize("shown", [repr(CONNECTION), str(CONNECTION)])
def test_connection_does_not_show_its_password(shown: str) -> None:
    assert "s3cret" not in shown
    assert "db.example" in shown


def test_connection_encrypts_and_checks_the_certificate_by_default() -> None:
    connection = SqlServerConnection("h", 1, "d", "u")
    assert (connection.encrypt, connection.trust_server_certificate) == ("yes", False)


def test_connection_refuses_an_unknown_encrypt() -> None:
    with pytest.raises(ValueError, match="encrypt is 'maybe', expected one of yes, no, strict"):
        SqlServerConnection("h", 1, "d", "u", encrypt="maybe")  # type: ignore[arg-type]


def test_listener_of_an_availability_group_gets_what_it_needs() -> None:
    assert "ApplicationIntent={ReadWrite};MultiSubnetFailover={No};" in _connection_string(CONNECTION)
    reading = replace(CONNECTION, application_intent="ReadOnly", multi_subnet_failover=True)
    assert "ApplicationIntent={ReadOnly};MultiSubnetFailover={Yes};" in _connection_string(reading)
    assert SqlServerConnection.from_json(reading.to_json()) == reading


def test_session_is_never_moved_to_another_server() -> None:
    assert "ConnectRetryCount={0};" in _connection_string(CONNECTION)


@pytest.mark.parametrize("host", ["db", "db.example.org.", "sql_1", "10.0.0.1", "::1", "fe80::1%eth0", "größe.example"])
def test_host_is_a_name_or_an_address(host: str) -> None:
    require_host(host, "shop")
    assert f"Server={{tcp:{host},1433}};" in _connection_string(replace(CONNECTION, host=host))


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("srv\\REPORTING", r"names an instance: write srv as the host and the port of the instance REPORTING"),
        ("tcp:srv\\REPORTING,1444", r"write srv as the host and 1444 as the port"),
        ("srv\\REPORTING,1444", r"write srv as the host and 1444 as the port"),
        ("\\\\srv\\pipe\\sql\\query", r"is neither a name nor an address"),
        ("srv,1433", r"write srv as the host and 1433 as the port"),
        ("srv:1433", r"write srv as the host and 1433 as the port"),
        ("tcp:srv", r"write srv as the host"),
        ("TCP:srv,1444", r"write srv as the host and 1444 as the port"),
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
        connect(replace(CONNECTION, host=host))
    assert not caught.value.retryable
    assert repr(host) in str(caught.value)
