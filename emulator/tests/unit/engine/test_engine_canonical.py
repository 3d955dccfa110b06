"""Expressions as the catalog shows them, by examples of published scripts."""

from __future__ import annotations

import pytest

from sqlserver_emulator.engine.ddl.reading.canonical import as_written, canonical


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("0", "((0))"),
        ("((0))", "((0))"),
        ("- 1.5", "((-1.5))"),
        ("+5", "((5))"),
        ("'x'", "('x')"),
        ("(n'x')", "(N'x')"),
        ("0x00", "(0x00)"),
        ("NULL", "(NULL)"),
        ("GETDATE()", "(getdate())"),
        ("CURRENT_TIMESTAMP", "(getdate())"),
        ("CURRENT_USER", "(user_name())"),
        ("SUSER_SNAME()", "(suser_sname())"),
        ("(1) + (2)", "((1)+(2))"),
        ("CAST(0 AS bit)", "(CONVERT([bit],(0)))"),
        ("CONVERT(date, GETDATE())", "(CONVERT([date],getdate()))"),
        ("CONVERT(DATE, '19800101', 112)", "(CONVERT([date],'19800101',(112)))"),
        ("DATEADD(hh, 1, GETUTCDATE())", "(dateadd(hour,(1),getutcdate()))"),
        ("NEXT VALUE FOR Sequences.StockItemKey", "(NEXT VALUE FOR [Sequences].[StockItemKey])"),
    ],
)
def test_default_is_shown(written: str, shown: str) -> None:
    assert canonical(written) == shown
    assert canonical(shown) == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("a > 1 AND b IN (1,2)", "([a]>(1) AND ([b]=(2) OR [b]=(1)))"),
        ("[Rate] BETWEEN 6.50 AND 200.00", "([Rate]>=(6.50) AND [Rate]<=(200.00))"),
        (
            "PersonType IS NULL OR UPPER(PersonType) IN ('SC', 'VC')",
            "([PersonType] IS NULL OR (upper([PersonType])='VC' OR upper([PersonType])='SC'))",
        ),
        ("(a = 1) OR ((b is not null) AND (c != 2))", "([a]=(1) OR [b] IS NOT NULL AND [c]<>(2))"),
        ("a = 1 AND (b = 2 OR c = 3)", "([a]=(1) AND ([b]=(2) OR [c]=(3)))"),
        ("Shelf LIKE '[A-Z]' OR Shelf = 'N/A'", "([Shelf] like '[A-Z]' OR [Shelf]='N/A')"),
        (
            "phone NOT LIKE '%[^0-9]%' AND LEN(phone) >= 8 AND LEN(phone) <= 10",
            "(NOT [phone] like '%[^0-9]%' AND len([phone])>=(8) AND len([phone])<=(10))",
        ),
        (
            "c NOT LIKE '%x' AND LEN(c) BETWEEN 7 AND 8",
            "(NOT [c] like '%x' AND (len([c])>=(7) AND len([c])<=(8)))",
        ),
        ("id NOT IN (33, 34)", "(NOT ([id]=(34) OR [id]=(33)))"),
        ("NOT (t = 2 AND amount > 1000)", "(NOT ([t]=(2) AND [amount]>(1000)))"),
        ("DATEDIFF(yy, Born, GETDATE()) >= 18", "(datediff(year,[Born],getdate())>=(18))"),
        ("Born <= DATEADD(year, -18, GETDATE())", "([Born]<=dateadd(year,(-18),getdate()))"),
        ("Name COLLATE Latin1_General_BIN = 'x'", "(([Name]) collate Latin1_General_BIN='x')"),
        ("a !> 3", "([a]<=(3))"),
    ],
)
def test_check_is_shown(written: str, shown: str) -> None:
    assert canonical(written) == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("ISNULL([SubTotal] + [TaxAmt] + [Freight], 0)", "(isnull(([SubTotal]+[TaxAmt])+[Freight],(0)))"),
        ("Quantity * UnitPrice * (1 - Discount / 100)", "(([Quantity]*[UnitPrice])*((1)-[Discount]/(100)))"),
        ("Price * Quantity + TaxValue", "([Price]*[Quantity]+[TaxValue])"),
        ("First + ' ' + Last", "(([First]+' ')+[Last])"),
        ("(Level & ~1) / 2 & 3", "(([Level]&~(1))/(2)&(3))"),
        ("CASE WHEN a = 1 THEN 0 ELSE 1 END", "(case when [a]=(1) then (0) else (1) end)"),
        ("CASE WHEN a IS NOT NULL THEN b END", "(case when [a] IS NOT NULL then [b]  end)"),
        ("CONCAT(Last, ', ', First)", "(concat([Last],', ',[First]))"),
        ("'AW' + dbo.ufnLeadingZeros(CustomerID)", "('AW'+[dbo].[ufnLeadingZeros]([CustomerID]))"),
        ("YEAR(Paid)", "(datepart(year,[Paid]))"),
        ("CONVERT(nvarchar(23), SalesOrderID)", "(CONVERT([nvarchar](23),[SalesOrderID]))"),
        ("CAST(a AS decimal(10, 2))", "(CONVERT([decimal](10,2),[a]))"),
        ("-a", "( -[a])"),
    ],
)
def test_computed_column_is_shown(written: str, shown: str) -> None:
    assert canonical(written) == shown


def test_filter_of_an_index_keeps_its_lists() -> None:
    assert canonical("status IN (1, 2)", keeps_lists=True) == "([status] IN ((1), (2)))"


@pytest.mark.parametrize(
    "written", ["a = ANY (SELECT 1)", "TRY_CAST(a AS int)", "SUM(a) OVER (ORDER BY b)", "a +", "("]
)
def test_form_that_is_not_known_stays_as_it_was_written(written: str) -> None:
    assert canonical(written) == f"({written})"


def test_expression_is_put_in_parentheses_once() -> None:
    assert [as_written(text) for text in ("1", "(1)", "((1))", "(1)+(2)")] == ["(1)", "(1)", "((1))", "((1)+(2))"]
