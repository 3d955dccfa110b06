"""Scripts with GO, on one connection of pymssql, and what they answer."""

from __future__ import annotations

import re
from typing import Any

import pymssql
import pytest

_GO = re.compile(r"^[ \t]*GO[ \t]*$", re.IGNORECASE | re.MULTILINE)


class SqlClient:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def script(self, text: str) -> None:
        """Run the batches between GOs, as sqlcmd sends them. All results are read."""
        for batch in _GO.split(text):
            if batch.strip():
                self.run(batch)

    def run(self, batch: str, parameters: Any = None) -> list[list[tuple[Any, ...]]]:
        """Every result set of a batch."""
        cursor = self.connection.cursor()
        cursor.execute(batch, parameters)
        results = []
        while True:
            if cursor.description is not None:
                results.append(cursor.fetchall())
            if not cursor.nextset():
                break
        cursor.close()
        return results

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The last result set."""
        return self.run(query)[-1]

    def value(self, query: str) -> Any:
        ((value,),) = self.rows(query)
        return value

    def error(self, batch: str) -> tuple[int, str]:
        """Number and message of the error that a batch ends with."""
        with pytest.raises(pymssql.Error) as raised:
            self.run(batch)
        number, message = raised.value.args[:2]
        return number, message.decode() if isinstance(message, bytes) else str(message)
