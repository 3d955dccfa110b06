"""The generations of the message format, switched by ``emulator.set_event_stream_generation``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sqlserver_emulator.errors import SqlServerError
from stream_source import Source

TEXT = "REPLICATE(CAST(N'long ' AS nvarchar(max)), 40000)"


def stream(source: Source, hub: str, generation: int) -> list[dict[str, Any]]:
    """The messages of a small insert and of a large one, in the order of their segments."""
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY, v nvarchar(max))")
    source.group(hub, "@max_message_size_kb = 128", "@partition_key_scheme = N'StreamGroup'")
    source.add(hub, "dbo.a")
    source.run(f"EXEC emulator.set_event_stream_generation @generation = {generation}")
    source.run("INSERT dbo.a VALUES (1, N'x')", f"INSERT dbo.a VALUES (2, {TEXT})", "EXEC emulator.run_event_stream")
    (records,) = source.records(hub).values()
    return [json.loads(each["Body"]) for each in records]


def test_first_generation_counts_splits_and_has_no_transaction(source: Source) -> None:
    small, *large = stream(source, "first", 1)
    assert (small["splitindex"], small["splittotalcnt"], small["datacontenttype"]) == (0, 0, "application/json")
    assert len(large) > 1
    assert [(each["splitindex"], each["splittotalcnt"]) for each in large] == [
        (place, len(large)) for place in range(len(large))
    ]
    assert not {"segmentindex", "finalsegment"} & small.keys()
    assert small["data"].startswith("{\n")
    assert "transaction" not in json.loads(small["data"])["eventsource"]
    assert len(json.loads(json.loads("".join(each["data"] for each in large))["eventrow"]["current"])["v"]) == 200_000


def test_second_generation_counts_segments_from_1(source: Source) -> None:
    small, *large = stream(source, "second", 2)
    assert (small["segmentindex"], small["finalsegment"], small["datacontenttype"]) == (
        1,
        True,
        "application/avro-json",
    )
    assert len(large) > 1
    assert [each["segmentindex"] for each in large] == list(range(1, len(large) + 1))
    assert [each["finalsegment"] for each in large] == [*[False] * (len(large) - 1), True]
    assert small["data"].startswith("{\n")
    assert "finalevent" not in json.loads(small["data"])["eventsource"]["transaction"]


def test_third_generation_is_the_default_and_comes_back_with_a_new_stream(source: Source) -> None:
    source.run("EXEC emulator.set_event_stream_generation @generation = 1")
    source.run("EXEC sys.sp_disable_event_stream", "EXEC sys.sp_enable_event_stream")
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY)")
    source.group("third")
    source.add("third", "dbo.a")
    source.run("INSERT dbo.a VALUES (1)", "EXEC emulator.run_event_stream")
    ((record,),) = source.records("third").values()
    body = json.loads(record["Body"])
    assert (body["segmentindex"], body["finalsegment"]) == (0, True)
    assert json.loads(body["data"])["eventsource"]["transaction"]["finalevent"] is False


def test_first_generation_has_no_avro(source: Source) -> None:
    source.run("EXEC emulator.set_event_stream_generation @generation = 1")
    with pytest.raises(SqlServerError, match="'Binary' in the first generation"):
        source.group("avro", "@encoding = N'Binary'")
    source.run("EXEC emulator.set_event_stream_generation @generation = 2")
    source.group("avro", "@encoding = N'Binary'")
    with pytest.raises(SqlServerError, match="@generation must not be 1: a stream group has @encoding"):
        source.run("EXEC emulator.set_event_stream_generation @generation = 1")


def test_generation_has_to_be_known_and_needs_a_stream(source: Source) -> None:
    with pytest.raises(SqlServerError, match="@generation must be from 1 to 3, not 4"):
        source.run("EXEC emulator.set_event_stream_generation @generation = 4")
    with pytest.raises(SqlServerError, match="not enabled in database 'master'"):
        source.run("EXEC emulator.set_event_stream_generation @generation = 2, @database = N'master'")
