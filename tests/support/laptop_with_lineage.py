"""``python -m floodmark_laptop`` whose Airflow writes its lineage into a file; it leaves a record of its windows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from floodmark_laptop import __main__ as laptop
from floodmark_laptop import comparison
from floodmark_laptop.airflow import Airflow
from floodmark_laptop.stack import Stack

FOLDER = "FLOODMARK_TEST_LINEAGE"
"""The variable with the folder of ``events.jsonl`` and of ``record.json``."""
_WINDOWS = "SELECT window_id FROM floodmark.windows ORDER BY window_id"
_COUNTS = (
    "SELECT 'Shop.' || source_schema || '.' || source_name, read_rows, inserted_rows, updated_rows, deleted_rows"
    " FROM floodmark.window_tables WHERE window_id = %s"
)
_HISTORY = """SELECT count(*), count(DISTINCT "OrderID"), array_agg(DISTINCT "Remark") FROM shop.orders_history"""
_environment = Airflow.environment
_print_comparison = comparison.print_comparison


def environment(airflow: Airflow) -> dict[str, str]:
    """Return the environment of Airflow's processes, with a transport for lineage."""
    events = str(Path(os.environ[FOLDER]) / "events.jsonl")
    transport = json.dumps({"type": "file", "log_file_path": events, "append": True})
    return _environment(airflow) | {"AIRFLOW__OPENLINEAGE__TRANSPORT": transport}


def print_comparison(stack: Stack, *arguments: Any) -> bool:
    """Write the windows, the addresses and the passwords into the record, and compare."""
    with stack.connect_warehouse() as session:
        windows = [window_id for (window_id,) in session.execute(_WINDOWS)]
        history = session.execute(_HISTORY).fetchone()
        counts = [{name: rows for name, *rows in session.execute(_COUNTS, (each,))} for each in windows]
    record = {
        "windows": windows,
        "counts": counts,
        "history": history,
        "source": [stack.source.host, stack.source.port],
        "warehouse_port": stack.warehouse.port,
        "secrets": [stack.source.password, stack.warehouse_address["password"], stack.airflow.password],
    }
    file = Path(os.environ[FOLDER]) / "record.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(record), encoding="utf-8")
    return _print_comparison(stack, *arguments)


if __name__ == "__main__":
    Airflow.environment = environment  # type: ignore[assignment,method-assign]
    vars(laptop).update(print_comparison=print_comparison)
    laptop.app()
