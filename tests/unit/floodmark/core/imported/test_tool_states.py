"""The states of other tools: each form is read as it was written, and garbage ends in one message."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.errors import ConfigError, FloodmarkError, OperatorError
from floodmark.core.imported import (
    DebeziumOffset,
    ImportedPosition,
    SsisState,
    StateName,
    ToolState,
    parse_airbyte_state,
    parse_debezium_offsets,
    parse_ssis_state,
)
from floodmark.core.position import Lsn
from floodmark.core.schema import TableName
from lsns import lsn
from tool_states import (
    airbyte_done,
    airbyte_loading,
    airbyte_message,
    airbyte_settings,
    offset,
    print_lines,
    print_object,
    print_rest,
    print_ssis,
)

ORDERS, LINES = TableName("dbo", "Orders"), TableName("dbo", "OrderLines")
log_lsns = st.integers(2**48 + 1, 2**80 - 1).map(lambda number: Lsn(number.to_bytes(10)))
plain = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z"), exclude_characters="/"), min_size=1)
ssis_states = st.builds(
    SsisState,
    st.sampled_from(StateName),
    *[st.none() | log_lsns] * 3,
    ir_end=st.none(),
    updated=st.just("") | plain,
    error=st.none() | st.text(max_size=20).filter(lambda text: not text.endswith("/") and text == text.strip()),
)
offsets = st.builds(
    DebeziumOffset,
    connector=st.text(max_size=8),
    database=st.text(max_size=8),
    commit_lsn=st.none() | log_lsns,
    is_snapshot_running=st.booleans(),
    is_incremental_running=st.booleans(),
)


def position(state: ToolState, database: str = "Shop") -> ImportedPosition:
    return state.position_in(database)


@given(ssis_states, st.none() | log_lsns)
def test_state_of_ssis_is_read_as_it_was_written(state: SsisState, end: Lsn | None) -> None:
    if state.ir_start is not None:
        state = SsisState(state.name, state.cs, state.ce, state.ir_start, end, state.updated, state.error)
    assert parse_ssis_state(print_ssis(state)) == state


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("TFEND/CS/0x0000025B000001BC0003/TS/2011-07-17T12:05:58.1001145/", "0x0000025B000001BC0003"),
        ("\ufeffTFEND/CS/0x0000025b000001bc0003/TS/2011-07-17T12:05:58".strip("\ufeff"), "0x0000025B000001BC0003"),
        (
            "ILEND/IR/0x0000162B158700000000/0x0000162B158700000004/TS/2011-08-07T17:10:43.0031645/\n",
            "0x0000162B158700000000",
        ),
    ],
)
def test_finished_state_of_ssis_has_a_position(text: str, after: str) -> None:
    found = position(parse_ssis_state(text))
    assert (str(found.after), found.after, found.tables) == (after, found.log_lsn, None)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "(initial)"),
        ("ILSTART/IR/0x0000162B158700000000//TS/2011-08-07T17:10:43.0031645/", "ILSTART"),
        ("ILUPDATE/CS/0x0000030D000000AE0003/CE/0x0000159D1E0F01000000/TS/2011-08-09T05:30:43/", "ILUPDATE"),
        ("TFSTART/CS/0x0000030D000000AE0003/CE/0x0000159D1E0F01000000/TS/2011-08-09T05:30:43.9344900/", "TFSTART"),
        ("TFREDO/CS/0x0000030D000000AE0003/CE/0x0000159D1E0F01000000/TS/2011-08-09T05:30:59.5544900/", "TFREDO"),
        ("ERROR/TS/2011-08-09T05:30:59/ER/No rows for 4711/", "ERROR"),
        ("TFEND/CS/0x0000030D000000AE0003/TS/2011-08-09T05:30:59/ER/No rows for 4711/", "TFEND"),
        ("TFEND/CS/0x0000030D000000AE0003/CE/0x0000159D1E0F01000000/TS/2011-08-09T05:30:59/", "TFEND"),
    ],
)
def test_unfinished_state_of_ssis_is_refused_by_its_name(text: str, name: str) -> None:
    with pytest.raises(OperatorError, match="state of SSIS") as refused:
        position(parse_ssis_state(text))
    assert refused.value.message.startswith(f"{name}: ")
    assert refused.value.hint
    assert "4711" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "TFEND/CS/0x00/",
        "TFEND/CS/0x00000000000000000000/",
        "TFEND/CS/0x00000001000000000000/",
        "TFEND/TS/2011-08-09T05:30:59/",
        "ILEND/TS/2011-08-09T05:30:59/",
        "CDCSTART/CS/0x0000030D000000AE0003/",
        "TFEND CS 0x0000030D000000AE0003",
        "TFEND/CS/0x0000030D000000AE0003/\nTFEND/CS/0x0000030D000000AE0003/",
    ],
)
def test_text_that_is_no_state_of_ssis_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="state of SSIS"):
        position(parse_ssis_state(text))


@given(st.lists(offsets, min_size=1, max_size=3, unique_by=lambda each: (each.connector, each.database)))
def test_offsets_of_debezium_are_read_as_they_were_written(written: list[DebeziumOffset]) -> None:
    for text in (print_object(*written), print_lines(*written)):
        assert parse_debezium_offsets(text).offsets == tuple(written)


@given(st.lists(offsets, min_size=1, max_size=3, unique_by=lambda each: each.database))
def test_offsets_of_the_rest_interface_have_no_connector(written: list[DebeziumOffset]) -> None:
    found = parse_debezium_offsets(print_rest(*written)).offsets
    assert [(each.connector, each.database, each.commit_lsn) for each in found] == [
        ("", each.database, each.commit_lsn) for each in written
    ]


def test_watermark_is_before_the_transaction_of_the_offset() -> None:
    text = print_rest(DebeziumOffset("", "Shop", lsn(0x10000)))
    assert position(parse_debezium_offsets(text)) == ImportedPosition("Debezium", lsn(0xFFFF), lsn(0x10000))


def test_offset_of_the_database_is_chosen() -> None:
    state = parse_debezium_offsets(
        print_lines(DebeziumOffset("shop", "SHOP", lsn(5)), DebeziumOffset("shop", "Other", lsn(9)))
    )
    assert position(state).log_lsn == lsn(5)
    with pytest.raises(OperatorError, match=r"no offset in database Third.*shop in Other, shop in SHOP"):
        position(state, "Third")


def test_connector_is_chosen_where_there_are_several() -> None:
    text = print_lines(DebeziumOffset("a", "Shop", lsn(5)), DebeziumOffset("b", "Shop", lsn(9)))
    with pytest.raises(OperatorError, match=r"2 connectors in database Shop.*--connector.*a, b"):
        position(parse_debezium_offsets(text))
    assert position(parse_debezium_offsets(text, "b")).log_lsn == lsn(9)


def test_last_line_of_a_key_counts_and_a_tombstone_removes_it() -> None:
    old, new = (print_lines(DebeziumOffset("shop", "Shop", lsn(number))) for number in (5, 6))
    other = '["mysql",{"server":"m"}]\t{"file":"bin.1","pos":4}\n'
    assert position(parse_debezium_offsets(old + other + new)).log_lsn == lsn(6)
    with pytest.raises(ConfigError, match="no offset of a SQL Server connector"):
        parse_debezium_offsets(old + '["shop",{"server":"shop","database":"Shop"}]\tnull\n')


@pytest.mark.parametrize("flag", [True, "true", "INITIAL", "BLOCKING"])
def test_running_snapshot_is_refused_and_a_completed_one_is_not(flag: object) -> None:
    def text(*, is_complete: bool) -> str:
        value = offset(lsn(5), snapshot=flag, snapshot_completed=is_complete)
        return json.dumps({"offsets": [{"partition": {"server": "shop"}, "offset": value}]})

    with pytest.raises(OperatorError, match="snapshot has begun and has not been completed"):
        position(parse_debezium_offsets(text(is_complete=False)))
    assert position(parse_debezium_offsets(text(is_complete=True))).log_lsn == lsn(5)


def test_incremental_snapshot_is_refused() -> None:
    text = print_rest(DebeziumOffset("", "Shop", lsn(5), is_incremental_running=True))
    with pytest.raises(OperatorError, match="incremental snapshot is running"):
        position(parse_debezium_offsets(text))


@pytest.mark.parametrize("commit", [None, "NULL"])
def test_offset_without_a_position_is_refused(commit: object) -> None:
    text = json.dumps({"offsets": [{"partition": {"server": "s"}, "offset": {"commit_lsn": commit}}]})
    with pytest.raises(OperatorError, match="no commit LSN"):
        position(parse_debezium_offsets(text))


@pytest.mark.parametrize("write", [airbyte_message, airbyte_settings])
def test_state_of_airbyte_lists_its_tables(write: object) -> None:
    assert callable(write)
    text = write(
        "Shop", lsn(9), {"dbo.Orders": airbyte_done("Orders"), "dbo.OrderLines": airbyte_loading("OrderLines")}
    )
    found = position(parse_airbyte_state(text))
    assert (found.tool, found.after, found.log_lsn) == ("Airbyte", lsn(8), lsn(9))
    assert found.explain_refusal(TableName("DBO", "orders")) == ""
    assert "initial load of the table has not ended" in found.explain_refusal(LINES)
    assert "does not list" in found.explain_refusal(TableName("dbo", "Customers"))


@pytest.mark.parametrize("state", [None, {}, {"pk_name": "Id", "pk_val": "4", "state_type": "primary_key"}])
def test_stream_that_does_not_follow_the_log_is_refused(state: object) -> None:
    found = position(parse_airbyte_state(airbyte_message("Shop", lsn(9), {"dbo.Orders": state})))
    assert found.explain_refusal(ORDERS)


def test_state_of_airbyte_in_another_database_is_refused() -> None:
    state = parse_airbyte_state(airbyte_message("Shop", lsn(9), {"dbo.Orders": airbyte_done("Orders")}))
    with pytest.raises(OperatorError, match=r"state of Airbyte: it has no offset in database Other"):
        position(state, "Other")


GARBAGE = (
    "",
    "null",
    "[]",
    "{}",
    "4711",
    '{"offsets": [4711]}',
    '{"offsets": [{"partition": 4711, "offset": {"commit_lsn": "0000002D:00000580:001D"}}]}',
    '{"offsets": [{"partition": {}, "offset": {"commit_lsn": "4711"}}]}',
    '{"offsets": [{"partition": {}, "offset": {"commit_lsn": 4711}}]}',
    '{"a": "4711 is not JSON"}',
    '["a", {"database": "4711"}] {"commit_lsn"',
    '{"mssql_cdc_offset": 4711}',
    '{"mssql_cdc_offset": {"[]": "{4711"}}',
    '[{"mssql_cdc_offset": {}}, {"mssql_cdc_offset": {"a": "4711"}}]',
    '{"mssql_cdc_offset": {"[\\"s\\",{}]": "{\\"commit_lsn\\":\\"0000002D:00000580:001D\\"}"}, "4711": 1}',
    "[" * 100_000,
    '["a"] ' + "[" * 100_000,
)


@pytest.mark.parametrize("text", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("parse", [parse_debezium_offsets, parse_airbyte_state])
def test_garbage_is_refused_in_one_message_without_its_text(parse: object, text: str) -> None:
    assert callable(parse)
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert "4711" not in refused.value.in_full
    assert refused.value.hint


@given(st.text(max_size=60) | st.text("TFENDILCS/0xABCER ", max_size=60))
def test_no_text_ends_in_another_error(text: str) -> None:
    for parse in (parse_ssis_state, parse_debezium_offsets, parse_airbyte_state):
        try:
            position(parse(text))
        except FloodmarkError:
            continue


json_keys = st.sampled_from(
    ("offsets", "partition", "offset", "commit_lsn", "mssql_cdc_offset", "stream_descriptor", "name", "namespace")
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_keys, inner, max_size=4),
)


@given(json_values)
def test_no_json_ends_in_another_error(document: object) -> None:
    for parse in (parse_debezium_offsets, parse_airbyte_state):
        try:
            position(parse(json.dumps(document)))
        except FloodmarkError:
            continue
