"""The files and filegroups of CREATE DATABASE and ALTER DATABASE, as they are declared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.lexer import INTEGER, NSTRING, STRING, string_value
from sqlserver_emulator.syntax.parsing.cursor import Cursor

PRIMARY: Final = "PRIMARY"
_PAGE_KB: Final = 8
_KILOBYTES: Final = {"KB": 1, "MB": 1024, "GB": 1024**2, "TB": 1024**3}
UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class FileDeclaration:
    """A file with its sizes in pages of 8 KB. ``growth`` is a percentage where ``is_percent_growth`` says so."""

    name: str
    physical_name: str
    size: int = 1024
    max_size: int | None = None
    """None: not said."""
    growth: int = 8192
    is_percent_growth: bool = False


@dataclass(frozen=True, slots=True)
class FilegroupDeclaration:
    """A filegroup of CREATE DATABASE, with its files."""

    name: str
    files: tuple[FileDeclaration, ...]
    is_default: bool = False


def take_files(cursor: Cursor) -> tuple[FileDeclaration, ...]:
    """`(NAME = a, FILENAME = '…'), (NAME = b, …)`."""
    files = [_take_file(cursor)]
    while cursor.word == "," and cursor.word_after() == "(":
        cursor.take()
        files.append(_take_file(cursor))
    return tuple(files)


def take_filegroups(cursor: Cursor) -> Iterator[FilegroupDeclaration]:
    """Take what follows ON in CREATE DATABASE: the primary files, then `, FILEGROUP g [DEFAULT] files`."""
    cursor.accept(PRIMARY)
    yield FilegroupDeclaration(PRIMARY, take_files(cursor))
    while cursor.accept(",", "FILEGROUP"):
        name = cursor.take_identifier()
        refuse_contents(cursor)
        is_default = cursor.accept("DEFAULT")
        yield FilegroupDeclaration(name, take_files(cursor), is_default)


def refuse_contents(cursor: Cursor) -> None:
    """Raise 49999 for a filegroup that is not of rows."""
    if cursor.accept("CONTAINS"):
        raise NotSupportedByEmulatorError(f"filegroups that contain {cursor.word}")


def take_file_name(cursor: Cursor) -> str:
    """Take a logical name, which is an identifier or a string."""
    if cursor.token.kind in (STRING, NSTRING):
        return string_value(cursor.take())
    return cursor.take_identifier()


def _take_file(cursor: Cursor) -> FileDeclaration:
    cursor.expect("(", "NAME", "=")
    values: dict[str, object] = {"name": take_file_name(cursor)}
    while cursor.accept(","):
        _take_property(cursor, values)
    cursor.expect(")")
    if "physical_name" not in values:
        message = "File option FILENAME is required in this CREATE/ALTER DATABASE statement."
        raise SqlServerError(1036, message, severity=15)
    return FileDeclaration(**values)  # type: ignore[arg-type]


def _take_property(cursor: Cursor, values: dict[str, object]) -> None:
    word = cursor.take().word
    if word == "OFFLINE":
        raise NotSupportedByEmulatorError("files that are OFFLINE")
    cursor.expect("=")
    if word == "FILENAME":
        values["physical_name"] = take_file_name(cursor)
    elif word == "SIZE":
        values["size"] = _take_pages(cursor)
    elif word == "MAXSIZE":
        values["max_size"] = UNLIMITED if cursor.accept("UNLIMITED") else _take_pages(cursor)
    elif word == "FILEGROWTH":
        _take_growth(cursor, values)
    else:
        raise cursor.syntax_error(cursor.at - 2)


def _take_growth(cursor: Cursor, values: dict[str, object]) -> None:
    if cursor.word_after() == "%":
        values["growth"], values["is_percent_growth"] = _take_number(cursor), True
        cursor.take()
    else:
        values["growth"] = _take_pages(cursor)


def _take_pages(cursor: Cursor) -> int:
    """Take a size with its unit, MB where none is said."""
    number = _take_number(cursor)
    unit = cursor.take().word if cursor.word in _KILOBYTES else "MB"
    return -(-number * _KILOBYTES[unit] // _PAGE_KB)


def _take_number(cursor: Cursor) -> int:
    if cursor.token.kind != INTEGER:
        raise cursor.syntax_error()
    return int(cursor.take().text)
