"""The DAGs of a pipeline: ``cdc_<pipeline>`` for windows, ``cdc_load_<pipeline>`` for loads of whole tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import (
    DAG,
    Asset,
    AssetAlias,
    AssetAll,
    CronDataIntervalTimetable,
    Param,
    TaskGroup,
    TriggerRule,
    get_parsing_context,
    task,
)
from airflow.sdk.exceptions import AirflowSkipException

from floodmark.app.alerts import measured
from floodmark.app.operate import find_drift_work
from floodmark.app.pipeline import config_path
from floodmark.app.run import is_merged, list_waiting
from floodmark.config.loading import load_config
from floodmark.core.alerts import LOAD_RUN_FAILED, RUN_FAILED
from floodmark.core.errors import ConfigError
from floodmark.core.patterns import TablePattern
from floodmark.core.schema import TableName
from floodmark.core.settings import NetSource, Style, TableSettings
from floodmark.orchestration import tasks
from floodmark.orchestration.load_operator import LoadWindow
from floodmark.orchestration.pools import require_pools
from floodmark.orchestration.tasks import BACKFILL, OWNER, app_of, deadline_of, explained, failure_callback
from floodmark.sync.finish import check_window

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk.execution_time.context import OutletEventAccessor
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    from floodmark.app.operate import ProposedSwitch
    from floodmark.app.pipeline import App, Pipeline
    from floodmark.config.models import PipelineConfig
    from floodmark.config.sections import AirflowConfig
    from floodmark.sources.kind import SourceKind

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The tasks that follow the opening of a window in every DAG that loads: ``load``, ``check``, ``advance``.


def chain_load(pipeline: Pipeline, config_path: Path, *, opened: Any, advanced: Any, job: str, doc_md: str) -> None:
    """Add ``load`` and ``check`` between the first and the last task.

    opened, advanced: the first and the last task as called; the first returns the window's id. job: the name of the
    Spark application.
    """

    @task(doc_md="Check the rows of the window before it is published.")  # type: ignore[untyped-decorator]
    def check(window_id: int) -> None:
        with explained(), measured(pipeline):
            check_window(window_id, pipeline.ledger, pipeline.quality)

    load = LoadWindow(
        task_id="load",
        name=job,
        config=config_path,
        window_id=f"{{{{ ti.xcom_pull(task_ids='{opened.operator.task_id}') }}}}",
        read_secrets=pipeline.job_secrets,
        is_merged=partial(is_merged, pipeline),
        lineage=partial(_read_lineage, pipeline),
        measured=partial(measured, pipeline),
        pool=pipeline.app.config.sources[pipeline.config.source].pool,
        doc_md=doc_md,
        **pipeline.config.airflow.load_operator_args.arguments(),
    )
    opened >> load >> check(opened) >> advanced


def _read_lineage(pipeline: Pipeline, window_id: int) -> OperatorLineage:
    # Only Airflow's OpenLineage provider calls it, which is an extra.
    from floodmark.orchestration.lineage import read_lineage  # noqa: PLC0415

    return read_lineage(pipeline, window_id)


# --------------------------------------------------------------------------------------------------------------------
# The common settings of Floodmark's DAGs: owner, tags, retries, one run at a time, and an alert for a failed run.


DEFAULT_ARGS: dict[str, Any] = {
    "owner": OWNER,
    "retries": 3,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=5),
}
# Runs before the DAG is first unpaused are never repeated; the date only has to be in the past.
_START = datetime(2026, 1, 1, tzinfo=UTC)


def is_needed(dag_id: str) -> bool:
    """Return whether this process needs a DAG. The process of a task parses the DAG file for a single one."""
    needed = get_parsing_context().dag_id
    return needed is None or needed == dag_id


def make_dag(
    dag_id: str,
    *,
    source: str | None,
    tags: tuple[str, ...] = (),
    config_path: Path,
    failed: str,
    failed_by_task: Mapping[str, str] | None = None,
    subject: str,
    max_active_runs: int = 1,
    airflow: AirflowConfig | None = None,
    **own: Any,
) -> DAG:
    """Return a DAG with the common settings. A missed run is not repeated: the next one does the same.

    source: None for a DAG that has none. failed: the kind of alert that a failed run raises, about ``subject``.
    failed_by_task: another kind, by the id of the task that failed. airflow: the section of the pipeline. own: further
    arguments of ``DAG``.
    """
    return DAG(
        dag_id=dag_id,
        start_date=_START,
        catchup=False,
        max_active_runs=max_active_runs,
        tags=[OWNER, "cdc", *tags, *([f"source:{source}"] if source else ()), *(airflow.tags if airflow else ())],
        on_failure_callback=failure_callback(config_path, failed, subject, failed_by_task or {}),
        default_args=DEFAULT_ARGS | (airflow.default_args.arguments() if airflow else {}),
        **own,
    )


# --------------------------------------------------------------------------------------------------------------------
# The DAGs that runs of others start, and only where they have work: those of loads and of drift.
#
# Each follows an asset, of which an event says that it has work. Events that come while a run of it is active make one
# run after it, and those for a paused DAG none: the next run of the pipeline finds the same work. That is not so for
# runs that a task triggers.


def load_dag_id(pipeline: str) -> str:
    """Return the id of a pipeline's DAG of single loads."""
    return f"cdc_load_{pipeline}"


def drift_dag_id(source: str) -> str:
    """Return the id of a source's drift DAG."""
    return f"cdc_drift_{source}"


def switch_dag_id(source: str) -> str:
    """Return the id of a source's switch DAG."""
    return f"cdc_switch_{source}"


def question_run_id(question: ProposedSwitch) -> str:
    """Return the id of the run that asks a question, so that there is only one."""
    return f"drift_event_{question.key}"


def work_of(dag_id: str) -> Asset:
    """Return the asset that starts a DAG."""
    return Asset(name=f"floodmark.work.{dag_id}", group=OWNER)


def work_from(subject: str) -> AssetAlias:
    """Return the outlet of the tasks that find work for other DAGs. subject: a pipeline or a source.

    Airflow makes an event of each asset that a task adds to it, and none otherwise.
    """
    return AssetAlias(name=f"floodmark.work_from.{subject}", group=OWNER)


def start_loads(pipeline: Pipeline, outlet: OutletEventAccessor) -> None:
    """Start the DAG of loads where a load waits."""
    if waiting := list_waiting(pipeline):
        _LOG.info("%s has work: %s.", load_dag_id(pipeline.name), ", ".join(map(str, waiting)))
        outlet.add(work_of(load_dag_id(pipeline.name)), extra={"tables": [str(table) for table in waiting]})


def _start_drift_check(pipeline: Pipeline, outlet: OutletEventAccessor, ti: RuntimeTaskInstance) -> None:
    """Start the drift DAG where it has work."""
    source = pipeline.config.source

    def is_asked(questions: Sequence[ProposedSwitch]) -> bool:
        run_ids = [question_run_id(each) for each in questions]
        return not run_ids or ti.get_dr_count(switch_dag_id(source), run_ids=run_ids) == len(run_ids)

    if work := find_drift_work(pipeline.app, source, is_asked):
        _LOG.info("%s has work: %s.", drift_dag_id(source), work)
        outlet.add(work_of(drift_dag_id(source)), extra={"work": work})


# --------------------------------------------------------------------------------------------------------------------
# The page of a pipeline's DAG in Airflow: its steps, its tables and their settings.


_DELETES = {"soft": "kept, marked `__deleted`", "hard": "removed, with a tombstone"}
_STEPS = """
| task | what it does |
|---|---|
| `open_window` | Continues an unfinished window, or asks the source for its newest position and plans the next \
window, with one end for all tables. Ends the run as skipped when there is nothing to read. |
| `load` | One Spark job for all tables: reads the window, nets the changes, stages them, and merges all tables \
{merges}. Killed at any point and run again, it produces the same tables. |
| `check` | Checks the rows of the window, and that the targets have them, {checks}. |
| `advance` | {advances} by compare-and-set and emits one asset event per table. |
| `follow_up` | Runs after `open_window`, whatever its outcome. Checks for drift what a run does not, and starts \
`cdc_load_<pipeline>` and `cdc_drift_<source>` where they have work. |
| `report_gaps` | Fails while a table is left out of the windows: it can no longer be read (`on_gap: fail`), it cannot \
be planned as configured, or its rows were refused. |
"""

_IN_POSTGRES = {
    "place": "warehouse",
    "merges": "in one transaction",
    "checks": "with Great Expectations",
    "advances": "Moves the watermarks",
}
_IN_LAKE = {
    "place": "lake",
    "merges": "where no reader of the lake sees them",
    "checks": "with a Spark of its own, which starts on the worker",
    "advances": "Lets readers see all tables of the window, and moves the watermarks, in one transaction",
}

_NO_HISTORY = (
    "`airflow backfill` is refused: the source keeps only the newest change of each key, so that no past interval can "
    "be read again. Reload a table instead (DAG `cdc_load_<pipeline>`).\n\n"
)


def describe_pipeline(pipeline: Pipeline) -> str:
    """Return the page in Markdown."""
    config, source, tables = pipeline.config, pipeline.source, pipeline.named_settings.tables
    patterns = [pipeline.app.config.table_settings(pipeline.name, each) for each in config.patterns]
    rows = "\n".join(
        [*(_table_row(each, each.source, each.target, source) for each in tables)]
        + [_table_row(each, TablePattern(each.source), TablePattern(each.target), source) for each in patterns]
    )
    schedule = f"`{config.schedule}` ({config.airflow.timezone})" if config.schedule else "on demand"
    if config.airflow.after_assets:
        schedule = f"after {', '.join(f'`{uri}`' for uri in config.airflow.after_assets)}"
    words = _IN_LAKE if pipeline.app.is_lake else _IN_POSTGRES
    return (
        f"# Pipeline {pipeline.name}\n\n"
        f"Moves the changes of {_count_tables(pipeline)} of source `{config.source}` into the {words['place']}, "
        f"{schedule}, by {source.method}.\n{_STEPS.format_map(words)}\n"
        "A run covers one window `(watermark, newest position]`. The ledger in PostgreSQL, schema `floodmark`, is "
        "the source of truth for progress; Airflow shows a copy of it. A failed run loses nothing: the next one "
        "finishes the same window.\n\n"
        f"{'' if source.has_history else _NO_HISTORY}"
        f"## Tables\n\n| source | target | deleted rows | net changes | rules |\n|---|---|---|---|---|\n{rows}\n\n"
        f"Fractions below a microsecond: `{config.temporal.value}`. Rows are expected in the warehouse within "
        f"{config.freshness}. Rows that arrive later are reported, never rejected.\n"
    )


def _count_tables(pipeline: Pipeline) -> str:
    named = f"{len(pipeline.config.named_tables)} tables"
    # Which tables a pattern brings is known when a run asks the source: nothing here connects to it.
    return f"{named}, and of those that match a pattern," if pipeline.config.patterns else named


def _table_row(table: TableSettings, source: object, target: object, kind: SourceKind) -> str:
    rules = "<br>".join(f"{rule.name}: `{_cell(rule.sql)}`, else {rule.on_failure.value}" for rule in table.rules)
    changes = (_DELETES[table.deletes.value], f"by {table.net.value}")
    # Neither style takes the net changes of a server that has all of them.
    finds_net = table.net is NetSource.SERVER
    if table.style is Style.LOG:
        changes = ("rows of the log", "one of a key for each window" if finds_net else "none: it has every change")
    if table.style is Style.HISTORY:
        each = "window" if finds_net else "commit" if kind.has_history else "event"
        changes = ("versions", f"one of a key for each {each}")
    if table.style is Style.SNAPSHOT:
        changes = ("the rows of the newest read", "none: the table is read again")
    cells = (str(source), str(target), *changes, rules)
    return f"| {' | '.join(map(_cell, cells[:2]))} | {' | '.join(cells[2:])} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --------------------------------------------------------------------------------------------------------------------
# One DAG per pipeline, ``cdc_<pipeline>``: open_window, load, check, advance, report_gaps; and follow_up.
#
# Airflow parses a DAG file again and again, so heavy imports are avoided: Airflow, pydantic and YAML only. What the
# tasks need is imported when they run.


def build_dags(app: App, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per pipeline of the configuration, by id; in the process of a task, that of the task."""
    dags = (build_dag(each, config_path) for name, each in app.pipelines.items() if is_needed(dag_id(name)))
    return {dag.dag_id: dag for dag in dags}


def build_dag(pipeline: Pipeline, config_path: Path) -> DAG:
    """Build the DAG of a pipeline. It has one run at a time: two runs would compete for the same watermarks."""
    name = pipeline.name
    dag = make_dag(
        dag_id(name),
        source=pipeline.config.source,
        airflow=pipeline.config.airflow,
        config_path=config_path,
        failed=RUN_FAILED,
        subject=name,
        description=f"Changes of source {pipeline.config.source} into the warehouse, window by window",
        doc_md=describe_pipeline(pipeline),
        schedule=_schedule_of(pipeline.config),
        deadline=deadline_of(config_path, name, pipeline.config),
    )
    with dag:
        _add_run_tasks(pipeline, config_path)
    return dag


def _schedule_of(config: PipelineConfig) -> CronDataIntervalTimetable | AssetAll | None:
    if config.airflow.after_assets:
        # By URI alone: an asset may have any name.
        return AssetAll(*(Asset.ref(uri=uri) for uri in config.airflow.after_assets))
    return CronDataIntervalTimetable(config.schedule, timezone=config.airflow.timezone) if config.schedule else None


def dag_id(pipeline: str) -> str:
    """Return the id of a pipeline's DAG."""
    return f"cdc_{pipeline}"


def assets_of(pipeline: Pipeline) -> Mapping[TableName, Asset]:
    """Return the targets as assets, ``floodmark://<pipeline>/<schema>/<table>``, by source table.

    Those of the tables with an entry of their own: which tables a pattern brings is known when a task runs.
    """
    return _assets(pipeline.name, pipeline.named_settings.tables)


def _assets(pipeline: str, tables: Iterable[TableSettings]) -> dict[TableName, Asset]:
    return {table.source: _asset(pipeline, table.source, table.target) for table in tables}


def outlets_of(pipeline: Pipeline) -> list[Asset | AssetAlias]:
    """Return the outlets of a task that publishes: the assets, and the alias by which patterns bring theirs."""
    brought = [_alias(pipeline.name)] if pipeline.config.patterns else []
    return [*assets_of(pipeline).values(), *brought]


def _alias(pipeline: str) -> AssetAlias:
    return AssetAlias(name=f"floodmark.{pipeline}", group="floodmark")


def brought_by(pipeline: Pipeline) -> tasks.BroughtAssets | None:
    """Return the assets of the tables that patterns have brought. It reads the ledger."""
    if not pipeline.config.patterns:
        return None
    named = pipeline.named_settings.sources
    brought = (table for table in pipeline.settings.tables if table.source not in named)
    return tasks.BroughtAssets(_alias(pipeline.name), _assets(pipeline.name, brought))


def _asset(pipeline: str, source: TableName, target: TableName) -> Asset:
    path = "/".join(quote(part, safe="") for part in (pipeline, target.schema, target.name))
    return Asset(
        name=f"{pipeline}.{target}", uri=f"floodmark://{path}", group="floodmark", extra={"source": str(source)}
    )


def _add_run_tasks(pipeline: Pipeline, config_path: Path) -> None:
    """Add the tasks to the DAG."""
    name, assets = pipeline.name, assets_of(pipeline)

    @task(doc_md="Return an unfinished window, or plan the next.")  # type: ignore[untyped-decorator]
    def open_window(dag_run: Any = None) -> int:
        with explained():
            require_pools(name, dag_run)
        if dag_run.run_type == BACKFILL:
            begin, end = dag_run.data_interval_start, dag_run.data_interval_end
            try:
                opened = tasks.run_open_replay(config_path, name, begin, end)
            except AirflowSkipException:
                tasks.end_backfill(pipeline, dag_run)
                raise
        else:
            opened = tasks.run_open_window(config_path, name)
        return tasks.record_run(pipeline, opened, dag_run)

    @task(outlets=outlets_of(pipeline), doc_md="Move the watermarks by compare-and-set.")  # type: ignore[untyped-decorator]
    def advance(window_id: int, outlet_events: Any = None, asset_state_store: Any = None, dag_run: Any = None) -> None:
        with explained():
            brought = brought_by(pipeline)
        tasks.run_advance(
            pipeline, window_id, assets=assets, events=outlet_events, stores=asset_state_store, brought=brought
        )
        if dag_run.run_type == BACKFILL:
            tasks.end_backfill(pipeline, dag_run)

    # Loads and drift do not wait for the window. It is never skipped, since report_gaps would be skipped with it.
    @task(
        outlets=[work_from(name)],
        trigger_rule=TriggerRule.ALL_DONE,
        doc_md="Check for drift what a run does not, and start the DAGs of loads and of drift where they have work.",
    )  # type: ignore[untyped-decorator]
    def follow_up(outlet_events: Any = None, ti: Any = None, dag_run: Any = None) -> None:
        if dag_run.run_type != BACKFILL:
            with explained():
                start_loads(pipeline, outlet_events[work_from(name)])
                _start_drift_check(pipeline, outlet_events[work_from(name)], ti)

    # It is a task of its own, because Airflow drops the asset events of a task that fails.
    @task(doc_md="Fail while a table is left out. The other tables are published before.")  # type: ignore[untyped-decorator]
    def report_gaps(dag_run: Any = None) -> None:
        if dag_run.run_type != BACKFILL:
            tasks.run_report_gaps(pipeline)

    opened = open_window()
    advanced = advance(opened)
    chain_load(
        pipeline,
        config_path,
        opened=opened,
        advanced=advanced,
        job=f"floodmark {name}",
        doc_md="One Spark job for all tables: read, net and stage the changes, then merge all tables.",
    )
    followed = follow_up()
    opened >> followed
    [advanced, followed] >> report_gaps()


# --------------------------------------------------------------------------------------------------------------------
# The tasks of a run inside another DAG.


class FloodmarkTaskGroup(TaskGroup):  # type: ignore[misc]
    """The tasks of a pipeline's run, for a DAG of your own.

    pipeline: its name in the configuration. default_args: arguments of the tasks, which have precedence over those of
    the configuration and of the DAG. config: the file; None: the one that FLOODMARK_CONFIG names. other: further
    arguments of ``TaskGroup``.

    A run without anything to read skips the tasks, and those after the group unless their trigger rule is
    ``none_failed``. A task that fails raises the alert of a failed run; where its process was killed, only a callback
    of the DAG could. Raises ConfigError for an unknown pipeline, and for a DAG that may have two runs at a time: they
    would compete for the same watermarks.
    """

    def __init__(
        self,
        pipeline: str,
        *,
        group_id: str | None = None,
        default_args: Mapping[str, Any] | None = None,
        config: Path | str | None = None,
        **other: Any,
    ) -> None:
        path = Path(config).resolve() if config else config_path()
        found = app_of(load_config(path, parse_rules=False)).pipeline(pipeline)
        arguments = DEFAULT_ARGS | found.config.airflow.default_args.arguments()
        arguments |= default_args or {}
        # An id of a group has no dots.
        super().__init__(group_id or pipeline.replace(".", "_"), default_args=arguments, **other)
        if self.dag is None or self.dag.max_active_runs != 1:
            raise ConfigError(
                f"task group {self.group_id}",
                "its DAG may have several runs at a time.",
                "Set max_active_runs=1 of the DAG.",
            )
        self.dag.tags.add(OWNER)
        # The callback of the DAG belongs to its author; so do those of its tasks, which are called as well.
        theirs = arguments.get("on_failure_callback", self.dag.default_args.get("on_failure_callback")) or []
        self.default_args["on_failure_callback"] = [
            failure_callback(path, RUN_FAILED, pipeline, {}),
            *(theirs if isinstance(theirs, list) else [theirs]),
        ]
        with self:
            _add_run_tasks(found, path)


# --------------------------------------------------------------------------------------------------------------------
# One DAG per pipeline, ``cdc_load_<pipeline>``, for loads of single tables in parallel to its windows: repairs, and
# reloads that the operator requests with the params of a run.


_LOAD_PAGE = """# Loads of pipeline {name}

While a table is reloaded, it is left out of the windows of its pipeline. Its old rows stay readable, and the other
tables continue. Each run loads one table. A run after a killed one reads only the missing chunks.

* A run of the pipeline starts a run here when a load waits: a repair that a gap has opened (`on_gap: repair`), or a
  reload that was interrupted. Such a run, as any without params, continues the load with the fewest attempts. If there
  is none, the run ends as skipped.
* With `table`, that table is reloaded, and rows that no longer exist at the source are swept.
* With `where` as well, a condition in T-SQL such as `Region = N'north'`, only the rows for which it is true are read
  and merged. Nothing is swept, and the watermark does not move.
"""


def build_load_dags(app: App, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per pipeline of the configuration, by id; in the process of a task, that of the task."""
    dags = (_build_load(each, config_path) for name, each in app.pipelines.items() if is_needed(load_dag_id(name)))
    return {dag.dag_id: dag for dag in dags}


def _build_load(pipeline: Pipeline, config_path: Path) -> DAG:
    name = pipeline.name
    dag = make_dag(
        load_dag_id(name),
        source=pipeline.config.source,
        airflow=pipeline.config.airflow,
        tags=("load",),
        config_path=config_path,
        failed=LOAD_RUN_FAILED,
        subject=name,
        description=f"Repairs and reloads of single tables of {name}, in parallel to its windows",
        doc_md=_LOAD_PAGE.format(name=name),
        schedule=[work_of(load_dag_id(name))],
    )
    with dag:
        _add_load_tasks(pipeline, config_path)
    # After the tasks: each would take a copy, and Airflow validates every copy whenever it parses the file.
    known = [] if pipeline.config.patterns else [str(table) for table in pipeline.settings.sources]
    dag.params.update(_params(known))
    return dag


def _params(tables: Sequence[str]) -> dict[str, Param]:
    """Return the params of a run. tables: those to choose from; none where only the run knows them."""
    choice = {"enum": [None, *tables]} if tables else {}
    return {
        "table": Param(None, type=["null", "string"], description="The table to reload.", **choice),
        "where": Param(
            None,
            type=["null", "string"],
            maxLength=4000,
            description="Only rows for which this T-SQL condition over the table's columns is true.",
        ),
    }


def _add_load_tasks(pipeline: Pipeline, config_path: Path) -> None:
    """Add the tasks to the DAG."""
    name, assets = pipeline.name, assets_of(pipeline)

    @task(doc_md="Continue an unfinished load, or plan the requested one.")  # type: ignore[untyped-decorator]
    def open_load(params: Any = None, dag_run: Any = None) -> int:
        with explained():
            require_pools(name, dag_run)
        return tasks.record_run(pipeline, tasks.run_open_load(config_path, name, params), dag_run)

    @task(outlets=outlets_of(pipeline), doc_md="Publish the load.")  # type: ignore[untyped-decorator]
    def advance(window_id: int, outlet_events: Any = None, asset_state_store: Any = None) -> None:
        with explained():
            brought = brought_by(pipeline)
        tasks.run_advance_load(
            pipeline, window_id, assets=assets, events=outlet_events, stores=asset_state_store, brought=brought
        )

    opened = open_load()
    chain_load(
        pipeline,
        config_path,
        opened=opened,
        advanced=advance(opened),
        job=f"floodmark load {name}",
        doc_md="One Spark job: read the missing chunks, then merge and sweep.",
    )
