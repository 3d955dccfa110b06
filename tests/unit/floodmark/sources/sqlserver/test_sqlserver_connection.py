"""The connection as a value: what it hides and how it travels."""

from dataclasses import replace

import pytest

from floodmark.core.errors import ConfigError
from floodmark.sources.sqlserver.driver import SqlServerConnection, _connection_string, connect

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


@pytest.mark.parametrize("host", ["db", "10.0.0.1", "::1", "größe.example"])
def test_driver_gets_one_host_and_its_port(host: str) -> None:
    assert f"Server={{tcp:{host},1433}};" in _connection_string(replace(CONNECTION, host=host))


@pytest.mark.parametrize("host", ["srv\\REPORTING", "srv,1444", "tcp:srv", "srv;Database=other", "."])
def test_driver_gets_nothing_that_may_lead_to_another_server(host: str) -> None:
    with pytest.raises(ConfigError, match="is neither a name nor an address") as caught:
        connect(replace(CONNECTION, host=host))
    assert repr(host) in str(caught.value)


def test_instance_without_a_port_is_a_part_of_the_connections_name() -> None:
    at = replace(CONNECTION, port=0, instance="REPORTING")
    assert str(at) == "reader@db.example\\REPORTING/Shop"
    assert SqlServerConnection.from_json(at.to_json()) == at
