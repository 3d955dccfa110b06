"""Filegroups and files of a database: ALTER DATABASE … ADD, REMOVE and MODIFY, and those that CREATE DATABASE names.

They are names that other statements may use. PostgreSQL keeps all data in one place, so nothing lies in them.
"""

# ruff: noqa: S608  (only fixed texts are put together)

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sqlserver_emulator.engine.ddl.reading.declarations import DataSpace
from sqlserver_emulator.engine.ddl.reading.read_files import (
    PRIMARY,
    UNLIMITED,
    FileDeclaration,
    FilegroupDeclaration,
    refuse_contents,
    take_file_name,
    take_files,
)
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.parsing.cursor import Cursor

_LOG: Final = 0
_PRIMARY_ID: Final = 1
_FIRST_FILES: Final = {_PRIMARY_ID: 1, _LOG: 2}
"""The numbers of the first file of PRIMARY and of the log, which every database has."""
_MAX_LOG_PAGES: Final = 268435456

_SPACE = """
SELECT s.data_space_id FROM emulator_sys.data_spaces s JOIN emulator.databases d ON d.database_id = s.database
WHERE d.name = $1 AND lower(s.name) = lower($2)
"""
_ADD_SPACE = """
INSERT INTO emulator.filegroups (database_id, data_space_id, name)
SELECT d.database_id, greatest(2, 1 + (SELECT max(g.data_space_id) FROM emulator.filegroups g
    WHERE g.database_id = d.database_id)), $2 FROM emulator.databases d WHERE d.name = $1 RETURNING data_space_id
"""
_FILE = """
SELECT f.file_id, f.data_space_id FROM emulator_sys.master_files f
JOIN emulator.databases d ON d.database_id = f.database_id WHERE d.name = $1
"""
_INSERT_FILE = """
INSERT INTO emulator.files
SELECT d.database_id, coalesce($2::int, (SELECT max(f.file_id) + 1 FROM emulator_sys.master_files f
    WHERE f.database_id = d.database_id)), $3::int, $4, $5, $6::int, $7::int, $8::int, $9::boolean
FROM emulator.databases d WHERE d.name = $1
"""
_DELETE_FILE = """
DELETE FROM emulator.files f USING emulator.databases d
WHERE d.database_id = f.database_id AND d.name = $1 AND f.file_id = $2::int
"""
_OF_SPACE = """ emulator.databases d
WHERE d.database_id = g.database_id AND d.name = $1 AND g.data_space_id = $2::int"""


def change_filegroups(scope: DdlScope, cursor: Cursor, database: str) -> None:
    """Apply ADD, REMOVE or MODIFY of a FILE or FILEGROUP. Raises 49999 for what else ALTER DATABASE says."""
    for words, apply in _CHANGES.items():
        if cursor.accept(*words.split()):
            if database in ("master", "model") and words.startswith("ADD"):
                message = "The master and model databases cannot have files added to them. ALTER DATABASE was aborted."
                raise SqlServerError(5013, message)
            apply(scope, cursor, database)
            return
    raise NotSupportedByEmulatorError(f"ALTER DATABASE … {cursor.word} {cursor.word_after()}".rstrip())


def create_files(
    scope: DdlScope, database: str, groups: Iterable[FilegroupDeclaration], log_files: Sequence[FileDeclaration]
) -> None:
    """Enter the files that CREATE DATABASE names. Raises 1828, 5035 and 5170."""
    for group in groups:
        if group.name == PRIMARY:
            _name_first_files(scope, database, _PRIMARY_ID, group.files)
            continue
        space = _add_space(scope, database, group.name)
        _add_files(scope, database, space, group.files)
        if group.is_default:
            _make_default(scope, database, space)
    _name_first_files(scope, database, _LOG, log_files)


def _name_first_files(scope: DdlScope, database: str, space: int, files: Sequence[FileDeclaration]) -> None:
    """Every database has a file here: the first of these is that one."""
    if files:
        _insert_file(scope, database, space, files[0], file_id=_FIRST_FILES[space])
        _add_files(scope, database, space, files[1:])


def check_data_spaces(scope: DdlScope, database: str, spaces: Iterable[DataSpace]) -> None:
    """Raise 1921 for a filegroup or partition scheme that a table or index is to be on, and that is not there."""
    for space in spaces:
        kind = "partition scheme" if space.is_partitioned else "filegroup"
        if space.is_partitioned or _space_id(scope, database, space.name) is None:
            raise SqlServerError(1921, f"Invalid {kind} '{space.name}' specified.")


def _space_id(scope: DdlScope, database: str, name: str) -> int | None:
    if name.lower() == "default":
        return _PRIMARY_ID
    found = scope.fetch(_SPACE, [database, name])
    return int(found[0][0]) if found else None


def _existing_space(scope: DdlScope, database: str, name: str) -> int:
    space = _space_id(scope, database, name)
    if space is None:
        raise SqlServerError(5014, f"The filegroup '{name}' does not exist in database '{database}'.", state=2)
    return space


def _add_filegroup(scope: DdlScope, cursor: Cursor, database: str) -> None:
    name = cursor.take_identifier()
    refuse_contents(cursor)
    _add_space(scope, database, name)


def _name_taken(name: str, state: int = 1) -> SqlServerError:
    message = f"Filegroup '{name}' already exists in this database. Specify a different name or remove the"
    return SqlServerError(5035, f"{message} conflicting filegroup if it is empty.", state=state)


def _add_space(scope: DdlScope, database: str, name: str) -> int:
    if _space_id(scope, database, name) is not None:
        raise _name_taken(name)
    return int(scope.fetch(_ADD_SPACE, [database, name])[0][0])


def _remove_filegroup(scope: DdlScope, cursor: Cursor, database: str) -> None:
    name = cursor.take_identifier()
    space = _existing_space(scope, database, name)
    if scope.fetch(f"{_FILE} AND f.data_space_id = $2::int", [database, space]):
        raise SqlServerError(5042, f"The filegroup '{name}' cannot be removed because it is not empty.", state=7)
    scope.fetch(f"DELETE FROM emulator.filegroups g USING{_OF_SPACE}", [database, space])


def _modify_filegroup(scope: DdlScope, cursor: Cursor, database: str) -> None:
    name = cursor.take_identifier()
    space = _existing_space(scope, database, name)
    if cursor.accept("NAME", "="):
        if space == _PRIMARY_ID:
            raise SqlServerError(5012, "The name of the primary filegroup cannot be changed.")
        new_name = cursor.take_identifier()
        if _space_id(scope, database, new_name) not in (None, space):
            raise _name_taken(new_name, state=2)
        scope.fetch(f"UPDATE emulator.filegroups g SET name = $3 FROM{_OF_SPACE}", [database, space, new_name])
    elif cursor.accept("DEFAULT"):
        if not scope.fetch(f"{_FILE} AND f.data_space_id = $2::int", [database, space]):
            message = f"Cannot change the properties of empty filegroup '{name}'. The filegroup must contain at least"
            raise SqlServerError(5050, f"{message} one file.")
        _make_default(scope, database, space)
    else:
        raise NotSupportedByEmulatorError(f"ALTER DATABASE … MODIFY FILEGROUP … {cursor.word}")


def _make_default(scope: DdlScope, database: str, space: int) -> None:
    scope.fetch(
        "UPDATE emulator.filegroups g SET is_default = (g.data_space_id = $2::int) FROM emulator.databases d"
        " WHERE d.database_id = g.database_id AND d.name = $1",
        [database, space],
    )


def _add_data_files(scope: DdlScope, cursor: Cursor, database: str) -> None:
    files = take_files(cursor)
    name = cursor.take_identifier() if cursor.accept("TO", "FILEGROUP") else PRIMARY
    space = _space_id(scope, database, name)
    if space is None:
        raise SqlServerError(1921, f"Invalid filegroup '{name}' specified.", state=4)
    _add_files(scope, database, space, files)


def _add_log_files(scope: DdlScope, cursor: Cursor, database: str) -> None:
    _add_files(scope, database, _LOG, take_files(cursor))


def _add_files(scope: DdlScope, database: str, space: int, files: Iterable[FileDeclaration]) -> None:
    for file in files:
        if scope.fetch(f"{_FILE} AND lower(f.name) = lower($2)", [database, file.name]):
            message = f'The logical file name "{file.name}" is already in use. Choose a different name.'
            raise SqlServerError(1828, message)
        _insert_file(scope, database, space, file)


def _insert_file(
    scope: DdlScope, database: str, space: int, file: FileDeclaration, *, file_id: int | None = None
) -> None:
    """``file_id`` None: the next number."""
    taken = "SELECT 1 FROM emulator.files f WHERE lower(f.physical_name) = lower($1)"
    if scope.fetch(taken, [file.physical_name]):
        message = f"Cannot create file '{file.physical_name}' because it already exists. Change the file path or the"
        raise SqlServerError(5170, f"{message} file name, and retry the operation.")
    max_size = file.max_size if file.max_size is not None else _MAX_LOG_PAGES if space == _LOG else UNLIMITED
    row = [file_id, space, file.name, file.physical_name, file.size, max_size, file.growth, file.is_percent_growth]
    scope.fetch(_INSERT_FILE, [database, *row])


def _remove_file(scope: DdlScope, cursor: Cursor, database: str) -> None:
    name = take_file_name(cursor)
    found = scope.fetch(f"{_FILE} AND lower(f.name) = lower($2)", [database, name])
    if not found:
        raise SqlServerError(
            5009, "One or more files listed in the statement could not be found or could not be initialized.", state=9
        )
    file_id, space = found[0]
    if file_id in _FIRST_FILES.values():
        raise SqlServerError(5020, "The primary data or log file cannot be removed from a database.")
    is_only = len(scope.fetch(f"{_FILE} AND f.data_space_id = $2::int", [database, space])) == 1
    if is_only and scope.fetch(f"SELECT 1 FROM emulator.filegroups g,{_OF_SPACE} AND g.is_default", [database, space]):
        message = f"Cannot remove the file '{name}' because it is the only file in the DEFAULT filegroup."
        raise SqlServerError(5031, message)
    scope.fetch(_DELETE_FILE, [database, file_id])


_CHANGES: Final[dict[str, Callable[[DdlScope, Cursor, str], None]]] = {
    "ADD FILEGROUP": _add_filegroup,
    "REMOVE FILEGROUP": _remove_filegroup,
    "MODIFY FILEGROUP": _modify_filegroup,
    "ADD FILE": _add_data_files,
    "ADD LOG FILE": _add_log_files,
    "REMOVE FILE": _remove_file,
}
"""Words after ALTER DATABASE d -> what they do."""
