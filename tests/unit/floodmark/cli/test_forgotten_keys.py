"""The key of ``floodmark forget``, as pairs and as JSON. No value is in an error."""

from __future__ import annotations

import pytest

from floodmark.cli.forget import parse_key_document, parse_key_pairs
from floodmark.core.errors import ConfigError


def test_pairs_are_split_at_the_first_sign_of_equality() -> None:
    assert parse_key_pairs(["Id=5", "Mail=a=b", "Code="]) == {"Id": "5", "Mail": "a=b", "Code": ""}


def test_document_has_numbers_as_they_are_written() -> None:
    text = '{"Id": 12345678901234567890, "Price": 1.10, "Mail": "a\\u00e9\\"b", "Is %": true}'
    assert parse_key_document(text) == {
        "Id": "12345678901234567890",
        "Price": "1.10",
        "Mail": 'aé"b',
        "Is %": "true",
    }


@pytest.mark.parametrize("texts", [["secret"], ["=secret"], ["Id=secret", "Id=secret"]])
def test_pairs_that_are_none_are_refused_without_the_value(texts: list[str]) -> None:
    with pytest.raises(ConfigError) as found:
        parse_key_pairs(texts)
    assert "secret" not in found.value.in_full


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        "{}",
        '["secret"]',
        '{"Id": "secret"',
        '{"Id": null, "Code": "secret"}',
        '{"Id": ["secret"]}',
        '{"Id": {"Code": "secret"}}',
        '{"Id": "secret", "Id": "secret"}',
        '{"Id": NaN}',
    ],
)
def test_document_that_is_no_key_is_refused_without_the_value(text: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse_key_document(text)
    assert "secret" not in found.value.in_full
