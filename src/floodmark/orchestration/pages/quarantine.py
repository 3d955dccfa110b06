"""The rows of a table in quarantine. Their keys are values of rows: they are read for those alone who may see them.

That right is to read the warehouse's connection in Airflow: its roles give it to operators and administrators, and an
authorization manager can give it to others for this one connection.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from floodmark.app.quarantine import list_keys, list_quarantined
from floodmark.app.status_json import json_text
from floodmark.core.errors import FloodmarkError
from floodmark.core.schema import TableName
from floodmark.core.status.history import QuarantinedKey, RuleCount
from floodmark.orchestration.pages.content import (
    NOT_FOUND,
    UNKNOWN_TABLE,
    Answer,
    NotShownError,
    Query,
    failure_answer,
    html,
    open_named,
)
from floodmark.orchestration.pages.paging import page_numbers

KEYS_OF_A_PAGE = 100


def quarantine_page(
    readable_dags: Collection[str],
    may_read_connection: Callable[[str], bool],
    pipeline: str,
    table: str,
    query: Query,
) -> Answer:
    """Return the page of a table's rows in quarantine.

    table: its name as the configuration spells it. query.text: the one rule whose rows are listed, "" for all.
    may_read_connection: whether the viewer may read a connection of Airflow, by its id.
    """
    try:
        app = open_named(readable_dags, pipeline)
        if table not in {str(each.source) for each in app.config.pipeline(pipeline).tables}:
            raise NotShownError(UNKNOWN_TABLE, NOT_FOUND)
        rules = [each for each in list_quarantined(app, pipeline) if each.table == table]
        number, count = page_numbers(_rows_of(rules, query.text), query.page, KEYS_OF_A_PAGE)
        keys: Sequence[QuarantinedKey] | None = None
        if may_read_connection(app.config.warehouse.conn_id):
            skipped, name = (number - 1) * KEYS_OF_A_PAGE, TableName.parse(table)
            keys = list_keys(app, pipeline, name, query.text or None, skipped=skipped, at_most=KEYS_OF_A_PAGE)
    except (FloodmarkError, NotShownError) as failure:
        return failure_answer(query, failure, "../../status")
    if query.format == "json":
        rows = None if keys is None else [asdict(each) for each in keys]
        about = {"pipeline": pipeline, "table": table, "rules": [asdict(each) for each in rules], "rows": rows}
        return Answer(json_text({"read_at": datetime.now(UTC)} | about), is_json=True)
    values = {
        "pipeline": pipeline,
        "table": table,
        "rules": rules,
        "keys": keys,
        "key_text": _key_text,
        "page": {"number": number, "count": count},
        "command": f"floodmark quarantine {{}} {pipeline} {shlex.quote(table)}",
        "connection": app.config.warehouse.conn_id,
    }
    return Answer(html("quarantine.html", query, **values))


def _rows_of(rules: Sequence[RuleCount], rule: str) -> int:
    return sum(each.rows for each in rules if not rule or each.rule == rule)


def _key_text(key: QuarantinedKey) -> str:
    """Return the values of a key as a page shows them: a text without quotes where it is the only value."""
    if len(key.key) == 1 and isinstance(key.key[0], str):
        return key.key[0]
    return ", ".join(json.dumps(value, ensure_ascii=False) for value in key.key)
