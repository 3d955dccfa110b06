"""A pipeline over an event stream ends with the rows of its table, and says so where it cannot."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from change_log import ChangeLog
from emulator_process import Emulator
from floodmark.core.errors import ConfigError, OperatorError, SourceUnavailableError, UnknownFormatError
from floodmark.core.schema import TableName
from floodmark.core.settings import OnGap, PipelineSettings, SecurityFiltered
from floodmark.core.snapshot import Verdict
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.event_stream import epochs, kafka, source, stream_pass
from floodmark.sources.event_stream.envelope import StreamOptions
from floodmark.sources.event_stream.transport import KafkaTopic
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.tables import read_sql
from mock_broker import mock_broker
from sqlserver_emulator.event_stream.encoding import MessageForm
from stream_rig import COLUMNS, ORDERS, PIPELINE, StreamRig, stream_rig


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection, tmp_path: Path) -> Iterator[StreamRig]:
    with stream_rig(emulator, database, tmp_path) as made:
        yield made


def declare_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the database say that events leave columns out."""
    partly = StreamOptions(has_all_columns=False, has_old_values=False)
    monkeypatch.setattr(source, "read_options", lambda _, tables: dict.fromkeys(tables, partly))


def with_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the server say that the database has another name."""
    fetch = SourceSession.fetch

    def renamed(self: SourceSession, sql: str, *arguments: Any) -> Any:
        rows = fetch(self, sql, *arguments)
        return [(name, *row[1:]) for row in rows] if sql == read_sql("read_streamed_database") else rows

    monkeypatch.setattr(SourceSession, "fetch", renamed)


def test_first_load_and_windows_end_with_the_rows_of_the_table(rig: StreamRig) -> None:
    rig.stream(*rig.change((1, "1.50", "one"), (2, "2.50", None), (3, "3.50", "three")))
    rig.sync()
    assert rig.differing() == []
    rig.stream(*rig.change((1, "9.00", "é🌊")), *rig.change(2), *rig.change((4, "4.00", "four")))
    rig.stream(*rig.change((5, None, None)), *rig.change(5), *rig.change(3), *rig.change((3, "33.00", "again")))
    assert rig.sync().window_id is not None
    assert rig.differing() == []
    deleted = rig.query('SELECT "Id", "Amount", "Note" FROM shop.orders WHERE __deleted ORDER BY 1')
    assert [row[0] for row in deleted] == [2, 5]
    assert rig.sync().window_id is None


def test_events_that_are_repeated_late_or_reordered_change_nothing(rig: StreamRig) -> None:
    rig.stream(*rig.change((1, "1.00", "first")))
    rig.sync()
    older = rig.change((1, "2.00", "older"), (2, "2.00", "gone"))
    newer = rig.change((1, "3.00", "newer"), 2)
    rig.stream(*newer)
    rig.sync()
    rig.stream(*older, *older)
    rig.sync()
    assert rig.differing() == []
    assert rig.query('SELECT "Note" FROM shop.orders WHERE NOT __deleted') == [("newer",)]


def test_window_that_ends_inside_a_transaction_is_completed_by_the_next(rig: StreamRig) -> None:
    rig.sync()
    first, second, third = rig.log.commit(
        ({}, {"Id": "1", "Amount": None, "Note": "a"}),
        ({"Id": "1", "Amount": None, "Note": "a"}, {"Id": "1", "Amount": None, "Note": "b"}),
        ({"Id": "1", "Amount": None, "Note": "b"}, {"Id": "1", "Amount": None, "Note": "c"}),
    )
    rig.client.run("INSERT dbo.Orders VALUES (1, NULL, N'c')")
    rig.stream(first, second)
    rig.sync()
    rig.stream(third)
    rig.stream(first, second)
    rig.sync()
    assert rig.differing() == []


def test_segments_of_an_event_arrive_in_several_windows_and_partitions(rig: StreamRig) -> None:
    rig.log.form = MessageForm(limit_bytes=2000)
    rig.sync()
    *early, last = rig.change((1, "1.00", "long " * 1500))
    assert len(early) > 3
    rig.stream(*early)
    rig.sync()
    assert rig.query("SELECT count(*) FROM shop.orders") == [(0,)]
    assert rig.sync().window_id is None
    rig.stream(last)
    rig.sync()
    assert rig.differing() == []
    assert rig.quarantined() == []


def test_partial_events_update_only_what_they_carry(rig: StreamRig, monkeypatch: pytest.MonkeyPatch) -> None:
    declare_partial(monkeypatch)
    rig.client.run("INSERT dbo.Orders VALUES (1, 1.00, N'one'), (2, 2.00, N'two'), (3, 3.00, NULL)")
    rig.sync()
    whole, rig.log.columns = rig.log.columns, rig.log.columns[:2]
    amounts = rig.log.commit(
        ({"Id": "1", "Amount": "1.00"}, {"Id": "1", "Amount": "9.00"}),
        ({"Id": "2", "Amount": "2.00"}, {"Id": "2", "Amount": None}),
    )
    rig.log.columns = (whole[0], whole[2])
    notes = rig.log.commit(
        ({"Id": "1", "Note": "one"}, {"Id": "1", "Note": "new"}), ({"Id": "3"}, {"Id": "3", "Note": "three"})
    )
    rig.client.run("UPDATE dbo.Orders SET Amount = 9, Note = N'new' WHERE Id = 1")
    rig.client.run("UPDATE dbo.Orders SET Amount = NULL WHERE Id = 2")
    rig.client.run("UPDATE dbo.Orders SET Note = N'three' WHERE Id = 3")
    rig.stream(*amounts, *notes)
    rig.sync()
    assert rig.differing() == []
    rig.log.columns = whole
    rig.stream(*rig.log.commit(({"Id": "3"}, {})))
    rig.client.run("DELETE dbo.Orders WHERE Id = 3")
    rig.sync()
    assert rig.differing() == []
    assert rig.query('SELECT "Note" FROM shop.orders WHERE __deleted') == [("three",)]


def test_partial_event_of_an_unknown_row_refuses_the_table(rig: StreamRig, monkeypatch: pytest.MonkeyPatch) -> None:
    declare_partial(monkeypatch)
    rig.sync()
    rig.log.columns = rig.log.columns[:2]
    rig.client.run("INSERT dbo.Orders VALUES (7, 2.00, N'unseen')")
    rig.stream(*rig.log.commit(({"Id": "7", "Amount": "1.00"}, {"Id": "7", "Amount": "2.00"})))
    with pytest.raises(OperatorError, match="1 rows are missing"):
        rig.sync()
    rig.reload()
    assert rig.differing() == []
    assert rig.sync().window_id is None


def test_events_without_the_key_of_the_table_refuse_it(rig: StreamRig, monkeypatch: pytest.MonkeyPatch) -> None:
    declare_partial(monkeypatch)
    rig.sync()
    rig.log.columns, rig.log.key = rig.log.columns[1:], ""
    rig.stream(*rig.log.commit(({"Amount": "1.00"}, {"Amount": "2.00"})))
    with pytest.raises(ConfigError, match=r"dbo\.Orders: its events leave out columns of its key \(Id\)"):
        rig.sync()
    assert rig.query("SELECT count(*) FROM shop.orders") == [(0,)]


def test_deleted_row_keeps_a_value_that_the_server_did_not_send(rig: StreamRig) -> None:
    rig.stream(*rig.change((1, "1.00", "one")))
    rig.sync()
    rig.client.run("DELETE dbo.Orders WHERE Id = 1")
    rig.stream(*rig.log.commit(({"Id": "1", "Amount": "1.00"}, {})))
    rig.sync()
    assert rig.query('SELECT "Note" FROM shop.orders WHERE __deleted') == [("one",)]


def test_update_of_a_key_moves_the_row(rig: StreamRig) -> None:
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two")))
    rig.sync()
    rows = [{"Id": str(key), "Amount": "1.00", "Note": "one"} for key in (1, 5)]
    rig.client.run("UPDATE dbo.Orders SET Id = 5 WHERE Id = 1")
    rig.stream(*rig.log.commit((rows[0], rows[1])))
    rig.sync()
    assert rig.differing() == []


def pass_keys_on(rig: StreamRig, expression: str, new_keys: dict[int, int]) -> list[bytes]:
    """Give rows other keys by one statement, as if no index of the server knew the key. Return the messages."""
    rig.log.key = ""
    rig.client.run(f"UPDATE dbo.Orders SET Id = {expression}")
    rows = dict(rig.rows)
    rig.rows = {new: rows[old] | {"Id": str(new)} for old, new in new_keys.items()}
    return rig.log.commit(*((rows[old], rig.rows[new]) for old, new in new_keys.items()))


@pytest.mark.parametrize(
    ("expression", "new_keys"),
    [("Id + 1", {1: 2, 2: 3, 3: 4}), ("4 - Id", {1: 3, 2: 2, 3: 1}), ("Id % 3 + 1", {3: 1, 2: 3, 1: 2})],
)
def test_keys_that_one_statement_passes_from_row_to_row_stay_alive(
    rig: StreamRig, expression: str, new_keys: dict[int, int]
) -> None:
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two"), (3, "3.00", "three")))
    rig.sync()
    rig.stream(*pass_keys_on(rig, expression, new_keys))
    rig.sync()
    assert (rig.stopped(), rig.differing()) == ({}, [])


@pytest.mark.parametrize("partitions", [1, 2])
def test_keys_that_are_passed_on_stay_alive_where_their_events_come_twice_in_a_window(
    rig: StreamRig, partitions: int
) -> None:
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two"), (3, "3.00", "three")))
    rig.sync()
    rig.partitions = partitions
    messages = pass_keys_on(rig, "Id + 1", {1: 2, 2: 3, 3: 4})
    rig.stream(*messages, *messages)
    rig.sync()
    assert (rig.stopped(), rig.differing()) == ({}, [])


@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("reverses", [False, True])
def test_transaction_that_passes_keys_on_and_is_read_in_two_windows_leaves_its_table_out(
    rig: StreamRig, split: int, *, reverses: bool
) -> None:
    rig.sync()
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two"), (3, "3.00", "three")))
    rig.sync()
    messages = pass_keys_on(rig, "Id + 1", {1: 2, 2: 3, 3: 4})
    if reverses:
        messages.reverse()
    rig.stream(*messages[:split])
    rig.sync()
    rig.stream(*messages[split:])
    rig.sync()
    assert set(rig.stopped().values()) == {Verdict.EXPIRED}
    rig.reload()
    assert (rig.stopped(), rig.differing()) == ({}, [])
    rig.stream(*messages)
    rig.sync()
    assert (rig.stopped(), rig.differing()) == ({}, [])


def test_update_of_a_declared_key_that_comes_in_a_later_window_is_merged(rig: StreamRig) -> None:
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two")))
    rig.sync()
    rig.stream(*pass_keys_on(rig, "Id + 2", {1: 3, 2: 4}))
    rig.sync()
    rig.stream(*pass_keys_on(rig, "Id + 2", {3: 5, 4: 6}))
    rig.sync()
    assert (rig.stopped(), rig.differing()) == ({}, [])


def test_segments_that_never_arrive_go_to_quarantine_and_the_table_is_loaded_again(
    rig: StreamRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.log.form = MessageForm(limit_bytes=2000)
    rig.sync()
    *early, last = rig.change((1, "1.00", "long " * 1500))
    rig.stream(*early)
    rig.sync()
    assert rig.stopped() == {}
    for module in (stream_pass, source):
        monkeypatch.setattr(module, "SEGMENTS_WITHIN", timedelta(0))
    assert rig.sync().window_id is not None
    assert set(rig.stopped().values()) == {Verdict.EXPIRED}
    assert [body for *_, body in rig.quarantined()] == [*early[::2], *early[1::2]]
    assert rig.verdicts() == {"Orders": Verdict.EXPIRED}
    rig.reload()
    assert rig.stopped() == {}
    assert rig.differing() == []
    rig.stream(last)  # too late, and alone
    rig.sync()
    assert rig.differing() == []


def test_event_of_a_commit_before_the_load_does_not_undo_what_the_load_has_read(rig: StreamRig) -> None:
    late = rig.change((1, "1.00", "old"))
    rig.stream(*rig.change((1, "2.00", "new"), (2, "2.00", "two")))
    rig.sync()
    rig.stream(*late)  # another partition was slower
    rig.sync()
    assert rig.differing() == []
    rig.stream(*rig.change((1, "3.00", "newest")))
    rig.sync()
    assert rig.differing() == []


@pytest.mark.parametrize("loads_again", [False, True])
def test_events_of_a_row_that_was_deleted_before_the_load_do_not_bring_it_back(
    rig: StreamRig, *, loads_again: bool
) -> None:
    if loads_again:
        rig.sync()
    insert = rig.change((1, "1.00", "gone"), (2, "1.00", "stays"))
    update = rig.change((1, "2.00", "gone"))
    rig.stream(*rig.change(1))
    (rig.reload if loads_again else rig.sync)()
    rig.stream(*update)  # other partitions were slower
    rig.sync()
    rig.stream(*insert, *update, *rig.change((3, "3.00", "three")))
    rig.sync()
    assert rig.differing() == []
    rig.stream(*rig.change((1, "3.00", "here again")), *insert)
    rig.sync()
    assert rig.differing() == []


def write_elsewhere(rig: StreamRig, count: int) -> None:
    """Write events of another database to the topic."""
    log = ChangeLog("Elsewhere", COLUMNS, "Id")
    rig.stream(*(body for _ in range(count) for body in log.commit(({}, {"Id": "1", "Amount": None, "Note": None}))))


def test_load_finds_its_position_behind_many_events_of_another_database(rig: StreamRig) -> None:
    insert = rig.change((1, "1.00", "gone"), (2, "1.00", "old"))
    rig.stream(*rig.change(1), *rig.change((2, "2.00", "new")))
    write_elsewhere(rig, 1500)
    rig.sync()
    rig.stream(*insert)  # another partition was slower
    rig.sync()
    assert rig.differing() == []


@pytest.mark.parametrize("loads_again", [False, True])
def test_load_without_a_position_in_sight_waits_for_an_event(
    rig: StreamRig, monkeypatch: pytest.MonkeyPatch, *, loads_again: bool
) -> None:
    monkeypatch.setattr(epochs, "_MOST_MESSAGES", 100)
    if loads_again:
        rig.sync()
    insert = rig.change((1, "1.00", "gone"), (2, "1.00", "old"))
    rig.stream(*rig.change(1), *rig.change((2, "2.00", "new")))
    write_elsewhere(rig, 1500)
    if loads_again:
        with pytest.raises(ConfigError, match="is not in sight"):
            rig.reload()
        rig.sync()
    else:
        with pytest.raises(ConfigError, match=r"dbo\.Orders: not_plannable: .* is not in sight"):
            rig.sync()
    rig.stream(*rig.change((3, "3.00", "in sight")))
    (rig.reload if loads_again else rig.sync)()
    rig.stream(*insert)
    rig.sync()
    assert rig.differing() == []


def test_late_event_of_a_row_that_the_source_hides_from_the_login_is_merged(rig: StreamRig) -> None:
    rig.settings = PipelineSettings(
        rig.settings.name, (replace(rig.settings.tables[0], security_filtered=SecurityFiltered.ACCEPT),)
    )
    hidden = rig.log.commit(({}, {"Id": "7", "Amount": None, "Note": "hidden"}))
    rig.stream(*rig.change((1, "1.00", "seen")))
    rig.sync()
    rig.stream(*hidden)
    rig.sync()
    assert rig.query('SELECT "Id" FROM shop.orders WHERE NOT __deleted ORDER BY 1') == [(1,), (7,)]


def test_segments_of_an_event_that_the_load_has_read_are_not_waited_for(
    rig: StreamRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.log.form = MessageForm(limit_bytes=2000)
    *early, last = rig.change((1, "1.00", "long " * 1500))
    rig.stream(*early)
    rig.sync()
    rig.stream(last)
    for module in (stream_pass, source):
        monkeypatch.setattr(module, "SEGMENTS_WITHIN", timedelta(0))
    assert rig.sync().window_id is not None
    assert (rig.stopped(), rig.quarantined(), rig.differing()) == ({}, [], [])
    assert rig.sync().window_id is None


def test_names_in_events_are_compared_as_the_server_spells_them(rig: StreamRig) -> None:
    """The configuration and the connection spell them in another way. Other tables have names that differ in case."""
    lower = TableName("DBO", "orders")
    rig.at = replace(rig.at, database=rig.at.database.upper())
    rig.settings = replace(rig.settings, tables=(replace(rig.settings.tables[0], source=lower),))
    others = [replace(rig.log, table="ORDERS"), replace(rig.log, database=rig.log.database.lower())]
    rig.stream(*rig.change((1, "1.00", "one")))
    rig.sync()
    rig.stream(*rig.change((2, "2.00", "two")))
    for each in others:
        rig.stream(*each.commit(({}, {"Id": "9", "Amount": None, "Note": "foreign"})))
    rig.sync()
    assert rig.query('SELECT "Id" FROM shop.orders ORDER BY 1') == [(1,), (2,)]
    assert rig.differing() == []


def test_database_that_was_renamed_has_its_tables_loaded_again(rig: StreamRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has another name for it, as after a rename; events that were not read have the earlier one."""
    rig.stream(*rig.change((1, "1.00", "one")), *rig.change((2, "2.00", "two")))
    rig.sync()
    rig.stream(*rig.change((2, "3.00", "unread"), (3, "3.00", "three")))
    with_name(monkeypatch, "Renamed")
    rig.log.database = "Renamed"
    assert rig.verdicts() == {"Orders": Verdict.OTHER_DATABASE}
    rig.ledger.confirm_database(PIPELINE, rig.source.read_snapshot([ORDERS]).identity, "operator")
    assert rig.verdicts() == {"Orders": Verdict.INSTANCE_REPLACED}
    rig.reload()
    assert rig.differing() == []
    rig.stream(*rig.change((1, "4.00", "four")), *rig.change(2))
    rig.sync()
    assert (rig.verdicts(), rig.differing()) == ({"Orders": Verdict.READY}, [])


def test_message_of_another_version_refuses_its_table_until_it_is_loaded_again(rig: StreamRig) -> None:
    rig.sync()
    newer = [body.replace(b"DML.V1", b"DML.V2") for body in rig.log.commit(({}, {"Id": "9", "Amount": None}))]
    rig.stream(*rig.change((1, "1.00", "one")), *newer)
    with pytest.raises(UnknownFormatError, match=r"dbo\.Orders: message 0 of partition 1 of hub has V2 of the fo"):
        rig.sync()
    assert rig.query("SELECT count(*) FROM shop.orders") == [(0,)]
    rig.reload()
    rig.stream(*rig.change((2, "2.00", "two")))
    rig.sync()
    assert rig.differing() == []


def test_verification_leaves_out_what_is_still_in_the_stream_and_nothing_else(rig: StreamRig) -> None:
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two")))
    rig.sync()
    rig.stream(*rig.change((1, "1.50", "one"), (3, "3.00", "three")))
    assert rig.differing() == []
    # Its change has been read: the row is wrong.
    with psycopg.connect(rig.warehouse.conninfo()) as session:
        session.execute('UPDATE shop.orders SET "Amount" = 0 WHERE "Id" = 2')
    assert rig.differing() == [ORDERS]


def test_messages_that_are_no_events_go_to_quarantine_and_the_others_are_merged(
    rig: StreamRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.sync()
    good = rig.change((1, "1.00", "one"))
    bad_value = [body.replace(b"2.00", b"zwei") for body in rig.log.commit(({}, {"Id": "2", "Amount": "2.00"}))]
    rig.partitions = 1
    rig.stream(b"not an event", *bad_value, *good)
    rig.sync()
    assert rig.differing() == []
    found = rig.quarantined()
    assert [(member, place) for member, place, _, _ in found] == [("0", "0"), ("0", "1")]
    assert [body for *_, body in found] == [b"not an event", *bad_value]
    assert "zwei" not in "".join(reason for _, _, reason, _ in found)
    assert rig.query("SELECT DISTINCT topic FROM floodmark.quarantined_messages") == [("hub",)]
    assert caplog.text.count("Message 1 of hub/0 is in floodmark.quarantined_messages") == 1
    assert "zwei" not in caplog.text


def test_messages_that_the_stream_has_lost_leave_the_table_out_until_it_is_loaded_again(rig: StreamRig) -> None:
    rig.partitions = 1
    rig.stream(*rig.change((1, "1.00", "one")))
    rig.sync()
    lost = rig.change((2, "2.00", "two"))
    path = rig.capture.write(0, lost)
    rig.stream(*rig.change((3, "3.00", "three")))
    path.unlink()
    with pytest.raises(Exception, match="no message 1, but message 2"):
        rig.sync()
    for file in sorted(rig.capture.folder.rglob("*.avro"))[:1]:
        file.unlink()
    assert rig.verdicts() == {"Orders": Verdict.EXPIRED}


def test_gap_is_repaired_by_a_load_that_late_events_do_not_undo(
    emulator: Emulator, database: WarehouseConnection, tmp_path: Path
) -> None:
    with stream_rig(emulator, database, tmp_path, on_gap=OnGap.REPAIR) as rig:
        rig.partitions = 1
        rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two")))
        rig.sync()
        late = rig.change((1, "4.00", "late"))
        rig.capture.write(0, rig.change((1, "5.00", "lost"), 2)).unlink()
        for file in rig.capture.folder.rglob("*.avro"):
            file.unlink()
        rig.stream(*rig.change((3, "3.00", "three")))
        assert rig.sync().window_id is None
        assert rig.load_pending().window_id is not None
        assert rig.differing() == []
        rig.stream(*late)
        rig.sync()
        assert rig.differing() == []
        rig.stream(*rig.change((1, "6.00", "after")))
        rig.sync()
        assert rig.differing() == []


def test_stream_that_was_created_again_with_fewer_partitions_is_read_after_a_reload(rig: StreamRig) -> None:
    rig.partitions = 3
    rig.stream(*rig.change((1, "1.00", "one")), *rig.change((2, "2.00", "two")), *rig.change((3, "3.00", "three")))
    rig.sync()
    shutil.rmtree(rig.capture.folder)
    rig.capture.next.clear()
    rig.partitions = 2
    rig.stream(*rig.change((1, "4.00", "new")), *rig.change(2))
    assert rig.verdicts() == {"Orders": Verdict.INSTANCE_REPLACED}
    rig.reload()
    assert rig.verdicts() == {"Orders": Verdict.READY}
    rig.stream(*rig.change((4, "4.00", "four")))
    rig.sync()
    assert rig.differing() == []
    assert rig.sync().window_id is None


def test_reload_goes_on_behind_what_it_has_read(rig: StreamRig) -> None:
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two")))
    rig.sync()
    rig.change((1, "5.00", "unseen"), 2)  # its events are lost
    rig.reload()
    assert rig.differing() == []
    rig.stream(*rig.change((1, "6.00", "seen")))
    rig.sync()
    assert rig.differing() == []
    assert ORDERS in rig.ledger.list_marks("streamed")


def test_topic_is_read_by_the_kafka_protocol(rig: StreamRig, monkeypatch: pytest.MonkeyPatch) -> None:
    with mock_broker() as (producer, servers):

        def send(*bodies: bytes) -> None:
            for place, body in enumerate(bodies):
                producer.produce("changes", value=body, partition=place % 2)
            assert producer.flush(20) == 0

        rig.topic = KafkaTopic(servers, "changes")
        send(*rig.change((1, "1.00", "one"), (2, "2.00", "two")))
        rig.sync()
        assert rig.differing() == []
        rig.log.form = MessageForm(limit_bytes=3000)
        send(*rig.change((1, "9.00", "long " * 1000), (3, None, "é🌊")), b"garbage", *rig.change(2))
        rig.sync()
        assert rig.differing() == []
        assert [body for *_, body in rig.quarantined()] == [b"garbage"]
        assert rig.query("SELECT topic FROM floodmark.quarantined_messages") == [("changes",)]
        assert rig.sync().window_id is None
    monkeypatch.setattr(kafka, "_TIMEOUT_SECONDS", 2.0)
    rig.topic = KafkaTopic("127.0.0.1:1", "changes")
    with pytest.raises(SourceUnavailableError):
        rig.sync()
