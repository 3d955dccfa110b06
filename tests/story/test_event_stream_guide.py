"""The document on event streams, followed on the emulator: its T-SQL, its configuration, and rows that are equal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from command_line import command_environment
from emulator_process import running_emulator
from forked_floodmark import begin
from prepared_folders import PreparedPostgres

GUIDE = Path(__file__).parents[2] / "docs" / "event_streams.md"
PLACES = {
    "<namespace>": "floods",
    "<event hub>": "orders",
    "<policy>": "sender",
    "<key>": "a-Key-1",
    "...": "a-Password-1",
}
TABLE = "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Amount decimal(9,2), Note nvarchar(max))"
LIMIT_SECONDS = 120
PROBLEMS = 4
"""The exit status of doctor."""


def block(language: str, place: int = 0) -> str:
    """A block of code of the document, with its places filled in."""
    text = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)[place]
    for name, value in PLACES.items():
        text = text.replace(name, value)
    return text


def with_heartbeat() -> object:
    """The configuration of the document with its heartbeat."""
    config, more = (yaml.safe_load(block("yaml", place)) for place in (0, 1))
    config["sources"]["orders"] |= more["sources"]["orders"]
    config["pipelines"]["orders"]["tables"] += more["pipelines"]["orders"]["tables"]
    return config


def test_document_leads_from_nothing_to_equal_rows(open_dir: Path) -> None:
    folder = open_dir / "guide"
    folder.mkdir()
    captures, config = folder / "captures", folder / "pipelines.yaml"
    config.write_text(block("yaml"), encoding="utf-8")
    with (
        running_emulator(folder / "source", "--event-hubs-folder", str(captures), databases=("Sales",)) as source,
        PreparedPostgres(folder / "warehouse") as warehouse,
        source.connect_pymssql("Sales", autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        hub = {"conn_type": "fs", "extra": {"path": str(captures / "floods" / "orders")}}
        environment = command_environment(source, "Sales", warehouse, config) | {
            "AIRFLOW_CONN_SHOP_HUB": json.dumps(hub)
        }

        def run(*arguments: str, status: int = 0) -> str:
            command = begin(arguments, environment)
            assert command.wait(LIMIT_SECONDS) == status, command.output
            return " ".join(command.output.split())

        cursor.execute(TABLE)
        cursor.execute("INSERT dbo.Orders VALUES (1, 1.00, N'before the stream')")
        (captures / "floods" / "orders").mkdir(parents=True)
        assert "change event streaming is not enabled" in run("doctor", "orders", status=PROBLEMS)
        cursor.execute(block("sql"))
        run("config", "check")
        cursor.execute("INSERT dbo.Orders VALUES (2, 2.00, N'two'), (3, NULL, NULL)")
        cursor.execute("EXEC emulator.run_event_stream")
        run("run", "orders")
        cursor.execute("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1; DELETE dbo.Orders WHERE Id = 3")
        cursor.execute("EXEC emulator.run_event_stream")
        run("run", "orders")
        run("verify", "orders")
        assert "checks are good" in run("doctor", "orders")
        cursor.execute(block("sql", 1))
        config.write_text(yaml.safe_dump(with_heartbeat()), encoding="utf-8")
        assert "GRANT UPDATE ON [dbo].[floodmark_heartbeat] TO [x];" in run("doctor", "orders", "--grants", "x")
        assert "beat 0 was written" in run("doctor", "orders", "--all")
        cursor.execute("UPDATE dbo.floodmark_heartbeat SET beaten_at = DATEADD(hour, -1, beaten_at)")
        run("run", "orders")
        assert "beat 1 was written" in run("doctor", "orders", "--all")
        cursor.execute("EXEC emulator.run_event_stream")
        run("run", "orders")
        run("verify", "orders")
        cursor.execute("EXEC sys.sp_remove_object_from_event_stream_group N'floodmark', N'dbo.Orders'")
        assert "the table is not streamed" in run("doctor", "orders", status=PROBLEMS)
