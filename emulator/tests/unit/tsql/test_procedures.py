from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest
from test_interpreter import brief

from fake_engine import FakeEngine, rows
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import (
    ErrorRaised,
    Event,
    Info,
    ResultStart,
    ReturnStatus,
    ReturnValue,
    StatementDone,
)
from sqlserver_emulator.session import RpcArgument
from sqlserver_emulator.tsql.interpreter import TsqlSession
from sqlserver_emulator.types import INT, TsqlType

NVARCHAR = TsqlType("nvarchar", 4000)


def _add(call: ProcedureCall) -> Iterator[Event]:
    first, second = call.arguments["@first"], call.arguments["@second"]
    assert isinstance(first, int)
    assert isinstance(second, int)
    yield Info(0, f"{first}+{second} in {call.engine.database}")
    call.outputs["@Sum"] = first + second
    call.return_code = 7


def _refuse(call: ProcedureCall) -> Iterator[Event]:
    yield Info(0, "about to fail")
    raise SqlServerError(22916, "No such instance.")


def _run_text(call: ProcedureCall) -> Iterator[Event]:
    try:
        yield from call.run_batch("SELECT 1 RAISERROR('inner', 16, 1) SELECT 2")
    except SqlServerError as error:
        yield Info(0, f"caught {error.message}")


ADD = SystemProcedure(
    "sp_add",
    (
        Parameter("@First", INT),
        Parameter("@Second", INT, 10),
        Parameter("@Sum", INT, None, output=True),
    ),
    _add,
)
REFUSE = SystemProcedure("sp_refuse", (), _refuse)
RUN_TEXT = SystemProcedure("sp_run_text", (), _run_text)
REGISTRY = {"sp_add": ADD, "sp_refuse": REFUSE, "sp_run_text": RUN_TEXT}


def session(engine: FakeEngine | None = None) -> TsqlSession:
    return TsqlSession(engine or FakeEngine(), session_id=52, procedures=REGISTRY, default_database="master")


def run(text: str, engine: FakeEngine | None = None) -> list[str]:
    return brief(session(engine).run_batch(text))


def national(value: str | None, name: str = "") -> RpcArgument:
    return RpcArgument(name, NVARCHAR, value)


def number(value: int | None, name: str = "", *, output: bool = False) -> RpcArgument:
    return RpcArgument(name, INT, value, output)


def call(client: TsqlSession, name: str, *arguments: RpcArgument) -> list[Event]:
    return list(client.run_procedure(name, arguments))


def returned(events: list[Event]) -> list[tuple[int, str, object]]:
    return [(event.ordinal, event.name, event.value) for event in events if isinstance(event, ReturnValue)]


# -- system procedures -----------------------------------------------------------------------------------------------


def test_system_procedure_takes_positional_named_and_default_arguments() -> None:
    text = "DECLARE @r int, @s int EXEC @r = sp_add 1, @sum = @s OUTPUT SELECT @r SELECT @s"
    assert run(text) == ["info 0 1+10 in master", "status 7", "row 7", "count 1", "row 11", "count 1"]


def test_system_procedure_runs_in_the_database_that_its_name_says() -> None:
    client = session()
    assert brief(client.run_batch("EXEC Shop.sys.sp_add 1, 2")) == ["info 0 1+2 in shop", "status 7"]
    assert client.database == "master"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("EXEC sp_add", 201),
        ("EXEC sp_add 1, 2, 3, 4", 8144),
        ("EXEC sp_add @nothing = 1", 8145),
        ("EXEC sp_add 1, @first = 2", 8143),
        ("EXEC sp_add 'x'", 8114),
        ("DECLARE @a int EXEC sp_add @a OUTPUT", 8162),
        ("EXEC no_such_procedure", 2812),
        ("EXEC dbo.no_such_procedure 1, 2", 2812),
        ("EXEC nowhere.dbo.p", 911),
    ],
)
def test_call_that_does_not_fit_is_refused_by_number(text: str, error: int) -> None:
    assert run(f"{text} PRINT 'on'")[:2] == [f"error {error} line 1", "failed"]


def test_error_of_a_system_procedure_names_it_and_lets_the_batch_go_on() -> None:
    events = list(session().run_batch("DECLARE @r int\nEXEC @r = sp_refuse SELECT @r"))
    errors = [event.error for event in events if isinstance(event, ErrorRaised)]
    assert [(error.number, error.procedure) for error in errors] == [(22916, "sp_refuse")]
    assert brief(iter(events))[-3:] == ["status 1", "row 1", "count 1"]


def test_error_of_a_system_procedure_is_caught() -> None:
    text = "BEGIN TRY EXEC sp_refuse END TRY BEGIN CATCH PRINT ERROR_PROCEDURE() END CATCH"
    assert run(text) == ["info 0 about to fail", "info 0 sp_refuse"]


def test_procedure_sees_errors_of_its_own_text_as_exceptions() -> None:
    assert run("EXEC sp_run_text") == ["row 1", "count 1", "info 0 caught inner", "status 0"]


# -- user procedures -------------------------------------------------------------------------------------------------


def with_procedures(**sources: str) -> FakeEngine:
    engine = FakeEngine()
    engine.procedures.update(sources)
    return engine


def test_user_procedure_runs_with_its_own_variables() -> None:
    engine = with_procedures(
        p="CREATE PROCEDURE dbo.p @a int, @b int = 5, @c int OUTPUT AS BEGIN SET @c = @a + @b RETURN 3 END"
    )
    text = "DECLARE @a int, @r int EXEC @r = dbo.p 2, @c = @a OUT SELECT @a SELECT @r"
    assert run(text, engine) == ["status 3", "row 7", "count 1", "row 3", "count 1"]


def test_error_in_a_user_procedure_names_procedure_and_line_and_gives_a_negative_status() -> None:
    engine = with_procedures(p="CREATE PROC p AS\nRAISERROR('no', 16, 1)\nPRINT 'on'")
    events = list(session(engine).run_batch("EXEC p"))
    errors = [event.error for event in events if isinstance(event, ErrorRaised)]
    assert [(error.procedure, error.line) for error in errors] == [("p", 2)]
    assert brief(iter(events))[-2:] == ["info 0 on", "status -6"]


def test_options_and_database_come_back_when_a_procedure_ends() -> None:
    engine = with_procedures(p="CREATE PROC p AS SET NOCOUNT ON SET LOCK_TIMEOUT 5")
    client = session(engine)
    assert brief(client.run_batch("EXEC p INSERT INTO t VALUES (1) SELECT @@LOCK_TIMEOUT")) == [
        "status 0",
        "count 1",
        "row -1",
        "count 1",
    ]
    assert engine.lock_timeout == -1
    assert brief(client.run_batch("EXEC('USE shop')"))[-1] == "shop -> master"
    assert client.database == "master"


def test_procedures_nest_32_deep_and_no_deeper() -> None:
    engine = with_procedures(p="CREATE PROC p AS IF @@NESTLEVEL = 32 PRINT @@NESTLEVEL EXEC p")
    assert run("EXEC p", engine) == ["info 0 32", "error 217 line 1", "failed"]


def test_transaction_count_must_be_the_same_after_a_procedure() -> None:
    engine = with_procedures(p="CREATE PROC p AS BEGIN TRAN")
    assert run("EXEC p PRINT 'on'", engine) == ["begun", "error 266 line 1", "failed", "status 0", "info 0 on"]


def test_temp_table_of_a_procedure_goes_with_it() -> None:
    engine = with_procedures(p="CREATE PROC p AS CREATE TABLE #t (a int) SELECT 1")
    run("EXEC p CREATE TABLE #u (a int)", engine)
    assert engine.log == [
        "CREATE TABLE #t (a int)",
        "SELECT 1",
        "? 1",
        "DROP TABLE IF EXISTS #t",
        "CREATE TABLE #u (a int)",
    ]


def test_insert_exec_inserts_the_rows_that_the_procedure_returned() -> None:
    engine = with_procedures(p="CREATE PROC p AS SELECT c FROM t PRINT 'said'")
    engine.answers["SELECT c FROM t"] = lambda: rows(1, 2, 3)
    assert run("INSERT INTO u (c) EXEC p SELECT @@ROWCOUNT", engine) == [
        "info 0 said",
        "count 3",
        "row 3",
        "count 1",
    ]
    assert "INSERT INTO u (c) VALUES (@__insert_exec_0_0), (@__insert_exec_1_0), (@__insert_exec_2_0)" in engine.log


def test_procedure_named_by_a_variable_is_called() -> None:
    engine = with_procedures(p="CREATE PROC p AS PRINT 'called'")
    assert run("DECLARE @n sysname = N'dbo.p' EXEC @n", engine) == ["info 0 called", "status 0"]


# -- text and handles ------------------------------------------------------------------------------------------------


def test_sp_executesql_binds_parameters_and_gives_outputs_back() -> None:
    call = "EXEC sp_executesql N'SET @y = @x * 2', N'@x int, @y int OUTPUT', @x = 4, @y = @o OUTPUT"
    text = f"DECLARE @o int {call} SELECT @o"
    assert run(text) == ["status 0", "row 8", "count 1"]


def test_sp_executesql_wants_national_text() -> None:
    assert run("EXEC sp_executesql 'SELECT 1'")[0] == "error 214 line 1"


def test_sp_executesql_names_the_parameter_that_is_missing() -> None:
    events = list(session().run_batch("EXEC sp_executesql N'SELECT @x', N'@x int'"))
    (error,) = [event.error for event in events if isinstance(event, ErrorRaised)]
    assert error.number == 8178
    assert "expects the parameter '@x'" in error.message


def test_sp_executesql_by_rpc_yields_events_then_status_then_outputs() -> None:
    events = call(
        session(),
        "sp_executesql",
        national("SELECT @P0 SET @P1 = @P0 + 1"),
        national("@P0 int,@P1 int OUTPUT"),
        number(5),
        number(None, output=True),
    )
    assert brief(iter(events[:-1])) == ["row 5", "count 1", "status 0"]
    assert events[-1] == ReturnValue(3, "", INT, 6)


def test_sp_executesql_takes_text_and_parameters_by_place_under_any_name() -> None:
    text, declared, value = national("SELECT @P1", "stmt"), national("@P1 int", "params"), number(5, "@P1")
    assert brief(iter(call(session(), "sp_executesql", text, declared, value))) == ["row 5", "count 1", "status 0"]


def test_sp_executesql_takes_zero_for_no_parameters_of_an_rpc_only() -> None:
    sent = call(session(), "sp_executesql", national("SELECT 5", "stmt"), number(0, "params"))
    assert brief(iter(sent)) == ["row 5", "count 1", "status 0"]
    assert run("EXEC sp_executesql N'SELECT 5', 0") == ["error 214 line 1", "failed"]
    assert run("EXEC sp_executesql N'SELECT 5', @a = 0") == ["error 214 line 1", "failed"]


def test_syntax_error_in_the_text_is_the_inner_scopes() -> None:
    text = "BEGIN TRY EXEC('SELECT 1 )') END TRY BEGIN CATCH PRINT ERROR_NUMBER() END CATCH EXEC('SELECT )') PRINT 'on'"
    assert run(text) == ["info 0 102", "error 102 line 1", "failed", "info 0 on"]


def test_prepared_handle_runs_until_it_is_given_up() -> None:
    client = session()
    first = call(
        client, "sp_prepexec", number(None, output=True), national("@P1 int"), national("SELECT @P1"), number(3)
    )
    assert brief(iter(first[:-1])) == ["row 3", "count 1", "status 0"]
    ((ordinal, _, handle),) = returned(first)
    assert (ordinal, handle) == (0, 1)
    assert brief(iter(call(client, "sp_execute", number(1), number(9)))) == ["row 9", "count 1", "status 0"]
    assert brief(iter(call(client, "sp_unprepare", number(1)))) == ["status 0"]
    assert brief(iter(call(client, "sp_execute", number(1), number(9)))) == ["error 8179 line 1", "failed"]


def test_sp_prepare_reports_the_columns_when_asked() -> None:
    client = session()
    events = call(
        client,
        "sp_prepare",
        number(None, "@handle", output=True),
        national("@a int", "@params"),
        national("select @a", "@stmt"),
        number(1, "@options"),
    )
    assert [type(event) for event in events] == [ResultStart, StatementDone, ReturnStatus, ReturnValue]
    assert brief(iter(call(client, "sp_execute", number(1, "@handle"), number(4, "@a"))))[0] == "row 4"


def test_sp_prepexecrpc_calls_the_procedure_that_it_names() -> None:
    engine = with_procedures(p="CREATE PROC p @a int AS SELECT @a")
    events = call(session(engine), "sp_prepexecrpc", number(None, output=True), national("dbo.p"), number(5))
    assert brief(iter(events[:-1])) == ["row 5", "count 1", "status 0"]
    assert returned(events) == [(0, "", 1)]


def test_reset_forgets_handles() -> None:
    client = session()
    call(client, "sp_prepare", number(None, output=True), national(None), national("SELECT 1"))
    assert list(client.reset()) == []
    assert brief(iter(call(client, "sp_execute", number(1)))) == ["error 8179 line 1", "failed"]


def test_procedure_by_rpc_returns_its_outputs_with_their_ordinals() -> None:
    events = call(session(), "[sys].[sp_add]", number(1), number(2, "@second"), number(None, "@sum", output=True))
    assert events[-2:] == [ReturnStatus(7), ReturnValue(2, "@sum", INT, 3)]


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        (TsqlType("decimal", precision=15, scale=7), Decimal("3.0000000")),
        (TsqlType("bigint"), 3),
        (TsqlType("nvarchar", 4000), "3"),
        (TsqlType("nvarchar", -1), "3"),
        (INT, 3),
    ],
)
def test_output_comes_back_in_the_type_that_the_client_sent(asked: TsqlType, value: object) -> None:
    sent = RpcArgument("@sum", asked, None, output=True)
    assert call(session(), "sp_add", number(1), number(2), sent)[-1] == ReturnValue(2, "@sum", asked, value)


def test_output_that_does_not_fit_the_type_that_the_client_sent_is_8114() -> None:
    engine = with_procedures(p="CREATE PROC p @sum varchar(9) OUTPUT AS SET @sum = 'many'")
    events = call(session(engine), "p", RpcArgument("@sum", INT, None, output=True))
    assert brief(iter(events))[-2:] == ["error 8114 line 1", "failed"]
    assert not any(isinstance(event, ReturnValue) for event in events)


def test_output_for_a_text_of_no_length_has_the_type_of_the_procedure() -> None:
    sent = RpcArgument("@sum", TsqlType("varchar"), None, output=True)
    assert call(session(), "sp_add", number(1), number(2), sent)[-1] == ReturnValue(2, "@sum", INT, 3)


def test_default_of_an_rpc_argument_is_the_parameters_own() -> None:
    events = call(session(), "sp_add", number(1), RpcArgument("", INT, None, default=True))
    assert brief(iter(events))[0] == "info 0 1+10 in master"


def test_unknown_procedure_by_rpc_is_2812() -> None:
    assert brief(iter(call(session(), "nowhere"))) == ["error 2812 line 1", "failed"]


def test_changing_rows_through_a_server_cursor_is_refused_by_name() -> None:
    events = call(session(), "sp_cursor", number(0))
    (error,) = [event.error for event in events if isinstance(event, ErrorRaised)]
    assert error.number == 49999
    assert "sp_cursor" in error.message


def test_arguments_are_converted_to_the_declared_type() -> None:
    events = call(
        session(),
        "sp_executesql",
        national("SELECT @a"),
        national("@a int"),
        RpcArgument("@a", TsqlType("decimal", precision=5, scale=2), Decimal("3.70")),
    )
    assert brief(iter(events))[0] == "row 3"
