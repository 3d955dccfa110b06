"""How many rows an added column concerns, in words."""

from __future__ import annotations

import pytest

from floodmark.core.drift import COUNTED_CHANGES, RowsAtRisk


@pytest.mark.parametrize(
    ("risk", "words"),
    [
        (RowsAtRisk(None), ""),
        (RowsAtRisk(1234), "Rows at risk: any of the table's 1,234 rows that has a value in it."),
        (RowsAtRisk(None, COUNTED_CHANGES), "Rows at risk: 100,000 changes captured since the DDL without it."),
        (
            RowsAtRisk(5, COUNTED_CHANGES + 1),
            "Rows at risk: more than 100,000 changes captured since the DDL without it; any of the table's 5 rows"
            " that has a value in it.",
        ),
    ],
)
def test_rows_at_risk_are_reported_as_far_as_they_are_known(risk: RowsAtRisk, words: str) -> None:
    assert str(risk) == words
