"""JSON and XML made and read by queries, against SQL Server's documentation of FOR JSON, OPENJSON and JSON_…

https://learn.microsoft.com/sql/relational-databases/json/json-data-sql-server
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance_server import Client

SCALARS = [
    ("""JSON_VALUE('{"a":{"b":[1,"x"]}}', '$.a.b[1]')""", "x"),
    ("""JSON_VALUE('{"a":{"b":1}}', '$.a')""", None),
    ("""JSON_VALUE('{"a b":1.50}', '$."a b"')""", "1.50"),
    ("""JSON_VALUE('{"a":null}', '$.a')""", None),
    ("""JSON_VALUE('{"a":true}', 'strict $.a')""", "true"),
    ("""JSON_VALUE('{"a":1}', '$.A')""", None),
    ("""JSON_QUERY('{"a":{"b":[1, 2]}}', '$.a.b')""", "[1, 2]"),
    ("""JSON_QUERY('{"a":1}', '$.a')""", None),
    ("""JSON_QUERY('{"a":1}')""", '{"a":1}'),
    ("""JSON_MODIFY('{"a":1,"b":[1]}', '$.a', 2)""", '{"a":2,"b":[1]}'),
    ("""JSON_MODIFY('{"a":1}', '$.c', 'x')""", '{"a":1,"c":"x"}'),
    ("""JSON_MODIFY('{"a":1,"b":2}', '$.a', NULL)""", '{"b":2}'),
    ("""JSON_MODIFY('{"a":1}', 'strict $.a', NULL)""", '{"a":null}'),
    ("""JSON_MODIFY('{"b":["x"]}', 'append $.b', 'y')""", '{"b":["x","y"]}'),
    ("""JSON_MODIFY('{"b":1}', '$.b', JSON_QUERY('[5]'))""", '{"b":[5]}'),
    ("""JSON_MODIFY('{"b":1}', '$.b', '[5]')""", '{"b":"[5]"}'),
    ("""JSON_MODIFY('{"a":{"x":1}}', '$.a.x', CAST(1 AS bit))""", '{"a":{"x":true}}'),
    ("""ISJSON('{"a":1}')""", 1),
    ("""ISJSON('1')""", 0),
    ("""ISJSON('1', SCALAR)""", 1),
    ("ISJSON(NULL)", None),
    ("""JSON_PATH_EXISTS('{"a":1}', '$.a')""", 1),
    ("(SELECT id, region FROM sales WHERE id < 3 ORDER BY id FOR JSON PATH)",
     '[{"id":1,"region":"north"},{"id":2,"region":"north"}]'),
    ("(SELECT id AS 'a.id', region AS 'a.r.x', amount FROM sales WHERE id = 1 FOR JSON PATH, ROOT('rows'))",
     '{"rows":[{"a":{"id":1,"r":{"x":"north"}},"amount":10.00}]}'),
    ("(SELECT 1 AS a, NULL AS b FOR JSON PATH)", '[{"a":1}]'),
    ("(SELECT 1 AS a, NULL AS b FOR JSON PATH, INCLUDE_NULL_VALUES)", '[{"a":1,"b":null}]'),
    ("(SELECT 1 AS a FOR JSON PATH, WITHOUT_ARRAY_WRAPPER)", '{"a":1}'),
    ("(SELECT id FROM sales WHERE id = 99 FOR JSON PATH)", None),
    ("(SELECT id FROM sales s WHERE id = 1 FOR JSON AUTO)", '[{"id":1}]'),
    ("(SELECT 1 AS a, (SELECT 2 AS b FOR JSON PATH) AS c FOR JSON PATH)", '[{"a":1,"c":[{"b":2}]}]'),
    ("""(SELECT JSON_QUERY('{"x":1}') AS a, '{"x":1}' AS b FOR JSON PATH)""", r'[{"a":{"x":1},"b":"{\"x\":1}"}]'),
    ("(SELECT CAST(1 AS bit) AS t, 1.5e0 AS f, $2 AS m, 0x0102 AS b, 'a/\"b' AS s FOR JSON PATH)",
     r'[{"t":true,"f":1.500000000000000e+000,"m":2.0000,"b":"AQI=","s":"a\/\"b"}]'),
    ("(SELECT CAST('2024-01-02 03:04:05' AS datetime) AS d, CAST('2024-01-02' AS date) AS e FOR JSON PATH)",
     '[{"d":"2024-01-02T03:04:05","e":"2024-01-02"}]'),
    ("STUFF((SELECT ',' + region FROM sales WHERE id > 1 AND id < 4 ORDER BY id FOR XML PATH('')), 1, 1, '')",
     "north,south"),
    ("STUFF((SELECT ', ' + name FROM (VALUES ('a&b'), ('<c>')) t(name) FOR XML PATH(''), TYPE)"
     ".value('.', 'nvarchar(max)'),"
     " 1, 2, '')", "a&b, <c>"),
    ("(SELECT ',' + name FROM (VALUES ('a&b'), ('<c>')) t(name) FOR XML PATH(''))", ",a&amp;b,&lt;c&gt;"),
    ("(SELECT id AS '@id', region FROM sales WHERE id = 1 FOR XML PATH('r'), ROOT('all'))",
     '<all><r id="1"><region>north</region></r></all>'),
]  # fmt: skip
ROWSETS = [
    ("""[key], value, type FROM OPENJSON('{"a":1,"b":"x","c":[1],"d":{},"f":null,"g":false}')""",
     [("a", "1", 2), ("b", "x", 1), ("c", "[1]", 4), ("d", "{}", 5), ("f", None, 0), ("g", "false", 3)]),
    ("""value FROM OPENJSON('{"l":[10,"a"]}', '$.l') ORDER BY [key]""", [("10",), ("a",)]),
    ("""a, c, d FROM OPENJSON('[{"a":1,"b":{"c":"x"},"d":[1]},{"a":"2"}]')
        WITH (a int, c nvarchar(10) '$.b.c', d nvarchar(max) '$.d' AS JSON)""", [(1, "x", "[1]"), (2, None, None)]),
    ("""s.id, j.x FROM sales s CROSS APPLY OPENJSON('[{"x":1},{"x":2}]') WITH (x int) j WHERE s.id = 1 ORDER BY j.x""",
     [(1, 1), (1, 2)]),
]  # fmt: skip
ERRORS = [
    ("JSON_VALUE('bad', '$.a')", 13609),
    ("JSON_VALUE('{}', 'a.b')", 13607),
    ("JSON_VALUE('{\"a\":1}', 'strict $.z')", 13608),
    ("JSON_VALUE('{\"a\":{}}', 'strict $.a')", 13623),
    ("JSON_QUERY('{\"a\":1}', 'strict $.a')", 13624),
    ("1 FOR JSON PATH", 13605),
    ("1 AS a, 2 AS a FOR JSON PATH", 13601),
    ("1 AS [a.b], 2 AS a FOR JSON PATH", 13601),
]


@pytest.mark.parametrize(("expression", "value"), SCALARS)
def test_text_is_as_the_server_writes_it(sql: Client, expression: str, value: object) -> None:
    assert sql.scalar(expression) == value


@pytest.mark.parametrize(("query", "rows"), ROWSETS)
def test_json_opens_as_rows(sql: Client, query: str, rows: list[tuple[Any, ...]]) -> None:
    assert sql.rows(f"SELECT {query}") == rows


@pytest.mark.parametrize(("query", "number"), ERRORS)
def test_wrong_json_is_the_servers_error(sql: Client, query: str, number: int) -> None:
    assert sql.error(f"SELECT {query}").number == number
