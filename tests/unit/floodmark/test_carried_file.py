"""Files that travel inside a connection: the authorities of TLS."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from floodmark.carried_file import path_of
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.sqlserver.driver import SqlServerConnection

PEM = "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n"


def test_source_keeps_its_authorities_where_their_file_does_not_exist(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(PEM, encoding="utf-8")
    here = SqlServerConnection("db", 1433, "Shop", "cdc", ca_file=str(file))
    assert here.ca_path == str(file)
    there = pickle.loads(pickle.dumps(here.portable()))  # noqa: S301  (our own)
    file.unlink()
    assert Path(there.ca_path).read_text(encoding="utf-8") == PEM
    assert PEM not in repr(there)
    with pytest.raises(ValueError, match=r"its ca_file .*ca\.pem cannot be read: No such file"):
        here.portable()


def test_warehouse_keeps_its_authorities_where_their_file_does_not_exist(tmp_path: Path) -> None:
    file = tmp_path / "root.pem"
    file.write_text(PEM, encoding="utf-8")
    there = WarehouseConnection("w", 5432, "dwh", "floodmark", sslrootcert=str(file)).portable()
    file.unlink()
    assert path_of(PEM) in there.conninfo()
    assert Path(path_of(PEM)).read_text(encoding="utf-8") == PEM
    system = WarehouseConnection("w", 5432, "dwh", "floodmark", sslrootcert="system")
    assert system.portable() == system


def test_connection_without_files_travels_as_it_is() -> None:
    assert SqlServerConnection("db", 1433, "Shop", "cdc").portable().ca_path == ""
