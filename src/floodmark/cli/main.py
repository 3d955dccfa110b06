"""``floodmark``: run pipelines without a scheduler, and query their state.

Exit status: 0 success; 1 the command failed, or source and warehouse differ; 2 the command or the configuration is
wrong; 75 a temporary failure, try again. ``status --check``: 3 when something needs attention, 4 when a table gets no
new rows. ``doctor``: 3 for risks, 4 for problems. ``plan``: 3 when a table would be left out. An error is one message
on standard error; results go to standard output.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from floodmark.app.alerts import close_alert, list_open_alerts, send_test_message
from floodmark.app.connections import survey
from floodmark.app.operate import (
    chosen_tables,
    confirm_database,
    enabling_script,
    import_state,
    read_state_table,
    reload_member,
    rename_pipeline,
    rename_target,
    write_config,
)
from floodmark.app.pipeline import check_expectations, config_path
from floodmark.app.status import json_text
from floodmark.cli import drift, lake, runs
from floodmark.cli.forget import forget
from floodmark.cli.process import (
    EXIT_FAILED,
    AsJson,
    ConfigFile,
    PipelineName,
    Wide,
    alerts_json,
    explained,
    has_airflow_database,
    log_plainly,
    open_app,
    out,
    print_alerts,
    print_line,
    print_table,
    read_document,
)
from floodmark.config.loading import dump_config, load_config
from floodmark.core.errors import ConfigError, command_line
from floodmark.core.imported import (
    TableImport,
    ToolState,
    parse_airbyte_state,
    parse_debezium_offsets,
    parse_ssis_state,
)
from floodmark.core.snapshot import SurveyedTable
from floodmark.spark.launch.jars import fetch_jars
from floodmark.spark.launch.processes import record_classes, server_command, server_environment
from floodmark.spark.launch.target import DEFAULT_MASTER, SparkTarget

# --------------------------------------------------------------------------------------------------------------------
# ``floodmark init``: the first configuration, from the tables of a source.


def init(
    source: Annotated[str, typer.Option(prompt="Airflow connection of the source, of type mssql", help="Its id.")],
    warehouse: Annotated[
        str, typer.Option(prompt="Airflow connection of the warehouse, of type postgres", help="Its id.")
    ] = "warehouse",
    name: Annotated[
        str, typer.Option(prompt="Name of the pipeline, and of the schema of its targets", help="Of the pipeline.")
    ] = "shop",
    table: Annotated[
        list[str] | None, typer.Option(help="A table, schema.name (default: all). May be repeated.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The file to write (default: FLOODMARK_CONFIG, include/pipelines.yaml).")
    ] = None,
) -> None:
    """List the tables of a source, write a configuration for them, and print the T-SQL that enables CDC.

    Nothing is changed at the source.
    """
    with explained():
        path = output or config_path()
        found = survey(source)
        tables = chosen_tables(found, table or [])
        _print_tables(found.database, tables)
        write_config(path, name, source, warehouse, tables)
        script = enabling_script(found, tables)
    print_line(out, f"\n{path} is written. Read it, and remove the tables that you do not need.")
    if script:
        who = "a member of db_owner" if found.has_cdc else "a member of sysadmin"
        print_line(out, f"Enable change data capture, as {who}:\n")
        typer.echo(script)
    doctor = command_line("doctor", name, *(("--config", output) if output else ()))
    print_line(out, f"\nThen run this, which shows what is missing: {doctor}")
    print_line(out, f"The rights that Floodmark's login needs: {doctor} --grants LOGIN")


def _print_tables(database: str, tables: list[SurveyedTable]) -> None:
    rows = [
        (
            "" if each.key else "yellow",
            (
                str(each.name),
                "-" if each.rows is None else f"{each.rows:,}",
                ", ".join(each.key) or "none",
                "yes" if each.has_cdc else "no",
            ),
        )
        for each in tables
    ]
    print_table(out, f"database {database}", ("table", "rows", "primary key", "captured"), rows, numbers=("rows",))


# --------------------------------------------------------------------------------------------------------------------
# ``floodmark archive-classes``: the preparation of an installation for short starts of Spark.


def archive_classes(
    only_missing: Annotated[bool, typer.Option("--only-missing", help="Do nothing where they are recorded.")] = False,
) -> None:
    """Record the classes that Spark loads in a file of this installation, once: Spark then starts in half the time.
    Needed again after a new version of Java or of pyspark. It takes a minute and 150 MB."""
    with explained():
        path = record_classes(only_missing)
    typer.echo(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


# --------------------------------------------------------------------------------------------------------------------
# ``floodmark fetch-jars``: the jars of a lake.


def fetch_lake_jars(
    s3: Annotated[bool, typer.Option("--s3", help="Also those for tables in a bucket (S3).")] = False,
) -> None:
    """Fetch the jars that a warehouse of kind iceberg needs from a Maven repository, once for an installation, and
    compare them with their checksums. FLOODMARK_JARS names another folder, as on a closed network."""
    with explained():
        folder = fetch_jars(s3=s3)
    typer.echo(str(folder))


# --------------------------------------------------------------------------------------------------------------------
# ``floodmark spark-server``: a resident Spark, so that loads start none.


def spark_server(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 15002,
    master: Annotated[str, typer.Option(help="The master that runs the tasks.")] = DEFAULT_MASTER,
    conf: Annotated[list[str] | None, typer.Option(help="A property of Spark, as NAME=VALUE.")] = None,
) -> None:
    """Become a Spark Connect server for loads whose Spark connection names it, until a signal ends it."""
    with explained():
        target = SparkTarget(master, dict(_property(text) for text in conf or ()))
        command, environment = server_command(target, host, port), server_environment(target)
        try:
            os.execvpe(command[0], command, environment)  # noqa: S606  (no shell, and Spark's own script)
        except OSError as error:
            raise ConfigError("spark-server", f"{command[0]}: {error.strerror}.") from None


def _property(text: str) -> tuple[str, str]:
    name, is_one, value = text.partition("=")
    if not is_one or not name.startswith("spark."):
        raise ConfigError("spark-server", f"--conf {name} is not a property of Spark as NAME=VALUE.")
    return name, value


# --------------------------------------------------------------------------------------------------------------------
# ``floodmark source`` and ``floodmark rename``: decisions of the operator about sources and names.


source_app = typer.Typer(no_args_is_help=True, help="Sources: which database they are.")


def rename(
    old: Annotated[str, typer.Argument(help="The name that the pipeline had.")],
    new: Annotated[str, typer.Argument(help="The name that it has in the configuration now.")],
    config: ConfigFile = None,
) -> None:
    """Let a pipeline that was renamed in the configuration go on with the watermarks, windows and quarantine that the
    ledger has under its OLD name."""
    with explained():
        tables = rename_pipeline(open_app(config), old, new)
    typer.echo(f"{new} goes on where {old} ended, with {len(tables)} tables: {', '.join(map(str, tables))}.")


def rename_table(
    pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.")],
    table: Annotated[str, typer.Argument(help="Source table, as in the configuration.")],
    config: ConfigFile = None,
) -> None:
    """Let TABLE go on at its watermark after its target was renamed, in the warehouse and in the configuration."""
    with explained():
        before, now = rename_target(open_app(config).pipeline(pipeline), table)
    typer.echo(f"{table} goes on in {now}, which was {before}.")


@source_app.command("confirm")
def confirm(
    source: Annotated[str, typer.Argument(help="Name of the source in the configuration.")], config: ConfigFile = None
) -> None:
    """Confirm that SOURCE is now the database that its connection leads to, after a move or a change of the connection.
    Watermarks stay as they are: the next run compares them with the log of that database."""
    with explained():
        confirmed = confirm_database(open_app(config), source, getpass.getuser())
    for each in confirmed:
        changed = f"; before, it followed {each.before}" if each.before and each.before != each.now else ""
        typer.echo(f"{each.pipeline} follows {each.now}{changed}.")
    if not confirmed:
        typer.echo(f"No pipeline reads {source}.")


@source_app.command("reload-device")
def reload_device(
    pipeline: Annotated[str, typer.Argument(help="Name of the pipeline.")],
    table: Annotated[str, typer.Argument(help="Source table, as in the configuration.")],
    device: Annotated[str, typer.Argument(help="Name of the device: that of its file without the extension.")],
    config: ConfigFile = None,
) -> None:
    """Let the next run read all rows of TABLE on DEVICE, and delete in the target what the device no longer has. For a
    device whose changes since its last sync are lost."""
    with explained():
        reload_member(open_app(config).pipeline(pipeline), table, device)
    typer.echo(f"The next run of {pipeline} reads all rows of {table} on {device}.")


# --------------------------------------------------------------------------------------------------------------------
# ``floodmark import-state``: continue where another tool has stopped.


_COLUMNS = ("table", "", "position", "verdict", "target")


class Tool(StrEnum):
    """A tool whose state can be imported."""

    SSIS = "ssis"
    DEBEZIUM = "debezium"
    AIRBYTE = "airbyte"


class PlainFlags:
    """Help that shows no type for a flag, which takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags with an empty type."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return params


class PlainCommand(PlainFlags, TyperCommand):
    """A command with plain help."""


class PlainGroup(PlainFlags, TyperGroup):
    """A group of commands with plain help."""


class ImportAliases(PlainGroup):
    """The commands, with the names that ``import-state`` had before for each tool."""

    _TOOLS: ClassVar[Mapping[str, Tool]] = {
        "import-ssis-state": Tool.SSIS,
        "import-debezium-offsets": Tool.DEBEZIUM,
        "import-airbyte-state": Tool.AIRBYTE,
    }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        tool = self._TOOLS.get(args[0])
        if tool is None:
            return super().resolve_command(ctx, args)
        _, command, rest = super().resolve_command(ctx, ["import-state", "--from", tool.value, *args[1:]])
        return args[0], command, rest


def import_tool_state(
    context: typer.Context,
    pipeline: PipelineName,
    file: Annotated[Path | None, typer.Argument(help="A file with the state (default: standard input).")] = None,
    *,
    tool: Annotated[Tool, typer.Option("--from", help="The tool that has kept the state.")],
    state_table: Annotated[
        str | None,
        typer.Option(help="SSIS: read the state from this table of the source's database, such as dbo.cdc_states."),
    ] = None,
    state_name: Annotated[str | None, typer.Option(help="SSIS: the name of the state in that table.")] = None,
    connector: Annotated[str | None, typer.Option(help="Debezium: the connector, where there are several.")] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="Only this table, schema.table of the source (default: all). May be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check, and show what would be set.")] = False,
    as_json: AsJson = False,
    wide: Wide = False,
    config: ConfigFile = None,
) -> None:
    """Continue where another tool has stopped: set the watermarks of PIPELINE to the position of its state, for tables
    whose targets the tool has filled. Nothing is loaded. Exit status 1 when a table is refused.

    The state is a CDC state of SSIS, the offset of a connector of Debezium, or the state of a connection of Airbyte.
    The transaction of an offset is read again.
    """
    with explained():
        opened = open_app(config).pipeline(pipeline)
        for option, value, owner in (
            ("--state-table", state_table, Tool.SSIS),
            ("--state-name", state_name, Tool.SSIS),
            ("--connector", connector, Tool.DEBEZIUM),
        ):
            if value is not None and tool is not owner:
                raise ConfigError(str(context.info_name), f"{option} is for a state of {owner.value} only.")
        if state_name is not None and state_table is None:
            raise ConfigError(str(context.info_name), "--state-name is the name of a state in --state-table.")
        if state_table is None:
            text = read_document(file)
        elif file is None:
            text = read_state_table(opened, state_table, state_name)
        else:
            raise ConfigError(str(context.info_name), "give a file or --state-table, not both.")
        state: ToolState
        match tool:
            case Tool.SSIS:
                state = parse_ssis_state(text)
            case Tool.DEBEZIUM:
                state = parse_debezium_offsets(text, connector)
            case Tool.AIRBYTE:
                state = parse_airbyte_state(text)
        found = import_state(opened, state, table or (), dry_run=dry_run)
    _show(found, dry_run=dry_run, as_json=as_json, wide=wide)


def _show(found: Sequence[TableImport], *, dry_run: bool, as_json: bool, wide: bool) -> None:
    """Print the outcome, and end with an exit status that says whether a table was refused."""
    if as_json:
        typer.echo(json_text([_fields(each) for each in found]))
    else:
        done = "would be set" if dry_run else "set"
        rows = [
            (
                "red" if each.refusal else "",
                (
                    str(each.source),
                    "refused" if each.refusal else done,
                    str(each.after),
                    each.verdict or "-",
                    str(each.target),
                ),
            )
            for each in found
        ]
        print_table(out, "import", _COLUMNS, rows, optional=("target", "verdict", "position"), wide=wide)
        for each in found:
            if each.refusal:
                print_line(out, f"{each.source}: {each.refusal} {each.hint}".rstrip())
    if any(each.refusal for each in found):
        raise typer.Exit(EXIT_FAILED)


def _fields(each: TableImport) -> dict[str, str | int | None]:
    return {
        "table": str(each.source),
        "target": str(each.target),
        "position": str(each.after),
        "verdict": each.verdict or None,
        "window_id": each.window_id,
        "refusal": each.refusal or None,
        "hint": each.hint or None,
    }


# --------------------------------------------------------------------------------------------------------------------


def unwrap(text: str | None) -> str:
    """Return a docstring with a line for each paragraph: typer would keep its line breaks and back-ticks."""
    paragraphs = (text or "").replace("``", "").split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"floodmark {version('floodmark')}")
        raise typer.Exit


app = typer.Typer(cls=ImportAliases, no_args_is_help=True, pretty_exceptions_enable=False)
config_app = typer.Typer(no_args_is_help=True, help="The configuration.")
alerts_app = typer.Typer(no_args_is_help=True, help="Alerts and their channels.")


@app.callback(help=unwrap(__doc__))
def take_options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options of every command."""


@config_app.command("check")
def check_config(
    file: Annotated[Path | None, typer.Argument(help="(default: FLOODMARK_CONFIG, include/pipelines.yaml)")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the configuration with all defaults.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Then show each pipeline as floodmark plan does.")] = False,
) -> None:
    """Read the configuration and report all its errors. Connects to neither source nor warehouse, but with --plan."""
    with explained():
        path = file or config_path()
        loaded = load_config(path)
        check_expectations(path, loaded)
    if show:
        typer.echo(dump_config(loaded), nl=False)
        return
    tables = sum(len(pipeline.named_tables) for pipeline in loaded.pipelines.values())
    patterns = sum(len(pipeline.patterns) for pipeline in loaded.pipelines.values())
    counts = [_count(len(loaded.pipelines), "pipeline"), _count(tables, "table")]
    counts += [f"{_count(patterns, 'pattern')} of tables"] if patterns else []
    typer.echo(f"{path}: good: {', '.join(counts)}.")
    if plan:
        runs.show_plans(open_app(path).pipelines.values())


@alerts_app.command("list")
def list_alerts(as_json: AsJson = False, config: ConfigFile = None) -> None:
    """List the open alerts about the pipelines and sources of the configuration, the oldest first."""
    with explained():
        found = list_open_alerts(open_app(config))
    if as_json:
        typer.echo(alerts_json(found))
    else:
        print_alerts(out, found)


@alerts_app.command("close")
def close_open_alert(
    name: Annotated[
        str, typer.Argument(help="The name of an open alert, as alerts list prints it, or the beginning of it.")
    ],
    reason: Annotated[str, typer.Option(help="Why; the channels receive it.")],
    config: ConfigFile = None,
) -> None:
    """Close an alert whose cause is over, or cannot end by itself. The channels are notified.

    A run that finds the cause raises it again.
    """
    with explained():
        closed = close_alert(open_app(config), name, reason, getpass.getuser())
    typer.echo(f"{closed.alert.event_key} is closed.")


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


# In the order in which a newcomer needs them.
for command in (init, runs.doctor, runs.plan, runs.run, runs.status, runs.verify, runs.reload, runs.replay):
    app.command()(command)
for group, name in (
    (drift.drift_app, "drift"),
    (runs.quarantine_app, "quarantine"),
    (alerts_app, "alerts"),
    (config_app, "config"),
    (source_app, "source"),
    (lake.lake_app, "lake"),
):
    app.add_typer(group, name=name, cls=PlainGroup)
app.command()(forget)
app.command()(rename)
app.command("rename-target")(rename_table)
app.command("import-state")(import_tool_state)
app.command()(archive_classes)
app.command("fetch-jars")(fetch_lake_jars)
app.command()(spark_server)
for each in (app, *(group.typer_instance for group in app.registered_groups)):
    for registered in each.registered_commands if each else ():
        registered.cls = PlainCommand
        registered.help = unwrap(registered.callback.__doc__ if registered.callback else "")


def main() -> None:
    """Run the console script."""
    if has_airflow_database():
        # Without a running task Airflow reads connections only from the environment; a server also from its database.
        os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    log_plainly()
    app()
