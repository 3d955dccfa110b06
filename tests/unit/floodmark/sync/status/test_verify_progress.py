from __future__ import annotations

import logging
import re

import pyarrow as pa
import pytest

from floodmark.sync.status.verify import rows_logged

BATCHES = [pa.RecordBatch.from_pydict({"Id": list(range(1_500))}) for _ in range(2)]


def test_rows_are_counted_in_the_log_and_pass_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert list(rows_logged("dbo.Orders", BATCHES, seconds=0)) == BATCHES
    first, second = caplog.messages
    assert re.fullmatch(r"dbo\.Orders: 1,500 rows read for the comparison, [\d,]+ rows/s\.", first)
    assert second.startswith("dbo.Orders: 3,000 rows read")


def test_short_comparison_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert list(rows_logged("dbo.Orders", BATCHES)) == BATCHES
    assert caplog.messages == []
