"""The expectations that a configuration declares, as Great Expectations judges them, and the texts that it takes."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import ConfigError, FloodmarkError, TargetRefusedError
from floodmark.core.plan import WindowPlan
from floodmark.core.schema import quote_table
from floodmark.core.settings import Expectation
from floodmark.quality.checks import (
    BATCH,
    Batch,
    Check,
    CheckedBatch,
    FailedCheck,
    NoRows,
    Severity,
    UnansweredCheck,
    is_no_delete,
    render_window,
    select_rows_of_window,
)
from floodmark.sync.ports import CheckedRows

if TYPE_CHECKING:
    from great_expectations.data_context.types.base import DataContextConfig
    from great_expectations.datasource.fluent.interfaces import Batch as GxBatch
    from pyspark.sql import DataFrame

    from floodmark.config.models import Config

# ruff: noqa: S608  (names are quoted by core.naming, and Great Expectations takes no bound values)

_DRIVER_ERROR = re.compile(r"\(psycopg\.(?:errors\.)?(\w+)\)")
_NO_ANSWER = re.compile(
    r"OperationalError|Connection refused|Answer from Java side is empty|SparkContext was shut down"
)
"""What PostgreSQL's driver says of a server, and Spark of a Java, that is gone."""
_SPARK_ERROR = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ")
DATASOURCE = "warehouse"
"""The name of the warehouse in a context of Great Expectations."""

# --------------------------------------------------------------------------------------------------------------------
# The expectations that the configuration declares. Great Expectations alone can judge them.
#
# Its results have values of rows, such as the highest value of a column. They are not kept, and no page of it is
# written: a finding has the expectation, its columns and numbers of rows.


def batch_of_expectations(plan: WindowPlan, index: int, opened: CheckedRows, rows: str) -> Batch:
    """Return the rows that the expectations of table ``index`` are about, without deleted ones, and no checks.

    rows: ``window`` or ``table``, as ``core.settings.Expectation`` says.
    """
    table = plan.tables[index]
    chosen = select_rows_of_window(plan, table, opened.staged) if rows == "window" else "TRUE"
    sql = (
        f"SELECT target.* FROM {quote_table(opened.target)} AS target "
        f"WHERE {is_no_delete(table, 'target')} AND {chosen}"
    )
    name = f"{plan.pipeline}.{table.target.schema}.{table.target.name}.expectations.{rows}"
    return Batch(name, table.source, str(table.target), sql, (), opened.staged if rows == "window" else None)


_COLUMNS = ("column", "column_A", "column_B", "column_list", "column_set")


def check_of(expectation: Expectation) -> Check:
    """Return an expectation as a check, which Great Expectations answers."""
    kwargs = json.loads(expectation.kwargs)
    columns = [kwargs[name] for name in _COLUMNS if name in kwargs]
    about = ", ".join(each if isinstance(each, str) else ", ".join(map(str, each)) for each in columns)
    description = f"it holds for {about or 'the rows'} of the {expectation.rows}"
    return Check(expectation.type, NoRows(""), description, Severity(expectation.severity), declared=True)


def refuse_arguments(path: Path, config: Config) -> None:
    """Raise ConfigError for expectations of a configuration with arguments that Great Expectations does not take.

    path: of its file.
    """
    declared = [
        (f"pipelines.{name}.tables[{index}].expectations[{number}]", expectation)
        for name, pipeline in config.pipelines.items()
        for index, table in enumerate(pipeline.tables)
        for number, expectation in enumerate(table.expectations)
    ]
    lines = [f"{place}: {each.type}: {words}" for place, each in declared if (words := wrong_arguments(each))]
    if lines:
        count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
        raise ConfigError(str(path), "".join((f"{count}:", *(f"\n  {line}" for line in lines))))


def wrong_arguments(expectation: Expectation) -> str:
    """Return what Great Expectations does not take of the arguments of an expectation; "" where it takes all."""
    from great_expectations.compatibility.pydantic import ValidationError  # noqa: PLC0415
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration  # noqa: PLC0415

    try:
        ExpectationConfiguration(type=expectation.type, kwargs=json.loads(expectation.kwargs)).to_domain_obj()
    except ValidationError as error:
        found = [(".".join(map(str, each["loc"])).removeprefix("__root__"), each["msg"]) for each in error.errors()]
        return "; ".join(f"{place}: {words}" if place else words for place, words in found)
    return ""


def memory_config() -> DataContextConfig:
    """Return the configuration of a context that keeps nothing, and sends nothing. The import takes seconds."""
    # The package reads it when it is imported; without it, usage data is sent.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    from great_expectations.data_context.types.base import (  # noqa: PLC0415
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    return DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(),
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
    )


def open_in_spark(read: Callable[[str], DataFrame]) -> Callable[[Batch], GxBatch]:
    """Return a function that lets Great Expectations have the rows of a batch by Spark.

    read: returns the rows of a query in PostgreSQL's dialect.
    """
    config = memory_config()
    import great_expectations as gx  # noqa: PLC0415  (seconds)

    context = gx.get_context(mode="ephemeral", project_config=config)
    source = context.data_sources.add_spark(DATASOURCE, persist=False)

    def open_batch(batch: Batch) -> GxBatch:
        asset = source.add_dataframe_asset(neutral_name(batch.name))
        return asset.add_batch_definition_whole_dataframe("rows").get_batch({"dataframe": read(batch.sql)})

    return open_batch


def find_unmet(
    plan: WindowPlan, opened: Sequence[CheckedRows], open_batch: Callable[[Batch], GxBatch]
) -> dict[Batch, list[FailedCheck | UnansweredCheck]]:
    """Return what fails of the expectations that the tables of a plan declare, by the rows that they are about.

    open_batch: lets Great Expectations have the rows of a batch. It is not called where there are no expectations.
    """
    found = {}
    for index, table in enumerate(plan.tables):
        for rows in dict.fromkeys(each.rows for each in table.settings.expectations):
            # A window without changes of the table has none of its rows.
            if rows == "window" and table.quiet:
                continue
            expectations = [each for each in table.settings.expectations if each.rows == rows]
            batch = batch_of_expectations(plan, index, opened[index], rows)
            batch = replace(batch, checks=tuple(map(check_of, expectations)))
            found[batch] = _find_unmet(open_batch(batch), batch, expectations)
    return found


def _find_unmet(
    rows: GxBatch, batch: Batch, expectations: Sequence[Expectation]
) -> list[FailedCheck | UnansweredCheck]:
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration  # noqa: PLC0415

    found: list[FailedCheck | UnansweredCheck] = []
    for expectation, check in zip(expectations, batch.checks, strict=True):
        try:
            kwargs = json.loads(expectation.kwargs)
            wanted = ExpectationConfiguration(type=expectation.type, kwargs=kwargs).to_domain_obj()
            result = rows.validate(wanted, result_format={"result_format": "BASIC", "partial_unexpected_count": 0})
        except Exception as error:  # noqa: BLE001  (it raises what it likes for arguments that it does not take)
            found.append(UnansweredCheck(batch, _unanswered(batch, check, f"{type(error).__name__}: {error}")))
            continue
        if trouble := _raised(result.exception_info):
            found.append(UnansweredCheck(batch, _unanswered(batch, check, trouble)))
        elif not result.success:
            found.append(FailedCheck(batch, check, _seen(check, result.result)))
    return found


def _raised(info: Any) -> str:
    """Return the message of an exception that Great Expectations met, in one of the forms that it reports it in."""
    if not isinstance(info, dict):
        return ""
    if info.get("raised_exception"):
        return str(info.get("exception_message") or "an exception")
    return next(filter(None, map(_raised, info.values())), "")


def _without_values(words: str) -> str:
    """Return the message of an exception; of an error of the warehouse, which may quote a value, its name alone."""
    found = _DRIVER_ERROR.search(words) or _SPARK_ERROR.search(words)
    return found[1] if found else words


def _unanswered(batch: Batch, check: Check, words: str) -> FloodmarkError:
    detail = _without_values(" ".join(words.split()))
    if _NO_ANSWER.search(words):
        text = f"the warehouse did not answer expectation {check.name}."
        return TargetRefusedError(str(batch.source), text, "The next run checks the table again.", detail)
    hint = "Correct its type, its kwargs, or the column: names are those of the target."
    return ConfigError(str(batch.source), f"expectation {check.name} cannot be evaluated.", hint, detail)


def _seen(check: Check, result: Mapping[str, Any]) -> str:
    """Return numbers of rows. Any other observed value may be that of a row."""
    if "unexpected_count" in result and "element_count" in result:
        return f"{result['unexpected_count']} of {result['element_count']} rows against it"
    observed = result.get("observed_value")
    return f"{observed} rows" if check.name.startswith("expect_table_row_count") else "that it does not"


def _only_warns(found: FailedCheck | UnansweredCheck) -> bool:
    return isinstance(found, FailedCheck) and found.check.severity is Severity.WARNING


def _sentence(found: FailedCheck | UnansweredCheck) -> str:
    return str(found.error) if isinstance(found, UnansweredCheck) else str(found)


def write_declared(
    docs_dir: Path,
    plan: WindowPlan,
    checked_at: datetime,
    declared: Mapping[Batch, Sequence[FailedCheck | UnansweredCheck]],
    page: Path,
) -> list[CheckedBatch]:
    """Write the page about the declared expectations of a window, where it has any, and return their results.

    page: its path in ``docs_dir``.
    """
    if not declared:
        return []
    checked = []
    lines: dict[str, list[str]] = {}
    for batch, found in declared.items():
        name = batch.name.removeprefix(f"{plan.pipeline}.")
        warnings = tuple(str(each) for each in found if _only_warns(each))
        failures = tuple(_sentence(each) for each in found if not _only_warns(each))
        lines[name] = [f"{check.name}: {check.description}" for check in batch.checks]
        lines[name] += [f"failed: {each}" for each in (*failures, *warnings)]
        checked.append(
            CheckedBatch(
                plan.pipeline,
                plan.window_id,
                checked_at,
                name,
                len(batch.checks),
                failures,
                warnings,
                str(page),
            )
        )
    (docs_dir / page).parent.mkdir(parents=True, exist_ok=True)
    html = render_window(plan.pipeline, plan.window_id, checked_at, lines, "Found by Great Expectations.")
    (docs_dir / page).write_text(html, "utf-8")
    return checked


# --------------------------------------------------------------------------------------------------------------------
# Names and queries in the form that Great Expectations takes.


def neutral_name(name: str) -> str:
    """Return a name without characters that mean something in a path or a link, different for different names."""
    plain = re.sub(r"[^\w .-]", "_", name)
    return plain if plain == name else f"{plain} {sha256(name.encode()).hexdigest()[:8]}"


def as_template(query: str) -> str:
    """Return the query for ``str.format``, which inserts the batch, and for ``sqlalchemy.text`` after it."""
    return query.replace("{", "{{").replace("}", "}}").replace(":", r"\:").replace(BATCH, "{batch}")


def as_batch(query: str) -> str:
    """Return the query of a batch without characters that ``sqlalchemy.text`` changes.

    It is compiled once or twice, depending on the expectation, so no escape of ``text`` is right for both. Only its
    names can have such characters: PostgreSQL reads them by their code points.
    """
    return re.sub(r'"(?:[^"]|"")*"', lambda found: _by_code_points(found.group()), query)


def _by_code_points(quoted: str) -> str:
    escaped = re.sub(r"[:%\\]", lambda found: f"\\{ord(found.group()):04X}", quoted)
    return quoted if escaped == quoted else f"U&{escaped}"
