"""Clauses of queries against what SQL Server documents: blanks at the end of strings, TOP, PIVOT, windows, groups."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance_server import Client

D = Decimal

BLANKS = [
    ("id FROM names WHERE name = 'abc' ORDER BY id", [(1,), (2,)]),
    ("id FROM names WHERE name = 'abc   ' ORDER BY id", [(1,), (2,)]),
    ("id FROM names WHERE 'abc ' = name ORDER BY id", [(1,), (2,)]),
    ("id FROM names WHERE wide = N'abc' ORDER BY id", [(1,), (2,)]),
    ("id FROM names WHERE code = 'abc' ORDER BY id", [(1,), (2,)]),
    ("id FROM names WHERE name <> 'abc'", [(3,)]),
    ("id FROM names WHERE name > 'abc'", [(3,)]),
    ("id FROM names WHERE name >= 'abc ' ORDER BY id", [(1,), (2,), (3,)]),
    ("id FROM names WHERE name < 'abd' ORDER BY id", [(1,), (2,)]),
    ("id FROM names WHERE name BETWEEN 'abc' AND 'abc' ORDER BY id", [(1,), (2,)]),
    ("id FROM names WHERE name IN ('x', 'abc') ORDER BY id", [(1,), (2,)]),
    ("id FROM names WHERE name NOT IN ('x', 'abc')", [(3,)]),
    ("id FROM names WHERE name = ANY (SELECT 'abc  ') ORDER BY id", [(1,), (2,)]),
    ("id FROM names WHERE UPPER(name) = 'ABC' ORDER BY id", [(1,), (2,)]),
    ("COUNT(*) FROM names a JOIN names b ON a.name = b.name", [(5,)]),
    ("COUNT(*) FROM names a JOIN names b ON a.name = b.wide", [(5,)]),
    ("COUNT(*) FROM names GROUP BY name ORDER BY COUNT(*)", [(1,), (1,), (2,)]),
    ("COUNT(*) FROM names GROUP BY UPPER(name) ORDER BY 1", [(1,), (1,), (2,)]),
    ("COUNT(*) FROM names GROUP BY name HAVING name = 'abc'", [(2,)]),
    ("COUNT(DISTINCT name) FROM names", [(2,)]),
    ("COUNT(*) FROM (SELECT DISTINCT name FROM names) d", [(3,)]),
    ("COUNT(*) FROM (SELECT name FROM names UNION SELECT 'abc') d", [(3,)]),
    ("COUNT(*) FROM (SELECT name FROM names EXCEPT SELECT 'abc') d", [(2,)]),
    ("MAX(n) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY name ORDER BY id) AS n FROM names) d", [(2,)]),
    ("RANK() OVER (ORDER BY name) FROM names ORDER BY 1", [(1,), (2,), (2,), (4,)]),
    ("CASE 'abc ' WHEN 'abc' THEN 1 ELSE 0 END", [(1,)]),
    ("NULLIF('a', 'a ')", [(None,)]),
    ("DATALENGTH(name) FROM (SELECT DISTINCT name FROM names WHERE id = 2) d", [(4,)]),
    ("DATALENGTH(name) FROM names WHERE id = 2 GROUP BY name", [(4,)]),
    ("name + '|' FROM names WHERE id = 2 GROUP BY name", [("abc |",)]),
    ("(SELECT COUNT(*) FROM names b WHERE b.name = a.name) FROM names a WHERE id = 3 GROUP BY name", [(1,)]),
    ("id FROM names WHERE name LIKE 'abc' ORDER BY id", [(1,), (2,)]),
    ("id FROM names WHERE wide LIKE N'abc'", [(1,)]),
    ("id FROM names WHERE code LIKE '%c' ORDER BY id", [(1,), (2,)]),
    ("id FROM names WHERE name LIKE 'abc '", [(2,)]),
    ("id FROM names WHERE name IS NULL OR name <> 'abd' AND name <> 'abc'", [(4,)]),
]
TOP = [
    ("TOP (2) id FROM sales ORDER BY id", [(1,), (2,)]),
    ("TOP (1) WITH TIES year_no FROM sales ORDER BY year_no", [(2023,), (2023,)]),
    ("TOP (50) PERCENT id FROM sales ORDER BY id", [(1,), (2,), (3,)]),
    ("TOP 1 PERCENT id FROM sales ORDER BY id", [(1,)]),
    ("TOP (0) PERCENT id FROM sales ORDER BY id", []),
    ("TOP 20 PERCENT WITH TIES year_no FROM sales ORDER BY year_no", [(2023,), (2023,)]),
    ("DISTINCT TOP (50) PERCENT region FROM sales ORDER BY region", [("north",)]),
    ("id FROM sales ORDER BY id OFFSET 3 ROWS FETCH NEXT 1 ROW ONLY", [(4,)]),
    ("id FROM sales ORDER BY id DESC OFFSET 4 ROWS", [(1,)]),
    ("s.id, x.total FROM sales s CROSS APPLY (SELECT SUM(amount) AS total FROM sales i WHERE i.year_no = s.year_no) x"
     " WHERE s.id = 1", [(1, D("15.00"))]),
    ("s.id, x.m FROM sales s OUTER APPLY (SELECT TOP 1 i.id AS m FROM sales i WHERE i.id > s.id + 3 ORDER BY i.id) x"
     " WHERE s.id IN (1, 5) ORDER BY s.id", [(1, 5), (5, None)]),
]  # fmt: skip
SHAPES = [
    ("* FROM (SELECT region, year_no, amount FROM sales) s PIVOT (SUM(amount) FOR year_no IN ([2023], [2024])) p"
     " ORDER BY region", [("north", D("10.00"), D("20.00")), ("south", D("5.00"), D("10.00"))]),
    ("[north], [south], [west] FROM (SELECT id, region FROM sales) s"
     " PIVOT (COUNT(id) FOR region IN ([north], [south], [west])) p", [(2, 3, 0)]),
    ("id, v, n FROM (SELECT id, year_no, 7 AS other FROM sales WHERE id = 1) s UNPIVOT (v FOR n IN (year_no, other)) u"
     " ORDER BY v", [(1, 7, "other"), (1, 2023, "year_no")]),
    ("region, SUM(amount), GROUPING(region) FROM sales GROUP BY ROLLUP (region) ORDER BY 3, 1",
     [("north", D("30.00"), 0), ("south", D("15.00"), 0), (None, D("45.00"), 1)]),
    ("region, year_no, GROUPING_ID(region, year_no), COUNT(*) FROM sales"
     " GROUP BY GROUPING SETS ((region), (year_no), ())"
     " ORDER BY 3, 1, 2",
     [("north", None, 1, 2), ("south", None, 1, 3), (None, 2023, 2, 2), (None, 2024, 2, 3), (None, None, 3, 5)]),
    ("COUNT(*) FROM (SELECT 1 AS n FROM sales GROUP BY CUBE (region, year_no)) c", [(9,)]),
    ("STRING_AGG(region, ',') WITHIN GROUP (ORDER BY id DESC) FROM sales WHERE id < 4", [("south,north,north",)]),
    ("id, LAG(id, 2, -1) OVER (ORDER BY id), LEAD(id) OVER (ORDER BY id) FROM sales WHERE id < 4 ORDER BY id",
     [(1, -1, 2), (2, -1, 3), (3, 1, None)]),
    ("id, NTILE(2) OVER (ORDER BY id), PERCENT_RANK() OVER (ORDER BY id), CUME_DIST() OVER (ORDER BY id)"
     " FROM sales WHERE id IN (1, 2) ORDER BY id", [(1, 1, 0.0, 0.5), (2, 2, 1.0, 1.0)]),
    ("id, SUM(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW),"
     " LAST_VALUE(id) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) FROM sales WHERE id < 4"
     " ORDER BY id", [(1, 1, 3), (2, 3, 3), (3, 5, 3)]),
    ("COUNT(*) FROM sales TABLESAMPLE (100 PERCENT)", [(5,)]),
]  # fmt: skip


@pytest.mark.parametrize(("query", "rows"), [*BLANKS, *TOP, *SHAPES])
def test_query_gives_the_servers_rows(sql: Client, query: str, rows: list[tuple[Any, ...]]) -> None:
    assert sql.rows(f"SELECT {query}") == rows


def test_blanks_do_not_count_between_a_column_and_a_variable(sql: Client) -> None:
    assert sql.rows("DECLARE @n nvarchar(10) = N'abc  '; SELECT id FROM names WHERE name = @n ORDER BY id") == [
        (1,),
        (2,),
    ]


def test_percent_beyond_a_hundred_is_refused(sql: Client) -> None:
    assert sql.error("SELECT TOP (101) PERCENT id FROM sales").number == 1031
