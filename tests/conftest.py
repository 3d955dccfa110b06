"""Floodmark's tests. Anything that talks to a source asks for ``emulator``, from the plugin of the emulator's tests."""

from __future__ import annotations

import functools

import mssql_python
import pytest
import typer.testing

from airflow_home import choose_airflow_home
from emulator_process import choose_odbc_provider
from without_java import hide_java

hide_java()
choose_odbc_provider()
choose_airflow_home()
# To end a result, msodbcsql searches all libraries of its process, which takes 1 to 4 ms among the hundreds here.
# The commands, tasks and Sparks of tests are processes of their own, and use it as users do.
mssql_python.native_provider = "mssql-odbc"
# The runner of commands would make the tree of all of them at each call, which takes 50 ms. They hold no state.
vars(typer.testing)["_get_command"] = functools.cache(typer.testing._get_command)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("emulator_plugin")
