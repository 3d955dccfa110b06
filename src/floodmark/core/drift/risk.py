"""The number of rows that an added column may lack in the target, for the decision about it."""

from __future__ import annotations

from dataclasses import dataclass

COUNTED_CHANGES = 100_000
"""The most changes that are counted; the exact number of more does not matter."""


@dataclass(frozen=True, slots=True)
class RowsAtRisk:
    """The rows whose values of an added column may be missing."""

    table_rows: int | None
    """All rows of the table; None where the login may not see them."""
    change_rows: int | None = None
    """Inserts and updates captured since the DDL, which lack the column; counted to one more than ``COUNTED_CHANGES``.
    None while the DDL's LSN is unknown."""

    def __str__(self) -> str:
        """Return a sentence, "" where nothing is known."""
        known = []
        if self.change_rows is not None:
            more = "more than " if self.change_rows > COUNTED_CHANGES else ""
            known.append(f"{more}{min(self.change_rows, COUNTED_CHANGES):,} changes captured since the DDL without it")
        if self.table_rows is not None:
            known.append(f"any of the table's {self.table_rows:,} rows that has a value in it")
        return f"Rows at risk: {'; '.join(known)}." if known else ""
