"""Statements that no person writes: the session answers each with a result or an error of its own, and goes on."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hostile_client import Target, begin_login
from raw_client import BATCH, HEADERS, LOGIN, RPC, RawClient, login_message

SOME = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
BUG = "Internal error of sqlserver_emulator".encode("utf-16-le")


@pytest.fixture(scope="module")
def client(target: Target) -> Iterator[RawClient]:
    with target.client() as client, target.memory_grows_by_less_than(300):
        yield client


def numbers_in(answer: bytes, *numbers: int) -> bool:
    return any(b"\xaa" in answer and struct.pack("<i", number) in answer for number in numbers)


DEEP = {
    "parentheses": "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "a long sum": "SELECT " + "1+" * 5000 + "1",
    "a long condition": "SELECT 1 WHERE " + "1=1 AND " * 5000 + "1=1",
    "negations": "SELECT 1 WHERE " + "NOT " * 3000 + "1=1",
    "cases": "SELECT " + "CASE WHEN 1=1 THEN " * 3000 + "1" + " END" * 3000,
    "subqueries": "SELECT * FROM " + "(SELECT * FROM " * 2000 + "(SELECT 1 AS a) t" + ") t" * 2000,
    "blocks": "BEGIN " * 9000 + "SELECT 1 " + "END " * 9000,
}


@pytest.mark.parametrize("what", DEEP)
def test_nesting_too_deep_is_error_191_and_the_session_goes_on(client: RawClient, what: str) -> None:
    assert numbers_in(client.batch(DEEP[what]), 191)
    assert client.batch("SELECT 1 AS one").startswith(b"\x81")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 400 + "1" + ")" * 400,
        "SELECT 1 WHERE " + " OR ".join(f"1={number}" for number in range(1000)),
        " UNION ALL ".join(["SELECT 1"] * 1500),
        "BEGIN " * 300 + "SELECT 1 " + "END " * 300,
        "SELECT * FROM (VALUES " + ",".join(f"({number})" for number in range(3000)) + ") t(a)",
        "SELECT 1 WHERE 1 IN (" + ",".join(map(str, range(3000))) + ")",
    ],
    ids=["parentheses", "or", "union", "blocks", "values", "in"],
)
def test_what_a_program_may_well_generate_is_answered(client: RawClient, text: str) -> None:
    assert client.batch(text).startswith(b"\x81")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SELECT " + "9" * 10_000, 1007),
        ("SELECT 1." + "9" * 10_000, 1007),
        ("SELECT '" + "x" * 100_000, 105),
        ("/*" * 50_000 + "SELECT 1", 113),
        ("USE [a\0b]", 911),
        ("USE [" + "n" * 4000 + "]", 103),
        ("SELECT * FROM [" + "n" * 4000 + "]", 103),
        ("SELECT " + "1," * 5000 + "1", 49999),
        ("RAISERROR('" + "x" * 50_000 + "', 16, 1)", 50000),
        ("THROW 50001, '" + "x" * 50_000 + "', 1", 50001),
        (";" * 2_100_000, 701),
    ],
    ids=lambda value: str(value)[:24].replace("\0", "NUL"),
)
def test_absurd_texts_have_errors_of_their_own(target: Target, text: str, number: int) -> None:
    with target.client() as client:
        answer = client.batch(text)
        assert BUG not in answer
        assert numbers_in(answer, number)
        assert client.batch("SELECT 1 AS one").startswith(b"\x81")


_WORDS = """SELECT FROM WHERE AND OR NOT NULL IN EXISTS JOIN ON APPLY CROSS OUTER GROUP BY ORDER HAVING TOP OFFSET FETCH
    WITH INSERT INTO VALUES UPDATE SET DELETE MERGE USING WHEN MATCHED THEN OUTPUT DECLARE @a @@ROWCOUNT BEGIN END IF
    ELSE BREAK TRY CATCH RETURN EXEC PRINT RAISERROR THROW TRAN COMMIT ROLLBACK CREATE ALTER DROP TABLE VIEW INDEX
    PROCEDURE CAST CONVERT AS int nvarchar(10) decimal(5,2) CASE OVER PARTITION ( ) , . ; = <> < + - * / % 1 0x1F 1.5e3
    'text' N'é' [name] "name" sys.tables dbo t a b -- /* */ ' [ GO LIKE BETWEEN UNION ALL EXCEPT PIVOT FOR JSON XML"""
WORDS = st.sampled_from(_WORDS.split())


@SOME
@given(st.lists(WORDS, max_size=25).map(" ".join))
def test_any_soup_of_words_is_answered(client: RawClient, text: str) -> None:
    assert BUG not in client.batch(text)
    client.batch("IF @@TRANCOUNT > 0 ROLLBACK")


@SOME
@given(st.text(max_size=60))
def test_any_text_is_answered(client: RawClient, text: str) -> None:
    try:
        payload = HEADERS + text.encode("utf-16-le")
    except UnicodeEncodeError:
        return
    client.send(BATCH, payload)
    assert BUG not in client.read()
    client.batch("IF @@TRANCOUNT > 0 ROLLBACK")


PROCEDURES = st.sampled_from(
    ["sp_executesql", "sp_prepexec", "sp_execute", "sp_unprepare", "sp_tables", "sp_cdc_enable_table", "a.b.c.d.e", "["]
)
PARAMETERS = st.sampled_from(
    [
        b"\x00\x00\x26\x04\x04\x01\x00\x00\x00",
        b"\x00\x01\x26\x04\x00",
        b"\x02@\x00a\x00\x00\xe7\x14\x00\x09\x04\x00\x22\x00\xff\xff",
        b"\x00\x00\xe7\x14\x00\x09\x04\x00\x22\x00\x04\x00S\x00E\x00",
        b"\x00\x02\x6a\x11\x26\x00\x00",
        b"\x00\x00\x6a\x11\x26\x00\x11\x01" + b"\xff" * 16,
        b"\x00\x00\x2a\x07\x08" + b"\xff" * 8,
        b"\x00\x00\x6d\x08\x08" + b"\x00" * 6 + b"\xf0\x7f",
    ]
)


@SOME
@given(PROCEDURES, st.lists(PARAMETERS, max_size=5))
def test_calls_with_odd_names_and_parameters_are_answered(
    target: Target, procedure: str, parameters: list[bytes]
) -> None:
    name = struct.pack("<H", len(procedure)) + procedure.encode("utf-16-le")
    with target.client() as client:
        client.send(RPC, HEADERS + name + b"\x00\x00" + b"".join(parameters))
        try:
            answer = client.read()
        except EOFError:
            return  # a value that its type cannot hold ends the connection
        assert BUG not in answer


@SOME
@given(user=st.text(max_size=20), password=st.text(max_size=20))
def test_any_name_may_try_to_log_in(target: Target, user: str, password: str) -> None:
    try:
        message = login_message(user, "wrong " + password, 4096)
    except UnicodeEncodeError:
        return
    with RawClient(target.port) as client:
        begin_login(client)
        client.send(LOGIN, message)
        assert numbers_in(client.read(), 18456, 49999)  # the latter for a name with U+0000
