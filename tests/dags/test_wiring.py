"""Airflow connections become the connections of source and warehouse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from floodmark.app.connections import spark_target, warehouse_connection
from floodmark.app.pipeline import App, config_path, data_docs_dir
from floodmark.config import Config, load_config
from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName
from floodmark.core.settings import (
    KIND_VARIABLE,
    LEDGER_VARIABLE,
    MASK_KEYS_VARIABLE,
    SOURCE_VARIABLE,
    WAREHOUSE_KIND_VARIABLE,
    WAREHOUSE_VARIABLE,
)
from floodmark.orchestration.load_operator import LoadHook
from floodmark.sources.cdc.kind import CdcKind
from floodmark.sources.compact.kind import CompactKind
from floodmark.sources.event_stream.kind import EventStreamKind
from floodmark.sources.event_stream.source import StreamConnection
from floodmark.sources.event_stream.transport import CaptureFolder, KafkaTopic

SOURCE = {"conn_type": "mssql", "host": "h", "login": "u", "password": "s3cret-s3cret", "schema": "Shop"}
WAREHOUSE = {"conn_type": "postgres", "host": "w", "login": "u", "password": "s3cret-s3cret", "schema": "dwh"}
Define = Callable[..., None]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    """Sets an Airflow connection: its id, its fields, and keyword arguments over them; None takes a field away."""

    def set_connection(conn_id: str, fields: dict[str, object], **changes: object) -> None:
        chosen = {name: value for name, value in (fields | changes).items() if value is not None}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(chosen))

    return set_connection


def test_source_is_encrypted_and_checked_unless_the_connection_says_otherwise(define: Define) -> None:
    define("shop", SOURCE)
    found = CdcKind("shop").database()
    assert (found.host, found.port, found.database, found.user) == ("h", 1433, "Shop", "u")
    assert (found.encrypt, found.trust_server_certificate, found.ca_file) == ("yes", False, "")
    assert "s3cret" not in repr(found)


def test_source_may_be_an_instance_without_a_port(define: Define) -> None:
    define("shop", SOURCE, host="tcp:srv\\REPORTING")
    found = CdcKind("shop").database()
    assert (found.host, found.port, found.instance) == ("srv", 0, "REPORTING")
    table = TableName("dbo", "Orders")
    (dataset,) = CdcKind("shop").name_datasets()(SimpleNamespace(source=table))  # type: ignore[arg-type]
    assert (dataset.namespace, dataset.name) == ("mssql://srv/REPORTING", "Shop.dbo.Orders")


@pytest.mark.parametrize(("written", "trusted"), [("true", True), (True, True), ("False", False), ("no", False)])
def test_extras_of_the_source_may_come_from_a_form(define: Define, written: object, trusted: bool) -> None:
    define(
        "shop", SOURCE, port=14330, extra={"encrypt": "strict", "trust_server_certificate": written, "ca_file": "/c"}
    )
    found = CdcKind("shop").database()
    assert (found.port, found.encrypt, found.trust_server_certificate, found.ca_file) == (
        14330,
        "strict",
        trusted,
        "/c",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": None}, r"connection shop: it has no schema \(the name of the database\)"),
        ({"host": None}, "it has no host"),
        ({"host": "np:srv\\REPORTING"}, "its host is .* by which Floodmark connects: write srv as the host"),
        ({"host": "tcp:srv,1444", "port": 1433}, "has another port than the field port, 1433"),
        ({"login": None}, "it has no login"),
        ({"conn_type": "postgres"}, "its type is postgres, expected mssql"),
        ({"extra": {"encrypt": "maybe"}}, "encrypt is 'maybe'"),
        (
            {"extra": {"application_intent": "read"}},
            "application_intent is 'read', expected one of",
        ),
        ({"extra": {"multi_subnet_failover": "perhaps"}}, "multi_subnet_failover is 'perhaps'"),
        ({"extra": {"trust_server_certificate": "perhaps"}}, "trust_server_certificate is 'perhaps'"),
        ({"extra": {"PacketSize": 8000}}, "its extra has PacketSize, which Floodmark does not take"),
        ({"extra": {"Connection Timeout": "soon"}}, "connect_timeout is 'soon', expected seconds from 1 to 600"),
        ({"extra": {"Connect Timeout": 0}}, "connect_timeout is 0, expected seconds from 1 to 600"),
        ({"extra": {"login_timeout": 5, "ConnectTimeout": 5}}, "its extra has connect_timeout twice"),
        ({"extra": {"TrustServerCert": "yes"}}, r"TrustServerCert \(did you mean trust_server_certificate\?\)"),
        ({"extra": {"Authentication": "ActiveDirectoryMsi"}}, "its password has no effect with authentication"),
        (
            {"extra": {"aplication_intent": "ReadOnly"}},
            r"aplication_intent \(did you mean application_intent\?\)",
        ),
        ({"extra": {"Encrypt": "yes", "encrypt": "no"}}, "its extra has encrypt twice"),
        ({"extra": "encrypt=no"}, "its extra is no JSON object"),
        ({"extra": {"read_only": True, "application_intent": "ReadWrite"}}, "its extra has application_intent twice"),
    ],
)
def test_a_source_connection_that_lacks_something_is_named(
    define: Define, changes: dict[str, object], message: str
) -> None:
    define("shop", SOURCE, **changes)
    with pytest.raises(ConfigError, match=message) as caught:
        CdcKind("shop").database()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("conn_type", ["mssql", "floodmark_mssql"])
def test_extras_of_the_source_may_be_spelled_as_the_driver_spells_them(define: Define, conn_type: str) -> None:
    extra = {
        "ApplicationIntent": "readonly",
        "MultiSubnetFailover": "Yes",
        "Encrypt": "Strict",
        "TrustServerCertificate": "no",
        "DRIVER": "ODBC Driver 18 for SQL Server",
        "APP": "airflow",
        "Application Name": "airflow",
        "MARS_Connection": "yes",
        "Connection Timeout": "30",
    }
    define("shop", SOURCE, conn_type=conn_type, extra=extra)
    found = CdcKind("shop").database()
    assert found.connect_timeout == 30
    assert (found.application_intent, found.multi_subnet_failover) == ("ReadOnly", True)
    assert (found.encrypt, found.trust_server_certificate) == ("strict", False)


@pytest.mark.parametrize(
    ("written", "encrypt"),
    [("Mandatory", "yes"), (True, "yes"), ("Optional", "no"), (False, "no"), ("STRICT", "strict"), ("1", "yes")],
)
def test_encryption_has_the_words_of_the_driver(define: Define, written: object, encrypt: str) -> None:
    define("shop", SOURCE, extra={"Encrypt": written})
    assert CdcKind("shop").database().encrypt == encrypt


def test_extras_of_the_provider_of_a_source_stay_valid(define: Define) -> None:
    extra = {
        "sqlalchemy_scheme": "mssql+pyodbc",
        "login_timeout": 5,
        "charset": "UTF-8",
        "tds_version": "7.4",
        "appname": "airflow",
        "conn_properties": "",
        "read_only": True,
    }
    define("shop", SOURCE, extra=extra)
    found = CdcKind("shop").database()
    assert (found.application_intent, found.connect_timeout) == ("ReadOnly", 5)


def test_extras_of_the_provider_of_a_warehouse_stay_valid(define: Define) -> None:
    extra = {
        "sslMode": "require",
        "application_name": "airflow",
        "keepalives_idle": 30,
        "client_encoding": "utf-8",
        "cursor": "dictcursor",
        "sqlalchemy_query": {},
        "iam": False,
        "aws_conn_id": "aws_default",
    }
    define("dwh", WAREHOUSE, extra=extra)
    assert warehouse_connection("dwh").sslmode == "require"


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"sslcert": "/c.pem", "sslkey": "/k.pem"}, "its extra has sslcert, sslkey, which Floodmark does not take"),
        ({"options": "-c search_path=x"}, "its extra has options, which"),
        ({"target_session_attrs": "read-write"}, "its extra has target_session_attrs, which"),
        ({"ssl_root_crt": "/c.pem"}, r"ssl_root_crt \(did you mean sslrootcert\?\), which"),
        ({"sslmode": "verify"}, "sslmode is 'verify', expected one of disable, allow, prefer"),
        ({"iam": True}, "its extra has iam, which"),
        ({"redshift": "true"}, "its extra has redshift, which"),
        ({"sslmode": "require", "SSLMODE": "disable"}, "its extra has sslmode twice"),
    ],
)
def test_an_extra_of_the_warehouse_without_effect_is_refused(
    define: Define, extra: dict[str, object], message: str
) -> None:
    define("dwh", WAREHOUSE, extra=extra)
    with pytest.raises(ConfigError, match=message):
        warehouse_connection("dwh")


def test_stream_is_a_folder_or_a_topic_and_travels_as_json(define: Define) -> None:
    define("shop", SOURCE)
    define("hub", {"conn_type": "fs", "extra": {"path": "/captures/ns/hub"}})
    found = EventStreamKind("shop", "hub").connection()
    assert found.stream == CaptureFolder("/captures/ns/hub")
    assert StreamConnection.from_json(found.to_json()) == found
    extra = {
        "bootstrap.servers": "ns.servicebus.windows.net:9093",
        "topic": "orders",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": "Endpoint=sb://s3cret",
    }
    define("hub", {"conn_type": "kafka", "extra": extra})
    found = EventStreamKind("shop", "hub").connection()
    assert isinstance(found.stream, KafkaTopic)
    assert (found.stream.topic, found.stream.password) == ("orders", "Endpoint=sb://s3cret")
    assert found.hosts == {"source": "h", "stream": "ns.servicebus.windows.net"}
    assert StreamConnection.from_json(found.to_json()) == found
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"conn_type": "fs", "extra": {}}, "it has no path in its extra"),
        ({"conn_type": "fs", "extra": {"path": "captures"}}, "captures is not an absolute path"),
        ({"conn_type": "http"}, "its type is http, expected fs or kafka"),
        ({"conn_type": "kafka", "extra": {"topic": "t"}}, "it has no bootstrap.servers in its extra"),
        ({"conn_type": "kafka", "extra": {"bootstrap.servers": "h"}}, "it has no topic in its extra"),
        (
            {"conn_type": "kafka", "extra": {"bootstrap.servers": "h", "topic": "t", "auto.offset.reset": "latest"}},
            "its extra has auto.offset.reset, which Floodmark does not take",
        ),
        (
            {"conn_type": "kafka", "extra": {"bootstrap.servers": "h", "topic": "t", "sasl.mechansm": "PLAIN"}},
            r"sasl.mechansm \(did you mean sasl.mechanisms?\?\), which",
        ),
        ({"conn_type": "fs", "extra": {"path": "/captures", "topic": "t"}}, "its extra has topic, which"),
    ],
)
def test_stream_that_lacks_something_is_named(define: Define, fields: dict[str, object], message: str) -> None:
    define("shop", SOURCE)
    define("hub", fields)
    with pytest.raises(ConfigError, match=message):
        EventStreamKind("shop", "hub").connection()


def test_fleet_takes_a_folder_or_a_list_and_its_settings(define: Define) -> None:
    define("vans", {"conn_type": "fs", "extra": {"path": "/data"}})
    found = CompactKind("vans").connection()
    assert (found.paths, found.is_shipped, found.consumer, found.purge_after_days) == (
        ("/data",),
        False,
        "floodmark",
        30,
    )
    extra = {"paths": ["/a", "/b/*.db"], "shipped": "yes", "consumer": "dev", "purge_after_days": "0"}
    define("vans", {"conn_type": "fs", "extra": extra})
    found = CompactKind("vans").connection()
    assert (found.paths, found.is_shipped) == (("/a", "/b/*.db"), True)
    assert (found.consumer, found.purge_after_days) == ("dev", 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"conn_type": "fs"}, "connection vans: it has no path in its extra"),
        ({"conn_type": "mssql", "extra": {"path": "/data"}}, "its type is mssql, expected fs"),
        ({"conn_type": "fs", "extra": {"path": "data"}}, "data is not an absolute path"),
        ({"conn_type": "fs", "extra": {"path": "/data", "shipped": "perhaps"}}, "shipped is 'perhaps'"),
        ({"conn_type": "fs", "extra": {"path": "/data", "purge_after_days": "soon"}}, "soon"),
        ({"conn_type": "fs", "extra": {"path": "/data", "shiped": True}}, r"shiped \(did you mean shipped\?\), which"),
    ],
)
def test_a_fleet_connection_that_lacks_something_is_named(
    define: Define, fields: dict[str, object], message: str
) -> None:
    define("vans", fields)
    with pytest.raises(ConfigError, match=message):
        CompactKind("vans").connection()


def test_a_connection_that_is_not_defined_says_how_to_define_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_NOWHERE", raising=False)
    with pytest.raises(ConfigError, match=r"connection nowhere: Airflow does not know it\..*AIRFLOW_CONN_NOWHERE"):
        warehouse_connection("nowhere")


def test_warehouse_takes_its_tls_settings_from_the_extras(define: Define) -> None:
    define("dwh", WAREHOUSE, extra={"sslmode": "verify-full", "sslrootcert": "/ca.pem"})
    found = warehouse_connection("dwh")
    assert (found.host, found.port, found.database) == ("w", 5432, "dwh")
    assert (found.sslmode, found.sslrootcert) == ("verify-full", "/ca.pem")


@pytest.mark.parametrize(
    ("host", "sslmode"),
    [
        ("db.example.org", "verify-full"),
        ("warehouse", "verify-full"),
        ("10.0.0.1", "verify-full"),
        ("127.0.0.1", "prefer"),
        ("::1", "prefer"),
        ("localhost", "prefer"),
        ("/run/postgresql", "prefer"),
    ],
)
def test_warehouse_is_verified_unless_it_is_on_this_machine_or_the_extras_choose(
    define: Define, host: str, sslmode: str
) -> None:
    define("dwh", WAREHOUSE, host=host)
    assert warehouse_connection("dwh").sslmode == sslmode
    define("dwh", WAREHOUSE, host=host, extra={"sslmode": "require"})
    assert warehouse_connection("dwh").sslmode == "require"


def test_source_takes_its_availability_group_settings_from_the_extras(define: Define) -> None:
    define("shop", SOURCE)
    found = CdcKind("shop").database()
    assert (found.application_intent, found.multi_subnet_failover) == ("ReadWrite", False)
    define("shop", SOURCE, extra={"application_intent": "ReadOnly", "multi_subnet_failover": "true"})
    found = CdcKind("shop").database()
    assert (found.application_intent, found.multi_subnet_failover) == ("ReadOnly", True)


@pytest.mark.parametrize(
    ("fields", "master"),
    [
        ({"conn_type": "spark", "host": "local[2]"}, "local[2]"),
        ({"conn_type": "spark", "host": "spark://m", "port": 7077}, "spark://m:7077"),
        ({"conn_type": "spark", "host": "m", "port": 7077}, "spark://m:7077"),
        ({"conn_type": "spark", "host": "yarn"}, "yarn"),
    ],
)
def test_spark_master_comes_from_its_connection(define: Define, fields: dict[str, object], master: str) -> None:
    define("spark_default", fields)
    assert spark_target().master == master
    assert LoadHook({})._connection["master"] == master


def test_spark_connection_sets_the_same_for_command_and_task(define: Define) -> None:
    extra = {"conf": {"spark.executor.instances": 3}, "archives": "/a.tar.gz#environment", "queue": "etl"}
    define("spark_default", {"conn_type": "spark", "host": "yarn", "extra": extra})
    wanted = {"spark.executor.instances": "3", "spark.archives": "/a.tar.gz#environment", "spark.yarn.queue": "etl"}
    assert spark_target().conf == wanted
    assert wanted.items() <= LoadHook({})._conf.items()


def test_paths_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_CONFIG", "/etc/floodmark.yaml")
    monkeypatch.setenv("FLOODMARK_DATA_DOCS", "/srv/docs")
    assert str(config_path()) == "/etc/floodmark.yaml"
    assert str(data_docs_dir()) == "/srv/docs"
    monkeypatch.delenv("FLOODMARK_DATA_DOCS")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert str(data_docs_dir()) == "/var/state/floodmark/data_docs"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 987_654_321)  # of no user
    assert str(data_docs_dir()) == "/nonexistent/floodmark/data_docs"


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Config]:
    """Reads a configuration with something more in it."""

    def read(more: str) -> Config:
        path = tmp_path / "pipelines.yaml"
        path.write_text(
            "sources: {shop: {conn_id: shop}}\nwarehouse: {conn_id: dwh}\n"
            "pipelines: {shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}}\n" + more,
            encoding="utf-8",
        )
        return load_config(path)

    return read


def test_ledger_is_reached_by_the_warehouses_connection_unless_it_has_its_own(
    define: Define, config: Callable[[str], Config]
) -> None:
    define("shop", SOURCE)
    define("dwh", WAREHOUSE)
    define("books", WAREHOUSE, login="keeper")
    assert App(config("")).ledger_connection.user == "u"
    own = App(config("ledger: {conn_id: books}\n")).pipeline("shop")
    assert own.warehouse
    secrets = dict(own.job_secrets())
    assert secrets.pop(KIND_VARIABLE) == "cdc"
    assert secrets.pop(WAREHOUSE_KIND_VARIABLE) == "postgres"
    assert secrets.pop(MASK_KEYS_VARIABLE) == "{}"
    users = {name: json.loads(text)["user"] for name, text in secrets.items()}
    assert users == {SOURCE_VARIABLE: "u", LEDGER_VARIABLE: "keeper", WAREHOUSE_VARIABLE: "u"}


def test_connection_is_read_once_for_a_command_and_again_for_the_next(
    define: Define, config: Callable[[str], Config]
) -> None:
    app = App(config(""))
    with pytest.raises(ConfigError, match="connection dwh: Airflow does not know it"):
        _ = app.ledger
    define("dwh", WAREHOUSE)
    assert app.ledger is app.pipeline("shop").ledger
    define("dwh", WAREHOUSE, login="keeper")
    assert (app.ledger_connection.user, app.warehouse_connection.user) == ("u", "u")
    assert App(app.config).ledger_connection.user == "keeper"


def test_ledger_in_another_database_is_refused_by_name(define: Define, config: Callable[[str], Config]) -> None:
    define("dwh", WAREHOUSE)
    define("books", WAREHOUSE, schema="books")
    with pytest.raises(
        ConfigError, match=r"^connection books: the ledger is in w:5432/books, and the warehouse in w:5432/dwh"
    ):
        _ = App(config("ledger: {conn_id: books}\n")).warehouse


@pytest.mark.parametrize(
    ("part", "kind"),
    [("sources: {shop: {conn_id: c, kind: odbc}}", "cdc"), ("warehouse: {conn_id: w, kind: duck}", "postgres")],
)
def test_kind_that_does_not_exist_is_refused(tmp_path: Path, part: str, kind: str) -> None:
    parts = {"sources": "sources: {shop: {conn_id: c}}", "warehouse": "warehouse: {conn_id: w}"}
    parts[part.partition(":")[0]] = part
    path = tmp_path / "pipelines.yaml"
    tables = "pipelines: {shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}}"
    path.write_text("\n".join([*parts.values(), tables]), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"kind.*{kind}"):
        load_config(path)
