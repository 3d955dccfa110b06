"""Plans as ledgers since version 5 have them.

Each file was written by the code of the commit that added a field, and they are in the order of those commits. All have
the same plan, as far as their form can hold it.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from floodmark.core.plan import LoadKind, TablePlan, WindowPlan
from floodmark.core.plan_json import plan_from_json, plan_to_json
from floodmark.core.position import Interval, Lsn
from floodmark.core.schema import MappedColumn, SourceColumn, SourceTable, TableName
from floodmark.core.settings import (
    Deletes,
    FirstLoad,
    Naming,
    NetSource,
    OnFailure,
    Rule,
    TableSettings,
    TemporalPolicy,
    UnstorablePolicy,
)
from floodmark.core.snapshot import Feed, FeedIdentity, MemberMark

FILES = sorted((Path(__file__).parent / "stored_plans").glob("*.json"))
FORMS = [path.stem[3:] for path in FILES]


def _lsn(number: int) -> Lsn:
    return Lsn.parse(f"0x0000002D{number:012X}")


def _expected(form: str) -> WindowPlan:
    """Return the plan with the default for everything that the form did not have yet."""
    known = FORMS[: FORMS.index(form) + 1]

    def since(first: str, value: Any, default: Any) -> Any:
        return value if first in known else default

    def feed(name: str, **more: Any) -> Feed:
        columns = (
            SourceColumn("Id", "int", 1, nullable=False),
            SourceColumn("Amount", "decimal", 2, precision=18, scale=2),
            SourceColumn(
                "Note", "nvarchar", 3, max_length=-1, collation=since("collation", "Latin1_General_CI_AS", "")
            ),
            SourceColumn("Total", "decimal", 4, precision=18, scale=2, is_computed=True),
        )
        return Feed(
            FeedIdentity(f"dbo_{name}", 1221579390, datetime(2026, 11, 20, 8, 30, 15, 127000), since("store_id", 7, 0)),
            SourceTable(TableName("dbo", name), columns, ("Id",), is_partial=since("is_partial", True, False)),
            start=_lsn(3),
            supports_net_changes=True,
            has_command_id=True,
            **more,
        )

    changes = TablePlan(
        settings=TableSettings(
            TableName("dbo", "Order.Lines"),
            TableName("shop", "order_lines"),
            deletes=Deletes.HARD,
            net=NetSource.SERVER,
            temporal=TemporalPolicy.TEXT,
            rules=(
                Rule("positive", '"Amount" > 0', OnFailure.WARN),
                Rule("noted", '"Note" IS NOT NULL', OnFailure.STOP),
            ),
            partitions=8,
            first_load=FirstLoad(1000, 2),
            max_reads=since("max_reads", 3, 4),
            lob_batch=since("lob_batch_bytes", 4_000_000, 32_000_000),
            unstorable=since("unstorable", UnstorablePolicy.REPLACE, UnstorablePolicy.QUARANTINE),
            naming=since("columns", Naming.SNAKE_CASE, Naming.KEEP),
        ),
        kind=LoadKind.CHANGES,
        feed=feed("Order.Lines"),
        interval=Interval(_lsn(10), _lsn(40)),
        watermark=_lsn(10),
        quiet=True,
        columns=since("columns", (MappedColumn("Id", "id"), MappedColumn("Total_", "total", "Total_")), ()),
    )
    load = TablePlan(
        settings=TableSettings(TableName("dbo", "Readings"), TableName("shop", "readings")),
        kind=LoadKind.FIRST_LOAD,
        feed=feed(
            "Readings",
            delivers_net=since("reloads_members", True, False),
            # The form before had members only where rows name them.
            has_members=since("reloads_members", True, False),
            member_column=since("reloads_members", "Id", ""),
        ),
        interval=None,
        watermark=_lsn(20),
        is_reload=True,
        keeps_unread=since("keeps_unread", True, False),
        where="Id > 5",
        reloads_members=since("reloads_members", True, False),
        ends=since("ends", (MemberMark("0", "17"), MemberMark("1", None)), ()),
        rows_at=since("ends", bytes.fromhex("00000000000000000102"), None),
    )
    ended = since("to_lsn_at", datetime(2026, 11, 21, 9, 0, 1, 500000), None)
    return WindowPlan(4711, "shop", _lsn(40), (changes, load), 2, "replay 0x01-0x02", ended)


def _lost(stored: Any, written: Any) -> list[str]:
    """Return what a document has and another one does not have in the same place."""
    if isinstance(stored, dict) and isinstance(written, dict):
        return [f"{key}.{lost}" for key in stored for lost in _lost(stored[key], written.get(key))]
    if isinstance(stored, list) and isinstance(written, list) and len(stored) == len(written):
        return [lost for pair in zip(stored, written, strict=True) for lost in _lost(*pair)]
    return [] if stored == written else [f"{stored} is {written}"]


@pytest.mark.parametrize(("form", "path"), list(zip(FORMS, FILES, strict=True)), ids=FORMS)
def test_stored_plan_of_every_earlier_form_is_read(form: str, path: Path) -> None:
    found, expected = plan_from_json(json.loads(path.read_text(encoding="utf-8"))), _expected(form)
    assert found == expected
    # Collations and the numbers of stores are not compared.
    assert repr(found) == repr(expected)


@pytest.mark.parametrize("path", FILES, ids=FORMS)
def test_stored_plan_is_written_in_the_form_that_earlier_versions_and_sql_read(path: Path) -> None:
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert _lost(stored, json.loads(json.dumps(plan_to_json(plan_from_json(stored))))) == []
