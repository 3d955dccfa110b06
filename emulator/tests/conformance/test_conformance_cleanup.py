"""See docs/reference/sqlserver_cdc.md, "Cleanup": what one cleanup of a change table checks and does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance_server import Server, Source, new_database, text_of

_CLEAN = "EXEC sys.sp_cdc_cleanup_change_table"
_PAUSE = "WAITFOR DELAY '00:00:00.010'"


@pytest.fixture
def history(source: Source) -> Source:
    """Two tables; three commits of the first, more than a tick of datetime apart."""
    for name in ("t", "other"):
        source.admin.run(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY)")
        source.enable(name)
    for i in range(3):
        source.admin.run(f"INSERT dbo.t VALUES ({i})", _PAUSE)
    source.scan()
    return source


def _commits(source: Source) -> list[bytes]:
    return [row["__$start_lsn"] for row in source.changes("dbo_t")]


@pytest.fixture(scope="module")
def refusing(server: Server) -> Iterator[Source]:
    with new_database(server) as made:
        made.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
        made.enable("t")
        made.admin.run("INSERT dbo.t VALUES (1)")
        made.scan()
        yield made


@pytest.mark.parametrize(
    ("arguments", "number", "text"),
    [
        ("N'dbo_t', 0x0000002200000001ABCD", 22964, "LSN 0x0000002200000001ABCD, specified as the new low end point"),
        ("N'dbo_t', NULL, 0", 22850, "must be greater than 0."),
        ("N'dbo_t', 0x0000002200000001ABCD, 0", 22850, "must be greater than 0."),
    ],
)
def test_argument_of_cleanup_is_refused(refusing: Source, arguments: str, number: int, text: str) -> None:
    error = refusing.admin.error(f"{_CLEAN} {arguments}")
    assert (error.number, error.severity, error.state) == (number, 16, 1)
    assert text in error.text


def test_cleanup_is_the_database_owner_s_and_has_its_own_number_where_cdc_is_off(server: Server) -> None:
    with new_database(server, with_cdc=False) as plain:
        reader = plain.log_in()
        assert reader.error(f"{_CLEAN} N'dbo_t', NULL, 0").number == 22904
        reader.close()
        error = plain.admin.error(f"{_CLEAN} N'dbo_t', NULL, 0")
        assert (error.number, error.severity, error.state) == (22910, 16, 1)
        assert error.text == (
            f"The cleanup request for database '{plain.name}' failed.  The database is not enabled for Change Data"
            " Capture."
        )


def test_mark_raises_the_low_end_then_removes_what_is_below_it(history: Source) -> None:
    commits = _commits(history)
    history.admin.run(f"{_CLEAN} N'dbo_t', {text_of(commits[1])}")
    assert history.admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") == commits[1]
    assert _commits(history) == commits[1:]


def test_mark_below_the_low_end_is_outside_the_timeline(history: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Cleanup"; the page of the procedure says when 22957 comes."""
    first, second, last = _commits(history)
    history.admin.run(f"{_CLEAN} N'dbo_t', {text_of(second)}")
    error = history.admin.error(f"{_CLEAN} N'dbo_t', {text_of(first)}")
    assert (error.number, error.severity, error.state) == (22957, 16, 1)
    assert f"[{text_of(second)}, {text_of(last)}]" in error.text
    assert history.admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") == second


def test_null_purges_below_the_low_end_there_is(history: Source) -> None:
    low = history.admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')")
    history.admin.run(f"{_CLEAN} N'dbo_t', NULL")
    assert history.admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") == low
    assert len(_commits(history)) == 3


def test_time_line_is_trimmed_below_the_lowest_of_all_instances(history: Source) -> None:
    last = _commits(history)[-1]
    entries = "SELECT start_lsn FROM cdc.lsn_time_mapping ORDER BY start_lsn"
    history.admin.run(f"{_CLEAN} N'dbo_t', {text_of(last)}")
    assert history.admin.rows(entries)[0][0] == history.admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_other')")
    history.admin.run(f"{_CLEAN} N'dbo_other', {text_of(last)}")
    assert history.admin.rows(entries) == [(last,)]


def test_commits_of_one_tick_are_kept_together(history: Source) -> None:
    """The mark goes down to the first entry with its time."""
    commits = _commits(history)
    time = "(SELECT tran_end_time FROM cdc.lsn_time_mapping WHERE start_lsn = {0})"
    history.admin.run(
        f"UPDATE cdc.lsn_time_mapping SET tran_end_time = {time.format(text_of(commits[1]))}"
        f" WHERE start_lsn = {text_of(commits[2])}",
        f"{_CLEAN} N'dbo_t', {text_of(commits[2])}",
    )
    assert history.admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") == commits[1]
    assert _commits(history) == commits[1:]


def test_output_parameter_reports_success(history: Source) -> None:
    mark = text_of(_commits(history)[1])
    rows = history.admin.rows(
        "DECLARE @failed bit, @r int; EXEC @r = sys.sp_cdc_cleanup_change_table @capture_instance = N'dbo_t',"
        f" @low_water_mark = {mark}, @threshold = 1, @fCleanupFailed = @failed OUTPUT; SELECT @r, @failed"
    )
    assert rows == [(0, False)]


def test_cleanup_of_no_instance_is_refused(refusing: Source) -> None:
    assert refusing.admin.error(f"{_CLEAN} N'nothing', NULL").severity == 16
    assert refusing.admin.error(f"{_CLEAN} NULL, NULL").severity == 16


def test_time_line_that_cannot_be_trimmed_has_its_own_message(history: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Cleanup": 22853."""
    last = _commits(history)[-1]
    history.admin.run(f"{_CLEAN} N'dbo_t', {text_of(last)}")
    blocking = history.server.connect(history.name)
    blocking.run(
        "BEGIN TRAN", "DELETE cdc.lsn_time_mapping WHERE start_lsn = (SELECT MIN(start_lsn) FROM cdc.lsn_time_mapping)"
    )
    reply = history.admin.send(f"SET LOCK_TIMEOUT 50; {_CLEAN} N'dbo_other', NULL; SET LOCK_TIMEOUT -1")
    assert (reply.errors, reply.infos) == ([], [])
    history.admin.run(f"UPDATE cdc.change_tables SET start_lsn = {text_of(last)}")
    reply = history.admin.send(f"SET LOCK_TIMEOUT 50; {_CLEAN} N'dbo_other', NULL; SET LOCK_TIMEOUT -1")
    blocking.run("ROLLBACK")
    blocking.close()
    assert (reply.errors, [m.number for m in reply.infos]) == ([], [22853])


def test_failed_delete_is_a_message_and_the_low_end_is_raised_all_the_same(history: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Cleanup": 22852 of severity 10, and the flag."""
    commits = _commits(history)
    blocking = history.server.connect(history.name)
    blocking.run("BEGIN TRAN", f"DELETE cdc.dbo_t_CT WHERE [__$start_lsn] = {text_of(commits[0])}")
    reply = history.admin.send(
        "SET LOCK_TIMEOUT 50; DECLARE @failed bit; EXEC sys.sp_cdc_cleanup_change_table @capture_instance = N'dbo_t',"
        f" @low_water_mark = {text_of(commits[1])}, @fCleanupFailed = @failed OUTPUT; SELECT @failed"
    )
    blocking.run("ROLLBACK")
    blocking.close()
    assert (reply.errors, [m.number for m in reply.infos]) == ([], [22852])
    assert reply.results[-1].rows == [(True,)]
    assert history.admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") == commits[1]
    assert _commits(history) == commits
    history.admin.run(f"{_CLEAN} N'dbo_t', NULL")
    assert _commits(history) == commits[1:]
