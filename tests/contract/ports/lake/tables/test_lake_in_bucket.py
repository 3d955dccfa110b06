"""A lake whose tables are in a bucket: the same rows as in PostgreSQL, and nothing lost where the store is away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from lake_rig import LakeRig, read_by_duckdb
from pyiceberg.table import StaticTable
from warehouse_rig import WarehouseRig
from warehouse_shop import DELETE, INSERT, UPDATE, Row, changes, first_load

from floodmark.core.errors import WarehouseUnavailableError
from floodmark.iceberg.folder import Bucket, folder_of
from floodmark.iceberg.upkeep import LakeUpkeep
from floodmark_laptop.processes import free_port
from lsns import lsn
from object_store import elsewhere, list_files, open_store, read_properties, write_file

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

LONG_AGO = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with open_store("floodmark-lake") as bucket:
        yield bucket


def fill(rig: WarehouseRig) -> None:
    rig.run(first_load(), 10, [Row(key, INSERT, 10, key, notes="n") for key in (1, 2, 3, 4)])
    rig.run(changes(10, 20), 20, [Row(1, UPDATE, 15, 9, notes="m"), Row(2, DELETE, 16), Row(5, INSERT, 17, 5, 5)])
    rig.run(changes(20, 30), 30, [Row(1, UPDATE, 25, 8, notes="o")])


def read_by_pyiceberg(bucket: Bucket, location: str) -> dict[int, tuple[object, ...]]:
    scan = StaticTable.from_metadata(location, read_properties(bucket)).scan("__deleted = false")
    return {row["Id"]: (row["Amount"], row["Disc%"], row["Notes"]) for row in scan.to_arrow().to_pylist()}


def test_lake_in_a_bucket_has_the_rows_of_postgres_and_is_kept_small(
    rig: LakeRig, bucket: Bucket, tmp_path: Path
) -> None:
    postgres, lake = rig.in_postgres(), rig.in_bucket(bucket, tmp_path)
    fill(postgres)
    fill(lake)
    published, unpublished = lake.locations()
    assert published is not None
    assert published == unpublished
    assert published.startswith(f"{bucket.location}/tables/shop/")
    assert lake.visible() == postgres.visible()
    assert read_by_pyiceberg(bucket, published) == read_by_duckdb(published, bucket) == postgres.visible()
    assert not list((tmp_path / "staging").glob("*/*"))

    data = f"{folder_of(published)}/data"
    written = len(list_files(bucket, data))
    write_file(bucket, f"{data}/old.parquet", LONG_AGO)
    write_file(bucket, f"{data}/young.parquet", datetime.now(UTC))
    [(_, done)] = LakeUpkeep(lake.lake, lambda: None).keep_tables([lake.target], timedelta(0), rewrites=True)
    assert done.startswith("was ")
    assert done.endswith("; 1 file removed")
    left = list_files(bucket, data)
    assert "young.parquet" in left
    assert "old.parquet" not in left
    assert len(left) > written
    assert lake.visible() == postgres.visible()
    for each in (postgres, lake):
        each.run(changes(30, 40), 40, [Row(3, DELETE, 35), Row(1, UPDATE, 36, 7, notes="p")])
    assert lake.visible() == postgres.visible()
    assert lake.visible()[1] == (Decimal("7.00"), None, "p")


def test_store_that_is_away_takes_no_table_from_the_catalog(rig: LakeRig, bucket: Bucket, tmp_path: Path) -> None:
    """A reload makes a table again whose metadata is gone, and a store that does not answer has not lost it."""
    lake = rig.in_bucket(bucket, tmp_path)
    lake.run(first_load(), 10, [Row(1, INSERT, 10, 1, notes="n")])
    before = lake.locations()
    away = replace(rig.in_bucket(elsewhere(bucket, free_port()), tmp_path), pipeline=lake.pipeline, target=lake.target)
    with pytest.raises(WarehouseUnavailableError, match=r"metadata\.json cannot be read") as refused:
        away.open(replace(first_load(), is_reload=True, watermark=lsn(10)), to=20, lane="load dbo.Orders")
    assert bucket.secret_key not in refused.value.in_full
    assert lake.locations() == before
    [(_, done)] = list(_keep_all(away))
    assert done.startswith("failed: ")
    assert lake.locations() == before


def _keep_all(rig: LakeRig) -> Iterator[tuple[object, str]]:
    try:
        yield from LakeUpkeep(rig.lake, lambda: None).keep_tables([rig.target], timedelta(0))
    except WarehouseUnavailableError:
        return
