"""A pipeline over the emulator's own stream ends with the rows of the table, in each generation of the format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emulated_stream import EmulatedStream, emulated_stream
from emulator_process import Emulator, running_emulator
from floodmark.core.errors import ConfigError
from floodmark.postgres.session import WarehouseConnection
from stream_rig import ORDERS

LARGE = "REPLICATE(CAST(N'{} ' AS nvarchar(max)), 100000)"


@pytest.fixture(scope="module")
def hubs(open_dir: Path) -> Path:
    return open_dir / "emulated-hubs"


@pytest.fixture(scope="module")
def streaming(open_dir: Path, hubs: Path) -> Iterator[Emulator]:
    arguments = ("--event-hubs-folder", str(hubs), "--event-hubs-partitions", "3")
    with running_emulator(open_dir / "emulated", *arguments) as running:
        yield running


@pytest.fixture
def stream(streaming: Emulator, hubs: Path, database: WarehouseConnection, tmp_path: Path) -> Iterator[EmulatedStream]:
    with emulated_stream(streaming, hubs, database, tmp_path) as made:
        yield made


def generation(number: int) -> str:
    return f"EXEC emulator.set_event_stream_generation @generation = {number}"


@pytest.mark.parametrize(("number", "encoding"), [(1, "JSON"), (2, "JSON"), (2, "Binary"), (3, "JSON"), (3, "Binary")])
def test_each_generation_is_read_with_split_messages(stream: EmulatedStream, number: int, encoding: str) -> None:
    rig = stream.rig
    rig.client.run(generation(number))
    stream.begin(encoding)
    rig.sync()
    before = len(stream.bodies())
    stream.deliver(
        f"INSERT dbo.Orders VALUES (1, 1.50, {LARGE.format('é')}), (2, NULL, N'two'), (3, 3, {LARGE.format('z')})",
        "UPDATE dbo.Orders SET Amount = 9 WHERE Id = 2",
        f"UPDATE dbo.Orders SET Note = {LARGE.format('y')} WHERE Id = 3",
        "DELETE dbo.Orders WHERE Id = 0",
    )
    # Six changes, of which three are in several messages.
    assert len(stream.bodies()) - before > 9
    rig.sync()
    assert rig.differing() == []
    assert rig.quarantined() == []
    assert rig.query('SELECT "Id" FROM shop.orders WHERE __deleted') == [(0,)]
    assert rig.sync().window_id is None


def test_server_that_changes_its_generation_is_read_on(stream: EmulatedStream) -> None:
    rig = stream.rig
    rig.client.run(generation(1))
    stream.begin()
    rig.sync()
    for number in (1, 2, 3):
        large = LARGE.format(number)
        stream.deliver(generation(number), f"INSERT dbo.Orders VALUES ({number}, {number}, {large})")
        stream.deliver(f"UPDATE dbo.Orders SET Amount = {number}, Note = {large} WHERE Id = 0")
    rig.sync()
    assert rig.differing() == []
    assert rig.quarantined() == []


@pytest.mark.parametrize(("number", "encoding"), [(1, "JSON"), (2, "JSON"), (3, "JSON"), (3, "Binary")])
def test_order_of_a_delivery_and_its_partitions_do_not_matter(
    stream: EmulatedStream, number: int, encoding: str
) -> None:
    rig = stream.rig
    rig.client.run(generation(number))
    stream.begin(encoding, scheme="Table")
    rig.sync()
    stream.deliver(
        "EXEC emulator.fail_event_stream @fault = 'reordered'",
        f"BEGIN TRAN; INSERT dbo.Orders VALUES (1, 1, {LARGE.format('a')}), (2, 2, {LARGE.format('b')}), (3, 3, N'c');"
        f" UPDATE dbo.Orders SET Amount = 10, Note = {LARGE.format('d')} WHERE Id = 1;"
        " UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1; DELETE dbo.Orders WHERE Id = 3;"
        " DELETE dbo.Orders WHERE Id = 0; INSERT dbo.Orders VALUES (0, 9, N'again'); COMMIT",
    )
    assert len({path.parts[-7] for path in rig.capture.folder.rglob("*.avro")}) == 3
    rig.sync()
    assert rig.differing() == []
    assert rig.quarantined() == []
    assert rig.query('SELECT "Id", "Amount"::int FROM shop.orders WHERE NOT __deleted ORDER BY 1') == [
        *((0, 9), (1, 11), (2, 2))
    ]


def test_events_in_part_are_read_where_those_of_a_row_are_in_order(stream: EmulatedStream) -> None:
    rig = stream.rig
    stream.begin(scheme="Table", has_all_columns=False)
    rig.sync()
    stream.deliver("UPDATE dbo.Orders SET Amount = 9", "UPDATE dbo.Orders SET Note = N'new'")
    rig.sync()
    assert (rig.differing(), rig.quarantined()) == ([], [])


@pytest.mark.parametrize("scheme", ["None", "Column', @partition_key_column_name = N'Amount"])
def test_events_in_part_are_refused_where_those_of_a_row_may_come_in_any_order(
    stream: EmulatedStream, scheme: str
) -> None:
    rig = stream.rig
    stream.begin(scheme=scheme, has_all_columns=False)
    with pytest.raises(ConfigError, match=r"leave out columns, and stream group g spreads the events of a row"):
        rig.sync()
    with pytest.raises(ConfigError, match=r"leave out columns, and stream group g spreads the events of a row"):
        rig.reload()
    add, remove = (
        f"EXEC sys.sp_{verb}_event_stream_group N'g', N'dbo.Orders'" for verb in ("add_object_to", "remove_object_from")
    )
    stream.deliver(remove, add, "UPDATE dbo.Orders SET Amount = 9", "UPDATE dbo.Orders SET Note = N'new'")
    rig.sync()
    assert (rig.differing(), rig.quarantined()) == ([], [])


def test_delivery_that_is_made_twice_counts_once(stream: EmulatedStream) -> None:
    rig = stream.rig
    stream.begin()
    rig.sync()
    rig.client.run("EXEC emulator.fail_event_stream @fault = 'lost session'")
    rig.client.run(f"INSERT dbo.Orders VALUES (1, 1, {LARGE.format('a')}), (2, 2, N'two')")
    rig.client.run("BEGIN TRY EXEC emulator.run_event_stream END TRY BEGIN CATCH END CATCH")
    stream.deliver("DELETE dbo.Orders WHERE Id = 2")
    assert len(stream.bodies()) >= 8
    rig.sync()
    assert rig.differing() == []
    assert rig.quarantined() == []


@pytest.mark.parametrize("encoding", ["JSON", "Binary"])
def test_message_that_is_cut_goes_to_quarantine_and_the_others_are_merged(
    stream: EmulatedStream, encoding: str
) -> None:
    rig = stream.rig
    stream.begin(encoding, scheme="StreamGroup")
    rig.sync()
    stream.deliver(
        "EXEC emulator.fail_event_stream @fault = 'cut message'",
        "INSERT dbo.Orders VALUES (1, 1, N'lost'), (2, 2, N'two')",
    )
    rig.sync()
    ((member, place, reason, body),) = rig.quarantined()
    assert (member, place) == (next(rig.capture.folder.iterdir()).name, "1")
    assert body == stream.bodies()[1]
    assert reason
    assert "lost" not in reason
    assert rig.query('SELECT "Id" FROM shop.orders ORDER BY 1') == [(0,), (2,)]
    assert rig.differing() == [ORDERS]
    # The next change of the row brings it.
    stream.deliver("UPDATE dbo.Orders SET Amount = 5 WHERE Id = 1")
    rig.sync()
    assert rig.differing() == []
