"""A stack of its own, and the command run on it with one configuration per mishap."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from floodmark_laptop.stack import Stack
from forked_floodmark import begin
from torture_command import RunningCommand

DATABASE = "Mishaps"
LIMIT_SECONDS = 300


@dataclass
class Mishaps:
    """The stack, and the command run on one of the configurations."""

    stack: Stack
    folder: Path
    with_spark: bool = False
    """Whether loads run in spark-submit, with the checks of a window after them."""
    with_checks: bool = False
    """Whether the checks of a window are made after a load without Spark."""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def on_spark(self) -> Mishaps:
        """Return the same, with loads in spark-submit."""
        return replace(self, with_spark=True)

    @property
    def checked(self) -> Mishaps:
        """Return the same, with the checks of a window."""
        return replace(self, with_checks=True)

    def config(self, name: str, *tables: dict[str, Any]) -> Path:
        document = {
            "sources": {"src": {"conn_id": "bad_mssql"}},
            "warehouse": {"conn_id": "warehouse"},
            "pipelines": {name: {"source": "src", "schedule": "0 0 1 1 *", "tables": list(tables)}},
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def start(self, config: Path, **environment: str) -> RunningCommand:
        arguments = ("run", config.stem, "--config", str(config))
        at = self.stack.airflow.environment() | {"PYTHONPATH": str(Path(__file__).parent)} | environment
        return begin(arguments, at, with_spark=self.with_spark, with_checks=self.with_checks)

    def run(self, config: Path, **environment: str) -> tuple[int, str]:
        command = self.start(config, **environment)
        return command.wait(LIMIT_SECONDS), command.output

    def fails(self, config: Path, **environment: str) -> str:
        """The output of a run that must fail without a stack trace."""
        status, output = self.run(config, **environment)
        assert status != 0, output
        assert "Traceback" not in output
        return output

    def succeeds(self, config: Path) -> str:
        status, output = self.run(config)
        assert status == 0, output
        return output

    def source(self, sql: str) -> None:
        with self.stack.connect_source() as connection:
            connection.cursor().execute(sql)

    def source_value(self, sql: str) -> Any:
        with self.stack.connect_source() as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            row = cursor.fetchone()
            return row[0] if row else None

    def warehouse(self, sql: str) -> list[tuple[Any, ...]]:
        with self.stack.connect_warehouse() as connection:
            return connection.execute(sql).fetchall()

    def windows(self, config: Path) -> list[tuple[Any, ...]]:
        """Number and state of each window of the pipeline, oldest first."""
        return self.warehouse(
            f"SELECT window_id, state::text FROM floodmark.windows WHERE pipeline = '{config.stem}' ORDER BY window_id"
        )

    def wait_until_captured(self, table: str, where: str) -> None:
        self.stack.airflow.wait_for(
            lambda: self.source_value(f"SELECT COUNT(*) FROM cdc.dbo_{table}_CT WHERE {where}") > 0, "capture", 60
        )

    def assert_equal(self, config: Path) -> None:
        arguments = ("verify", config.stem, "--json", "--config", str(config))
        command = begin(arguments, self.stack.airflow.environment())
        command.wait(LIMIT_SECONDS)
        results = json.loads(command.output)
        assert [(each["source"], each["differences"]) for each in results if not each["equal"]] == []
        assert results

    def make_table(self, name: str, columns: str = "ID int NOT NULL PRIMARY KEY, V nvarchar(50) NULL") -> None:
        self.source(f"CREATE TABLE dbo.{name} ({columns})")
        self.source(f"EXEC sys.sp_cdc_enable_table N'dbo', N'{name}', @role_name = NULL, @supports_net_changes = 0")
        self.source(f"INSERT INTO dbo.{name} (ID, V) VALUES (1, N'one'), (2, N'zwölf')")
        self.wait_until_captured(name, "ID = 2")


def table(name: str, **more: Any) -> dict[str, Any]:
    return {"source": f"dbo.{name}", "target": f"bad.{name.lower()}", **more}
