"""A new epoch of a stream: other identifiers, and LSNs that may step back."""

from __future__ import annotations

import json

import pytest

from sqlserver_emulator.errors import SqlServerError
from stream_source import Source

PUBLISHED = "EXEC sys.sp_help_change_feed_settings"
ENABLED = "EXEC sys.sp_help_change_event_stream_tables"


def logical_ids(source: Source, hub: str) -> list[tuple[str, bytes]]:
    """The guid and the LSN of each event, in the order in which they came."""
    source.run("EXEC emulator.run_event_stream")
    (records,) = source.records(hub).values()
    parts = [json.loads(each["Body"])["logicalid"].split(":") for each in records]
    return [(guid, bytes.fromhex(lsn)) for guid, lsn, _ in parts]


@pytest.fixture
def streamed(source: Source, request: pytest.FixtureRequest) -> str:
    """The hub of the test's own, to which a table streams in one partition."""
    hub = request.node.name.replace("_", "-")[:50]
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY)")
    source.group(hub, "@partition_key_scheme = N'StreamGroup'")
    source.add(hub, "dbo.a")
    return hub


def test_epoch_has_another_guid_and_goes_on_in_the_log(source: Source, streamed: str) -> None:
    source.run("INSERT dbo.a VALUES (1)")
    ((old, before),) = logical_ids(source, streamed)
    source.run("EXEC emulator.start_event_stream_epoch", "INSERT dbo.a VALUES (2)")
    (_, (new, after)) = logical_ids(source, streamed)
    assert new != old
    assert after > before


def test_lsns_of_an_epoch_begin_again_above_the_one_that_is_given(source: Source, streamed: str) -> None:
    source.run("INSERT dbo.a VALUES (1)", "INSERT dbo.a SELECT value FROM GENERATE_SERIES(1001, 4000)")
    (_, first), *_, (_, second) = logical_ids(source, streamed)
    source.run(f"EXEC emulator.start_event_stream_epoch @lsn = 0x{first.hex()}")
    (row,) = source.run(ENABLED)
    ((_, published, *_),) = source.run(PUBLISHED)
    assert first < row[10] < second
    assert first < published < second
    source.run("INSERT dbo.a VALUES (3)", "INSERT dbo.a VALUES (4)")
    *_, (new, third), (same, fourth) = logical_ids(source, streamed)
    assert new == same == str(row[4])
    assert first < third < fourth < second
    # They stay where they are when the stream is set up again.
    source.run("EXEC sys.sp_disable_event_stream", "EXEC sys.sp_enable_event_stream")
    ((_, again, *_),) = source.run(PUBLISHED)
    assert fourth < again < second
    source.group(streamed, "@partition_key_scheme = N'StreamGroup'")
    source.add(streamed, "dbo.a")
    source.run("INSERT dbo.a VALUES (5)")
    *_, (newest, fifth) = logical_ids(source, streamed)
    assert newest not in {new, same}
    assert again < fifth < second


def test_changes_that_were_not_delivered_are_lost(source: Source, streamed: str) -> None:
    source.run("INSERT dbo.a VALUES (1)", "EXEC emulator.run_event_stream")
    source.run("EXEC emulator.fail_event_stream @fault = 'unreachable', @times = 0", "INSERT dbo.a VALUES (2)")
    source.run("EXEC emulator.start_event_stream_epoch", "EXEC emulator.clear_faults", "INSERT dbo.a VALUES (3)")
    events = source.events(streamed)
    assert [json.loads(data["eventrow"]["current"])["id"] for _, data in events] == ["1", "3"]
    assert source.run("SELECT log_reuse_wait_desc FROM sys.databases WHERE name = 'Shop'") == [("NOTHING",)]


def test_lsn_has_to_be_one_of_the_log(source: Source, streamed: str) -> None:
    for lsn in ("0x7F00000000000000FFFF", "0x00000000000000000000"):
        with pytest.raises(SqlServerError, match="@lsn is not an LSN of database 'Shop'"):
            source.run(f"EXEC emulator.start_event_stream_epoch @lsn = {lsn}")
    with pytest.raises(SqlServerError, match="not enabled in database 'master'"):
        source.run("EXEC emulator.start_event_stream_epoch @database = N'master'")
    source.run("INSERT dbo.a VALUES (1)")
    assert len(logical_ids(source, streamed)) == 1
