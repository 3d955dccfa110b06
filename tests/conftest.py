"""Floodmark's tests. Anything that talks to a source asks for ``emulator``, from the plugin of the emulator's tests."""

from __future__ import annotations

import pytest

from airflow_home import choose_airflow_home
from emulator_process import choose_odbc_provider
from without_java import hide_java

hide_java()
choose_odbc_provider()
choose_airflow_home()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("emulator_plugin")
