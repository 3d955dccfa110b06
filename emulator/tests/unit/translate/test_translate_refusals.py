from __future__ import annotations

import pytest

from sqlserver_emulator.errors import NotSupportedByEmulatorError
from translate_statement import translate

REFUSED = [
    ("SELECT t.a FROM t, Customers FOR JSON AUTO", "FOR JSON AUTO over more than one table"),
    ("SELECT a FROM t FOR XML RAW", "FOR XML RAW"),
    ("SELECT a FROM t FOR XML AUTO", "FOR XML AUTO"),
    ("SELECT (SELECT a FROM t FOR XML PATH('x'), TYPE).value('(/x/a)[1]', 'int')", "the xml method value()"),
    ("DELETE TOP (5) PERCENT FROM t", "TOP (n) PERCENT in UPDATE or DELETE"),
    ("SELECT a FROM t TABLESAMPLE (10 ROWS)", "TABLESAMPLE"),
    ("SELECT COMPRESS('x')", "COMPRESS"),
    ("SELECT PARSE('1' AS int USING 'de-DE')", "USING a culture"),
    ("SELECT x.b.value('a', 'int') FROM t AS x", "value"),
    ("SELECT COUNT(*) FILTER (WHERE a = 1) FROM t", "FILTER"),
    ("SELECT * FROM a.b.c.d", "four parts"),
    ("INSERT INTO t EXEC p", "INSERT ... EXEC"),
    ("SELECT a FROM t WHERE b COLLATE Japanese_CI_AS = 'x'", "the collation Japanese_CI_AS"),
]


@pytest.mark.parametrize(("sql", "name"), REFUSED, ids=[sql for sql, _ in REFUSED])
def test_unsupported_clause_is_refused_by_its_name(sql: str, name: str) -> None:
    with pytest.raises(NotSupportedByEmulatorError) as raised:
        translate(sql)
    assert name.lower() in raised.value.message.lower()


def test_hints_change_nothing_and_are_dropped() -> None:
    plain = translate("SELECT a FROM t").sql
    for hinted in (
        "SELECT a FROM t WITH (NOLOCK)",
        "SELECT a FROM t (NOLOCK)",
        "SELECT a FROM t WITH (INDEX(1), TABLOCKX)",
        "SELECT a FROM t OPTION (MAXDOP 1, RECOMPILE)",
    ):
        assert translate(hinted).sql == plain
