"""The process that Spark forks its Python workers from."""

from __future__ import annotations

from socket import socket, socketpair

import pytest

from floodmark.spark.daemon import ending_with_spark


def test_worker_whose_spark_is_gone_ends_without_a_stack_trace() -> None:
    here, there = socketpair()
    there.close()

    def work(connection: socket, authenticated: bool) -> int:
        connection.sendall(b"rows")
        return 0

    with here:
        assert ending_with_spark(work)(here, True) == 1


def test_other_errors_of_a_worker_are_raised_and_its_status_is_kept() -> None:
    def broken(connection: socket, authenticated: bool) -> int:
        raise ValueError("a bug")

    with socket() as connection:
        with pytest.raises(ValueError, match="a bug"):
            ending_with_spark(broken)(connection, True)
        assert ending_with_spark(lambda _connection, _authenticated: 7)(connection, False) == 7
