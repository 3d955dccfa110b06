"""The connection as a value: what it hides and how it travels."""

import pytest

from floodmark.sources.sqlserver.connection import SqlServerConnection

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
