"""Upkeep of a lake's tables: fewer files and snapshots, and nothing of a window, a reader or another table is lost."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from lake_rig import LakeRig
from warehouse_contract import ONE, one
from warehouse_shop import DELETE, INSERT, UPDATE, Row, changes, first_load, reload

from floodmark.core.errors import WarehouseUnavailableError
from floodmark.core.schema import TableName
from floodmark.iceberg.folder import folder_of, plain_location
from floodmark.iceberg.lake import PUBLISHED, UNPUBLISHED
from floodmark.iceberg.upkeep import LakeUpkeep
from lsns import lsn

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_upkeep_makes_fewer_files_and_windows_go_on(rig: LakeRig) -> None:
    """Also where a name is a number."""
    rig = replace(rig, target=TableName("2026", rig.target.name))
    upkeep = LakeUpkeep(rig.lake, lambda: None)
    rig.run(first_load(), 10, [Row(key, INSERT, 10, key, notes="n") for key in (1, 2, 3, 4)])
    rig.run(changes(10, 20), 20, [Row(1, UPDATE, 15, 9, notes="m"), Row(2, DELETE, 16)])
    rig.run(changes(20, 30), 30, [Row(1, UPDATE, 25, 8, notes="o")])
    rows = rig.visible()
    [before] = upkeep.list_tables([rig.target])
    assert before.is_due
    assert (before.rows, before.delete_files > 0, len(before.snapshots)) == (4, True, 3)
    assert [before.snapshot_at(lsn(at))[1] for at in (9, 10, 25, 99)] == ["", str(lsn(10)), str(lsn(20)), str(lsn(30))]

    folder = Path(folder_of(before.location), "data")
    files = {name: folder / name for name in ("old.parquet", "young.parquet")}
    for path in files.values():
        path.write_bytes(b"")
    os.utime(files["old.parquet"], (1_700_000_000, 1_700_000_000))
    [(target, done)] = upkeep.keep_tables([rig.target], timedelta(0))
    assert target == rig.target
    assert done.startswith("was ")
    assert done.endswith("; 1 file removed")
    assert [path.exists() for path in files.values()] == [False, True]
    [after] = upkeep.list_tables([rig.target])
    assert (after.rows, after.files, after.delete_files, len(after.snapshots)) == (4, 1, 0, 1)
    assert not after.is_due
    assert rig.locations() == [after.location] * 2
    assert rig.visible() == rows
    rig.run(changes(30, 40), 40, [Row(3, DELETE, 35), Row(1, UPDATE, 36, 7, notes="p")])
    assert rig.visible() == {1: (Decimal("7.00"), None, "p"), 4: rows[4]}


def test_upkeep_does_not_touch_a_table_with_a_window(rig: LakeRig) -> None:
    upkeep, catalog = LakeUpkeep(rig.lake, lambda: None), rig.lake.catalog
    [(_, done)] = upkeep.keep_tables([rig.target], timedelta(0))
    assert done.startswith("left alone")
    rig.run(first_load(), 10, one())
    base = catalog.begin_upkeep(rig.target)
    assert base == rig.locations()[0]
    plan = rig.open(changes(10, 20), to=20)
    assert not catalog.publish_upkeep(rig.target, base)
    [(_, done)] = upkeep.keep_tables([rig.target], timedelta(0), rewrites=True)
    assert done.startswith("left alone")
    staged = rig.stage(plan, [Row(1, UPDATE, 15, 9, notes="m")])
    rig.merge(plan, staged.rows)
    rig.finish(plan)
    assert rig.visible() == {1: (Decimal("9.00"), None, "m")}
    [(_, done)] = upkeep.keep_tables([rig.target], timedelta(days=7), rewrites=True)
    assert "2 snapshots; is 1 file, " in done
    assert rig.visible() == {1: (Decimal("9.00"), None, "m")}
    rig.sql("UPDATE {} SET Notes = 'foreign'")
    [(_, done)] = upkeep.keep_tables([rig.target], timedelta(0))
    assert "another program has written to it" in done


def test_upkeep_that_fails_for_a_table_goes_on_with_the_others(rig: LakeRig) -> None:
    names = {kind: TableName("shop", f"{rig.target.name}_{kind}") for kind in ("lost", "broken", "sound")}
    for kind, name in names.items():
        each = replace(rig, pipeline=f"{rig.pipeline}_{kind}", target=name, reported={})
        each.run(first_load(), 10, one())
        each.run(changes(10, 20), 20, [Row(1, UPDATE, 15, 9, notes="m")])
        metadata = Path(plain_location(str(each.locations()[0])))
        if kind == "lost":
            metadata.unlink()
        if kind == "broken":
            for path in (metadata.parent.parent / "data").glob("*.parquet"):
                path.unlink()
    done = {}
    with pytest.raises(WarehouseUnavailableError, match=f"{names['broken']}: Spark could not read or write the lake"):
        for name, words in LakeUpkeep(rig.lake, lambda: None).keep_tables(list(names.values()), timedelta(0)):
            done[name] = words
    assert "is gone, and the next run says what to do" in done[names["lost"]]
    assert done[names["broken"]] == "failed: Spark could not read or write the lake"
    assert done[names["sound"]].startswith("was 2 files and 1 with deletes")


def test_upkeep_removes_no_file_of_another_table_of_the_name(rig: LakeRig) -> None:
    """One that was renamed, or that another ledger has in the same folder of the lake."""
    rig.run(first_load(), 10, one())
    kept = f"shop.{rig.target.name}_before"
    for catalog in (PUBLISHED, UNPUBLISHED):
        rig.sql(f"ALTER TABLE {{}} RENAME TO {kept}", catalog)
    rig.run(reload(10), 20, one(2), lane="load dbo.Orders")
    folder = Path(folder_of(str(rig.locations()[0])))
    (folder / "data" / "left.parquet").write_bytes(b"")
    for path in folder.parent.rglob("*.parquet"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    [(_, done)] = LakeUpkeep(rig.lake, lambda: None).keep_tables([rig.target], timedelta(0), rewrites=True)
    assert done.endswith("; 1 file removed")
    assert [row.Id for row in rig.lake.session().table(f"{PUBLISHED}.{kept}").collect()] == [1]
    assert list(rig.visible()) == [2]


def test_upkeep_removes_no_file_from_a_folder_that_others_may_have(rig: LakeRig) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_hex", lambda _: "feed")
        plan = rig.open(first_load(), to=10)
    rig.stage(plan, one())
    rig.merge(plan)
    rig.finish(plan)
    [(_, done)] = LakeUpkeep(rig.lake, lambda: None).keep_tables([rig.target], timedelta(0))
    assert done.endswith("the name of its folder may be that of several tables")
    assert rig.visible() == ONE
