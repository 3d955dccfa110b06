"""The output of commands, on the terminals that people have, and into pipes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from floodmark.cli.process import (
    print_alerts,
    print_line,
    print_run,
    print_status,
    print_table,
    print_verification,
    verification_remarks,
)
from floodmark.cli.runs import print_findings
from floodmark.core.alert import Alert
from floodmark.core.doctor import Finding, Grade
from floodmark.core.plan import AdvanceResult, LoadKind, PublishedTable, TableCounts
from floodmark.core.position import Lsn
from floodmark.core.schema import TableName
from floodmark.core.status import LastWindow, PipelineStatus, RowDifference, TableStatus, TableVerification
from floodmark.sync.alerts import OpenAlert
from pseudo_terminal import FakeTerminal

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ORDERS = TableStatus(
    source="dbo.Orders",
    target="shop.orders",
    watermark="0x0000003200195AE00001",
    watermark_at=datetime(2026, 5, 1, 12, 30, 5),
    verdict="ready",
    state="consistent",
    lag_seconds=247.4,
    transactions_behind=5224,
    headroom_seconds=258_900.0,
    last_window=LastWindow(7, 5318, 1485, 510, 165, 0),
)
LONG = replace(ORDERS, source="sales.CustomersOfTheNorthernHemisphereAndOthers", target="sales.customers_of_the_north")
HEADINGS = ("table", "verdict", "lag", "+ins ~upd -del", "watermark at", "watermark", "target", "headroom")
Print = Callable[[Console], None]


def shown(show: Print, width: int | None = 80) -> str:
    """Return what is printed on a terminal of that width, without colours; None: into a pipe."""
    out = StringIO() if width is None else FakeTerminal()
    show(Console(file=out, width=width, no_color=True, color_system=None))
    return out.getvalue()


def status(*tables: TableStatus, wide: bool = False) -> Print:
    return lambda console: print_status(console, PipelineStatus("shop", None, None, tables), wide=wide)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_status_fits_the_terminal_and_breaks_no_name(width: int) -> None:
    text = shown(status(ORDERS, LONG), width)
    assert max(map(len, text.splitlines())) <= width
    assert {"dbo.Orders", "sales.CustomersOfTheNorthernHemisphereAndOthers", "ready", "0:04:07"} <= set(text.split())


def test_name_without_room_continues_on_the_next_line() -> None:
    text = shown(status(ORDERS, LONG), 40)
    assert max(map(len, text.splitlines())) <= 40
    assert "ready" in text.split()
    names = "".join(line[: line.find(" ")] if " " in line else line for line in text.splitlines())
    assert "dbo.Orderssales.CustomersOfTheNorthernHemisphereAndOthers" in names


def test_columns_that_do_not_fit_are_named() -> None:
    text = shown(status(LONG), 80)
    table, note = " ".join(text.split()).split("Not shown: ")
    missing = note.split(". ")[0].split(", ")
    assert missing[:3] == ["watermark", "behind", "target"]
    assert not {*missing} & set(table.split())


def test_rows_in_quarantine_are_shown_where_there_are_any() -> None:
    odd = replace(LONG, waiting_rows=21)
    assert "quarantine" not in shown(status(LONG), 200)
    text = shown(status(odd), 120)
    assert {"quarantine", "21"} <= set(text.split())
    assert f"{LONG.source}: 21 rows wait in quarantine: floodmark quarantine list" in text


@pytest.mark.parametrize("width", [80, None])
def test_wide_status_and_a_pipe_have_every_column_and_one_line_a_table(width: int | None) -> None:
    text = shown(status(ORDERS, LONG, wide=True), width)
    assert "Not shown" not in text
    assert all(heading in text for heading in HEADINGS)
    for name in ("dbo.Orders", LONG.source):
        (line,) = (line for line in text.splitlines() if line.startswith(name))
        assert "0x0000003200195AE00001" in line
        assert "2026-05-01 12:30:05" in line
        assert "+1,485 ~510 -165" in line
        assert "2d 23:55:00" in line


def test_pipe_gets_neither_rules_nor_colours() -> None:
    out = StringIO()
    print_status(
        Console(file=out), PipelineStatus("shop", None, None, (replace(ORDERS, standing="incident"),)), wide=False
    )
    assert out.getvalue().isascii()
    assert "\x1b" not in out.getvalue()


def test_colours_respect_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    out = FakeTerminal()
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(Console(file=out, force_terminal=True, width=80), "", ("a",), [("red", ("b",))])
    assert "\x1b[31m" not in out.getvalue()


@pytest.mark.parametrize("width", [80, None])
def test_brackets_and_colons_in_names_are_no_markup(width: int | None) -> None:
    def show(console: Console) -> None:
        print_table(console, "[bold] :car:", ("[a]",), [("", ("[red]x[/red]",)), ("", ("[dbo].[x]",))])
        print_line(console, "[y] :bug:")

    assert shown(show, width).split() == ["[bold]", ":car:", "[a]", "[red]x[/red]", "[dbo].[x]", "[y]", ":bug:"]
    named = replace(ORDERS, source="[x]", cause="[y]", reason="[z]")
    assert "[x]" in shown(status(named), width).split()
    assert "[x]: [z]: [y]" in shown(status(named), width)


def test_file_gets_one_line_a_row_also_where_colours_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(Console(file=out, width=40), "", ("a", "b"), [("", ("word " * 20, "x" * 50))])
    assert len(out.getvalue().splitlines()) == 2


def test_text_is_wrapped_between_words_only() -> None:
    long_name = "0x" + "f" * 100
    text = shown(lambda console: print_line(console, f"{'word ' * 30}{long_name} end", indent="  "))
    assert long_name in text.split()
    assert all(len(line) <= 80 for line in text.splitlines() if long_name not in line)
    assert shown(lambda console: print_line(console, "word " * 30), None).count("\n") == 1


def findings(*grades: Grade, everything: bool = False) -> Print:
    found = [
        Finding(grade, "check", f"dbo.T{number}", "text.", "EXEC fix;" if grade else "")
        for number, grade in enumerate(grades)
    ]
    return lambda console: print_findings(console, "shop", found, everything=everything)


def test_doctor_shows_problems_first_and_counts_what_is_good() -> None:
    text = shown(findings(Grade.GOOD, Grade.RISK, Grade.GOOD, Grade.PROBLEM))
    assert text.index("PROBLEM: check: dbo.T3") < text.index("RISK: check: dbo.T1")
    assert text.count("fix: EXEC fix;") == 2
    assert "2 checks are good. --all lists them." in text
    assert "dbo.T0" not in text


def test_doctor_lists_what_is_good_when_it_is_asked_to() -> None:
    text = shown(findings(Grade.GOOD, Grade.GOOD, everything=True))
    assert "good: check: dbo.T0: text." in text
    assert "--all" not in text


def test_alert_is_shown_with_what_to_do() -> None:
    alert = Alert(kind="run_failed", subject="shop", what="It failed.", means="No rows.", do="Run it.", event_key="k")
    text = shown(lambda console: print_alerts(console, [OpenAlert(alert, NOON, NOON, 3)]))
    assert text.splitlines()[0] == "run_failed: shop, since 2026-05-01 12:00:00 UTC"
    assert "What to do: Run it." in text
    assert shown(lambda console: print_alerts(console, [])) == "There is no open alert.\n"


def test_differing_keys_that_are_not_listed_are_counted_and_what_may_be_a_change_is_named() -> None:
    orders, target = TableName("dbo", "Orders"), TableName("shop", "orders")
    equal = TableVerification(orders, target, 5, 5, 0, 0, 0, ())
    assert verification_remarks([equal]) == []
    first = RowDifference((101,), "different", ("Amount",))
    different = replace(equal, missing_rows=2, different_rows=1_004, differences=(first,))
    unproven = replace(different, unproven="the log has no newer entry.")
    assert verification_remarks([equal, different]) == verification_remarks([unproven])[:2]
    key, more, why = verification_remarks([equal, unproven])
    assert key == "dbo.Orders: key (101) is different in Amount"
    assert more == "dbo.Orders: and 1,005 more keys"
    assert why.startswith("dbo.Orders: unproven: the log has no newer entry. Rows that were written after")
    left_out = replace(equal, waiting_rows=1, changed_rows=2)
    assert verification_remarks([left_out]) == [
        "dbo.Orders: 1 row waits in quarantine.",
        "dbo.Orders: 2 keys were changed after the watermark, and left out.",
    ]


def test_what_a_window_did_has_whole_words_in_80_columns() -> None:
    counts = TableCounts(1_234_567, 1_234_567, inserted_rows=1_234_567)
    at = Lsn(b"\0\0\0\1".ljust(10, b"\0"))
    done = PublishedTable(
        TableName("dbo", "Orders"), TableName("shop", "orders"), LoadKind.FIRST_LOAD, None, at, counts
    )
    text = shown(lambda console: print_run(console, AdvanceResult(7, "shop", at, (done,))))
    for whole in ("read", "inserted", "updated", "deleted", "quarantined", "1,234,567", "shop.orders"):
        assert whole in text


def test_a_comparison_has_its_names_and_numbers_whole_in_80_columns() -> None:
    lines = TableVerification(
        TableName("dbo", "OrderLines"), TableName("shop", "order_lines"), 1_234_567, 1_234_566, 1, 0, 0, ()
    )
    text = shown(lambda console: print_verification(console, [lines], wide=False))
    for whole in ("dbo.OrderLines", "1,234,567", "1,234,566", "DIFFERENT"):
        assert whole in text.split()
