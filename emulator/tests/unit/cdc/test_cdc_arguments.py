"""Arguments of CDC procedures that need no server: column lists, job settings, times, DDL messages, cleanup hours."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from sqlserver_emulator.cdc.agent.supervisor import next_cleanup_after
from sqlserver_emulator.cdc.enabling.enable_table import InstanceRequest, parse_column_list, plan_instance
from sqlserver_emulator.cdc.enabling.source import SourceColumn, SourceTable
from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.jobs import CAPTURE, CLEANUP, DEFAULTS, JobSettings, check_settings
from sqlserver_emulator.cdc.metadata import Declared
from sqlserver_emulator.cdc.scan.schema_changes import parse_schema_change
from sqlserver_emulator.cdc.scan.timeline import datetime_seconds
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import INT


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a, b ,c", ["a", "b", "c"]),
        ('[a b],"c,d", e', ["a b", "c,d", "e"]),
        ('[x]]y], "p""q"', ["x]y", 'p"q']),
        ("  ", []),
    ],
)
def test_column_list_accepts_bare_bracketed_and_quoted_names(text: str, names: list[str]) -> None:
    assert parse_column_list(text) == names


def test_column_list_with_an_open_bracket_is_error_22965() -> None:
    with pytest.raises(SqlServerError) as raised:
        parse_column_list("a, [b")
    assert raised.value.number == 22965


def _plan(columns: int, instance: str | None) -> None:
    declared = [Declared(f"c{i}", INT, "int") for i in range(columns)]
    source = tuple(SourceColumn(column, i, is_computed=False) for i, column in enumerate(declared, 1))
    table = SourceTable(1, "dbo", "t", "t", is_tracked=False, columns=source, indexes=())
    request = InstanceRequest(instance, None, None, None, None, None, allow_partition_switch=True)
    plan_instance(lambda sql, parameters: [], CdcDatabase(1, "D", "slot", "D.cdc", 1), table, request)


def test_as_many_columns_as_the_mask_has_bits_can_be_captured() -> None:
    _plan(1024, None)
    with pytest.raises(SqlServerError) as raised:
        _plan(1025, None)
    assert raised.value.number == 22925


def test_name_of_an_instance_that_no_identifier_can_be_is_error_22932() -> None:
    with pytest.raises(SqlServerError) as raised:
        _plan(1, "a\0b")
    assert raised.value.number == 22932


@pytest.mark.parametrize(
    ("kind", "settings", "number"),
    [
        (CAPTURE, JobSettings(0, 10, True, 5), 22991),
        (CAPTURE, JobSettings(500, 0, True, 5), 22970),
        (CAPTURE, JobSettings(500, 10, True, 86_400), 22990),
        (CAPTURE, JobSettings(500, 10, False, 5), 22999),
        (CLEANUP, JobSettings(retention=0, threshold=1), 22994),
        (CLEANUP, JobSettings(retention=52_594_801, threshold=1), 22994),
        (CLEANUP, JobSettings(retention=1, threshold=0), 22850),
    ],
)
def test_job_settings_out_of_range_are_refused_by_number(kind: str, settings: JobSettings, number: int) -> None:
    with pytest.raises(SqlServerError) as raised:
        check_settings(kind, settings)
    assert raised.value.number == number


def test_default_settings_are_in_range() -> None:
    for kind, settings in DEFAULTS.items():
        check_settings(kind, settings)


@pytest.mark.parametrize(
    ("microseconds", "milliseconds"), [(0, 0), (1_700, 3), (5_000, 7), (8_400, 10), (999_999, 1000)]
)
def test_times_are_rounded_as_datetime_does(microseconds: int, milliseconds: int) -> None:
    assert datetime_seconds(microseconds) == milliseconds / 1000


def test_ddl_message_is_read() -> None:
    content = {"object_id": 5, "kind": "alter_column", "ddl": "ALTER …", "column_id": 2, "required_column_update": True}
    change = parse_schema_change(json.dumps(content).encode())
    assert (change.object_id, change.kind, change.column_id, change.required_column_update) == (
        5,
        "alter_column",
        2,
        True,
    )


@pytest.mark.parametrize(("hour", "day"), [(1, 5), (2, 6), (23, 6)])
def test_cleanup_runs_at_two_in_the_morning(hour: int, day: int) -> None:
    assert next_cleanup_after(datetime(2026, 1, 5, hour, 30)) == datetime(2026, 1, day, 2)
