"""A restored source that has written on, on a real ledger and warehouse."""

from __future__ import annotations

import pytest
from repair_runner import REPAIR, Runner, small_runner

from floodmark.core.errors import OperatorError, SourceRewoundError
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from lsns import lsn


@pytest.fixture
def runner(database: WarehouseConnection, ledger: PostgresLedger) -> Runner:
    return small_runner(database, ledger)


def test_rewound_source_that_has_grown_stops_the_run_until_a_reload(runner: Runner) -> None:
    runner.run()
    point = runner.source.position
    runner.source.write(1, 11)
    runner.source.write(2, None)
    runner.run()
    lost_to = runner.watermark()
    runner.source.restore(point)
    for key in (3, 7, 8):
        runner.source.write(key, key)
    assert runner.source.position > lost_to
    for _ in range(2):
        with pytest.raises(SourceRewoundError, match="has written on since"):
            runner.run()
    assert (runner.verdict()[0], runner.watermark()) == ("ahead_of_source", lost_to)
    with pytest.raises(OperatorError, match="ahead_of_source"):
        runner.reload("Id = 1")
    runner.reload()
    assert runner.equal()
    (gap,) = runner.shop.rows("SELECT verdict, after_lsn, to_lsn, repaired_at IS NULL AS is_open FROM floodmark.gaps")
    lost = {"verdict": "ahead_of_source", "after_lsn": None, "to_lsn": lsn(lost_to).value}
    assert gap == lost | {"is_open": False}
    runner.source.write(1, 12)
    runner.run()
    assert runner.equal()


def test_repair_whose_own_end_is_lost_in_a_restore_begins_again(runner: Runner) -> None:
    runner.run(**REPAIR)
    runner.expire()
    runner.run(**REPAIR)
    runner.source.restore(runner.source.position - 1)
    runner.source.write(1, 1000)
    runner.source.idle()
    assert runner.load(**REPAIR).window_id == 3
    runner.source.write(1, 1001)
    runner.run(**REPAIR)
    assert runner.equal()
