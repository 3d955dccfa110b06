"""The second part of ``make run-sources``: devices that are away, sync, are put back and replaced, window by window."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from floodmark_laptop.devices import Rows, SimulatedFleet
from floodmark_laptop.main_job import run_window
from floodmark_laptop.stack import Stack

PIPELINE = "devices"
CONNECTION_ID = "devices_folder"
_DAG_ID = f"cdc_{PIPELINE}"
_AWAY = (7, 5)
"""How many devices are away in each round."""
_RESTORED, _REPLACED = "gauge-03", "gauge-11"


def run_devices_job(stack: Stack, fleet: SimulatedFleet) -> None:
    """Run everything up to the last window. Raises LaptopError at the first failure."""
    fleet.create()
    names = fleet.names()
    stack.say(f"devices: {len(names)} files in {fleet.folder}, synced to {fleet.synced}")
    stack.airflow.wait_for_dag(_DAG_ID)
    stack.airflow.unpause(_DAG_ID)
    run_window(stack, "devices, first window", _DAG_ID)
    older = fleet.back_up(_RESTORED)
    for away in _AWAY:
        count = fleet.go_on(away)
        run_window(stack, f"devices, {count} of {len(names)} are away", _DAG_ID)
    fleet.restore(_RESTORED, older)
    fleet.replace(_REPLACED)
    stack.say(f"devices: {_RESTORED} was put back to an older copy, {_REPLACED} was replaced")
    for device in names:
        fleet.sync(device)
    run_window(stack, "devices, all are back", _DAG_ID)


def print_devices(stack: Stack, fleet: SimulatedFleet, console: Console) -> bool:
    """Compare each device with the warehouse row by row, and print the table. Return whether all are equal."""
    target = _read_target(stack)
    table = Table(title="pipeline devices: each device, row by row", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("device", no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("rounds away", justify="right")
    table.add_column("what happened")
    table.add_column("compared", no_wrap=True)
    equal = set(target) <= set(fleet.names())
    for device in fleet.names():
        rows = fleet.rows(device)
        same = rows == target.get(device, {})
        equal &= same
        away, note = fleet.away.get(device, 0), fleet.notes.get(device, "")
        table.add_row(
            Text(device), f"{len(rows):,}", str(away), Text(note), "equal" if same else "[red]DIFFERENT[/red]"
        )
    console.print(table)
    return equal


def _read_target(stack: Stack) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    with stack.connect_warehouse() as connection:
        for device, id_, sensor, value, note in connection.execute(
            "SELECT __device, id, sensor, value::text, note FROM devices.readings WHERE NOT __deleted"
        ):
            found.setdefault(device, {})[id_] = (sensor, value, note)
    return found
