"""Airflow finds the plugin and the provider by the package's entry points, and they add what they say."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest
from dag_process import REPOSITORY, DagProcess

LOAD = """
import json, sys
from airflow import plugins_manager
plugins = [plugin for plugin in plugins_manager._get_plugins()[0] if plugin.name == "floodmark"]
print("RESULT " + json.dumps([plugin.external_views for plugin in plugins]), plugins_manager.get_import_errors())
print("APPS", [app["url_prefix"] for plugin in plugins for app in plugin.fastapi_apps])
heavy = ("psycopg", "floodmark.sync.status", "floodmark.app.status")
print("HEAVY", [name for name in heavy if name in sys.modules])
"""


@pytest.mark.parametrize(("url", "names"), [(None, []), ("http://docs.test/", ["Data quality"])])
def test_plugin_has_a_status_page_and_links_the_data_docs_where_they_are_served(
    dag_process: DagProcess, url: str | None, names: list[str]
) -> None:
    variables = {
        "AIRFLOW__API__BASE_URL": "http://airflow.test:8080/below/",
    }
    done = dag_process.run(LOAD, **variables, **({"FLOODMARK_DATA_DOCS_URL": url} if url else {}))
    assert done.returncode == 0, done.stderr
    found, _ = json.JSONDecoder().raw_decode(done.stdout.partition("RESULT ")[2])
    assert [[view["name"] for view in views] for views in found] == [["Floodmark status", *names]]
    assert found[0][0]["href"] == "/below/floodmark/status"
    assert "APPS ['/floodmark']" in done.stdout
    # Every process of Airflow's loads the plugin.
    assert "HEAVY []" in done.stdout


PARSE = """
import runpy, sys
from airflow import plugins_manager
from airflow.sdk import DAG
plugins_manager._get_plugins()
print("ERRORS", plugins_manager.get_import_errors())
before = set(sys.modules)
for path in {paths!r}:
    runpy.run_path(path)
print("NEW", sorted(name for name in set(sys.modules) - before if name.startswith("floodmark.")))
"""


def test_plugins_import_what_the_dag_files_need(dag_process: DagProcess) -> None:
    """Airflow loads them before it forks the processes of tasks and of parses."""
    code = PARSE.format(paths=[str(path) for path in sorted((REPOSITORY / "dags").glob("*.py"))])
    done = dag_process.run(code)
    assert done.returncode == 0, done.stderr
    assert "ERRORS {}" in done.stdout
    assert "NEW ['floodmark.dags']" in done.stdout


PROVIDERS = """
from airflow.providers_manager import ProvidersManager
from airflow.sdk import Asset
found = ProvidersManager().providers["floodmark"]
print("RESULT", found.version, found.data["package-name"], Asset(uri="floodmark://shop/shop/orders").uri)
"""


def test_package_is_a_provider_of_airflow(dag_process: DagProcess) -> None:
    done = dag_process.run(PROVIDERS)
    assert done.returncode == 0, done.stderr
    assert f"RESULT {version('floodmark')} floodmark floodmark://shop/shop/orders" in done.stdout
