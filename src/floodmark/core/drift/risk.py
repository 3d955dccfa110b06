"""How many rows an added column may lack in the target, for the person who decides about it."""

from __future__ import annotations

from dataclasses import dataclass

COUNTED_CHANGES = 100_000
"""More are not counted: that they are many is what matters."""


@dataclass(frozen=True, slots=True)
class RowsAtRisk:
    """table_rows: all of the table's, None where they cannot be seen. change_rows: inserts and updates captured since
    the DDL, which are without the column; counted to one more than ``COUNTED_CHANGES``, None while the DDL's LSN is not
    known."""

    table_rows: int | None
    change_rows: int | None = None

    def __str__(self) -> str:
        """A sentence, "" where nothing is known."""
        known = []
        if self.change_rows is not None:
            more = "more than " if self.change_rows > COUNTED_CHANGES else ""
            known.append(f"{more}{min(self.change_rows, COUNTED_CHANGES):,} changes captured since the DDL without it")
        if self.table_rows is not None:
            known.append(f"any of the table's {self.table_rows:,} rows that has a value in it")
        return f"Rows at risk: {'; '.join(known)}." if known else ""
