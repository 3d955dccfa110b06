"""The part of Spark's messages that the log of a load into a lake shows."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from floodmark.core.errors import LoadKilledError
from floodmark.iceberg.merge import spark_errors, spark_message


def test_value_that_spark_quotes_is_in_no_log() -> None:
    text = (
        "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030\n"
        "Caused by: [CAST_INVALID_INPUT] The value '4711' of the type \"STRING\" cannot be cast. SQLSTATE: 22018"
    )
    assert spark_message(text) == "TASK_WRITE_FAILED, CAST_INVALID_INPUT"


def test_message_about_no_value_is_shown_whole() -> None:
    text = "[TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030\nCaused by: java.io.IOException: No space left on device"
    assert spark_message(text) == text


@pytest.mark.parametrize(
    "error",
    [
        Py4JError("An error occurred while calling o42.collectToPython"),
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError(111, "Connection refused"),
    ],
)
def test_java_that_was_killed_is_an_error_that_is_tried_again(error: Exception) -> None:
    words = r"dbo\.Orders: the process of Spark ended"
    with pytest.raises(LoadKilledError, match=words) as raised, spark_errors("dbo.Orders"):
        raise error
    assert raised.value.retryable
