from psycopg.conninfo import conninfo_to_dict

from floodmark.postgres.session import WarehouseConnection

AWKWARD = WarehouseConnection("db.example", 5433, "ware house", "me@home", "p:/ '@%\\", "require", "/etc/ca file.pem")
EXPECTED = {
    "host": "db.example",
    "port": "5433",
    "dbname": "ware house",
    "user": "me@home",
    "password": "p:/ '@%\\",
    "sslmode": "require",
    "sslrootcert": "/etc/ca file.pem",
    "application_name": "floodmark",
    "client_encoding": "UTF8",
    "connect_timeout": "15",
    "keepalives_idle": "60",
}


def test_conninfo_and_uri_say_the_same_however_awkward_the_values() -> None:
    for text in (AWKWARD.conninfo(), AWKWARD.uri()):
        assert {name: str(value) for name, value in conninfo_to_dict(text).items()} == EXPECTED


def test_socket_folder_takes_the_place_of_a_host() -> None:
    assert conninfo_to_dict(WarehouseConnection("/run/pg", 5432, "w", "u").uri())["host"] == "/run/pg"


def test_connection_is_the_same_after_json() -> None:
    assert WarehouseConnection.from_json(AWKWARD.to_json()) == AWKWARD


def test_password_is_in_no_text_that_people_see() -> None:
    secret = WarehouseConnection("h", 1, "d", "u", "s3cret")
    assert "s3cret" not in repr(secret) + str(secret)
