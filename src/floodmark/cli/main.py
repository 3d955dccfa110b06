"""``floodmark``: run pipelines without a scheduler, and query their state.

Exit status: 0 success; 1 the command failed, or source and warehouse differ; 2 the command or the configuration is
wrong; 75 a temporary failure, try again. ``status --check``: 3 when something needs attention, 4 when a table gets no
new rows. ``doctor``: 3 for risks, 4 for problems. An error is one message on standard error; results go to standard
output.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from floodmark.app.alerts import list_open_alerts, send_test_message
from floodmark.cli import drift, import_state, java, quarantine, questions, runs, server, source
from floodmark.cli.alert_lists import alerts_json, print_alerts
from floodmark.cli.init import init
from floodmark.cli.process import (
    EXIT_FAILED,
    AsJson,
    ConfigFile,
    explained,
    has_airflow_database,
    log_plainly,
    open_app,
    out,
)
from floodmark.config.loading import dump_config, load_config
from floodmark.wiring.places import config_path

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
for command in (runs.run, runs.replay, runs.reload, questions.status, questions.doctor, questions.verify):
    app.command()(command)
app.command()(import_state.import_ssis_state)
app.command()(import_state.import_debezium_offsets)
app.command()(import_state.import_airbyte_state)
app.command()(init)
app.command()(source.rename)
app.command("rename-target")(source.rename_table)
app.command()(java.archive_classes)
app.command()(server.spark_server)
config_app = typer.Typer(no_args_is_help=True, help="The configuration.")
app.add_typer(config_app, name="config")
app.add_typer(drift.drift_app, name="drift")
app.add_typer(source.source_app, name="source")
app.add_typer(quarantine.quarantine_app, name="quarantine")
alerts_app = typer.Typer(no_args_is_help=True, help="Alerts and their channels.")
app.add_typer(alerts_app, name="alerts")


@config_app.command("check")
def check_config(
    file: Annotated[Path | None, typer.Argument(help="(default: FLOODMARK_CONFIG, include/pipelines.yaml)")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the configuration with all defaults.")] = False,
) -> None:
    """Read the configuration and report all its errors. Connects to neither source nor warehouse."""
    with explained():
        path = file or config_path()
        loaded = load_config(path)
    if show:
        typer.echo(dump_config(loaded), nl=False)
        return
    tables = sum(len(pipeline.tables) for pipeline in loaded.pipelines.values())
    typer.echo(f"{path}: good: {_count(len(loaded.pipelines), 'pipeline')}, {_count(tables, 'table')}.")


@alerts_app.command("list")
def list_alerts(as_json: AsJson = False, config: ConfigFile = None) -> None:
    """List the open alerts about the pipelines and sources of the configuration, the oldest first."""
    with explained():
        found = list_open_alerts(open_app(config))
    if as_json:
        typer.echo(alerts_json(found))
    else:
        print_alerts(out, found)


@alerts_app.command("test")
def test_alerts(config: ConfigFile = None) -> None:
    """Send a message to every channel of the configuration. Exit status 1 when a channel does not accept it."""
    with explained():
        tried = send_test_message(open_app(config))
    for name, problem in tried.items():
        typer.echo(f"{name}: {problem or 'sent'}")
    if not tried:
        typer.echo("The configuration has no channel.")
    if any(tried.values()):
        raise typer.Exit(EXIT_FAILED)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def main() -> None:
    """Run the console script."""
    if has_airflow_database():
        # Without a running task Airflow reads connections only from the environment; a server also from its database.
        os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    log_plainly()
    app()
