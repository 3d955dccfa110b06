"""Two tables whose events are in one topic are read in one pass; what one of them lacks does not stop the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from change_log import ChangeLog
from emulator_process import Emulator
from floodmark.core.errors import TableRefusedError
from floodmark.core.schema import TableName
from floodmark.core.snapshot import Verdict
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sync.repair import LoadPlanner
from shared_pass_stager import SharedPassStager
from stream_rig import COLUMNS, ORDERS, PIPELINE, StreamRig, stream_rig
from two_streamed_tables import OTHERS


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection, tmp_path: Path) -> Iterator[StreamRig]:
    with stream_rig(emulator, database, tmp_path) as made:
        made.client.run("CREATE TABLE dbo.Others (Id int NOT NULL PRIMARY KEY)")
        others = replace(made.settings.tables[0], source=OTHERS, target=TableName("shop", "others"))
        made.settings = replace(made.settings, tables=(*made.settings.tables, others))
        stream = made.connection.open_stream()
        made.stager = SharedPassStager(made.open_reader(), made.at.database, stream)
        made.partitions = 1
        yield made


def change_others(rig: StreamRig, key: int) -> list[bytes]:
    rig.client.run(f"INSERT dbo.Others VALUES ({key})")
    log: ChangeLog = replace(rig.log, table="Others", columns=COLUMNS[:1])
    return log.commit(({}, {"Id": str(key)}))


def load_again(rig: StreamRig, name: TableName) -> None:
    planner = LoadPlanner(rig.settings, rig.source, rig.ledger, PostgresWarehouse(rig.warehouse))
    opened = planner.open_reload(name)
    rig.load(opened)
    rig.publish(opened)


def refused(rig: StreamRig) -> set[TableName]:
    return {each.table for each in rig.ledger.list_stopped(PIPELINE) if each.verdict is Verdict.REFUSED}


@pytest.mark.parametrize("readers", [0, 1, 2])
def test_offset_without_a_message_refuses_each_table_until_it_is_loaded_again(rig: StreamRig, readers: int) -> None:
    """A topic that is compacted, or written in transactions, has such offsets."""
    assert isinstance(rig.stager, SharedPassStager)
    rig.stager.readers = readers
    rig.sync()
    rig.stream(*rig.change((1, "1.00", "one")), *change_others(rig, 1))
    rig.capture.next[0] += 1
    rig.stream(*rig.change((2, "2.00", "two")), *change_others(rig, 2))
    with pytest.raises(TableRefusedError, match=r"2 tables cannot be loaded.* no message 2, but message 3"):
        rig.sync()
    assert refused(rig) == {ORDERS, OTHERS}
    load_again(rig, ORDERS)
    rig.stream(*rig.change((3, "3.00", "three")), *change_others(rig, 3))
    rig.sync()
    # The table that was loaded is read on behind the missing message.
    assert refused(rig) == {OTHERS}
    assert rig.differing() == [OTHERS]
    load_again(rig, OTHERS)
    rig.stream(*rig.change((4, "4.00", "four")), *change_others(rig, 4))
    rig.sync()
    assert (refused(rig), rig.differing()) == (set(), [])
