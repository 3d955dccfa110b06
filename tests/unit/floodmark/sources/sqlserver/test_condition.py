import pytest

from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName
from floodmark.sources.sqlserver.condition import parse_condition

ORDERS = TableName("dbo", "Orders")


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("Id > 5", "Id > 5"),
        ("[Order Id]=N'a''b' AND (x IS NULL OR y LIKE 'a%')", "[Order Id] = N'a''b' AND (x IS NULL OR y LIKE 'a%')"),
        ("At >= DATEADD(day, -1, GETDATE())", "At >= DATEADD(DAY, -1, GETDATE())"),
        ("Id IN (1, 2) OR NOT (a BETWEEN 1 AND 2)", "Id IN (1, 2) OR NOT (a BETWEEN 1 AND 2)"),
        ("a <> 'x;y--z/*'", "a <> 'x;y--z/*'"),
        ("a LIKE '!%x' ESCAPE '!'", "a LIKE '!%x' ESCAPE '!'"),
        ("a NOT LIKE '!%x' ESCAPE '!' AND LEN(b) = 1", "a NOT LIKE '!%x' ESCAPE '!' AND LEN(b) = 1"),
        ("a = CAST('0.1' AS real)", "a = CAST('0.1' AS FLOAT(24))"),
        (
            "a = CONVERT(REAL, b) OR c = TRY_CAST(d AS real)",
            "a = CONVERT(FLOAT(24), b) OR c = TRY_CAST(d AS FLOAT(24))",
        ),
        ("a = CAST(b AS float)", "a = CAST(b AS FLOAT)"),
        ("[a;b] = 1 AND [c--d] = 2 AND [e\"f'g] = 3", "[a;b] = 1 AND [c--d] = 2 AND [e\"f'g] = 3"),
        ("real > 5 AND [real] = 'CAST(a AS real)'", "real > 5 AND [real] = 'CAST(a AS real)'"),
    ],
)
def test_condition_is_sent_as_it_was_understood(text: str, sent: str) -> None:
    assert parse_condition(text, ORDERS) == sent


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 = 1; DROP TABLE x", "it contains a semicolon"),
        ("a = 1 -- x", "it contains a comment"),
        ("a = 1 /* x */", "it contains a comment"),
        ("[a'b] = 1 -- c'", "it contains a comment"),
        ("[a'b] = 1; c = 'd'", "it contains a semicolon"),
        ("a = 1) OR (1 = 1", "it is not valid T-SQL"),
        ("a = 1 ORDER BY b", "it is not valid T-SQL"),
        ("DROP TABLE x", "it is not valid T-SQL"),
        ("EXEC p", "it is not valid T-SQL"),
        ("", "it is not valid T-SQL"),
        ("Id IN (SELECT 1)", "it contains a query, which is not supported"),
        ("@a = 1", "it contains a variable"),
        ("a = ?", "it contains a placeholder"),
        ("dbo.fn_x(a) = 1", "it calls dbo.fn_x(a), which is no built-in function"),
        ("a = 1 AND [x].[dbo].[fn x](a) = 1", "which is no built-in function"),
        ("Place.STArea() > 1", "it calls Place.STArea(), which is no built-in function"),
        ("NEXT VALUE FOR s = 1", "it takes a value from a sequence"),
        ("SUM(a) > 1", "it contains an aggregate, which is not a condition on a row"),
        ("t.a = 1", "t.a has a table's name before the column's"),
        ("Id", "it is a value, not a condition"),
    ],
)
def test_anything_but_one_condition_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=r"dbo\.Orders: the condition is refused") as caught:
        parse_condition(text, ORDERS)
    assert why in str(caught.value)
