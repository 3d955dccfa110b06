"""Which tokens a session's events become, in which order and with which flags."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

from sqlserver_emulator.collations import find_collation
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import (
    Column,
    Command,
    DatabaseChanged,
    ErrorRaised,
    Event,
    Info,
    ResultStart,
    ReturnStatus,
    ReturnValue,
    Rows,
    StatementDone,
    TransactionAction,
    TransactionChanged,
)
from sqlserver_emulator.tds import tokens
from sqlserver_emulator.tds.response import ResponseEncoder
from sqlserver_emulator.tds.tokens import DoneToken
from sqlserver_emulator.tds.type_info import encode_type_info
from sqlserver_emulator.types import INT, TsqlType

MORE, ERROR, IN_TRANSACTION, COUNT, RPC_IN_BATCH = 0x01, 0x02, 0x04, 0x10, 0x80


@dataclass(frozen=True)
class Done:
    token: int
    status: int
    command: int
    rows: int


def respond(events: Iterable[Event], *, procedure: bool = False, more: bool = False, busy: bool = False) -> list[bytes]:
    encoder = ResponseEncoder(lambda: busy, procedure=procedure, more_follows=more)
    pieces = [bytes(piece) for event in events for piece in encoder.encode(event)]
    return [*pieces, encoder.finish()]


def dones(pieces: Iterable[bytes]) -> Iterator[Done]:
    for piece in pieces:
        if piece[:1] and piece[0] in (DoneToken.DONE, DoneToken.DONEPROC, DoneToken.DONEINPROC):
            yield Done(*struct.unpack("<BHHQ", piece))


def test_only_the_last_done_of_a_batch_lacks_the_more_flag() -> None:
    pieces = respond([StatementDone(Command.INSERT, 3), StatementDone(), StatementDone(Command.SELECT, 0)])
    assert list(dones(pieces)) == [
        Done(DoneToken.DONE, MORE | COUNT, 0xC3, 3),
        Done(DoneToken.DONE, MORE, 0, 0),
        Done(DoneToken.DONE, COUNT, 0xC1, 0),
    ]


def test_a_batch_without_statements_is_answered_with_one_done() -> None:
    assert list(dones(respond([]))) == [Done(DoneToken.DONE, 0, 0, 0)]


def test_a_message_after_the_last_statement_still_ends_with_a_done() -> None:
    pieces = respond([StatementDone(Command.INSERT, 1), Info(0, "late")])
    assert [done.status for done in dones(pieces)] == [MORE | COUNT, 0]


def test_an_error_token_is_followed_by_a_done_with_the_error_flag() -> None:
    error = SqlServerError(208, "Invalid object name 'é'.", state=2, procedure="p", line=4)
    pieces = respond([ErrorRaised(error), StatementDone(failed=True)], busy=True)
    assert pieces[0] == tokens.error(error)
    assert pieces[0][0] == 0xAA
    assert struct.unpack_from("<HiBB", pieces[0], 1) == (len(pieces[0]) - 3, 208, 2, 16)
    assert list(dones(pieces)) == [Done(DoneToken.DONE, ERROR | IN_TRANSACTION, 0, 0)]


def test_end_of_an_error_that_closes_the_connection_is_marked() -> None:
    pieces = respond([ErrorRaised(SqlServerError(21, "Warning", severity=20)), StatementDone(failed=True)])
    assert [done.status for done in dones(pieces)] == [ERROR | 0x100]


def test_statements_of_a_call_end_in_doneinproc_and_the_call_in_doneproc() -> None:
    value = ReturnValue(0, "@handle", INT, 5)
    pieces = respond(
        [ResultStart((Column("a", INT),)), Rows([(1,)]), StatementDone(Command.SELECT, 1), ReturnStatus(0), value],
        procedure=True,
        more=True,
    )
    assert list(dones(pieces)) == [
        Done(DoneToken.DONEINPROC, MORE | COUNT, 0xC1, 1),
        Done(DoneToken.DONEPROC, MORE | RPC_IN_BATCH, 0xE0, 0),
    ]
    assert pieces[-3] == b"\x79\x00\x00\x00\x00"
    assert pieces[-2] == b"\xac\x00\x00" + tokens.short_text("@handle") + b"\x01" + bytes(4) + b"\x01\x00" + (
        b"\x26\x04\x04\x05\x00\x00\x00"
    )


def test_exec_in_a_batch_ends_with_its_status_and_doneproc() -> None:
    pieces = respond([StatementDone(Command.INSERT, 1), ReturnStatus(0), StatementDone(Command.EXECUTE)])
    assert [(done.token, done.status) for done in dones(pieces)] == [
        (DoneToken.DONE, MORE | COUNT),
        (DoneToken.DONEPROC, 0),
    ]


def test_environment_changes_carry_new_and_old() -> None:
    begun, committed, moved, _done = respond(
        [
            TransactionChanged(TransactionAction.BEGUN, 9),
            TransactionChanged(TransactionAction.COMMITTED, 9),
            DatabaseChanged("a", "b"),
        ]
    )
    descriptor = b"\x08" + struct.pack("<Q", 9)
    assert begun == b"\xe3\x0b\x00\x08" + descriptor + b"\x00"
    assert committed == b"\xe3\x0b\x00\x09\x00" + descriptor
    assert moved == b"\xe3\x07\x00\x01\x01b\x00\x01a\x00"


def test_routing_names_protocol_port_and_server() -> None:
    new_value = b"\x00\x01\x02\x02\x00a\x00b\x00"
    assert tokens.routing("ab", 0x0201) == b"\xe3\x0e\x00\x14" + b"\x09\x00" + new_value + b"\x00\x00"


def test_severity_20_ends_the_connection() -> None:
    encoder = ResponseEncoder(lambda: False)
    list(encoder.encode(ErrorRaised(SqlServerError(596, "gone", severity=20))))
    assert encoder.is_fatal


def test_column_flags_show_nullable_case_sensitive_identity_and_computed() -> None:
    metadata = tokens.column_metadata(
        (
            Column("id", INT, nullable=False, identity=True),
            Column("sum", INT, computed=True),
            Column("name", TsqlType("nvarchar", 5)),
            Column("exact", TsqlType("nvarchar", 5), collation=find_collation("Latin1_General_100_BIN2")),
            Column("v", TsqlType("rowversion"), nullable=False),
        )
    )
    expected = struct.pack("<BH", 0x81, 5)
    expected += struct.pack("<IH", 0, 0x10) + b"\x26\x04" + tokens.short_text("id")
    expected += struct.pack("<IH", 0, 0x21) + b"\x26\x04" + tokens.short_text("sum")
    expected += struct.pack("<IH", 0, 0x09) + b"\xe7\x0a\x00\x09\x04\xd0\x00\x34" + tokens.short_text("name")
    expected += struct.pack("<IH", 0, 0x0B) + b"\xe7\x0a\x00\x09\x04\x00\x22\x00" + tokens.short_text("exact")
    expected += struct.pack("<IH", 0x50, 0x08) + b"\xad\x08\x00" + tokens.short_text("v")
    assert metadata == expected


@pytest.mark.parametrize("type_", [TsqlType("geography"), TsqlType("nvarchar", 4001)], ids=str)
def test_a_type_that_cannot_be_sent_is_refused_by_name(type_: TsqlType) -> None:
    with pytest.raises(NotSupportedByEmulatorError, match=type_.name):
        encode_type_info(type_)


def test_hidden_columns_are_marked_by_column_information_behind_the_metadata() -> None:
    columns = (Column("a", INT), Column("ROWSTAT", INT, nullable=False, hidden=True))
    assert tokens.column_metadata(columns).endswith(b"\xa5\x06\x00" + b"\x01\x00\x04" + b"\x02\x00\x14")
    assert b"\xa5\x06\x00" not in tokens.column_metadata(columns[:1])
