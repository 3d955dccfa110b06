from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.tsql.raiserror import format_message


@pytest.mark.parametrize(
    ("template", "arguments", "text"),
    [
        ("plain 100%%", [], "plain 100%"),
        ("%d and %i", [5, -3], "5 and -3"),
        ("%s!", ["name"], "name!"),
        ("[%5d|%-5d|%05d|%+d]", [7, 7, 7, 7], "[    7|7    |00007|+7]"),
        ("%x %X %#x %o %#o", [255, 255, 255, 8, 8], "ff FF 0xff 10 010"),
        ("%u", [-1], "4294967295"),
        ("[%7.3s|%-7.3s]", ["abcdef", "abcdef"], "[    abc|abc    ]"),
        ("[%*d]", [4, 7], "[   7]"),
        ("[%.3d]", [7], "[007]"),
        ("%d %s", [1], "1 (null)"),
        ("%s", [None], "(null)"),
        ("%I64d", [2**40], "1099511627776"),
    ],
)
def test_message_is_formatted_like_printf(template: str, arguments: list[object], text: str) -> None:
    assert format_message(template, arguments) == text


@pytest.mark.parametrize(
    ("template", "arguments", "number"), [("%d", ["x"], 2786), ("%s", [1], 2786), ("%q", [1], 2787)]
)
def test_argument_of_the_wrong_type_is_refused(template: str, arguments: list[object], number: int) -> None:
    with pytest.raises(SqlServerError) as caught:
        format_message(template, arguments)
    assert caught.value.number == number


def test_long_message_ends_in_an_ellipsis() -> None:
    text = format_message("%s", ["x" * 5000])
    assert len(text) == 2047
    assert text.endswith("x...")


@given(st.text(st.characters(exclude_characters="%"), max_size=100))
def test_text_without_a_percent_sign_stays_as_it_is(text: str) -> None:
    assert format_message(text, []) == text
