"""The defaults of the format are in the document, and the code that holds each of them exists."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from floodmark.sources.event_stream import defaults
from floodmark.sources.event_stream.defaults import DEFAULTS, FormatDefault, describe_defaults

DOCUMENT = Path(__file__).parents[5] / "docs" / "reference" / "event_stream.md"


def test_document_lists_the_defaults() -> None:
    assert describe_defaults() in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("default", DEFAULTS, ids=lambda each: each.rule)
def test_code_that_holds_a_default_exists(default: FormatDefault) -> None:
    module, _, name = default.place.partition(".")
    assert hasattr(import_module(f"floodmark.sources.event_stream.{module}"), name)


def test_defaults_are_in_the_order_of_their_questions() -> None:
    numbers = [each.question for each in DEFAULTS]
    assert numbers == sorted(numbers)
    assert len({each.rule for each in DEFAULTS}) == len(DEFAULTS)


def test_every_constant_of_a_default_is_listed() -> None:
    constants = {name for name in vars(defaults) if name.isupper() and name != "DEFAULTS"}
    assert constants == {each.place.partition(".")[2] for each in DEFAULTS if each.place.startswith("defaults.")}
