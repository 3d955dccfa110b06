"""The server that conformance tests ask for, and databases of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance_report import pytest_assertrepr_compare, pytest_runtest_makereport, pytest_sessionfinish
from conformance_server import Server, Source, new_database, server_under_test

__all__ = ["pytest_assertrepr_compare", "pytest_runtest_makereport", "pytest_sessionfinish"]


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Server:
    return server_under_test(lambda: request.getfixturevalue("emulator"))


@pytest.fixture
def source(server: Server) -> Iterator[Source]:
    """A database with CDC of the test's own."""
    with new_database(server) as made:
        yield made


@pytest.fixture(scope="module")
def shared(server: Server) -> Iterator[Source]:
    """A database with CDC for a module's tests that leave it as it was."""
    with new_database(server) as made:
        yield made
