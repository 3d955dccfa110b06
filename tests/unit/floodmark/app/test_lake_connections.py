"""The connection of a lake: a folder, or a bucket with what its clients need, and a message for all that is neither."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from floodmark.app.connections import lake_folder, lake_registry
from floodmark.core.doctor import Grade, LakeAccess, examine_lake
from floodmark.core.errors import ConfigError, WarehouseUnavailableError
from floodmark.core.schema import Dataset, TableName, file_dataset
from floodmark.iceberg.folder import Bucket, LakeFolder, folder_of, plain_location
from floodmark.iceberg.registry import Registry

STAGED = {"path": "s3://company-lake/shop/", "staging": "/srv/staging"}
KEY = {"login": "AKIA", "password": "a secret key"}


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Any:
    def define(**fields: object) -> LakeFolder:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(fields))
        return lake_folder("lake")

    return define


def test_folder_has_its_tables_and_its_staged_rows(define: Any) -> None:
    lake = define(conn_type="fs", extra={"path": "/srv/lake"})
    assert lake == LakeFolder("/srv/lake")
    assert lake.tables == "/srv/lake/tables"
    assert LakeFolder.from_json(lake.to_json()) == lake


def test_bucket_has_the_tables_and_a_folder_the_staged_rows(define: Any) -> None:
    lake = define(conn_type="aws", extra=STAGED, **KEY)
    assert lake.tables == "s3://company-lake/shop/tables"
    assert lake.path == "/srv/staging"
    assert LakeFolder.from_json(lake.to_json()) == lake
    assert KEY["password"] not in repr(lake)
    assert lake.bucket.spark_properties() == {
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.access-key-id": "AKIA",
        ".s3.secret-access-key": "a secret key",
    }
    store = {"endpoint_url": "https://minio:9000/", "aws_session_token": "t"}
    properties = define(conn_type="aws", extra=STAGED | store, **KEY).bucket.spark_properties()
    assert properties[".s3.endpoint"] == "https://minio:9000"
    assert properties[".s3.path-style-access"] == "true"
    assert properties[".client.region"] == "us-east-1"
    assert properties[".s3.session-token"] == "t"
    assert define(conn_type="aws", extra=STAGED | {"region_name": "eu-central-1"}).bucket == Bucket(
        "s3://company-lake/shop", region="eu-central-1"
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"conn_type": "postgres"}, "its type is postgres, expected fs or aws"),
        ({"conn_type": "fs", "extra": {}}, "it has no path in its extra"),
        ({"conn_type": "fs", "extra": {"path": "lake"}}, "its path lake is relative"),
        ({"conn_type": "aws", "extra": {"path": "s3://lake"}}, "it has no staging in its extra"),
        ({"conn_type": "aws", "extra": STAGED | {"staging": "staging"}}, "its staging staging is relative"),
        (
            {"conn_type": "aws", "extra": STAGED | {"path": "s3a://lake"}},
            "its path s3a://lake is not s3://BUCKET/PREFIX",
        ),
        ({"conn_type": "aws", "extra": STAGED | {"path": "s3://lake/a b"}}, "is not s3://BUCKET/PREFIX"),
        ({"conn_type": "aws", "extra": STAGED | {"role_arn": "arn"}}, "role_arn"),
        ({"conn_type": "aws", "extra": STAGED | {"endpoint_url": "minio:9000"}}, "has no http:// or https://"),
        ({"conn_type": "aws", "extra": STAGED, "host": "minio"}, "it has a host"),
        ({"conn_type": "aws", "extra": STAGED, "login": "AKIA"}, "one part of an access key"),
    ],
)
def test_connection_that_is_no_lake_is_refused_by_name(define: Any, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as found:
        define(**fields)
    assert said in str(found.value)


def test_location_is_a_path_or_that_of_an_object() -> None:
    assert {plain_location(text) for text in ("/lake/a", "file:/lake/a", "file:///lake/a")} == {"/lake/a"}
    assert plain_location("s3://lake/a") == "s3://lake/a"
    assert folder_of("s3://lake/tables/shop/a-1/metadata/1.metadata.json") == "s3://lake/tables/shop/a-1"
    assert file_dataset("s3://lake/tables/shop/a") == Dataset("s3://lake", "tables/shop/a")
    assert file_dataset("/lake/tables/shop/a") == Dataset("file", "/lake/tables/shop/a")


def test_file_that_is_gone_is_none_and_one_of_a_store_needs_the_bucket(tmp_path: Path) -> None:
    lake = LakeFolder(str(tmp_path))
    (tmp_path / "a").write_bytes(b"found")
    assert lake.read(f"file:{tmp_path}/a") == b"found"
    assert lake.read(f"{tmp_path}/b") is None
    assert lake.read(f"{tmp_path}/a/b") is None


def test_file_of_a_lake_that_was_moved_is_not_taken_for_gone(tmp_path: Path) -> None:
    """A folder and a bucket are two kinds of place, and a reload makes a table again that is gone."""
    folder, bucket = LakeFolder(str(tmp_path)), LakeFolder(str(tmp_path), Bucket("s3://lake/a"))
    with pytest.raises(ConfigError, match=r"connection names .+/tables, and the catalog has s3://lake/a\."):
        folder.read("s3://lake/a")
    with pytest.raises(ConfigError, match=r"connection names s3://lake/a/tables, and the catalog has /lake/a\."):
        bucket.read("file:/lake/a")


def test_folder_that_may_not_be_read_is_no_file_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(WarehouseUnavailableError, match="/lake/a cannot be read"):
        LakeFolder(str(tmp_path)).read("/lake/a")


def test_doctor_says_what_a_run_would_find_of_the_lake(tmp_path: Path) -> None:
    assert LakeFolder(str(tmp_path / "new" / "lake")).find_refused() == ""
    (tmp_path / "file").write_bytes(b"")
    assert LakeFolder(str(tmp_path / "file" / "lake")).find_refused() == f"{tmp_path}/file cannot be written."
    jars = ConfigError("the jars of the lake", "one is missing.", "Fetch it.")
    lost = {TableName("shop", "orders"): "/lake/1.metadata.json"}
    bad = list(examine_lake(LakeAccess("/lake", "it cannot be written.", jars, 2, lost), "shop"))
    assert [(each.grade, each.subject) for each in bad] == [
        (Grade.PROBLEM, "/lake"),
        (Grade.PROBLEM, "the jars of the lake"),
        (Grade.PROBLEM, "shop.orders"),
    ]
    assert "floodmark reload shop TABLE" in bad[-1].fix
    good = list(examine_lake(LakeAccess("/lake", "", None, 2, {}), "shop"))
    assert [(each.grade, each.text) for each in good] == [
        (Grade.GOOD, "it is reached."),
        (Grade.GOOD, "the metadata of all 2 tables is there."),
    ]


# --------------------------------------------------------------------------------------------------------------------
# The REST catalog of readers.


def registry_of(monkeypatch: pytest.MonkeyPatch, **fields: object) -> Registry:
    monkeypatch.setenv("AIRFLOW_CONN_COMPANY", json.dumps({"conn_type": "iceberg"} | fields))
    return lake_registry("company")


def test_rest_catalog_has_the_properties_of_airflows_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    login = {"login": "client", "password": "a client secret"}
    extra = {"warehouse": "company", "s3.endpoint": "http://minio:9000"}
    found = registry_of(monkeypatch, host="https://catalog.example/iceberg/", extra=extra, **login)
    assert found.properties == extra | {
        "type": "rest",
        "uri": "https://catalog.example/iceberg",
        "credential": "client:a client secret",
        "oauth2-server-uri": "https://catalog.example/iceberg/v1/oauth/tokens",
        "snapshot-loading-mode": "refs",
    }
    assert "a client secret" not in repr(found)
    assert (
        registry_of(monkeypatch, host="http://h", extra={"rest.sigv4-enabled": True}).properties["rest.sigv4-enabled"]
        == "true"
    )
    assert "credential" not in registry_of(monkeypatch, host="http://127.0.0.1:8181").properties


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "host"),
        ({"host": "catalog.example"}, "its host is no URL"),
        ({"host": "http://catalog.example", "port": 8181}, "its host is no URL with the port"),
        ({"host": "http://catalog.example", "login": "client"}, "one part of a login"),
        ({"host": "http://catalog.example", "password": "secret"}, "one part of a login"),
        ({"host": "http://catalog.example", "extra": {"type": "glue"}}, "type in its extra is glue, expected rest"),
        ({"host": "http://catalog.example", "conn_type": "http"}, "its type is http, expected iceberg"),
    ],
)
def test_connection_that_names_no_rest_catalog_is_refused(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        registry_of(monkeypatch, **fields)


def test_rest_catalog_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "floodmark.iceberg.registry", None)
    with pytest.raises(ConfigError, match=r"Install floodmark\[rest\]"):
        registry_of(monkeypatch, host="http://catalog.example")


@pytest.mark.parametrize(
    ("behind", "said"),
    [
        ((), "good: it has all published tables as they are now."),
        ([TableName("shop", "orders")], "problem: it has shop.orders not as they are now."),
        (WarehouseUnavailableError("the catalog company", "it gave no answer."), "problem: it gave no answer."),
    ],
)
def test_doctor_says_what_the_rest_catalog_has(behind: Any, said: str) -> None:
    access = LakeAccess("/srv/lake/tables", "", None, 1, {}, "catalog company", behind)
    assert f"{said}" in [f"{each.grade.name.lower()}: {each.text}" for each in examine_lake(access, "shop")]
