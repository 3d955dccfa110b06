"""Server cursors of drivers: sp_cursoropen and its kin, over results that are read whole when the cursor is opened.

So every cursor is in truth a static, read-only one, and says so where the client asks: a real server answers in the
same way when a query cannot have the cursor that was asked for. Options: `sp_cursoropen` in Microsoft's documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Column, Command, ErrorRaised, Event, Info, ResultStart, Rows, StatementDone
from sqlserver_emulator.session import RpcArgument
from sqlserver_emulator.syntax.parsing.batch import parse_batch
from sqlserver_emulator.syntax.statements import Sql
from sqlserver_emulator.tsql.binding import leading
from sqlserver_emulator.tsql.calls import Call, CallResult, Calls
from sqlserver_emulator.tsql.cursors.fetch_window import FORWARD, FetchType, Window
from sqlserver_emulator.tsql.dynamic_sql import DynamicSql, Template, template_of
from sqlserver_emulator.tsql.runner import Runner
from sqlserver_emulator.tsql.state.captured_rows import CapturedRows
from sqlserver_emulator.tsql.state.scope import Scope, SessionState
from sqlserver_emulator.tsql.user_types import with_tables
from sqlserver_emulator.types import INT, TsqlType

_FIRST_HANDLE: Final = 180150003
# A real server sends such a column behind the query's own; drivers read and hide it.
_ROWSTAT: Final = Column("ROWSTAT", INT, nullable=False, hidden=True)
_FETCHED: Final = 1
_DEFAULT_ROWS: Final = 20
_ALL: Final = -1
_UNKNOWN: Final = -1
_AT_END: Final = 16
"""Return status of a fetch that closed the cursor."""

_FORWARD_ONLY, _STATIC, _FAST_FORWARD = 0x04, 0x08, 0x10
_KINDS: Final = 0x1F
_PARAMETERIZED, _AUTO_FETCH, _AUTO_CLOSE, _CHECK_KIND = 0x1000, 0x2000, 0x4000, 0x8000
# The kinds that a client accepts are the same bits, higher by so many places.
_ACCEPTABLE_SHIFT: Final = 16
_READ_ONLY: Final = 0x01
_CONCURRENCIES: Final = {0x02: "SCROLL_LOCKS", 0x04: "OPTIMISTIC", 0x08: "OPTIMISTIC"}
_ALLOW_DIRECT: Final = 0x2000
_SCROLL_OPTION, _CONCURRENCY_OPTION, _ROW_COUNT_OPTION = 4, 5, 6
_NAME_OPTIONS: Final = (2, 3)
"""sp_cursoroption: the cursor's name, which only WHERE CURRENT OF would use, and to fetch long values as they are."""

_OPEN: Final = ("@cursor", "@stmt", "@scrollopt", "@ccopt", "@rowcount")
_PREPARE: Final = ("@prepared_handle", "@params", "@stmt", "@options", "@scrollopt", "@ccopt")
_PREPEXEC: Final = ("@prepared_handle", "@cursor", "@params", "@stmt", "@scrollopt", "@ccopt", "@rowcount")
_EXECUTE: Final = ("@prepared_handle", "@cursor", "@scrollopt", "@ccopt", "@rowcount")


@dataclass(slots=True)
class ServerCursor:
    """An open cursor. ``kind``: forward-only, static or fast forward."""

    kind: int
    closes_itself: bool
    captured: CapturedRows
    window: Window = field(default_factory=Window)

    @property
    def scrolls(self) -> bool:
        return self.kind == _STATIC

    @property
    def row_count(self) -> int:
        return len(self.captured.rows)

    @property
    def reported_row_count(self) -> int:
        """The number of rows that the client learns; a real server does not know it of a forward-only cursor."""
        return self.row_count if self.scrolls else _UNKNOWN


class _Arguments:
    """The leading arguments of a call by their names, and the values that go back in them."""

    def __init__(self, names: Sequence[str], given: Sequence[RpcArgument]) -> None:
        found, self.taken = leading(names, given)
        self.by_name = dict(zip(names, found, strict=True))
        self.given = given

    def number(self, name: str, default: int = 0) -> int:
        argument = self.by_name.get(name)
        value = None if argument is None else argument.value
        return value if isinstance(value, int) else default

    def result(self, status: int = 0, **values: int) -> CallResult:
        """Return the values for the arguments that the client marked as OUTPUT."""
        back = {f"@{name}": value for name, value in values.items()}
        outputs: dict[int, tuple[TsqlType, object]] = {}
        for index, argument in enumerate(self.given):
            for name, own in self.by_name.items():
                if own is argument and argument.output and name in back:
                    outputs[index] = (INT, back[name])
        return CallResult(status, outputs)


class ServerCursors:
    """The server cursors of a session. Handles live until they are closed or unprepared, or the session is reset."""

    def __init__(self, state: SessionState, runner: Runner, calls: Calls, dynamic: DynamicSql) -> None:
        self._state = state
        self._runner = runner
        self._calls = calls
        self._dynamic = dynamic
        self._numbers = count(_FIRST_HANDLE, 2)
        self._prepared: dict[int, Template] = {}
        self._open: dict[int, ServerCursor] = {}
        calls.builtins |= {
            "sp_cursor": self._change,
            "sp_cursoropen": self._open_text,
            "sp_cursorprepare": self._prepare,
            "sp_cursorexecute": self._execute,
            "sp_cursorprepexec": self._prepare_and_execute,
            "sp_cursorunprepare": self._unprepare,
            "sp_cursorfetch": self._fetch,
            "sp_cursoroption": self._option,
            "sp_cursorclose": self._close,
        }

    def forget(self) -> None:
        """Drop all handles, as a reset of the connection does."""
        self._prepared.clear()
        self._open.clear()

    # -- opening ----------------------------------------------------------------------------------------------------

    def _open_text(self, arguments: Sequence[RpcArgument]) -> Call:
        opening = _Arguments(_OPEN, arguments)
        parameters, bound = None, opening.taken
        if opening.number("@scrollopt") & _PARAMETERIZED:
            if len(arguments) <= bound:
                raise _invalid_parameter("sp_cursoropen", "scrollopt")
            parameters, bound = arguments[bound], bound + 1
        template = template_of("sp_cursoropen", opening.by_name["@stmt"], parameters)
        return (yield from self._open_template(opening, template, arguments[bound:]))

    def _prepare(self, arguments: Sequence[RpcArgument]) -> Call:
        preparing = _Arguments(_PREPARE, arguments)
        template = template_of("sp_cursorprepare", preparing.by_name["@stmt"], preparing.by_name["@params"])
        if self._query_of(template) is None:
            raise _not_one_query()
        yield from ()
        return preparing.result(prepared_handle=self._keep(template), scrollopt=_STATIC, ccopt=_READ_ONLY)

    def _execute(self, arguments: Sequence[RpcArgument]) -> Call:
        executing = _Arguments(_EXECUTE, arguments)
        template = self._find_prepared(executing.number("@prepared_handle"))
        return (yield from self._open_template(executing, template, arguments[executing.taken :]))

    def _prepare_and_execute(self, arguments: Sequence[RpcArgument]) -> Call:
        """Prepare and open. A driver that prepares again passes the handle that it gives up."""
        executing = _Arguments(_PREPEXEC, arguments)
        self._prepared.pop(executing.number("@prepared_handle"), None)
        template = template_of("sp_cursorprepexec", executing.by_name["@stmt"], executing.by_name["@params"])
        result = yield from self._open_template(executing, template, arguments[executing.taken :])
        result.outputs |= executing.result(prepared_handle=self._keep(template)).outputs
        return result

    def _unprepare(self, arguments: Sequence[RpcArgument]) -> Call:
        handle = _Arguments(("@prepared_handle",), arguments).number("@prepared_handle")
        self._find_prepared(handle)
        del self._prepared[handle]
        yield from ()
        return CallResult()

    def _open_template(self, opening: _Arguments, template: Template, rest: Sequence[RpcArgument]) -> Call:
        asked, concurrency = opening.number("@scrollopt"), opening.number("@ccopt")
        kind = _granted(asked, concurrency)
        query = self._query_of(template)
        if query is None:
            if not concurrency & _ALLOW_DIRECT:
                raise _not_one_query()
            return (yield from self._run_directly(opening, template, rest))
        captured = CapturedRows()
        scope, bound = self._dynamic.bound_scope(template, rest)
        caller = Scope({}, scope.depth - 1)
        query_run = self._runner.run_text(query, scope, template.known)
        for event in self._calls.run_inner(with_tables(self._state.engine, bound, scope, query_run), caller, 0):
            yield from captured.take(event)
        if not captured.columns:
            yield from _not_declared()
            return opening.result(1, cursor=0, scrollopt=asked, ccopt=concurrency, rowcount=0)
        cursor = ServerCursor(kind, bool(asked & _AUTO_CLOSE), captured)
        number = next(self._numbers)
        self._open[number] = cursor
        reported, status = cursor.reported_row_count, 0
        size = 0
        # The rows come with the opening, which saves the driver its first sp_cursorfetch.
        if asked & _AUTO_FETCH:
            size = opening.number("@rowcount") or _DEFAULT_ROWS
            cursor.window = cursor.window.moved(FetchType.NEXT, 0, size, cursor.row_count)
            reported = min(size, cursor.row_count)
        yield from _rows_of(cursor)
        if size:
            status = self._close_at_end(number, cursor)
        return opening.result(status, cursor=number, scrollopt=kind, ccopt=_READ_ONLY, rowcount=reported)

    def _run_directly(self, opening: _Arguments, template: Template, rest: Sequence[RpcArgument]) -> Call:
        # With ALLOW_DIRECT a driver opens any text as a cursor first; what is no query simply runs.
        yield Info(16954, "Executing SQL directly; no cursor.", severity=10)
        result = yield from self._dynamic.run(template, rest, 0)
        return opening.result(result.status, cursor=0, rowcount=0)

    def _query_of(self, template: Template) -> str | None:
        """Return the text, where it is one query. Raises the errors of its syntax."""
        statements = parse_batch(template.text, template.known).statements
        is_query = len(statements) == 1 and isinstance(statements[0], Sql) and statements[0].verb == "SELECT"
        return template.text if is_query else None

    # -- fetching ---------------------------------------------------------------------------------------------------

    def _fetch(self, arguments: Sequence[RpcArgument]) -> Call:
        fetching = _Arguments(("@cursor", "@fetchtype", "@rownum", "@nrows"), arguments)
        number = fetching.number("@cursor")
        cursor = self._find("sp_cursorfetch", number)
        fetch = _fetch_type(fetching.number("@fetchtype", FetchType.NEXT))
        if fetch is FetchType.INFO:
            position = cursor.window.position(cursor.row_count)
            return fetching.result(rownum=position, nrows=cursor.reported_row_count)
        if not cursor.scrolls and fetch not in FORWARD:
            message = f"fetch: The fetch type {fetch.name} cannot be used with forward only cursors."
            raise SqlServerError(16911, message, procedure="sp_cursorfetch")
        size = max(fetching.number("@nrows", _DEFAULT_ROWS), 0)
        cursor.window = cursor.window.moved(fetch, fetching.number("@rownum"), size, cursor.row_count)
        yield from _rows_of(cursor)
        return CallResult(self._close_at_end(number, cursor))

    def _close_at_end(self, number: int, cursor: ServerCursor) -> int:
        """Return the return status. With AUTO_CLOSE a fetch that finds fewer rows than it wants is the last."""
        if cursor.closes_itself and cursor.window.start + cursor.window.size > cursor.row_count + 1:
            del self._open[number]
            return _AT_END
        return 0

    # -- the rest ---------------------------------------------------------------------------------------------------

    def _close(self, arguments: Sequence[RpcArgument]) -> Call:
        number = _Arguments(("@cursor",), arguments).number("@cursor")
        if number == _ALL:
            self._open.clear()
        else:
            self._find("sp_cursorclose", number)
            del self._open[number]
        yield from ()
        return CallResult()

    def _option(self, arguments: Sequence[RpcArgument]) -> Call:
        option = _Arguments(("@cursor", "@code", "@value"), arguments)
        cursor = self._find("sp_cursoroption", option.number("@cursor"))
        code = option.number("@code")
        options = {
            _SCROLL_OPTION: cursor.kind,
            _CONCURRENCY_OPTION: _READ_ONLY,
            _ROW_COUNT_OPTION: cursor.reported_row_count,
        }
        yield from ()
        if code in options:
            return option.result(value=options[code])
        if code not in _NAME_OPTIONS:
            raise NotSupportedByEmulatorError(f"option {code} of sp_cursoroption")
        return CallResult()

    def _change(self, arguments: Sequence[RpcArgument]) -> Call:
        yield from ()
        raise NotSupportedByEmulatorError("changing rows through a server cursor (sp_cursor)")

    def _keep(self, template: Template) -> int:
        number = next(self._numbers)
        self._prepared[number] = template
        return number

    def _find_prepared(self, number: int) -> Template:
        template = self._prepared.get(number)
        if template is None:
            raise SqlServerError(8179, f"Could not find prepared statement with handle {number}.", state=8)
        return template

    def _find(self, procedure: str, number: int) -> ServerCursor:
        cursor = self._open.get(number)
        if cursor is None:
            # The server shows the handle as unsigned hexadecimal, also where a client sends a negative one.
            message = f"{procedure}: The cursor identifier value provided ({number & 0xFFFFFFFF:x}) is not valid."
            raise SqlServerError(16909, message, procedure=procedure)
        return cursor


def _granted(asked: int, concurrency: int) -> int:
    """Return the kind of cursor that is opened. Raises 16966 and 16955."""
    kind = asked & _KINDS
    control = _CONCURRENCIES.get(concurrency & 0x0F)
    if kind in (_STATIC, _FAST_FORWARD) and control:
        message = (
            f"sp_cursoropen: Specified concurrency control option {concurrency & 0x0F} ({control}) is incompatible "
            "with static or fast forward only cursors. Only read-only is compatible with static or fast forward only "
            "cursors."
        )
        raise SqlServerError(16966, message, procedure="sp_cursoropen")
    # Other kinds (keyset, dynamic) are granted as static, as the result has been read whole.
    granted = kind if kind in (_FORWARD_ONLY, _FAST_FORWARD) else _STATIC
    if asked & _CHECK_KIND and not asked & granted << _ACCEPTABLE_SHIFT:
        raise SqlServerError(16955, "Could not create an acceptable cursor.", state=2, procedure="sp_cursoropen")
    return granted


def _fetch_type(number: int) -> FetchType:
    try:
        return FetchType(number)
    except ValueError:
        raise _invalid_parameter("sp_cursorfetch", "fetchtype") from None


def _rows_of(cursor: ServerCursor) -> Iterator[Event]:
    """Yield the rows of the window, each with the ROWSTAT column that drivers expect behind its own."""
    captured = cursor.captured
    rows = [(*row, _FETCHED) for row in captured.rows[cursor.window.rows_of(cursor.row_count)]]
    yield ResultStart((*captured.columns, _ROWSTAT))
    if rows:
        yield Rows(rows)
    yield StatementDone(Command.SELECT, len(rows))


def _not_declared() -> Iterator[Event]:
    yield ErrorRaised(SqlServerError(16945, "The cursor was not declared.", state=2, line=1))
    yield StatementDone(failed=True)


def _not_one_query() -> SqlServerError:
    message = (
        "sp_cursoropen/sp_cursorprepare: The statement parameter can only be a single SELECT statement or a single "
        "stored procedure."
    )
    return SqlServerError(16938, message)


def _invalid_parameter(procedure: str, name: str) -> SqlServerError:
    return SqlServerError(16902, f"{procedure}: The value of the parameter '{name}' is invalid.", procedure=procedure)
