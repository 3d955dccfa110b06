"""A REST catalog for readers of a lake: it has each table as it was published, and never takes one of another."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from lake_rig import LakeRig, load_extensions
from pyiceberg.catalog.rest import RestCatalog
from warehouse_shop import DELETE, INSERT, UPDATE, Row, changes, first_load

from floodmark.app.connections import lake_registry
from floodmark.core.errors import ConfigError, FloodmarkError, TargetRefusedError, WarehouseUnavailableError
from floodmark.core.schema import TableName
from floodmark.iceberg import registry as registry_module
from floodmark.iceberg.folder import folder_of, plain_location
from floodmark.iceberg.registry import Registry
from floodmark.iceberg.upkeep import LakeUpkeep
from floodmark.postgres.session import open_transaction
from rest_catalog import CLIENT, SECRET, TOKEN, CatalogServer, open_catalog

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def server(lake: LakeRig) -> Iterator[CatalogServer]:
    with open_catalog(lake.lake.catalog.folder) as server:
        yield server


@pytest.fixture
def registry(server: CatalogServer, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("AIRFLOW_CONN_COMPANY", server.connection())
    return lake_registry("company")


def published_in(rig: LakeRig) -> LakeRig:
    """Return a lake with a table of which a first load and a window are published."""
    rig.run(first_load(), 10, [Row(key, INSERT, 10, key, notes="n") for key in (1, 2, 3, 4)])
    rig.run(changes(10, 20), 20, [Row(1, UPDATE, 15, 9, notes="m"), Row(2, DELETE, 16), Row(5, INSERT, 17, 5, 5)])
    return rig


@pytest.fixture
def orders(rig: LakeRig) -> LakeRig:
    return published_in(rig)


@pytest.fixture(scope="module")
def unchanged(lake: LakeRig) -> LakeRig:
    """The same for tests that bring no rows."""
    return published_in(lake.fresh_lake())


def register(registry: Registry, rig: LakeRig) -> list[TableName]:
    return registry.register(rig.lake.catalog, [rig.target, TableName("shop", "not_loaded_yet")])


def name_of(rig: LakeRig) -> tuple[str, str]:
    return rig.target.schema, rig.target.name


def read_by_pyiceberg(server: CatalogServer, rig: LakeRig) -> dict[int, tuple[object, ...]]:
    table = RestCatalog("company", **server.properties()).load_table(name_of(rig))
    rows = table.scan("__deleted = false").to_arrow().to_pylist()
    return {row["Id"]: (row["Amount"], row["Disc%"], row["Notes"]) for row in rows}


def read_by_duckdb(server: CatalogServer, rig: LakeRig) -> dict[int, tuple[object, ...]]:
    with duckdb.connect() as session:
        load_extensions(session)
        session.execute(
            f"CREATE SECRET company (TYPE iceberg, CLIENT_ID '{CLIENT}', CLIENT_SECRET '{SECRET}', "
            f"OAUTH2_SERVER_URI '{server.url}/v1/oauth/tokens')"
        )
        session.execute(f"ATTACH 'company' AS company (TYPE iceberg, ENDPOINT '{server.url}', SECRET company)")
        table = f'company."{rig.target.schema}"."{rig.target.name}"'
        rows = session.execute(f'SELECT "Id", "Amount", "Disc%", "Notes" FROM {table} WHERE NOT __deleted').fetchall()
    return {row[0]: row[1:] for row in rows}


def read_by_spark(server: CatalogServer, rig: LakeRig) -> dict[int, tuple[object, ...]]:
    session = rig.lake.session().newSession()
    values = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": server.url,
        ".warehouse": "company",
        ".credential": f"{CLIENT}:{SECRET}",
        ".cache-enabled": "false",
    }
    for name, value in values.items():
        session.conf.set(f"spark.sql.catalog.company{name}", value)
    rows = session.table(f"company.{rig.target.schema}.{rig.target.name}").where("NOT __deleted").collect()
    return {row["Id"]: (row["Amount"], row["Disc%"], row["Notes"]) for row in rows}


def test_readers_of_the_rest_catalog_see_each_published_window(
    orders: LakeRig, server: CatalogServer, registry: Registry
) -> None:
    assert registry.list_behind(orders.lake.catalog, [orders.target]) == [orders.target]
    assert register(registry, orders) == [orders.target]
    assert register(registry, orders) == []
    assert registry.list_behind(orders.lake.catalog, [orders.target]) == []
    first = orders.visible()
    assert len(first) == 4
    assert read_by_pyiceberg(server, orders) == read_by_duckdb(server, orders) == read_by_spark(server, orders) == first

    orders.run(changes(20, 30), 30, [Row(3, DELETE, 25), Row(6, INSERT, 26, 6, notes="new")])
    assert read_by_pyiceberg(server, orders) == first
    assert register(registry, orders) == [orders.target]
    assert orders.visible() != first
    assert read_by_pyiceberg(server, orders) == read_by_duckdb(server, orders) == orders.visible()
    assert server.tables.keys() == {name_of(orders)}


def test_table_that_is_renamed_keeps_its_entry(orders: LakeRig, server: CatalogServer, registry: Registry) -> None:
    register(registry, orders)
    before, now = orders.target, TableName("shop", f"{orders.target.name}_now")
    catalog = orders.lake.catalog

    with open_transaction(orders.at) as session:
        catalog.rename(session, before, now)
    registry.rename(catalog, before, now)
    assert server.tables.keys() == {(now.schema, now.name)}
    assert register(registry, replace(orders, target=now)) == []
    # The command is repeated, and another table has the new name.
    registry.rename(catalog, before, now)
    server.tables[name_of(orders)] = server.tables[now.schema, now.name]
    another_table(server, replace(orders, target=now))
    taken = dict(server.tables)
    registry.rename(catalog, before, now)
    assert server.tables == taken


def another_table(server: CatalogServer, rig: LakeRig) -> None:
    other = rig.fresh_lake()
    other.run(first_load(), 10, [Row(1, INSERT, 10, 1, notes="n")])
    [server.tables[name_of(rig)], _] = other.locations()


def write_of_another_program(server: CatalogServer, rig: LakeRig) -> None:
    path = Path(plain_location(server.tables[name_of(rig)]))
    metadata = json.loads(path.read_bytes())
    newest = metadata["snapshots"][-1]
    foreign = newest | {"snapshot-id": newest["snapshot-id"] + 1, "parent-snapshot-id": newest["snapshot-id"]}
    metadata["snapshots"].append(foreign)
    metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = foreign["snapshot-id"]
    changed = path.with_name("foreign.metadata.json")
    changed.write_text(json.dumps(metadata))
    server.tables[name_of(rig)] = str(changed)


@pytest.mark.parametrize("change", [another_table, write_of_another_program])
def test_rows_of_others_in_the_rest_catalog_are_not_taken_from_it(
    orders: LakeRig, server: CatalogServer, registry: Registry, change: Any
) -> None:
    register(registry, orders)
    change(server, orders)
    kept = dict(server.tables)
    orders.run(changes(20, 30), 30, [Row(3, DELETE, 25)])
    with pytest.raises(
        TargetRefusedError, match=r"company has a table of this name that is not the lake's.*lake register"
    ):
        register(registry, orders)
    assert server.tables == kept
    del server.tables[name_of(orders)]
    assert register(registry, orders) == [orders.target]
    assert read_by_pyiceberg(server, orders) == orders.visible()


def test_files_stay_until_the_rest_catalog_has_the_kept_table(
    orders: LakeRig, server: CatalogServer, registry: Registry
) -> None:
    register(registry, orders)
    before = orders.visible()
    orphan = Path(folder_of(server.tables[name_of(orders)]), "data", "orphan.parquet")
    orphan.touch()
    os.utime(orphan, (0, 0))

    def keep() -> str:
        upkeep = LakeUpkeep(orders.lake, lambda: None, lambda targets: registry.register(orders.lake.catalog, targets))
        [(_, done)] = upkeep.keep_tables([orders.target], timedelta(0), rewrites=True)
        return done

    server.refuses = 503
    with pytest.raises(WarehouseUnavailableError, match="company: it gave no answer"):
        keep()
    assert orphan.exists()
    server.refuses = 0
    assert read_by_pyiceberg(server, orders) == before
    assert keep().endswith("1 file removed")
    assert not orphan.exists()
    assert registry.list_behind(orders.lake.catalog, [orders.target]) == []
    assert read_by_pyiceberg(server, orders) == before


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, ConfigError), (403, ConfigError), (500, WarehouseUnavailableError), (503, WarehouseUnavailableError)],
)
def test_catalog_that_refuses_is_named(
    unchanged: LakeRig, server: CatalogServer, registry: Registry, status: int, kind: type[FloodmarkError]
) -> None:
    server.refuses = status
    said = {ConfigError: "refused what it was asked", WarehouseUnavailableError: "gave no answer"}[kind]
    with pytest.raises(kind, match=f"the catalog company: it {said}.*lake register") as refused:
        register(registry, unchanged)
    assert SECRET not in refused.value.in_full
    assert server.tables == {}


def test_catalog_that_moves_no_table_is_refused(orders: LakeRig, server: CatalogServer, registry: Registry) -> None:
    server.overwrites = False
    assert register(registry, orders) == [orders.target]
    kept = dict(server.tables)
    orders.run(changes(20, 30), 30, [Row(3, DELETE, 25)])
    with pytest.raises(ConfigError, match="cannot register a table that it has at the newer place"):
        register(registry, orders)
    assert server.tables == kept


def test_wrong_secret_is_refused(unchanged: LakeRig, server: CatalogServer, registry: Registry) -> None:
    wrong = Registry("company", {**registry.properties, "credential": f"{CLIENT}:another-secret"})
    with pytest.raises(ConfigError, match="refused what it was asked") as refused:
        register(wrong, unchanged)
    assert "another-secret" not in refused.value.in_full


def test_answer_with_a_token_is_in_no_message(unchanged: LakeRig, server: CatalogServer, registry: Registry) -> None:
    server.token_fields = ("access_token",)
    with pytest.raises(WarehouseUnavailableError, match="gave no answer") as refused:
        register(registry, unchanged)
    assert TOKEN not in refused.value.in_full


def test_host_that_never_answers_ends_with_a_message(
    unchanged: LakeRig, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "_ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        waiting = Registry(
            "company", {**registry.properties, "uri": url, "oauth2-server-uri": f"{url}/v1/oauth/tokens"}
        )
        with pytest.raises(WarehouseUnavailableError, match="gave no answer"):
            register(waiting, unchanged)
