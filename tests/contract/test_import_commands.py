"""The commands that continue where SSIS, Debezium or Airbyte has stopped: import, run, verify.

Everything but Spark is real (``load_without_spark``). docs/migrating.md shows these commands.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import Result
from shop_connections import set_connections
from typer.testing import CliRunner

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.cli.main import app
from floodmark.cli.process import out
from floodmark.core.position import Lsn
from floodmark.postgres.session import WarehouseConnection
from floodmark.spark import job
from load_without_spark import no_session, stager
from tool_states import airbyte_done, airbyte_loading, airbyte_message, airbyte_settings, colons, ssis_end

CONFIG = """
sources:
  shop: {conn_id: shop_mssql}
  tracked: {conn_id: shop_mssql, kind: change_tracking}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    tables:
      - {source: dbo.Orders, target: shop.orders}
      - {source: dbo.OrderLines, target: shop.order_lines}
  tracking: {source: tracked, tables: [{source: dbo.Orders, target: tracking.orders}]}
"""
SSIS, DEBEZIUM, AIRBYTE = (("import-state", "--from", tool) for tool in ("ssis", "debezium", "airbyte"))
SOURCE_TABLES = (
    "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Customer nvarchar(40), Placed datetime2(3),"
    " Total decimal(9, 2))",
    "CREATE TABLE dbo.OrderLines (OrderId int NOT NULL, Line int NOT NULL, Text nvarchar(max),"
    " PRIMARY KEY (OrderId, Line))",
    "CREATE TABLE dbo.cdc_states (name nvarchar(256) NOT NULL PRIMARY KEY, state nvarchar(256) NOT NULL)",
)
FIRST_ROWS = (
    "INSERT dbo.Orders VALUES (1, N'Åsa', '2026-11-20 06:15:09.251', 12.50), (2, N'Ben', '2026-11-20 06:16', 8)",
    "INSERT dbo.OrderLines VALUES (1, 1, N'first'), (1, 2, N'second'), (2, 1, NULL)",
)
OLD_TARGETS = (
    "CREATE SCHEMA shop",
    'CREATE TABLE shop.orders ("Id" integer PRIMARY KEY, "Customer" varchar(40), "Placed" timestamp, "Total" numeric)',
    'CREATE TABLE shop.order_lines ("OrderId" integer, "Line" integer, "Text" text, PRIMARY KEY ("OrderId", "Line"))',
)


@dataclass
class OldWarehouse:
    """A warehouse that another tool has filled from a source."""

    database: CdcDatabase
    connection: WarehouseConnection

    def copy_all(self) -> Lsn:
        """Fill the targets with the source's rows of now, as the other tool does. Return its position."""
        self.database.scan()
        with psycopg.connect(self.connection.conninfo(), autocommit=True) as session:
            for source, target, columns in (
                ("Orders", "shop.orders", ("Id", "Customer", "Placed", "Total")),
                ("OrderLines", "shop.order_lines", ("OrderId", "Line", "Text")),
            ):
                session.execute(f"DELETE FROM {target}")
                for row in self.database.query(f"SELECT * FROM dbo.{source}"):
                    values = [row[name] for name in columns]
                    session.execute(f"INSERT INTO {target} VALUES ({', '.join(['%s'] * len(values))})", values)
        return self.newest()

    def newest(self) -> Lsn:
        return Lsn(self.database.scalar("sys.fn_cdc_get_max_lsn()"))

    def change(self) -> None:
        """The changes that are left for Floodmark."""
        self.database.run(
            "UPDATE dbo.Orders SET Total = 13.75 WHERE Id = 1",
            "DELETE dbo.OrderLines WHERE OrderId = 2",
            "DELETE dbo.Orders WHERE Id = 2",
            "INSERT dbo.Orders VALUES (3, NULL, NULL, NULL)",
        )
        self.database.scan()

    def loads(self) -> int:
        """The number of windows that have loaded a whole table."""
        with psycopg.connect(self.connection.conninfo()) as session:
            (found,) = session.execute(
                "SELECT count(*) FROM floodmark.window_tables JOIN floodmark.windows USING (window_id)"
                " WHERE kind = 'first_load' AND NOT starts_with(lane, 'import ')"
            ).fetchall()
        return int(found[0])


@pytest.fixture
def old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulator: Emulator, database: WarehouseConnection
) -> Iterator[OldWarehouse]:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    monkeypatch.setenv("FLOODMARK_DATA_DOCS", str(tmp_path / "docs"))
    monkeypatch.setattr(out, "width", 200)

    def run_load(secrets: Mapping[str, str], _target: object, window_id: int, _path: Path, _progress: None) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "SparkStager", stager)
            for name, value in secrets.items():
                patch.setenv(name, value)
            job.run_load_job(window_id, no_session())

    monkeypatch.setattr("floodmark.cli.runs.run_load", run_load)
    with psycopg.connect(database.conninfo(), autocommit=True) as session:
        for statement in OLD_TARGETS:
            session.execute(statement)
    with cdc_database(emulator) as made:
        made.run(*SOURCE_TABLES)
        made.enable("Orders")
        made.enable("OrderLines")
        made.run(*FIRST_ROWS)
        set_connections(monkeypatch, emulator, made.name, database)
        yield OldWarehouse(made, database)


def call(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=text)


def succeed(*arguments: str, text: str | None = None) -> str:
    done = call(*arguments, text=text)
    assert done.exit_code == 0, done.output
    return done.stdout


def outcomes(done: Result) -> dict[str, tuple[str | None, str | None]]:
    """The verdict and the refusal of each table."""
    return {each["table"]: (each["verdict"], each["refusal"]) for each in json.loads(done.stdout)}


def continue_and_compare(old: OldWarehouse) -> None:
    """Run the pipeline, and compare source and warehouse row by row."""
    old.change()
    succeed("run", "shop")
    verified = json.loads(succeed("verify", "shop", "--json"))
    assert [(each["source"], each["equal"], each["source_rows"]) for each in verified] == [
        ("dbo.Orders", True, 2),
        ("dbo.OrderLines", True, 2),
    ]
    assert old.loads() == 0


def test_pipeline_continues_from_the_state_table_of_ssis(old: OldWarehouse) -> None:
    state = ssis_end(old.copy_all())
    old.database.run(f"INSERT dbo.cdc_states VALUES (N'CDC_State', N'{state}')")
    shown = succeed(*SSIS, "shop", "--state-table", "DBO.cdc_states", "--dry-run")
    assert "would be set" in shown
    before = json.loads(succeed("status", "shop", "--json"))
    assert [table["watermark"] for table in before[0]["tables"]] == [None, None]
    shown = succeed(*SSIS, "shop", "--state-table", "dbo.cdc_states")
    assert shown.count("set") == 2
    assert "refused" not in shown
    continue_and_compare(old)
    again = call(*SSIS, "shop", "--state-table", "dbo.cdc_states")
    assert again.exit_code == 1
    assert again.stdout.count("already") == 2


def test_adopted_rows_are_the_first_versions_of_a_history(old: OldWarehouse, tmp_path: Path) -> None:
    history = CONFIG.replace("target: shop.orders}", "target: shop.orders, style: history}")
    (tmp_path / "pipelines.yaml").write_text(history, encoding="utf-8")
    state = ssis_end(old.copy_all())
    commits = "SELECT MAX(tran_end_time) AS at, DATEDIFF(minute, GETUTCDATE(), GETDATE()) AS ahead"
    (commit,) = old.database.query(f"{commits} FROM cdc.lsn_time_mapping")
    assert succeed(*SSIS, "shop", text=state).count("set") == 2
    continue_and_compare(old)
    with psycopg.connect(old.connection.conninfo()) as session:
        found = session.execute(
            'SELECT "Id", __op, "Total", __deleted, __window_id = __load, __valid_from, __valid_to IS NULL'
            ' FROM shop.orders_history ORDER BY "Id", __load, __lsn'
        ).fetchall()
    assert [(*row[:5], row[6]) for row in found] == [
        (1, 2, Decimal("12.50"), False, True, False),
        (1, 4, Decimal("13.75"), False, False, True),
        (2, 2, Decimal(8), False, True, False),
        (2, 1, Decimal(8), True, False, True),
        (3, 2, None, False, False, True),
    ]
    began = (commit["at"] - timedelta(minutes=commit["ahead"])).replace(tzinfo=UTC)
    assert [abs(row[5] - began) < timedelta(seconds=0.01) for row in found] == [True, False, True, False, False]


def test_state_is_chosen_by_its_name(old: OldWarehouse) -> None:
    at = old.copy_all()
    old.database.run(
        f"INSERT dbo.cdc_states VALUES (N'Orders', N'{ssis_end(at)}')",
        f"INSERT dbo.cdc_states VALUES (N'Lines', N'TFSTART/CS/{at}/CE/{at}/TS/2026-11-20T06:15:09/')",
    )
    table = (*SSIS, "shop", "--state-table", "dbo.cdc_states")
    several = call(*table)
    assert several.exit_code == 1
    assert "several states. Choose one (--state-name): Lines, Orders." in several.stderr
    unfinished = call(*table, "--state-name", "Lines", "--table", "dbo.OrderLines")
    assert unfinished.exit_code == 1
    assert "state of SSIS: TFSTART:" in unfinished.stderr
    done = call(*table, "--state-name", "Orders", "--table", "dbo.Orders", "--json")
    assert outcomes(done) == {"dbo.Orders": ("capture_stopped", None)}
    assert call(*table, "--state-name", "Other").exit_code == 1


def test_state_table_that_is_none_is_refused(old: OldWarehouse) -> None:
    done = call(*SSIS, "shop", "--state-table", "dbo.Orders")
    assert done.exit_code == 1
    assert "no such table with the columns name and state" in done.stderr
    done = call(*SSIS, "shop", "--state-table", "dbo.cdc_states")
    assert (done.exit_code, "it has no state." in done.stderr) == (1, True)


def test_state_of_ssis_is_read_from_a_file(old: OldWarehouse, tmp_path: Path) -> None:
    path, state = tmp_path / "state.txt", ssis_end(old.copy_all()) + "\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_text(state, encoding=encoding)
        done = call(*SSIS, "shop", str(path), "--json", "--dry-run")
        assert done.exit_code == 0
        assert outcomes(done) == {"dbo.Orders": ("capture_stopped", None), "dbo.OrderLines": ("capture_stopped", None)}
    path.write_bytes(b"\xff\x00")
    assert call(*SSIS, "shop", str(path)).exit_code == 2


def test_table_that_cannot_be_adopted_does_not_stop_the_others(old: OldWarehouse) -> None:
    at = old.copy_all()
    with psycopg.connect(old.connection.conninfo(), autocommit=True) as session:
        session.execute('ALTER TABLE shop.orders ALTER "Customer" TYPE varchar(20)')
    done = call(*SSIS, "shop", text=ssis_end(at))
    assert done.exit_code == 1
    assert "column Customer is character varying(20), expected character varying(40)" in " ".join(done.stdout.split())
    shown = json.loads(succeed("status", "shop", "--json"))
    assert [table["watermark"] for table in shown[0]["tables"]] == [None, str(at)]


def test_position_that_was_cleaned_up_is_expired(old: OldWarehouse) -> None:
    at = old.copy_all()
    old.change()
    newest = old.newest()
    for instance in ("dbo_Orders", "dbo_OrderLines"):
        old.database.run(f"EXEC sys.sp_cdc_cleanup_change_table N'{instance}', {newest}, 5000")
    done = call(*SSIS, "shop", "--json", text=ssis_end(at))
    assert done.exit_code == 1
    assert {verdict for verdict, _ in outcomes(done).values()} == {"expired"}
    ahead = call(*SSIS, "shop", "--json", text=ssis_end(newest.next()))
    assert {verdict for verdict, _ in outcomes(ahead).values()} == {"ahead_of_source"}


def debezium(old: OldWarehouse, commit: Lsn, **other: Any) -> dict[str, Any]:
    """The answer of GET /connectors/NAME/offsets."""
    partition = {"server": "shop", "database": old.database.name}
    offset = {"commit_lsn": colons(commit), "change_lsn": colons(commit.previous()), "event_serial_no": 1}
    return {"offsets": [{"partition": partition, "offset": {"transaction_id": None} | offset | other}]}


def test_pipeline_continues_from_the_offset_of_debezium(old: OldWarehouse) -> None:
    at = old.copy_all()
    shown = succeed(*DEBEZIUM, "shop", text=json.dumps(debezium(old, at)))
    assert shown.count(str(at.previous())) == 2
    continue_and_compare(old)


def test_pipeline_continues_from_the_topic_of_offsets(old: OldWarehouse) -> None:
    (entry,) = debezium(old, old.copy_all())["offsets"]
    line = f"{json.dumps(['shop', entry['partition']])}\t{json.dumps(entry['offset'])}\n"
    other = '["audit",{"server":"audit","database":"Audit"}]\t{"commit_lsn":"0000002d:00000580:001d"}\n'
    succeed(*DEBEZIUM, "shop", "--connector", "shop", text=other + line)
    continue_and_compare(old)


@pytest.mark.parametrize(
    ("heading", "block", "file"),
    [
        ("From SSIS", r"```\n(TFEND.*?)```", "state.txt"),
        ("From Debezium", r"```json\n(.*?)```", "offsets.json"),
        ("From Airbyte", r"```json\n(.*?)```", "state.json"),
    ],
)
def test_commands_of_the_guide_run_as_written(  # noqa: PLR0917  (pytest gives them by name)
    old: OldWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heading: str, block: str, file: str
) -> None:
    """The states of docs/migrating.md, with the positions and the database of this test."""
    guide = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
    section = guide.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    at = old.copy_all()
    shown = re.search(block, section, re.DOTALL)
    assert shown
    state = shown[1].replace("Shop", old.database.name)
    state = re.sub("0x[0-9A-F]{20}", str(at), state)
    state = re.sub("[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}", colons(at), state)
    old.database.run(f"INSERT dbo.cdc_states VALUES (N'CDC_State', N'{ssis_end(at)}')")
    (tmp_path / file).write_text(state, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line) for line in re.findall(r"\$ floodmark (.*)", section)]
    assert [command[0] for command in commands[-2:]] == ["run", "verify"]
    for number, command in enumerate(commands):
        if command[0] == "run":
            old.change()
        assert "refused" not in succeed(*command), command
        assert number or "--dry-run" in command
    assert old.loads() == 0


def test_snapshot_of_debezium_that_is_running_is_refused(old: OldWarehouse) -> None:
    state = debezium(old, old.copy_all(), snapshot="INITIAL", snapshot_completed=False)
    done = call(*DEBEZIUM, "shop", text=json.dumps(state))
    assert done.exit_code == 1
    assert "its snapshot has begun and has not been completed" in done.stderr


@pytest.mark.parametrize("write", [airbyte_message, airbyte_settings])
def test_pipeline_continues_from_the_state_of_airbyte(old: OldWarehouse, write: Any) -> None:
    at = old.copy_all()
    streams = {"dbo.Orders": airbyte_done("Orders"), "dbo.OrderLines": airbyte_done("OrderLines")}
    succeed(*AIRBYTE, "shop", text=write(old.database.name, at, streams))
    continue_and_compare(old)


def test_stream_of_airbyte_whose_initial_load_is_running_is_refused(old: OldWarehouse) -> None:
    streams = {"dbo.Orders": airbyte_done("Orders"), "dbo.OrderLines": airbyte_loading("OrderLines")}
    state = airbyte_message(old.database.name, old.copy_all(), streams)
    done = call(*AIRBYTE, "shop", "--json", text=state)
    assert done.exit_code == 1
    assert outcomes(done)["dbo.Orders"] == ("ready", None)
    assert "initial load of the table has not ended" in str(outcomes(done)["dbo.OrderLines"][1])


def test_garbage_ends_in_one_message_and_2(old: OldWarehouse) -> None:
    assert old.connection
    for command in (SSIS, DEBEZIUM, AIRBYTE):
        done = call(*command, "shop", text="DROP TABLE 4711")
        assert done.exit_code == 2
        assert done.stderr.startswith("floodmark: state of ")
        assert len(done.stderr.splitlines()) == 1
        assert "4711" not in done.output


def test_pipeline_of_another_kind_is_refused(old: OldWarehouse) -> None:
    done = call(*SSIS, "tracking", text=ssis_end(old.copy_all()))
    assert done.exit_code == 2
    assert "its source is of kind change_tracking" in done.stderr
    done = call(*SSIS, "tracking", "--state-table", "dbo.cdc_states")
    assert (done.exit_code, "kind change_tracking" in done.stderr) == (2, True)


def test_unknown_pipeline_table_and_file_are_refused(old: OldWarehouse, tmp_path: Path) -> None:
    state = ssis_end(old.copy_all())
    for arguments, words in (
        ((*SSIS, "none"), "there is no such pipeline"),
        ((*SSIS, "shop", "--table", "dbo.None"), "it has no table dbo.None"),
        ((*SSIS, "shop", str(tmp_path / "none")), "it cannot be read"),
        ((*SSIS, "shop", "none", "--state-table", "dbo.cdc_states"), "not both"),
        ((*SSIS, "shop", "--state-name", "CDC_State"), "--state-name is the name of a state in --state-table"),
    ):
        done = call(*arguments, text=state)
        assert (done.exit_code, words in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("tool", "options", "owner"),
    [
        ("debezium", ("--state-table", "dbo.cdc_states"), "ssis"),
        ("airbyte", ("--state-name", "CDC_State"), "ssis"),
        ("ssis", ("--connector", "shop"), "debezium"),
    ],
)
def test_option_of_another_tool_is_refused(old: OldWarehouse, tool: str, options: tuple[str, str], owner: str) -> None:
    assert old.connection
    done = call("import-state", "shop", "--from", tool, *options, text="")
    assert (done.exit_code, done.stderr) == (
        2,
        f"floodmark: import-state: {options[0]} is for a state of {owner} only.\n",
    )


def test_former_names_of_the_command_import_with_their_options_and_are_not_listed(old: OldWarehouse) -> None:
    at = old.copy_all()
    old.database.run(f"INSERT dbo.cdc_states VALUES (N'CDC_State', N'{ssis_end(at)}')")
    streams = {"dbo.Orders": airbyte_done("Orders"), "dbo.OrderLines": airbyte_done("OrderLines")}
    (entry,) = debezium(old, at)["offsets"]
    line = f"{json.dumps(['shop', entry['partition']])}\t{json.dumps(entry['offset'])}\n"
    for arguments, text in (
        (("import-ssis-state", "shop", "--state-table", "dbo.cdc_states", "--state-name", "CDC_State"), None),
        (("import-debezium-offsets", "shop", "--connector", "shop"), line),
        (("import-airbyte-state", "shop"), airbyte_message(old.database.name, at, streams)),
    ):
        assert succeed(*arguments, "--dry-run", text=text).count("would be set") == 2
        assert arguments[0] not in succeed("--help")
        assert f" {arguments[0]} [OPTIONS] " in succeed(arguments[0], "--help")
    done = call("import-ssis-state", "shop", "none", "--state-table", "dbo.cdc_states")
    assert done.stderr == "floodmark: import-ssis-state: give a file or --state-table, not both.\n"
