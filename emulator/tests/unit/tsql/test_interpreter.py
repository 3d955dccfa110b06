from __future__ import annotations

from collections.abc import Iterable

import pytest

from fake_engine import FakeEngine, broken_rows, rows
from sqlserver_emulator.contract import StatementResult
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import (
    Command,
    DatabaseChanged,
    ErrorRaised,
    Event,
    Info,
    ResultStart,
    ReturnStatus,
    Rows,
    StatementDone,
    TransactionAction,
    TransactionChanged,
)
from sqlserver_emulator.tsql.interpreter import TsqlSession

CONVERSION = SqlServerError(245, "Conversion failed.")


def session(engine: FakeEngine) -> TsqlSession:
    return TsqlSession(engine, session_id=51, procedures={}, default_database="master")


def brief(events: Iterable[Event]) -> list[str]:
    """Events as short texts: rows, counts, errors, messages, transaction changes."""
    said: list[str] = []
    for event in events:
        match event:
            case Rows(found):
                said.extend(f"row {', '.join(str(value) for value in row)}" for row in found)
            case StatementDone(failed=True):
                said.append("failed")
            case StatementDone(row_count=int(count)):
                said.append(f"count {count}")
            case ErrorRaised(error):
                said.append(f"error {error.number} line {error.line}")
            case Info(number, message):
                said.append(f"info {number} {message}")
            case TransactionChanged(action):
                said.append(action.name.lower())
            case DatabaseChanged(old, new):
                said.append(f"{old} -> {new}")
            case ReturnStatus(value):
                said.append(f"status {value}")
            case ResultStart() | StatementDone():
                pass
            case _:
                said.append(repr(event))
    return said


def run(text: str, engine: FakeEngine | None = None) -> list[str]:
    return brief(session(engine or FakeEngine()).run_batch(text))


# -- statements and variables ----------------------------------------------------------------------------------------


def test_result_set_streams_before_the_next_statement_runs() -> None:
    engine = FakeEngine()
    events = session(engine).run_batch("SELECT 1 SELECT 2")
    assert isinstance(next(events), ResultStart)
    assert engine.log == ["SELECT 1", "? 1"]
    assert brief(events) == ["row 1", "count 1", "row 2", "count 1"]


def test_variables_are_declared_assigned_and_read() -> None:
    text = "DECLARE @a int = 2, @b int SET @b = @a * 3 SET @b += 1 SELECT @a = @b + 1 SELECT @a"
    assert run(text) == ["count 1", "row 8", "count 1"]


def test_assignment_converts_to_the_declared_type() -> None:
    assert run("DECLARE @a nvarchar(3) = 'abcdef' SELECT @a") == ["row abc", "count 1"]


def test_variable_declared_in_a_branch_that_did_not_run_is_null() -> None:
    assert run("IF 1 = 0 DECLARE @a int = 5 SELECT @a") == ["row None", "count 1"]


def test_declare_in_a_loop_keeps_the_value_of_the_last_turn() -> None:
    text = "DECLARE @i int = 0 WHILE @i < 3 BEGIN DECLARE @s int SET @s = 0 + @i SET @i += 1 END SELECT @s"
    assert run(text) == ["row 2", "count 1"]


def test_nocount_hides_counts_and_keeps_rowcount() -> None:
    assert run("SET NOCOUNT ON INSERT INTO t VALUES (1) SELECT @@ROWCOUNT") == ["row 1"]


def test_condition_resets_rowcount_and_error() -> None:
    assert run("INSERT INTO t VALUES (1) IF 1 = 1 SELECT @@ROWCOUNT") == ["count 1", "row 0", "count 1"]


def test_assigning_select_counts_its_row() -> None:
    events = list(session(FakeEngine()).run_batch("DECLARE @a int SELECT @a = 1"))
    assert events == [StatementDone(Command.SELECT, 1)]


@pytest.mark.parametrize(
    "text", ["PRINT 'a'", "SELECT @a = 1", "INSERT INTO t VALUES (1)", "RAISERROR('a', 1, 1)", "SET LOCK_TIMEOUT 5"]
)
def test_statement_without_result_has_no_end_of_its_own_under_nocount(text: str) -> None:
    declared = "DECLARE @a int "
    assert any(isinstance(event, StatementDone) for event in session(FakeEngine()).run_batch(declared + text))
    events = list(session(FakeEngine()).run_batch(f"SET NOCOUNT ON {declared}{text} SELECT 5"))
    assert [event for event in events if isinstance(event, StatementDone)] == [StatementDone(Command.SELECT)]


def test_each_turn_of_a_loop_has_an_end_of_its_own() -> None:
    text = "DECLARE @a int = 0 WHILE @a < 3 SET @a += 1"
    assert list(session(FakeEngine()).run_batch(text)) == [StatementDone()] * 4
    assert list(session(FakeEngine()).run_batch(f"SET NOCOUNT ON {text}")) == []


def test_assignments_of_a_select_see_those_before_them() -> None:
    text = "INSERT INTO t VALUES (1) DECLARE @n int, @a int, @b int SELECT @n = @@ROWCOUNT, @a = @n + 1, @b = @a * 10"
    assert run(f"{text} SELECT @b") == ["count 1", "count 1", "row 20", "count 1"]


def test_assignment_from_a_table_takes_what_the_engine_says() -> None:
    text = "SELECT @a = @a + c FROM t"
    result = StatementResult(Command.SELECT, row_count=2, assigned_variables={"@a": 5})
    assert run(f"DECLARE @a int = 0 {text} SELECT @a", FakeEngine({text: result})) == ["count 2", "row 5", "count 1"]


def test_set_rowcount_cuts_results_and_refuses_dml() -> None:
    engine = FakeEngine({"SELECT c FROM t": lambda: rows(1, 2, 3)})
    assert run("SET ROWCOUNT 2 SELECT c FROM t DELETE FROM t", engine) == [
        "row 1",
        "row 2",
        "count 2",
        "error 49999 line 1",
        "failed",
    ]


def test_fmtonly_describes_queries_and_runs_nothing() -> None:
    engine = FakeEngine()
    text = "SET FMTONLY ON SELECT * FROM t INSERT INTO t VALUES (1) EXEC(N'SELECT 1') SET FMTONLY OFF"
    events = list(session(engine).run_batch(text))
    assert sum(isinstance(event, ResultStart) for event in events) == 2
    assert engine.log == ["describe SELECT * FROM t", "describe SELECT 1"]


def test_use_changes_the_database_and_says_so() -> None:
    assert run("use [SHOP]") == ["master -> shop", "info 5701 Changed database context to 'shop'."]


# -- control flow ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "printed"), [(1, "one"), (2, "two"), (3, "other")])
def test_if_else_chain_takes_one_branch(value: int, printed: str) -> None:
    text = f"DECLARE @a int = {value} IF @a = 1 PRINT 'one' ELSE IF @a = 2 PRINT 'two'; ELSE PRINT 'other'"
    assert run(text) == [f"info 0 {printed}"]


def test_while_obeys_break_and_continue() -> None:
    text = """DECLARE @i int = 0
    WHILE @i < 10 BEGIN
        SET @i += 1
        IF @i = 2 CONTINUE
        IF @i = 4 BREAK
        PRINT @i
    END"""
    assert run(text) == ["info 0 1", "info 0 3"]


def test_integer_comparisons_do_not_bother_the_engine() -> None:
    engine = FakeEngine()
    run("DECLARE @i int = 1 IF @@TRANCOUNT > 0 COMMIT TRAN IF @i <= 0 PRINT 'x' IF 1 <> 1 PRINT 'y'", engine)
    assert engine.log == []


def test_return_ends_the_batch() -> None:
    assert run("PRINT 'a' RETURN PRINT 'b'") == ["info 0 a"]


def test_unsupported_statement_is_refused_by_name_and_ends_the_batch() -> None:
    events = list(session(FakeEngine()).run_batch("PRINT 'a' GOTO there PRINT 'b'"))
    errors = [event.error for event in events if isinstance(event, ErrorRaised)]
    assert [(error.number, "GOTO" in error.message) for error in errors] == [(49999, True)]
    assert events[-1] == StatementDone(failed=True)


def test_syntax_error_stops_the_batch_before_anything_runs() -> None:
    engine = FakeEngine()
    assert run("SELECT 1\nSELECT 2 )", engine) == ["error 102 line 2", "failed"]
    assert engine.log == []


# -- errors ----------------------------------------------------------------------------------------------------------


def test_statement_error_lets_the_batch_go_on() -> None:
    engine = FakeEngine({"INSERT INTO t VALUES (1)": SqlServerError(2627, "Violation.", severity=14)})
    assert run("INSERT INTO t VALUES (1)\nSELECT @@ERROR SELECT @@ERROR", engine) == [
        "error 2627 line 1",
        "info 3621 The statement has been terminated.",
        "failed",
        "row 2627",
        "count 1",
        "row 0",
        "count 1",
    ]


def test_conversion_error_ends_the_batch_and_rolls_back() -> None:
    engine = FakeEngine({"SELECT x FROM t": CONVERSION})
    assert run("BEGIN TRAN SELECT x FROM t PRINT 'never'", engine) == [
        "begun",
        "error 245 line 1",
        "failed",
        "rolled_back",
    ]


def test_missing_object_ends_its_scope_only() -> None:
    engine = FakeEngine({"SELECT 1 FROM missing": SqlServerError(208, "Invalid object name 'missing'.")})
    text = "EXEC('SELECT 1 FROM missing PRINT ''inner''') PRINT 'outer' SELECT 1 FROM missing PRINT 'never'"
    assert run(text, engine) == [
        "error 208 line 1",
        "failed",
        "info 0 outer",
        "error 208 line 1",
        "failed",
    ]


def test_missing_object_is_not_caught_in_its_own_scope_but_by_the_caller() -> None:
    engine = FakeEngine({"SELECT 1 FROM missing": SqlServerError(208, "Invalid object name 'missing'.")})
    own = "BEGIN TRY SELECT 1 FROM missing END TRY BEGIN CATCH PRINT 'caught' END CATCH"
    assert run(own, engine) == ["error 208 line 1", "failed"]
    inner = "BEGIN TRY EXEC('SELECT 1 FROM missing') END TRY BEGIN CATCH PRINT ERROR_NUMBER() END CATCH"
    assert run(inner, engine) == ["info 0 208"]


def test_xact_abort_ends_the_batch_and_rolls_back() -> None:
    engine = FakeEngine({"INSERT INTO t VALUES (1)": SqlServerError(2627, "Violation.", severity=14)})
    text = "SET XACT_ABORT ON BEGIN TRAN INSERT INTO t VALUES (1) PRINT 'never'"
    assert run(text, engine) == ["begun", "error 2627 line 1", "failed", "rolled_back"]


def test_catch_sees_the_error_and_nested_catch_restores_it() -> None:
    text = """BEGIN TRY
        RAISERROR('first', 16, 3)
    END TRY
    BEGIN CATCH
        BEGIN TRY RAISERROR('second', 16, 1) END TRY BEGIN CATCH PRINT ERROR_MESSAGE() END CATCH
        PRINT ERROR_MESSAGE()
        PRINT ERROR_LINE()
    END CATCH
    SELECT ERROR_NUMBER()"""
    assert run(text) == ["info 0 second", "info 0 first", "info 0 2", "row None", "count 1"]


def test_result_set_that_fails_in_a_try_is_ended_before_the_catch() -> None:
    engine = FakeEngine({"SELECT c FROM t": lambda: broken_rows(SqlServerError(8134, "Divide by zero."))})
    events = list(
        session(engine).run_batch("BEGIN TRY SELECT c FROM t END TRY BEGIN CATCH PRINT ERROR_NUMBER() END CATCH")
    )
    assert [type(event) for event in events] == [ResultStart, Rows, StatementDone, Info, StatementDone]


def test_throw_rethrows_the_caught_error_with_its_line_and_ends_the_batch() -> None:
    engine = FakeEngine({"DELETE FROM t": SqlServerError(547, "Conflict.")})
    text = "BEGIN TRY\nDELETE FROM t\nEND TRY\nBEGIN CATCH\nPRINT 'x';\nTHROW\nEND CATCH\nPRINT 'never'"
    assert run(text, engine) == ["info 0 x", "error 547 line 2", "failed"]


def test_throw_with_arguments_raises_its_own_error() -> None:
    assert run("THROW 50001, 'no', 7") == ["error 50001 line 1", "failed"]
    assert run("THROW 49999, 'no', 7") == ["error 35100 line 1", "failed"]


def test_raiserror_formats_and_does_not_end_the_batch() -> None:
    text = "SET XACT_ABORT ON RAISERROR('%s has %d', 16, 1, N'it', 3) RAISERROR('only %x', 10, 1, 255) PRINT 'on'"
    assert run(text) == ["error 50000 line 1", "failed", "info 50000 only ff", "info 0 on"]


def test_conversion_error_in_a_try_dooms_the_transaction() -> None:
    engine = FakeEngine({"SELECT x FROM t": CONVERSION})
    text = """BEGIN TRAN
    BEGIN TRY SELECT x FROM t END TRY
    BEGIN CATCH
        PRINT XACT_STATE()
        BEGIN TRY INSERT INTO t VALUES (1) END TRY BEGIN CATCH PRINT ERROR_NUMBER() END CATCH
    END CATCH"""
    assert run(text, engine) == [
        "begun",
        "info 0 -1",
        "info 0 3930",
        "error 3998 line 1",
        "rolled_back",
        "failed",
    ]


def test_doomed_transaction_can_be_rolled_back_in_the_catch() -> None:
    engine = FakeEngine({"SELECT x FROM t": CONVERSION})
    text = "BEGIN TRAN BEGIN TRY SELECT x FROM t END TRY BEGIN CATCH IF XACT_STATE() <> 0 ROLLBACK TRAN END CATCH"
    assert run(text, engine) == ["begun", "rolled_back"]


def test_transaction_that_the_engine_lost_is_over() -> None:
    engine = FakeEngine()

    def deadlock() -> SqlServerError:
        engine.in_transaction = False
        return SqlServerError(1205, "Deadlock.", severity=13)

    engine.answers["UPDATE t SET a = 1"] = deadlock
    client = session(engine)
    assert brief(client.run_batch("BEGIN TRAN UPDATE t SET a = 1")) == [
        "begun",
        "rolled_back",
        "error 1205 line 1",
        "failed",
    ]
    assert not client.in_transaction


# -- transactions ----------------------------------------------------------------------------------------------------


def test_only_the_outermost_commit_ends_the_transaction() -> None:
    engine = FakeEngine()
    text = "BEGIN TRAN BEGIN TRAN SELECT @@TRANCOUNT COMMIT SELECT @@TRANCOUNT COMMIT TRAN SELECT @@TRANCOUNT"
    assert run(text, engine) == [
        "begun",
        "row 2",
        "count 1",
        "row 1",
        "count 1",
        "committed",
        "row 0",
        "count 1",
    ]
    assert [entry for entry in engine.log if entry in ("begin", "commit")] == ["begin", "commit"]


def test_rollback_ends_all_levels() -> None:
    assert run("BEGIN TRAN BEGIN TRAN ROLLBACK SELECT @@TRANCOUNT") == ["begun", "rolled_back", "row 0", "count 1"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("COMMIT TRAN", 3902),
        ("ROLLBACK TRAN", 3903),
        ("SAVE TRAN a", 628),
        ("BEGIN TRAN ROLLBACK TRAN nowhere", 6401),
    ],
)
def test_transaction_statement_without_its_counterpart_is_an_error(text: str, number: int) -> None:
    assert f"error {number} line 1" in run(text)


def test_savepoint_of_jdbc_counts_its_transactions() -> None:
    text = "IF @@TRANCOUNT = 0 BEGIN BEGIN TRAN IF @@TRANCOUNT = 2 COMMIT TRAN END SAVE TRAN [sp1]"
    engine = FakeEngine()
    client = session(engine)
    assert brief(client.run_batch("set implicit_transactions on")) == []
    assert brief(client.run_batch(text)) == ["begun"]
    assert engine.log == ["begin", "save sp1"]
    assert brief(client.run_batch("IF @@TRANCOUNT > 0 ROLLBACK TRAN [sp1]")) == []
    assert brief(client.run_batch("IF @@TRANCOUNT > 0 COMMIT TRAN")) == ["committed"]


def test_implicit_transaction_starts_with_table_access_only() -> None:
    client = session(FakeEngine({"SELECT c FROM t": lambda: rows(1)}))
    assert brief(client.run_batch("SET IMPLICIT_TRANSACTIONS ON SELECT @@VERSION"))[1:] == ["count 1"]
    assert not client.in_transaction
    assert brief(client.run_batch("SELECT c FROM t")) == ["begun", "row 1", "count 1"]
    assert client.in_transaction


def test_rollback_by_the_name_of_the_outermost_transaction_ends_it() -> None:
    assert run("BEGIN TRAN outermost SAVE TRAN s ROLLBACK TRAN outermost SELECT @@TRANCOUNT")[-2:] == [
        "row 0",
        "count 1",
    ]


def test_transaction_requests_of_the_wire_count_like_statements() -> None:
    engine = FakeEngine()
    client = session(engine)
    begun = list(client.begin_transaction(isolation=5))
    assert [event.action for event in begun if isinstance(event, TransactionChanged)] == [TransactionAction.BEGUN]
    assert engine.isolation == "SNAPSHOT"
    assert brief(client.save_transaction("a")) == []
    assert brief(client.rollback_transaction("a")) == []
    assert brief(client.commit_transaction()) == ["committed"]
    assert brief(client.commit_transaction()) == ["error 3902 line 1", "failed"]


# -- options and the session -----------------------------------------------------------------------------------------


def test_options_of_every_driver_are_accepted() -> None:
    pymssql = (
        "SET ARITHABORT ON;SET CONCAT_NULL_YIELDS_NULL ON;SET ANSI_NULLS ON;SET ANSI_NULL_DFLT_ON ON;SET ANSI_PADDING "
        "ON;SET ANSI_WARNINGS ON;SET CURSOR_CLOSE_ON_COMMIT ON;SET QUOTED_IDENTIFIER ON;SET TEXTSIZE 2147483647;"
    )
    tedious = (
        "set ansi_nulls on\nset datefirst 7\nset dateformat mdy\nset implicit_transactions off\n"
        "set language us_english\nset numeric_roundabort off\nset transaction isolation level read committed\n"
    )
    assert run(pymssql) == []
    assert run(tedious) == ["info 5703 Changed language setting to us_english."]


@pytest.mark.parametrize(
    "text",
    ["SET QUOTED_IDENTIFIER OFF", "SET ANSI_NULLS OFF", "SET DATEFORMAT dmy", "SET NOEXEC ON"],
)
def test_option_that_would_change_what_statements_mean_is_refused(text: str) -> None:
    assert run(text) == ["error 49999 line 1", "failed"]


def test_unknown_option_is_error_195() -> None:
    assert run("SELECT 1 SET NO_SUCH_THING ON") == ["error 195 line 1", "failed"]


def test_options_show_in_the_at_at_variables() -> None:
    assert run("SET LOCK_TIMEOUT 500 SET DATEFIRST 1 SET NOCOUNT ON SELECT @@LOCK_TIMEOUT + @@DATEFIRST") == ["row 501"]
    assert run("SELECT @@OPTIONS") == ["row 5432", "count 1"]


@pytest.mark.parametrize(("declared", "units"), [("varchar(max)", 8000), ("nvarchar(max)", 4000)])
def test_print_cuts_a_text_by_its_type(declared: str, units: int) -> None:
    assert run(f"DECLARE @a {declared} = '{'x' * 9000}' PRINT @a") == [f"info 0 {'x' * units}"]
    prefix = "N" if units == 4000 else ""
    assert run(f"PRINT {prefix}'{'x' * 9000}'") == [f"info 0 {'x' * units}"]


def test_reset_returns_to_a_fresh_session() -> None:
    engine = FakeEngine()
    client = session(engine)
    list(client.run_batch("USE shop SET NOCOUNT ON BEGIN TRAN"))
    (ended,) = client.reset()
    assert isinstance(ended, TransactionChanged)
    assert ended.action is TransactionAction.ROLLED_BACK
    assert client.database == "master"
    assert not client.in_transaction
    assert brief(client.run_batch("INSERT INTO t VALUES (1)")) == ["count 1"]


def test_cancel_ends_a_running_loop_without_an_error() -> None:
    client = session(FakeEngine())
    events = client.run_batch("WHILE 1 = 1 PRINT 'x'")
    next(events)
    client.cancel()
    assert brief(events) == []


def test_cancel_ends_waitfor() -> None:
    client = session(FakeEngine())
    events = client.run_batch("PRINT 'x' WAITFOR DELAY '01:00:00'")
    next(events)
    client.cancel()
    assert brief(events) == []


def test_error_while_cancelled_is_not_reported() -> None:
    engine = FakeEngine()
    client = session(engine)

    def cancelled() -> StatementResult | SqlServerError:
        client.cancel()
        return SqlServerError(3617, "cancelled")

    engine.answers["SELECT c FROM t"] = cancelled
    assert brief(client.run_batch("SELECT c FROM t")) == []


def test_table_variable_lives_as_long_as_its_batch() -> None:
    engine = FakeEngine()
    run("DECLARE @t TABLE (a int) INSERT INTO @t VALUES (1)", engine)
    assert engine.log == ["CREATE TABLE @t (a int)", "INSERT INTO @t VALUES (1)", "DROP TABLE IF EXISTS @t"]


def test_fault_of_the_emulator_ends_the_request_and_its_transaction_only() -> None:
    def break_down() -> StatementResult:
        raise KeyError("@c")

    talking = session(FakeEngine({"SELECT broken": break_down}))
    said = brief(talking.run_batch("BEGIN TRANSACTION SELECT broken SELECT 1"))
    assert said == ["begun", "error 49999 line 1", "rolled_back", "failed"]
    assert not talking.in_transaction
    assert brief(talking.run_batch("SELECT 2")) == ["row 2", "count 1"]
