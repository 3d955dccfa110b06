"""The order in which the files of a whole run begin: those that take the longest first, as they were measured once.

A file that is not listed comes after them. One that has become slow belongs into the list: begun last, it runs alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[2]
_LONGEST = (
    "tests/story/test_main_job.py",
    "tests/story/test_airflow_kills.py",
    "tests/story/test_spark_cluster.py",
    "tests/story/test_cut_off_runs.py",
    "tests/story/test_spark_connect.py",
    "tests/story/test_kills.py",
    "tests/contract/test_spark_load.py",
    "tests/story/test_adventureworks.py",
    "tests/contract/test_switch.py",
    "tests/story/test_lineage_runs.py",
    "tests/story/test_replay_runs.py",
    "tests/story/test_bad_input.py",
    "tests/contract/test_checks_that_refuse.py",
    "tests/story/test_load_runs.py",
    "tests/contract/test_emulator_kafka.py",
    "tests/contract/test_event_stream_kafka.py",
    "tests/contract/test_pages_in_browser.py",
    "tests/contract/test_event_stream.py",
    "tests/contract/test_stream_from_emulator.py",
    "tests/contract/test_event_stream_epochs.py",
    "tests/contract/test_change_tracking.py",
    "tests/contract/test_tracking_drift.py",
    "tests/contract/test_compact.py",
    "tests/contract/test_drift_watch.py",
    "tests/contract/test_lagging_secondary.py",
    "tests/contract/test_capture_schedule.py",
    "tests/contract/test_switch_tables.py",
    "tests/contract/test_repair_source.py",
    "tests/contract/test_connect_server.py",
    "tests/contract/ports/test_warehouse_contract.py",
    "tests/contract/test_pipeline_machine.py",
    "tests/story/test_drift_runs.py",
    "tests/contract/ports/test_second_warehouse.py",
    "tests/contract/test_switch_columns.py",
    "tests/contract/test_locked_source.py",
    "emulator/tests/cdc/test_cdc_crash.py",
    "emulator/tests/clients_external/test_spark_jdbc.py",
    "emulator/tests/wire/test_command.py",
    "tests/contract/ports/test_source_contract.py",
    "tests/dags/test_dag_files.py",
    "emulator/tests/control/test_control_reader_locks.py",
    "tests/contract/test_doctor.py",
    "emulator/tests/golden/test_golden_change_rows.py",
    "tests/contract/test_import_commands.py",
    "tests/contract/test_declared_keys.py",
    "tests/contract/test_replay.py",
    "tests/contract/test_quality.py",
    "emulator/tests/control/test_control_capture.py",
    "tests/contract/test_interleavings.py",
    "emulator/tests/hostile/test_hostile_clients.py",
    "emulator/tests/clients_external/test_jdbc.py",
    "emulator/tests/control/test_control_faults.py",
    "tests/contract/test_followed_database.py",
    "tests/contract/test_run_steps.py",
    "tests/contract/test_source_snapshot.py",
)
_PLACES = {_REPOSITORY / name: place for place, name in enumerate(_LONGEST)}


def place_of(item: pytest.Item) -> int:
    """Return the place of a test's file in the order."""
    return _PLACES.get(item.path, len(_PLACES))
