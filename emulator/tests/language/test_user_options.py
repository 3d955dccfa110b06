"""DBCC USEROPTIONS: the options of the session that are set (DBCC USEROPTIONS (Transact-SQL), Result Sets)."""

from __future__ import annotations

import pytest

from sql_client import SqlClient

DEFAULTS = [
    ("textsize", "2147483647"),
    ("language", "us_english"),
    ("dateformat", "mdy"),
    ("datefirst", "7"),
    ("lock_timeout", "-1"),
    ("quoted_identifier", "SET"),
    ("arithabort", "SET"),
    ("ansi_null_dflt_on", "SET"),
    ("ansi_warnings", "SET"),
    ("ansi_padding", "SET"),
    ("ansi_nulls", "SET"),
    ("concat_null_yields_null", "SET"),
    ("isolation level", "read committed"),
]


def options(client: SqlClient) -> list[tuple[str, str]]:
    return client.rows("DBCC USEROPTIONS WITH NO_INFOMSGS")


def test_options_come_in_the_documented_order(client: SqlClient) -> None:
    # The client set more than the documentation's session did.
    client.run("SET CURSOR_CLOSE_ON_COMMIT OFF")
    cursor = client.connection.cursor()
    cursor.execute("DBCC USEROPTIONS")
    assert [column[0] for column in cursor.description] == ["Set Option", "Value"]
    assert cursor.fetchall() == DEFAULTS
    assert client.value("SELECT @@ROWCOUNT") == len(DEFAULTS)


def test_what_a_session_sets_is_shown_and_what_is_off_is_not(client: SqlClient) -> None:
    client.run(
        "SET TEXTSIZE 64512 SET DATEFORMAT ymd SET DATEFIRST 1 SET LOCK_TIMEOUT 1800 SET ARITHABORT OFF"
        " SET XACT_ABORT ON SET NOCOUNT ON"
    )
    shown = dict(options(client))
    assert (shown["textsize"], shown["dateformat"], shown["datefirst"]) == ("64512", "ymd", "1")
    assert (shown["lock_timeout"], shown["xact_abort"], shown["nocount"]) == ("1800", "SET", "SET")
    assert "arithabort" not in shown
    assert list(shown)[-1] == "isolation level"


def test_isolation_level_is_the_session_s_and_names_row_versions(client: SqlClient, database: str) -> None:
    for level in ("READ UNCOMMITTED", "REPEATABLE READ", "SERIALIZABLE", "SNAPSHOT", "READ COMMITTED"):
        client.run(f"SET TRANSACTION ISOLATION LEVEL {level}")
        assert options(client)[-1] == ("isolation level", level.lower())
    client.run(f"ALTER DATABASE [{database}] SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE")
    assert options(client)[-1] == ("isolation level", "read committed snapshot")
    client.run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    assert options(client)[-1] == ("isolation level", "serializable")
    client.run(f"ALTER DATABASE [{database}] SET READ_COMMITTED_SNAPSHOT OFF WITH ROLLBACK IMMEDIATE")


def test_options_can_be_kept_in_a_table(client: SqlClient) -> None:
    client.run("CREATE TABLE #kept (name nvarchar(128), value nvarchar(128)); INSERT #kept EXEC ('DBCC USEROPTIONS')")
    assert client.value("SELECT value FROM #kept WHERE name = 'isolation level'") == "read committed"


def test_completion_is_a_message_that_can_be_turned_off(client: SqlClient) -> None:
    messages: list[str] = []
    client.connection._conn.set_msghandler(lambda state, severity, server, procedure, line, text: messages.append(text))
    client.run("DBCC USEROPTIONS WITH NO_INFOMSGS")
    assert messages == []
    client.run("DBCC USEROPTIONS")
    assert len(messages) == 1
    assert client.error("DBCC USEROPTIONS WITH TABLERESULTS")[0] == 102


@pytest.mark.parametrize("position", ["ON", "OFF"])
def test_arithignore_is_shown_and_hides_no_error(client: SqlClient, position: str) -> None:
    client.run(f"SET ARITHABORT OFF SET ARITHIGNORE {position}")
    assert client.value("SELECT @@OPTIONS & 128") == (128 if position == "ON" else 0)
    assert (("arithignore", "SET") in options(client)) == (position == "ON")
    assert client.error("SELECT 1 / 0")[0] == 8134
    assert client.error("SELECT CAST(256 AS tinyint)")[0] == 220
    client.run("SET ARITHABORT ON")
    assert client.error("SELECT 1 / 0")[0] == 8134
