"""Keys finer than a microsecond: rows that differ in the seventh digit alone stay different rows.

The reader moves the fraction of every key by one digit, so that the seventh is used whatever the source keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pyarrow as pa
import pytest
from switch_rig import SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.errors import ConfigError, TargetLostError
from floodmark.core.schema import TableName
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.reader import CdcReader
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sync.finish import advance_window
from floodmark.sync.load import load_window
from floodmark.sync.ports import OpenReader
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager

LIVING = 'SELECT "At", "N" FROM shop.orders WHERE NOT __deleted ORDER BY "N"'


@dataclass(frozen=True)
class FineReader(CdcReader):
    """Divides the fraction of the key by ten, as a client sees values that have seven digits."""

    def read_text(self, text: str, parameters: tuple[object, ...]) -> Iterator[pa.RecordBatch]:
        for batch in super().read_text(text, parameters):
            place = batch.schema.names.index("At")
            yield batch.set_column(place, batch.schema.field(place), _moved(batch.column(place)))


def _moved(keys: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(keys.type):
        whole = [value // 10 for value in keys.cast(pa.int64()).to_pylist()]
        return pa.array(whole, pa.int64()).cast(keys.type)
    parts = [value.partition(".") for value in keys.to_pylist()]
    return pa.array([f"{moment}.0{fraction.ljust(7, '0')[:6]}" for moment, _, fraction in parts])


class FineRig(SwitchRig):
    def run(self, name: str = "shop") -> OpenResult:
        return self.finish(self.open(name))

    def finish(self, opened: OpenResult) -> OpenResult:
        assert opened.window_id is not None
        read: OpenReader = lambda plan, end: FineReader(plan, self.at, end)  # noqa: E731
        load_window(opened.window_id, self.ledger, self.warehouse, SqlServerSource(self.at), InProcessStager(read))
        self.ledger.mark_checked(opened.window_id)
        advance_window(opened.window_id, self.ledger, self.warehouse)
        return opened


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[FineRig]:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (At datetime2(7) NOT NULL PRIMARY KEY, N int)",
            "INSERT INTO dbo.Orders VALUES ('1970-01-01 00:00:00.000001', 1), ('1970-01-01 00:00:00.000002', 2),"
            " ('1970-01-01 00:00:00.000013', 3)",
        )
        source.enable("Orders")
        yield FineRig(emulator, source, database)


def test_rows_that_differ_in_the_seventh_digit_are_different_rows(rig: FineRig) -> None:
    rig.run()
    keys = [f"1970-01-01 00:00:00.{digits}" for digits in ("0000001", "0000002", "0000013")]
    assert rig.rows(LIVING) == [(key, number) for number, key in enumerate(keys, 1)]
    rig.change(
        "DELETE dbo.Orders WHERE N = 1",
        "INSERT INTO dbo.Orders VALUES ('1970-01-01 00:00:00.000014', 4), ('1970-01-01 00:00:00.000015', 5)",
    )
    rig.run()
    keys += [f"1970-01-01 00:00:00.{digits}" for digits in ("0000014", "0000015")]
    assert rig.rows(LIVING) == [(key, number) for number, key in enumerate(keys, 1) if number > 1]


def test_target_whose_key_was_cut_is_refused_until_it_is_loaded_again(rig: FineRig) -> None:
    rig.run()
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute('DELETE FROM shop.orders WHERE "N" > 1')
        session.execute('ALTER TABLE shop.orders ALTER "At" TYPE timestamp(6) USING "At"::timestamp(6)')
    rig.change("DELETE dbo.Orders WHERE N = 1")
    with pytest.raises(
        ConfigError, match=r"the target shop\.orders has the key At cut to microseconds.*Rename or drop"
    ):
        rig.run()
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute("ALTER TABLE shop.orders RENAME TO orders_before")
    with pytest.raises(TargetLostError, match=r"floodmark reload shop dbo\.Orders"):
        rig.run()
    rig.finish(rig.load_planner().open_reload(TableName("dbo", "Orders")))
    assert rig.rows(LIVING) == [("1970-01-01 00:00:00.0000002", 2), ("1970-01-01 00:00:00.0000013", 3)]


def test_keys_of_every_fine_type_are_loaded_followed_and_verified(
    emulator: Emulator, database: WarehouseConnection
) -> None:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (At datetimeoffset(7) NOT NULL, T time(7) NOT NULL, N int, PRIMARY KEY (At, T))",
            "INSERT INTO dbo.Orders VALUES ('2026-01-01 12:00:00.123456 +02:00', '10:00:00.000001', 1)",
        )
        source.enable("Orders")
        rig = SwitchRig(emulator, source, database)
        rig.run()
        assert rig.rows("SELECT rtrim(\"At\", '0:+ '), rtrim(\"T\", '0') FROM shop.orders") == [
            ("2026-01-01 10:00:00.123456", "10:00:00.000001")
        ]
        rig.change("UPDATE dbo.Orders SET N = 2", "INSERT INTO dbo.Orders VALUES (SYSDATETIMEOFFSET(), '10:00', 3)")
        rig.run()
        assert rig.differing() == []
