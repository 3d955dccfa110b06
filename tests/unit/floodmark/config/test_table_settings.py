"""Every setting of a table goes from the configuration into the plan of a window, and with it into the ledger.

No code between names the settings one by one, and neither does this test, but for those whose values are no choice and
no number.
"""

import json
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import yaml

from floodmark.config import load_config
from floodmark.core.columns import chosen_names
from floodmark.core.definition import ChangedColumn, define
from floodmark.core.naming import map_columns
from floodmark.core.plan import WindowPlan
from floodmark.core.plan_json import plan_from_json, plan_to_json
from floodmark.core.planning import plan_table
from floodmark.core.settings import TableDefaults, TableSettings
from lsns import lsn
from source_snapshots import instance, snapshot, state, table_seen

WRITTEN = {
    "source": "dbo.Orders",
    "target": "elsewhere.orders",
    "key": ["Id"],
    "capture_instance": "dbo_Orders_2",
    "rules": [{"name": "positive", "sql": '"Amount" > 0', "on_failure": "warn"}],
    "expectations": [{"type": "expect_column_to_exist", "kwargs": {"column": "Id"}, "rows": "table"}],
    "drift": {"column_added": "hold"},
    "columns": {"Amount": {"as": "amount", "mask": "null", "cast": "text"}},
    "new_columns": "follow",
    "derived": {"doubled": '"Amount" * 2'},
    "mask_key_conn_id": "mask_key",
    "where": "[Amount] > 0",
    "keep_versions": "7y",
    "open_end": "9999-12-31",
    "track": ["Amount"],
}
"""Values of a file that are not the default."""
STYLES = {
    "keep_versions": "history",
    "open_end": "history",
    "track": "history",
    "before_images": "log",
    "snapshot": "log",
}
"""The styles that alone have a setting."""
SETTINGS = [field for field in fields(TableSettings) if field.name not in {"mask_key_print", "keeps_messages"}]
"""All but the one that comes from a connection, and the one that all tables of a stream decide."""
NAMES = [field.name for field in SETTINGS]


def default_of(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def other_value(field: Field[Any]) -> Any:
    return WRITTEN[field.name] if field.name in WRITTEN else other_than(default_of(field))


def other_than(value: Any) -> Any:
    """Return another value of the same type, as a file has it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, Enum):
        return next(each.value for each in type(value) if each is not value)
    assert is_dataclass(value), f"write a value for settings such as {value!r} into WRITTEN"
    return {field.name: other_than(getattr(value, field.name)) for field in fields(value)}


def settings_of(folder: Path, section: str, name: str, value: object) -> TableSettings:
    """Return the settings of a table with one of them set in a section of the file."""
    table = {"source": WRITTEN["source"], "target": "shop.orders"}
    # Only where the server computes net changes may a key change its spelling unseen.
    kind = "change_tracking" if name == "key_spelling" else "cdc"
    table |= {"style": STYLES[name]} if name in STYLES else {}
    source: dict[str, object] = {"conn_id": "shop_mssql", "kind": kind}
    pipeline: dict[str, object] = {"source": "shop", "tables": [table]}
    {"source": source, "pipeline": pipeline, "table": table}[section][name] = value
    path = folder / "pipelines.yaml"
    document = {"sources": {"shop": source}, "warehouse": {"conn_id": "w"}, "pipelines": {"shop": pipeline}}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_config(path).settings("shop").tables[0]


def planned(settings: TableSettings) -> WindowPlan:
    seen = snapshot(table_seen(feed=instance(supports_net_changes=True)))
    # The target of a loaded table has the names that its pipeline wants.
    columns = map_columns(settings.naming, ["Id"], chosen=chosen_names(settings))
    loaded = replace(state(), columns=columns, definition=define(settings, ["Id"]))
    return WindowPlan(7, "shop", lsn(100), (plan_table(settings, seen.tables[0], seen, loaded),))


@pytest.mark.parametrize("field", SETTINGS, ids=NAMES)
def test_setting_of_a_table_is_in_its_plan_and_in_the_stored_one(tmp_path: Path, field: Field[Any]) -> None:
    section = "source" if field.name == "max_reads" else "table"
    settings = settings_of(tmp_path, section, field.name, other_value(field))
    assert field.name == "source" or getattr(settings, field.name) != default_of(field)
    plan = planned(settings)
    assert plan.tables[0].settings == settings
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


@pytest.mark.parametrize("field", fields(TableDefaults), ids=lambda field: field.name)
def test_setting_of_a_pipeline_is_that_of_its_tables(tmp_path: Path, field: Field[Any]) -> None:
    value = other_value(field)
    settings = settings_of(tmp_path, "pipeline", field.name, value)
    assert getattr(settings, field.name) != default_of(field)
    assert settings == settings_of(tmp_path, "table", field.name, value)


def test_old_ledger_without_a_fingerprint_has_no_other_secret() -> None:
    before = {"as": "mail", "mask": "hash", "key": "mask_key"}
    renamed = ChangedColumn("Email", before, before | {"as": "email", "fingerprint": "0123456789abcdef"})
    assert (renamed.is_renamed, renamed.is_hidden_otherwise) == (True, False)
    other = ChangedColumn("Email", renamed.now, renamed.now | {"fingerprint": "fedcba9876543210"})
    assert (other.is_renamed, other.is_hidden_otherwise) == (False, True)
