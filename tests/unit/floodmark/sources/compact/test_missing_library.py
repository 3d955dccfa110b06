"""Floodmark without the extra ``edge``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from floodmark.core.errors import ConfigError
from floodmark.sources.compact.kind import CompactKind

KIND = CompactKind("vans")


@pytest.mark.parametrize(
    "use",
    [
        KIND.connection,
        KIND.snapshots,
        KIND.reader,
        KIND.load_adapters,
        KIND.drift_words,
        KIND.name_datasets,
        lambda: KIND.diagnose(None, dict),  # type: ignore[arg-type]
    ],
)
def test_source_without_its_library_names_the_extra(use: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_VANS", json.dumps({"conn_type": "fs", "extra": {"path": "/vans"}}))
    monkeypatch.setattr("floodmark.sources.compact.kind._LIBRARY", "not_installed")
    for name in ("source", "reader", "tables"):
        # They import the library, and must not be imported before it is known to be there.
        monkeypatch.setitem(sys.modules, f"floodmark.sources.compact.{name}", None)
    with pytest.raises(ConfigError, match=r"pip install 'floodmark\[edge\]'"):
        use()
