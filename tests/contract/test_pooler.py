"""A pooler between Floodmark and the warehouse: one in transaction mode is refused before anything is written."""

from __future__ import annotations

import pytest

from floodmark.core.errors import WarehouseAdminError
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection, open_session
from pooler import Pooler


def test_pooler_in_transaction_mode_is_refused(database: WarehouseConnection) -> None:
    with Pooler(database, by_transaction=True).serve() as at:
        with pytest.raises(WarehouseAdminError, match=r"a pooler in transaction mode.*session mode") as caught:
            PostgresLedger(at).ensure_schema()
        assert not caught.value.retryable
    with open_session(database) as session:
        assert session.execute("SELECT to_regnamespace('floodmark')").fetchone() == (None,)


@pytest.mark.usefixtures("ledger")
def test_ledger_that_is_there_is_not_used_through_one_either(database: WarehouseConnection) -> None:
    with Pooler(database, by_transaction=True).serve() as at, pytest.raises(WarehouseAdminError, match="a pooler"):
        PostgresLedger(at).ensure_schema()


def test_pooler_in_session_mode_is_as_good_as_the_server(database: WarehouseConnection) -> None:
    with Pooler(database, by_transaction=False).serve() as at:
        PostgresLedger(at).ensure_schema()
        assert PostgresLedger(at).read_tables("shop") == {}
