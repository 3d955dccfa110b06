"""The text that a terminal shows after a program has written to it: enough of ECMA-48 for rich's live displays."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_PIECE = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n])")


@dataclass
class TerminalScreen:
    """The lines that were ever on a terminal of a width. An unknown control sequence is an error."""

    width: int
    rows: list[list[str]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    shows_cursor: bool = True

    def feed(self, text: str) -> None:
        """Take what a program has written."""
        end = 0
        for piece in _PIECE.finditer(text):
            assert piece.start() == end, repr(text[end : piece.end()])
            end = piece.end()
            private, number, command, back, down, character = piece.groups()
            if command:
                self._obey(private, number, command)
            elif back:
                self.column = 0
            elif down:  # a terminal adds the carriage return to a program's newline
                self._move_down()
                self.column = 0
            else:
                self._put(character)
        assert end == len(text), repr(text[end:])

    @property
    def lines(self) -> list[str]:
        """The lines that are not empty."""
        lines = ["".join(row).rstrip() for row in self.rows]
        return [line for line in lines if line]

    def _put(self, character: str) -> None:
        if self.column == self.width:
            self._move_down()
            self.column = 0
        row = self.rows[self.row]
        row.extend(" " * (self.column + 1 - len(row)))
        row[self.column] = character
        self.column += 1

    def _move_down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])

    def _obey(self, private: str, number: str, command: str) -> None:
        if private:
            assert number == "25", number
            self.shows_cursor = command == "h"
        elif command == "A":
            self.row = max(self.row - int(number or 1), 0)
        elif command == "K":
            assert number == "2", number
            self.rows[self.row].clear()
        else:
            assert command == "m", command
