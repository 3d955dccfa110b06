"""``LakeRig``: a lake with a real Spark, its catalog in a PostgreSQL of its own, and the steps of a window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import duckdb
import pytest
from pyspark import SparkContext
from switch_rig import SwitchRig
from warehouse_rig import ReadRows, WarehouseRig, rows_of

from cdc_database import CdcDatabase
from emulator_process import Emulator
from floodmark.core.plan import WindowPlan
from floodmark.core.schema import TableName
from floodmark.core.settings import OnFailure, Rule
from floodmark.iceberg.checks import IcebergQuality
from floodmark.iceberg.folder import Bucket, LakeFolder
from floodmark.iceberg.lake import PUBLISHED, UNPUBLISHED
from floodmark.iceberg.tables import spark_name
from floodmark.iceberg.targets import LakeTargets
from floodmark.iceberg.warehouse import IcebergWarehouse
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.spark.launch.jars import lake_environment
from floodmark_laptop.processes import free_port
from prepared_folders import PreparedPostgres
from spark_engine import classic_engine

_numbers = itertools.count(1)
SMALL = Rule("small", '"Amount" < 100', OnFailure.QUARANTINE)


@dataclass
class LakeRig(WarehouseRig):
    """A lake. Its checks are part of a window: only what they have read is published."""

    at: Any = None

    def in_postgres(self) -> WarehouseRig:
        """Return a warehouse in PostgreSQL, for the same windows."""
        name = f"{self.pipeline}_in_postgres"
        target = TableName(self.target.schema, name)
        return WarehouseRig(self.ledger, PostgresWarehouse(self.at), rows_of(self.at), name, target)

    def in_bucket(self, bucket: Bucket, staging: Path) -> LakeRig:
        """Return a lake whose tables are in a bucket, by the same Java."""
        session = self.lake.session().newSession()
        warehouse = IcebergWarehouse(LakeFolder(str(staging), bucket), self.at, lambda: session)
        name = f"{self.pipeline}_in_bucket"
        return LakeRig(
            self.ledger, warehouse, _rows_of(warehouse), name, TableName(self.target.schema, name), at=self.at
        )

    def check(self, plan: WindowPlan) -> None:
        found = IcebergQuality(self.lake, lambda: None).check_window(plan, self.ledger.read_counts(plan.window_id))
        assert found == {}
        super().check(plan)

    @property
    def lake(self) -> IcebergWarehouse:
        assert isinstance(self.warehouse, IcebergWarehouse)
        return self.warehouse

    def sql(self, statement: str, catalog: str = PUBLISHED) -> None:
        """Run a statement about the target, in the place of ``{}``."""
        name = spark_name(catalog, self.target.schema, self.target.name)
        self.lake.session().sql(statement.format(name))

    def locations(self) -> list[str | None]:
        """Return where the metadata of the target is, as readers see it and as it is merged."""
        found = self.lake.catalog.read_locations([self.target])
        return [found.get((catalog, self.target)) for catalog in (PUBLISHED, UNPUBLISHED)]

    def fresh_lake(self) -> Self:
        """Return the same lake with a pipeline and a target that nothing has used."""
        name = f"orders_{next(_numbers)}"
        return replace(self, pipeline=name, target=TableName("shop", name), reported={})


class LakeSwitchRig(SwitchRig):
    """A pipeline into a lake. Its windows are checked by Spark.

    name: of the pipeline and of its source, which no other test of the lake has: the ledger knows both.
    """

    def __init__(self, emulator: Emulator, database: CdcDatabase, lake: LakeRig, name: str = "shop") -> None:
        super().__init__(emulator, database, lake.at, name, source_name=name)
        self.lake = lake.lake
        self.warehouse = lake.lake
        self.check_target = LakeTargets(lake.lake.catalog).check_target

    def check(self, window_id: int) -> None:
        plan = self.ledger.read_window(window_id).plan
        assert IcebergQuality(self.lake, lambda: None).check_window(plan, self.ledger.read_counts(window_id)) == {}
        super().check(window_id)


@contextmanager
def open_lake(folder: Path, shared: Path) -> Iterator[LakeRig]:
    """Start a Spark and a PostgreSQL. folder: of the tables. shared: of the prepared servers."""
    port = free_port()
    with (
        PreparedPostgres(shared / "lake_catalog", port=port) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        at = WarehouseConnection("127.0.0.1", port, "postgres", "postgres", server.password)
        for name, value in lake_environment(s3=True).items():
            patch.setenv(name, value)
        # Another test of this process may have a Java without the jars.
        patch.setattr(SparkContext, "_gateway", None)
        patch.setattr(SparkContext, "_jvm", None)
        with classic_engine() as engine:
            warehouse = IcebergWarehouse(LakeFolder(str(folder)), at, lambda: engine.session)
            ledger = PostgresLedger(at)
            ledger.ensure_schema()
            warehouse.catalog.ensure_schema()
            # Iceberg makes the tables of its catalog when a session first names it.
            warehouse.session().sql(f"CREATE NAMESPACE IF NOT EXISTS {UNPUBLISHED}.shop")
            yield LakeRig(ledger, warehouse, _rows_of(warehouse), at=at)
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)


def _rows_of(warehouse: IcebergWarehouse) -> ReadRows:
    def read(target: TableName) -> list[dict[str, Any]]:
        if (PUBLISHED, target) not in warehouse.catalog.read_locations([target]):
            return []
        rows = warehouse.session().table(spark_name(PUBLISHED, target.schema, target.name)).collect()
        return [row.asDict() for row in rows if not row.asDict().get("__deleted")]

    return read


def quarantined(rig: WarehouseRig) -> list[tuple[Any, ...]]:
    """Return the rows in quarantine, without the numbers of their windows."""
    with open_transaction(rig.ledger._at) as session:
        return session.execute(
            "SELECT rule, key, lsn, row_data, outcome, settled_by FROM floodmark.quarantine "
            "WHERE pipeline = %s ORDER BY key, lsn, rule",
            [rig.pipeline],
        ).fetchall()


def read_by_duckdb(location: str, bucket: Bucket | None = None) -> dict[int, tuple[Any, ...]]:
    """Return the living rows of a table by key, as DuckDB finds them by its metadata: without Java."""
    with duckdb.connect() as session:
        load_extensions(session)
        if bucket is not None:
            store = f"ENDPOINT '{bucket.endpoint.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false"
            key = f"KEY_ID '{bucket.access_key}', SECRET '{bucket.secret_key}', REGION 'us-east-1'"
            session.execute(f"CREATE SECRET (TYPE s3, {key}, {store})")
        columns = '"Id", "Amount", "Disc%", "Notes"'
        rows = session.execute(f"SELECT {columns} FROM iceberg_scan(?) WHERE NOT __deleted", [location]).fetchall()
    return {row[0]: row[1:] for row in rows}


def load_extensions(session: duckdb.DuckDBPyConnection) -> None:
    """Let DuckDB read tables of Iceberg, by the wheels with its extensions."""
    session.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false")
    for name in ("avro", "httpfs", "iceberg"):
        found = find_spec(f"duckdb_extension_{name}")
        assert found is not None
        [path] = Path(*(found.submodule_search_locations or ())).rglob("*.duckdb_extension")
        session.execute(f"LOAD '{path}'")
