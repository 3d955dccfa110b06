from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator


@pytest.fixture
def database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        yield made
