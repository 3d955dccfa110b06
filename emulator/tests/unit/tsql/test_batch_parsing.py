"""Batches and the statements that they are cut into; the first table holds what real drivers send."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax import statements as nodes
from sqlserver_emulator.syntax.parsing.batch import parse_batch
from sqlserver_emulator.syntax.statements import Statement


def show(statement: Statement) -> str:
    """A statement in one line: SQL as its text, control flow with its parts in brackets."""
    match statement:
        case nodes.Sql(text=text):
            return " ".join(text.split())
        case nodes.If(condition=condition, then=then, otherwise=otherwise):
            return f"if {condition.text} [{show(then)}]" + (f" else [{show(otherwise)}]" if otherwise else "")
        case nodes.Assign(assignments=assignments):
            return f"all [{'; '.join(map(show, assignments))}]"
        case nodes.While(condition=condition, body=body):
            return f"while {condition.text} [{show(body)}]"
        case nodes.Block(statements=inner):
            return f"block [{'; '.join(map(show, inner))}]"
        case nodes.TryCatch(body=body, handler=handler):
            return f"try [{'; '.join(map(show, body))}] catch [{'; '.join(map(show, handler))}]"
        case nodes.InsertExecute(insert=insert, source=source):
            return f"{insert} <- {show(source)}"
        case nodes.Execute(procedure=procedure, arguments=arguments, return_variable=variable):
            return f"exec {variable}{procedure}({', '.join(map(_show_argument, arguments))})"
        case nodes.Declare(declarations=declarations):
            return "declare " + ", ".join(map(_show_declaration, declarations))
        case _:
            return _show_transaction(statement) or _show_small(statement)


def _show_argument(argument: nodes.Argument) -> str:
    value = argument.value.text if argument.value else "DEFAULT"
    return f"{argument.name}={value}{'!' if argument.output else ''}"


def _show_declaration(declaration: nodes.Declaration) -> str:
    default = f" = {declaration.default.text}" if declaration.default else ""
    return f"{declaration.name} {declaration.type}{default}"


def _show_transaction(statement: Statement) -> str:
    match statement:
        case nodes.BeginTransaction(name=name):
            return f"begin tran {name}".strip()
        case nodes.CommitTransaction():
            return "commit"
        case nodes.RollbackTransaction(name=name):
            return f"rollback {name}".strip()
        case nodes.SaveTransaction(name=name):
            return f"save {name}"
        case _:
            return ""


def _show_small(statement: Statement) -> str:
    match statement:
        case nodes.SetVariable(name=name, expression=expression):
            return f"let {name} = {expression.text}"
        case nodes.SetOption(options=options, value=value):
            return f"set {','.join(options)} {value.text}"
        case nodes.ExecuteText(text=text):
            return f"exec text {text.text}"
        case nodes.DeclareTable(text=text):
            return " ".join(text.split())
        case nodes.SetIsolation(level=level):
            return f"isolation {level}"
        case nodes.Print(message=message):
            return f"print {message.text}"
        case nodes.Return(value=value):
            return f"return {value.text if value else ''}".strip()
        case nodes.Throw(number=number):
            return f"throw {number.text if number else ''}".strip()
        case nodes.RaiseError(message=message, severity=severity):
            return f"raiserror {message.text} {severity.text}"
        case nodes.Use(database=database):
            return f"use {database}"
        case nodes.Unsupported(what=what):
            return f"unsupported {what}"
        case _:
            return type(statement).__name__.lower()


def split(text: str, *known: str) -> list[str]:
    return [show(statement) for statement in parse_batch(text, frozenset(known)).statements]


FROM_DRIVERS = [
    ("IF @@TRANCOUNT > 0 COMMIT TRAN", ["if @@TRANCOUNT > 0 [commit]"]),
    (
        "IF @@TRANCOUNT = 0 BEGIN BEGIN TRAN IF @@TRANCOUNT = 2 COMMIT TRAN END SAVE TRAN [dbz_schema_snapshot]",
        ["if @@TRANCOUNT = 0 [block [begin tran; if @@TRANCOUNT = 2 [commit]]]", "save dbz_schema_snapshot"],
    ),
    ("IF @@TRANCOUNT > 0 ROLLBACK TRAN [sp1]", ["if @@TRANCOUNT > 0 [rollback sp1]"]),
    (
        "set implicit_transactions off IF @@TRANCOUNT > 0 COMMIT TRAN ",
        ["set IMPLICIT_TRANSACTIONS OFF", "if @@TRANCOUNT > 0 [commit]"],
    ),
    (
        "insert into dbo.t(a) values ( @P0 ) select SCOPE_IDENTITY() AS GENERATED_KEYS",
        ["insert into dbo.t(a) values ( @P0 )", "select SCOPE_IDENTITY() AS GENERATED_KEYS"],
    ),
    (
        "set fmtonly on select * from dbo.types WHERE 1=0\nset fmtonly off",
        ["set FMTONLY ON", "select * from dbo.types WHERE 1=0", "set FMTONLY OFF"],
    ),
    (
        "SET FMTONLY ON select * from dbo.t SET FMTONLY OFF",
        ["set FMTONLY ON", "select * from dbo.t", "set FMTONLY OFF"],
    ),
    ("set transaction isolation level  read uncommitted ", ["isolation READ UNCOMMITTED"]),
    ("sp_datatype_info_100 @ODBCVer=3", ["exec sp_datatype_info_100(@odbcver=3)"]),
    ("EXEC  @P0 = dbo.p  @P1 ,  @P2  OUT", ["exec @p0dbo.p(=@P1, =@P2!)"]),
    ("EXEC [testdb].sys.sp_cdc_help_change_data_capture", ["exec testdb.sys.sp_cdc_help_change_data_capture()"]),
    (
        "DECLARE @t TABLE(a SYSNAME, b VARCHAR(254));INSERT INTO @t EXEC sp_columns_100  @P0 , @P1 ;"
        "SELECT a AS x FROM @t ORDER BY x;",
        [
            "CREATE TABLE @t (a SYSNAME, b VARCHAR(254))",
            "INSERT INTO @t <- exec sp_columns_100(=@P0, =@P1)",
            "SELECT a AS x FROM @t ORDER BY x",
        ],
    ),
    (
        "SET ARITHABORT ON;SET ANSI_NULL_DFLT_ON ON;SET TEXTSIZE 2147483647;",
        ["set ARITHABORT ON", "set ANSI_NULL_DFLT_ON ON", "set TEXTSIZE 2147483647"],
    ),
    (
        "set ansi_nulls on\nset datefirst 7\nset dateformat mdy\nset language us_english\n"
        "set transaction isolation level read committed\nset xact_abort off",
        [
            "set ANSI_NULLS ON",
            "set DATEFIRST 7",
            "set DATEFORMAT mdy",
            "set LANGUAGE us_english",
            "isolation READ COMMITTED",
            "set XACT_ABORT OFF",
        ],
    ),
    (
        "SELECT @@TRANCOUNT;\n\nDECLARE @Names NVARCHAR(MAX) = NULL;\nDECLARE @id INT = OBJECT_ID(N'[dbo].[t]');\n"
        "DECLARE @sql NVARCHAR(MAX);\nSET @sql = N'SELECT';\n"
        "IF EXISTS (SELECT TOP 1 * FROM sys.all_columns WHERE [name] = 'graph')\n    SET @sql = @sql + N' AND 1';\n"
        "EXEC sp_executesql @sql, N'@CN NVARCHAR(MAX) OUTPUT', @CN = @Names OUTPUT, @ObjId = @id;\n"
        "SELECT @Names = COALESCE(@Names, '*');\nSET FMTONLY ON;\nEXEC(N'SELECT ' + @Names + N' FROM [dbo].[t]');\n"
        "SET FMTONLY OFF;\nEXEC sp_tablecollations_100 N'[dbo].[t]';",
        [
            "SELECT @@TRANCOUNT",
            "declare @names nvarchar(max) = NULL",
            "declare @id int = OBJECT_ID(N'[dbo].[t]')",
            "declare @sql nvarchar(max)",
            "let @sql = N'SELECT'",
            "if EXISTS (SELECT TOP 1 * FROM sys.all_columns WHERE [name] = 'graph') [let @sql = @sql + N' AND 1']",
            "exec sp_executesql(=@sql, =N'@CN NVARCHAR(MAX) OUTPUT', @cn=@Names!, @objid=@id)",
            "all [let @names = COALESCE(@Names, '*')]",
            "set FMTONLY ON",
            "exec text N'SELECT ' + @Names + N' FROM [dbo].[t]'",
            "set FMTONLY OFF",
            "exec sp_tablecollations_100(=N'[dbo].[t]')",
        ],
    ),
    (
        "DECLARE @from_lsn binary (10), @to_lsn binary (10) SET @from_lsn = sys.fn_cdc_increment_lsn(CONVERT(BINARY(10)"
        ",'0x01',1)) SET @to_lsn = CONVERT(BINARY(10),'0x02',1) SELECT a ,case __$operation when 2 then 'I' when 1 "
        "then 'D' end op FROM cdc.\"fn_cdc_get_all_changes_dbo_t\"(@from_lsn, @to_lsn, 'all') ORDER BY __$seqval ;",
        [
            "declare @from_lsn binary(10), @to_lsn binary(10)",
            "let @from_lsn = sys.fn_cdc_increment_lsn(CONVERT(BINARY(10),'0x01',1))",
            "let @to_lsn = CONVERT(BINARY(10),'0x02',1)",
            "SELECT a ,case __$operation when 2 then 'I' when 1 then 'D' end op FROM "
            "cdc.\"fn_cdc_get_all_changes_dbo_t\"(@from_lsn, @to_lsn, 'all') ORDER BY __$seqval",
        ],
    ),
]


@pytest.mark.parametrize(("text", "statements"), FROM_DRIVERS)
def test_text_of_a_driver_is_cut_into_its_statements(text: str, statements: list[str]) -> None:
    assert split(text, "@p0", "@p1", "@p2") == statements


WHOLE = [
    "SELECT 1 UNION ALL SELECT 2 EXCEPT SELECT 3",
    "SELECT a FROM t WITH (NOLOCK) ORDER BY a OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY OPTION (RECOMPILE)",
    "SELECT TOP (5) WITH TIES a FROM t ORDER BY a",
    "SELECT a FROM t INNER MERGE JOIN u ON t.a = u.a",
    "SELECT CASE WHEN a = 1 THEN CASE b WHEN 2 THEN 3 ELSE 4 END ELSE 5 END FROM t",
    "SELECT [select], t.[end] FROM [update] AS [set]",
    "SELECT a FROM t FOR JSON PATH, ROOT('x')",
    "SELECT a, COUNT(*) FROM t GROUP BY a WITH ROLLUP HAVING COUNT(*) > 1",
    "(SELECT 1) UNION (SELECT 2)",
    "WITH a AS (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT x FROM b",
    "WITH a AS (SELECT 1 AS x) INSERT INTO t SELECT x FROM a UNION SELECT 2",
    "WITH a AS (SELECT 1 AS x) UPDATE t SET x = a.x FROM a",
    "WITH a AS (SELECT * FROM t) DELETE FROM a WHERE x = 1",
    "INSERT INTO t (a, b) VALUES (1, 'x'), (2, 'y')",
    "INSERT INTO t WITH (TABLOCK) (a) OUTPUT inserted.a INTO u (a) SELECT a FROM v WHERE a > 1",
    "INSERT t DEFAULT VALUES",
    "INSERT INTO t (SELECT 1)",
    "INSERT INTO t (a) (SELECT 1)",
    "INSERT TOP (2) INTO t (a) SELECT a FROM u",
    "UPDATE TOP (5) t SET a = 1, b = CASE WHEN c = 2 THEN 3 END OUTPUT deleted.a FROM t JOIN u ON t.a = u.a",
    "DELETE TOP (10) FROM dbo.t OUTPUT deleted.* WHERE a = 1",
    "CREATE TABLE t (id int IDENTITY, a int REFERENCES u(a) ON DELETE CASCADE ON UPDATE SET NULL) ON [PRIMARY]",
    "ALTER TABLE t ADD CONSTRAINT fk FOREIGN KEY (a) REFERENCES u (a) ON DELETE SET NULL ON UPDATE CASCADE",
    "ALTER TABLE t ADD a int NOT NULL DEFAULT (0) WITH VALUES, b nvarchar(max)",
    "ALTER TABLE dbo.t ALTER COLUMN a bigint NOT NULL",
    "ALTER TABLE db.dbo.t DROP COLUMN a, COLUMN b",
    "ALTER TABLE t DROP CONSTRAINT IF EXISTS c",
    "ALTER TABLE t SET (LOCK_ESCALATION = TABLE)",
    "ALTER TABLE t WITH CHECK ADD CONSTRAINT c CHECK (a > 0)",
    "ALTER DATABASE Shop SET ALLOW_SNAPSHOT_ISOLATION ON",
    "ALTER DATABASE CURRENT SET RECOVERY SIMPLE WITH NO_WAIT",
    "ALTER ROLE db_owner ADD MEMBER bob",
    "ALTER ROLE db_owner DROP MEMBER bob",
    "ALTER INDEX ix ON t SET (ALLOW_ROW_LOCKS = ON)",
    "CREATE UNIQUE NONCLUSTERED INDEX ix ON t (a DESC) INCLUDE (b) WHERE a IS NOT NULL WITH (ONLINE = ON)",
    "CREATE SCHEMA s AUTHORIZATION dbo CREATE TABLE u (a int) GRANT SELECT ON u TO bob",
    "CREATE USER bob FOR LOGIN bob WITH DEFAULT_SCHEMA = dbo",
    "CREATE TYPE dbo.Name FROM nvarchar(50) NULL",
    "DROP TABLE IF EXISTS dbo.a, dbo.b",
    "DROP INDEX ix ON t",
    "GRANT SELECT, INSERT, UPDATE (a), EXECUTE, CREATE TABLE ON dbo.t TO bob WITH GRANT OPTION",
    "REVOKE GRANT OPTION FOR SELECT ON dbo.t FROM bob CASCADE",
    "DENY DELETE ON SCHEMA::dbo TO bob",
    "TRUNCATE TABLE t",
    "CREATE VIEW v AS SELECT 1 AS a UNION SELECT 2",
    "CREATE OR ALTER FUNCTION f (@a int) RETURNS TABLE AS RETURN (SELECT @a AS a)",
    "CREATE PROCEDURE p @a int AS BEGIN SELECT @a END SELECT 2",
]


@pytest.mark.parametrize("text", WHOLE)
def test_statement_stays_whole(text: str) -> None:
    assert split(text) == [text]


@pytest.mark.parametrize("text", [text for text in WHOLE if not text.startswith("CREATE")])
def test_statement_ends_where_another_begins_without_a_semicolon(text: str) -> None:
    assert split(f"{text}\nSET NOCOUNT ON PRINT 'x'") == [text, "set NOCOUNT ON", "print 'x'"]
    assert split(f"{text} DECLARE @a int SELECT @a") == [text, "declare @a int", "SELECT @a"]
    assert split(f"SELECT 1; {text}; SELECT 2;") == ["SELECT 1", text, "SELECT 2"]


MERGE = (
    "MERGE INTO t WITH (ROWLOCK) AS target USING (SELECT 1 AS a) AS source ON target.a = source.a "
    "WHEN MATCHED AND source.a > 1 THEN UPDATE SET target.b = CASE WHEN 1 = 1 THEN 2 END "
    "WHEN NOT MATCHED BY TARGET THEN INSERT (a) VALUES (source.a) WHEN NOT MATCHED BY SOURCE THEN DELETE OUTPUT $action"
)


KNOWN_BUT_REFUSED = [
    ("BULK INSERT t FROM 'x.csv' WITH (FIRSTROW = 2)", "BULK INSERT"),
    ("BACKUP DATABASE d TO DISK = 'x' WITH INIT", "BACKUP"),
    ("EXECUTE AS USER = 'bob'", "EXECUTE AS"),
    ("DBCC CHECKDB ('t', NOINDEX) WITH NO_INFOMSGS", "DBCC CHECKDB"),
    ("DBCC FREEPROCCACHE", "DBCC FREEPROCCACHE"),
    (
        "ALTER DATABASE SCOPED CONFIGURATION SET IDENTITY_CACHE = OFF",
        "ALTER DATABASE SCOPED CONFIGURATION SET IDENTITY_CACHE",
    ),
    ("RECEIVE TOP (1) * FROM q INTO @p0", "RECEIVE TOP"),
    ("SEND ON CONVERSATION @p0 MESSAGE TYPE t ('x')", "SEND ON CONVERSATION"),
    ("KILL 55", "KILL"),
    ("EXEC ('SELECT 1', 2) AT linked;", "EXEC with parameters for a linked server"),
    ("BEGIN DISTRIBUTED TRAN;", "BEGIN DISTRIBUTED"),
    ("WAITFOR (RECEIVE * FROM q), TIMEOUT 5", "WAITFOR (…)"),
]


@pytest.mark.parametrize(("text", "what"), KNOWN_BUT_REFUSED)
def test_statement_that_is_not_supported_is_known_by_name_and_by_its_end(text: str, what: str) -> None:
    assert split(f"{text} PRINT 'x'", "@p0") == [f"unsupported {what}", "print 'x'"]


def test_merge_keeps_its_actions_and_needs_its_semicolon() -> None:
    assert split(f"{MERGE}; SELECT 1") == [MERGE, "SELECT 1"]
    with pytest.raises(SqlServerError) as caught:
        split(f"{MERGE} SELECT 1")
    assert caught.value.number == 10713


CONTROL = [
    ("IF 1 = 1 SELECT 1 ELSE SELECT 2 SELECT 3", ["if 1 = 1 [SELECT 1] else [SELECT 2]", "SELECT 3"]),
    ("IF 1 = 1 SELECT 1; ELSE SELECT 2", ["if 1 = 1 [SELECT 1] else [SELECT 2]"]),
    ("IF 1=1 IF 2=2 PRINT 'a' ELSE PRINT 'b'", ["if 1=1 [if 2=2 [print 'a'] else [print 'b']]"]),
    ("IF OBJECT_ID('t') IS NOT NULL DROP TABLE t", ["if OBJECT_ID('t') IS NOT NULL [DROP TABLE t]"]),
    (
        "DROP TABLE t IF EXISTS (SELECT 1 FROM u) PRINT 'x'",
        ["DROP TABLE t", "if EXISTS (SELECT 1 FROM u) [print 'x']"],
    ),
    (
        "IF CASE WHEN 1 = 1 THEN 1 ELSE 0 END = 1 BEGIN PRINT 'x' END ELSE BEGIN PRINT 'y' END",
        ["if CASE WHEN 1 = 1 THEN 1 ELSE 0 END = 1 [block [print 'x']] else [block [print 'y']]"],
    ),
    ("IF 1 = 1 WITH a AS (SELECT 1 AS x) SELECT x FROM a", ["if 1 = 1 [WITH a AS (SELECT 1 AS x) SELECT x FROM a]"]),
    ("IF @@ERROR <> 0 THROW 50000, 'x', 1", ["if @@ERROR <> 0 [throw 50000]"]),
    (
        "WHILE 1 = 1 BEGIN BREAK CONTINUE END SELECT 1",
        ["while 1 = 1 [block [break; continue]]", "SELECT 1"],
    ),
    (
        "BEGIN TRY SELECT 1 END TRY BEGIN CATCH ROLLBACK; THROW; END CATCH; SELECT 2",
        ["try [SELECT 1] catch [rollback; throw]", "SELECT 2"],
    ),
    ("BEGIN TRY SELECT 1 END TRY BEGIN CATCH END CATCH", ["try [SELECT 1] catch []"]),
    ("BEGIN TRAN t1 UPDATE t SET a = 1 COMMIT TRAN t1", ["begin tran t1", "UPDATE t SET a = 1", "commit"]),
    ("BEGIN TRANSACTION COMMIT WORK ROLLBACK", ["begin tran", "commit", "rollback"]),
    ("DECLARE @n nvarchar(10) BEGIN TRAN @n SAVE TRAN @n", ["declare @n nvarchar(10)", "begin tran @n", "save @n"]),
    (
        "EXEC p 1, -2, N'x', NULL, DEFAULT, word SELECT 1",
        ["exec p(=1, =-2, =N'x', =NULL, =DEFAULT, =word)", "SELECT 1"],
    ),
    ("EXEC master..xp 'a' EXEC [a b].[c.d]", ["exec master..xp(='a')", "exec a b.c.d()"]),
    ("EXECUTE ('SELECT 1') RETURN 5", ["exec text 'SELECT 1'", "return 5"]),
    ("sp_help 'x'", ["exec sp_help(='x')"]),
    ("RAISERROR (N'%s', 16, 1, N'a') WITH NOWAIT PRINT 'b'", ["raiserror N'%s' 16", "print 'b'"]),
    (
        "SET IDENTITY_INSERT db.dbo.t ON INSERT INTO t VALUES (1)",
        ["SET IDENTITY_INSERT db.dbo.t ON", "INSERT INTO t VALUES (1)"],
    ),
    (
        "SET ANSI_NULLS, QUOTED_IDENTIFIER ON SET LOCK_TIMEOUT -1",
        ["set ANSI_NULLS,QUOTED_IDENTIFIER ON", "set LOCK_TIMEOUT -1"],
    ),
    (
        "SET STATISTICS IO, TIME ON SET DEADLOCK_PRIORITY LOW",
        ["set STATISTICS IO,STATISTICS TIME ON", "set DEADLOCK_PRIORITY LOW"],
    ),
    (
        "DECLARE @a int SET @a += 2 * 3 SET @a = (SELECT 1) + CASE WHEN 1=1 THEN 2 END",
        ["declare @a int", "let @a = @a + (2 * 3)", "let @a = (SELECT 1) + CASE WHEN 1=1 THEN 2 END"],
    ),
    (
        "DECLARE @a int, @b int SELECT @a = 1, @b += @a + 2 SELECT @a = x FROM t SELECT @a = 1 WHERE 1 = 1",
        [
            "declare @a int, @b int",
            "all [let @a = 1; let @b = @b + (@a + 2)]",
            "SELECT @a = x FROM t",
            "SELECT @a = 1 WHERE 1 = 1",
        ],
    ),
    (
        "DECLARE @a int, @t TABLE (x int), @b dec(5) = 1.5",
        ["block [declare @a int, @b decimal(5,0) = 1.5; CREATE TABLE @t (x int)]"],
    ),
    ("DECLARE c CURSOR FOR SELECT 1 FOR UPDATE SELECT 2", ["declarecursor", "SELECT 2"]),
    ("GOTO done done: SELECT 1", ["unsupported GOTO", "SELECT 1"]),
    (";;WITH a AS (SELECT 1 AS x) SELECT x FROM a;;", ["WITH a AS (SELECT 1 AS x) SELECT x FROM a"]),
    ("USE [Shop] SELECT 1", ["use Shop", "SELECT 1"]),
    ("WAITFOR DELAY '00:00:01' SELECT 1", ["waitfor", "SELECT 1"]),
    ("-- only a comment", []),
    ("", []),
]


@pytest.mark.parametrize(("text", "statements"), CONTROL)
def test_control_flow_holds_its_statements(text: str, statements: list[str]) -> None:
    assert split(text) == statements


REFUSED = [
    ("SELECT 1)", 102),
    ("SELECT 1\nEND", 156),
    ("IF 1 = 1", 102),
    ("BEGIN", 102),
    ("BEGIN END", 156),
    ("SET @a = 1", 137),
    ("SELECT @a", 137),
    ("INSERT INTO @t VALUES (1)", 1087),
    ("DECLARE @a int DECLARE @A int", 134),
    ("BREAK", 135),
    ("CONTINUE", 136),
    ("THROW", 10704),
    ("SET NO_SUCH ON", 195),
    ("SELECT 1 CREATE VIEW v AS SELECT 1", 111),
    ("SELECT 1 CREATE PROCEDURE p AS SELECT 1", 111),
    ("CREATE PROCEDURE p AS SELECT 1)", 102),
    ("EXEC p @a = 1, 2", 119),
    ("EXEC p 1 OUTPUT", 179),
    ("SELECT 1; go_on", 102),
    ("SELECT 'abc", 105),
    ("/* abc", 113),
    ("DECLARE @a text", 2739),
    ("WITH a AS (SELECT 1)", 102),
    ("EXEC p 'a' + 'b'", 102),
    ("DECLARE @a varchar(9000)", 131),
    ("SELECT a.b.c.d; ELSE", 156),
]


@pytest.mark.parametrize(("text", "number"), REFUSED)
def test_text_that_is_no_batch_is_refused_by_number(text: str, number: int) -> None:
    with pytest.raises(SqlServerError) as caught:
        parse_batch(text)
    assert caught.value.number == number


def test_error_names_the_line_it_is_in() -> None:
    with pytest.raises(SqlServerError) as caught:
        parse_batch("SELECT 1\n\nSELECT 2 )")
    assert (caught.value.line, caught.value.message) == (3, "Incorrect syntax near ')'.")


@given(st.lists(st.sampled_from(["SELECT 1", "PRINT 'x'", "UPDATE t SET a = 1", "COMMIT", "EXEC p 1", *WHOLE[:20]])))
def test_any_sequence_of_statements_is_cut_alike_with_and_without_semicolons(texts: list[str]) -> None:
    joined, separated = "\n".join(texts), ";\n".join(texts)
    assume(not any(text.startswith(("WITH", "(")) for text in texts[1:]))  # these need the semicolon before them
    assert split(joined) == split(separated)


def test_temp_tables_that_a_statement_makes_are_known() -> None:
    def made(text: str) -> str:
        statement = parse_batch(text).statements[0]
        assert isinstance(statement, nodes.Sql)
        return statement.temp_table

    assert made("CREATE TABLE #t (a int)") == "#t"
    assert made("SELECT a INTO #u FROM #t") == "#u"
    assert made("INSERT INTO #t SELECT a FROM #u") == ""
