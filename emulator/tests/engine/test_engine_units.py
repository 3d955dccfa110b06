"""National strings that a query gives as bytes: their code units, whichever way the rows are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine_client import Client, Result
from sqlserver_emulator.code_units import escaped

TEXTS = (
    *("", "a", "ab ", "b\\s", "näme", "€uro", "\ufeff\uffff", "\0", "a\0", "\0a"),
    *(
        "\ud83d",
        "\ude00",
        "\ude00\ud83d",
        "a\ud83d",
        "\U0001f600",
        "a\U0001f600b",
        "\U0010f000",
        "\U0010f800\U0010ffff",
    ),
)
"""Texts of at most eight code units. The halves of pairs follow each other."""
ROWS = 6_000
PASSWORD = "R3ader!"


def _bytes(text: str, length: int = 100) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")[:length]


@pytest.fixture(scope="module")
def filled(module_client: Client) -> None:
    """dbo.texts, ROWS rows: row n has text n of TEXTS, again and again, and NULL once a round."""
    values = ", ".join(f"({n}, N'{escaped(text)}')" for n, text in enumerate(TEXTS))
    module_client.run(
        "CREATE TABLE dbo.seeds (n int NOT NULL, v nvarchar(8) NULL); CREATE TABLE dbo.texts (id int NOT NULL PRIMARY "
        "KEY, v nvarchar(8) NULL, m nvarchar(max) NULL, f nchar(8) NULL, s sysname NULL, t ntext NULL, k nvarchar(max) "
        "NOT NULL);"
        f"INSERT INTO dbo.seeds VALUES {values}, ({len(TEXTS)}, NULL);"
        f"INSERT INTO dbo.texts SELECT g.value, v, v, v, v, v, ISNULL(v, N'') FROM GENERATE_SERIES(0, {ROWS - 1}) AS g "
        f"JOIN dbo.seeds ON n = g.value % {len(TEXTS) + 1}"
    )


pytestmark = pytest.mark.usefixtures("filled")


@pytest.fixture(params=["small", "large"])
def limit(request: pytest.FixtureRequest) -> int:
    """The number of rows to read: a small result comes as rows, a large one as Arrow."""
    return 3 * (len(TEXTS) + 1) if request.param == "small" else ROWS


def _expected(limit: int, length: int = 100, text_of: Callable[[str], str] = str) -> list[tuple[object, ...]]:
    round_ = [_bytes(text_of(text), length) for text in TEXTS] + [None]
    return [(n, round_[n % len(round_)]) for n in range(limit)]


def _read(client: Client, query: str, limit: int) -> Result:
    (result,) = client.run(query).results
    assert bool(result.arrow_batches) == (limit == ROWS)
    assert len(result.rows) == limit
    return result


@pytest.mark.parametrize(
    ("expression", "length"),
    [
        ("CAST(v AS varbinary(16))", 16),
        ("CAST(v AS varbinary(max))", 100),
        ("CAST(v AS varbinary(5))", 5),
        ("CAST(v AS varbinary(1))", 1),
        ("CAST(v AS varbinary)", 30),
        ("CONVERT(varbinary(2), v)", 2),
        ("TRY_CAST(v AS varbinary(6))", 6),
        ("CAST(m AS varbinary(max))", 100),
        ("CAST(m AS varbinary(3))", 3),
        ("CAST(s AS varbinary(256))", 256),
        ("CAST(CAST(t AS nvarchar(max)) AS varbinary(max))", 100),
        ("CAST(CASE WHEN id >= 0 THEN v ELSE N'' END AS varbinary(16))", 16),
    ],
)
def test_projected_string_comes_as_its_code_units(client: Client, limit: int, expression: str, length: int) -> None:
    direct = _read(client, f"SELECT id, {expression} AS b FROM dbo.texts WHERE id < {limit}", limit)
    assert sorted(direct.rows) == _expected(limit, length)
    # The engine computes the bytes where they are not projected, and the client sees no difference.
    inner = f"SELECT id, {expression} AS b FROM dbo.texts WHERE id < {limit}"
    computed = _read(client, f"SELECT id, b FROM ({inner}) AS q", limit)
    assert sorted(computed.rows) == sorted(direct.rows)
    assert computed.columns == direct.columns


def test_bytes_of_a_column_are_described_as_an_expression(client: Client, limit: int) -> None:
    query = f"SELECT id, CAST(k AS varbinary(max)) AS b FROM dbo.texts WHERE id < {limit}"
    direct, computed = _read(client, query, limit), _read(client, f"SELECT id, b FROM ({query}) AS q", limit)
    assert direct.columns == computed.columns
    assert direct.columns[1].nullable, "though k is not"


def test_fixed_string_comes_with_its_blanks(client: Client, limit: int) -> None:
    (result,) = client.run(
        f"SELECT id, CAST(f AS varbinary(16)), CAST(f AS varbinary(3)) FROM dbo.texts WHERE id < {limit}"
    ).results
    padded = _expected(limit, 16, lambda text: text.ljust(8))
    cut = _expected(limit, 3, lambda text: text.ljust(8))
    assert sorted(result.rows) == [(*whole, start) for whole, (_, start) in zip(padded, cut, strict=True)]


@pytest.mark.parametrize("key", ["b", "2", "CAST(v AS varbinary(16))"])
def test_bytes_are_ordered_as_bytes(client: Client, limit: int, key: str) -> None:
    query = f"SELECT id, CAST(v AS varbinary(16)) AS b FROM dbo.texts WHERE id < {limit} ORDER BY {key} DESC, id"
    rows = _read(client, query, limit).rows
    assert rows == sorted(_expected(limit), key=lambda row: (row[1] is not None, row[1] or b"", -row[0]), reverse=True)  # type: ignore[operator]


def test_rows_in_another_order_have_the_same_bytes(client: Client, limit: int) -> None:
    query = f"SELECT TOP ({limit}) id, CAST(v AS varbinary(16)) AS b FROM dbo.texts ORDER BY id"
    assert client.rows(query) == _expected(limit)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT CAST(v AS varbinary(16)) FROM dbo.texts",
        "SELECT CAST(v AS varbinary(16)) FROM dbo.texts GROUP BY CAST(v AS varbinary(16))",
        "SELECT CAST(v AS varbinary(16)) FROM dbo.texts UNION SELECT CAST(v AS varbinary(16)) FROM dbo.texts",
        "SELECT MIN(CAST(v AS varbinary(16))) FROM dbo.texts GROUP BY id % 19",
        "WITH c AS (SELECT CAST(v AS varbinary(16)) AS b FROM dbo.texts) SELECT DISTINCT b FROM c",
        "SELECT CAST(v AS varbinary(16)) FROM dbo.seeds WHERE CAST(v AS varbinary(16)) >= 0x OR v IS NULL",
        "DECLARE @t TABLE (b varbinary(16)); INSERT INTO @t SELECT CAST(v AS varbinary(16)) FROM dbo.seeds; "
        "SELECT b FROM @t",
        "SELECT CAST(v AS varbinary(16)) AS b INTO #copy FROM dbo.seeds; SELECT b FROM #copy",
        "DECLARE @t TABLE (b varbinary(16)); INSERT INTO @t EXEC (N'SELECT CAST(v AS varbinary(16)) FROM dbo.seeds'); "
        "SELECT b FROM @t",
    ],
)
def test_bytes_are_bytes_wherever_else_they_go(client: Client, query: str) -> None:
    (result,) = client.run(query).results
    expected = sorted(map(_bytes, TEXTS))
    found = [row[0] for row in result.rows]
    assert sorted(each for each in found if isinstance(each, bytes)) == expected
    assert found.count(None) == len(found) - len(expected) == 1


def test_cursor_and_variable_get_the_bytes(client: Client) -> None:
    rows = client.rows(
        "DECLARE @one varbinary(16), @two varbinary(16); "
        "SELECT @one = CAST(v AS varbinary(16)) FROM dbo.seeds WHERE n = 4; "
        "DECLARE c CURSOR FOR SELECT CAST(v AS varbinary(16)) FROM dbo.seeds WHERE n = 5; OPEN c; FETCH NEXT FROM c "
        "INTO @two; CLOSE c; DEALLOCATE c; SELECT @one, @two"
    )
    assert rows == [(_bytes(TEXTS[4]), _bytes(TEXTS[5]))]


def test_text_size_cuts_the_bytes(client: Client, limit: int) -> None:
    client.run("SET TEXTSIZE 3")
    query = f"SELECT id, CAST(m AS varbinary(max)) FROM dbo.texts WHERE id < {limit}"
    assert sorted(_read(client, query, limit).rows) == _expected(limit, 3)


def test_masked_string_is_masked_as_bytes(client: Client, connect: Callable[..., Client]) -> None:
    client.run(
        "CREATE TABLE dbo.hidden (id int PRIMARY KEY, v nvarchar(8) MASKED WITH (FUNCTION = 'default()'));"
        "INSERT INTO dbo.hidden VALUES (1, N'secret');"
        f"CREATE LOGIN units WITH PASSWORD = '{PASSWORD}'; CREATE USER units FOR LOGIN units;"
        "ALTER ROLE db_datareader ADD MEMBER units"
    )
    assert client.value("SELECT CAST(v AS varbinary(16)) FROM dbo.hidden") == _bytes("secret")
    assert connect("units", PASSWORD).value("SELECT CAST(v AS varbinary(16)) FROM dbo.hidden") == b"\0"


def test_parameters_of_a_projected_string_are_bound(client: Client, limit: int) -> None:
    query = f"""DECLARE @p nvarchar(9) = N'é'; SELECT id, CAST(CONCAT(N'x', @p, v) AS varbinary(40)),
        CAST(N'y' AS varbinary(4)) FROM dbo.texts WHERE id < {limit} AND id % 19 = 4"""
    assert {row[1:] for row in client.rows(query)} == {(_bytes("xénäme"), _bytes("y"))}
