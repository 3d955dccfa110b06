"""docs/emulator.md is true: what is said to be there runs, what is said to be refused is refused by name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from document_tables import EXAMPLES, HEADINGS, ROOT, batches_of, read_entries, read_examples
from emulator_process import Emulator

DATABASE = "Document"
EXAMPLES_OF = read_examples()


@pytest.fixture(scope="module")
def connection(emulator: Emulator) -> Iterator[Any]:
    with contextlib.closing(emulator.connect_pymssql("master", autocommit=True)) as master:
        master.cursor().execute(f"CREATE DATABASE {DATABASE}")
    with contextlib.closing(emulator.connect_pymssql(DATABASE, autocommit=True)) as connection:
        yield connection
        with contextlib.suppress(Exception):
            connection.cursor().execute("EXEC sys.sp_cdc_disable_db")
    with contextlib.closing(emulator.connect_pymssql("master", autocommit=True)) as master:
        master.cursor().execute(f"DROP DATABASE {DATABASE}")


def run(connection: Any, batch: str) -> None:
    cursor = connection.cursor()
    cursor.execute(batch)
    while cursor.description is not None and (cursor.fetchall() is None or cursor.nextset()):
        pass


@pytest.mark.parametrize("kind", HEADINGS)
def test_every_entry_of_the_document_has_an_example_and_every_example_an_entry(kind: str) -> None:
    entries, examples = read_entries(kind), EXAMPLES_OF[kind]
    assert len(entries) > 15
    without = [entry for entry in entries if entry not in examples]
    assert not without, f"docs/emulator.md, {HEADINGS[kind]}: give these an example in {EXAMPLES.name}"
    left = [example for example in examples if example not in entries]
    assert not left, f"{EXAMPLES.name}: docs/emulator.md says nothing of these any more"


@pytest.mark.parametrize("entry", EXAMPLES_OF["there"])
def test_what_is_there_runs(connection: Any, entry: str) -> None:
    example = EXAMPLES_OF["there"][entry]
    if isinstance(example, dict):
        file, _, test = example["tested_by"].partition("::")
        assert f"def {test}" in (ROOT / file).read_text("utf-8")
        return
    for batch in batches_of(example):
        run(connection, batch)


@pytest.mark.parametrize("entry", EXAMPLES_OF["refused"])
def test_what_is_not_there_is_refused_by_name(connection: Any, entry: str) -> None:
    *before, refused = batches_of(EXAMPLES_OF["refused"][entry])
    for batch in before:
        run(connection, batch)
    with pytest.raises(Exception, match="sqlserver_emulator does not support") as caught:
        run(connection, refused)
    number, text = caught.value.args[0] if len(caught.value.args) == 1 else caught.value.args
    assert number == 49999
    message = (text.decode() if isinstance(text, bytes) else text).partition("does not support")[2]
    names = {word.lower().rstrip("s")[:6] for word in re.findall(r"\w{3,}", entry)} - {"other", "and", "the"}
    assert any(name in message.lower() for name in names), f"none of {names} in: {message}"
