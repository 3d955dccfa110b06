"""A company's database, from ``floodmark init`` to a comparison under load, with the ``floodmark`` of any environment.

FLOODMARK_STORY_PYTHON names the Python of that environment, in which pip has installed the wheels alone.
bin/check-bounds makes one of the oldest versions and one of the newest. It needs a KDC.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from cdc_database import wait_until
from command_line import warehouse_environment
from emulator_process import Emulator
from kdc import CLIENT as PRINCIPAL
from kdc import Kdc, kerberos_emulator, running_kdc
from prepared_folders import PreparedPostgres
from server_folders import server_folder
from token_service import CLIENT, SECRET, TENANT, TokenService, token_service

PYTHON = os.environ.get("FLOODMARK_STORY_PYTHON", "")
pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not PYTHON, reason="bin/check-bounds makes an environment for it"),
]
ORDERS = "SELECT order_id, quantity, note FROM sales.orders ORDER BY 1"
BEFORE_THE_COLUMN = "SELECT order_id, quantity FROM sales.orders ORDER BY 1"
OF_THIS_ENVIRONMENT = ("VIRTUAL_ENV", "VENV", "PYTHONPATH", "AIRFLOW_HOME")


@dataclass
class Company:
    """The database ``Sales`` with its DBA, the warehouse, and the operator's shell."""

    emulator: Emulator
    warehouse: PreparedPostgres
    kdc: Kdc
    tokens: TokenService
    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "sales.yaml"

    def by_dba(self) -> dict[str, str]:
        """Return the environment of the DBA."""
        return self._environment({}, login=self.emulator.user, password=self.emulator.password)

    def by_entra(self) -> dict[str, str]:
        """Return the environment of an operator whose application logs in by a token."""
        variables = {"AZURE_AUTHORITY_HOST": self.tokens.url, "REQUESTS_CA_BUNDLE": str(self.tokens.ca_file)}
        extra = {"authentication": "ActiveDirectoryServicePrincipal", "tenant": TENANT}
        return self._environment(variables, login=CLIENT, password=SECRET, extra=extra)

    def by_kerberos(self) -> dict[str, str]:
        """Return the environment of an operator with a keytab."""
        return self._environment(self.kdc.client, extra={"authentication": "Kerberos"})

    def _environment(
        self, variables: Mapping[str, str], extra: Mapping[str, str] | None = None, **login: str
    ) -> dict[str, str]:
        fields = {"conn_type": "mssql", "host": "localhost", "port": self.emulator.port, "schema": "Sales", **login}
        source = fields | {"extra": {"ca_file": str(self.emulator.ca_file), **(extra or {})}}
        usual = warehouse_environment(self.warehouse, self.config)
        own = {"AIRFLOW_HOME": str(self.folder / "airflow"), "AIRFLOW_CONN_SALES_MSSQL": json.dumps(source)}
        return {name: value for name, value in usual.items() if name not in OF_THIS_ENVIRONMENT} | own | dict(variables)

    def call(self, environment: Mapping[str, str], *arguments: str, status: int = 0) -> str:
        """Run a command of the environment under test, outside of the clone. Returns its standard output."""
        began = time.monotonic()
        done = subprocess.run(
            [str(Path(PYTHON).with_name("floodmark")), *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{time.monotonic() - began:.1f} s: floodmark {' '.join(arguments)}")  # pytest -s shows them
        assert done.returncode == status, f"{arguments}\n{done.stdout}{done.stderr}"
        assert SECRET not in done.stdout + done.stderr
        return done.stdout

    def read(self, environment: Mapping[str, str], *arguments: str) -> Any:
        return json.loads(self.call(environment, *arguments, "--json"))

    def change(self, *statements: str, database: str = "Sales") -> None:
        """Run statements as the DBA."""
        with self.emulator.connect_pymssql(database, autocommit=True) as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def count(self, query: str) -> int:
        with self.emulator.connect_pymssql("Sales") as session, session.cursor() as cursor:
            cursor.execute(query)
            return int(cursor.fetchone()[0])

    def change_and_capture(self, statement: str, change_table: str = "dbo_Orders_CT") -> None:
        """Run a statement of one row, and wait until its change is in the change table."""
        query = f"SELECT COUNT(*) FROM cdc.{change_table} WHERE [__$operation] IN (2, 4)"
        before = self.count(query)
        self.change(statement)
        wait_until(lambda: self.count(query) > before)

    def target(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.warehouse.conninfo()) as session:
            return session.execute(query).fetchall()

    def set_rules(self, *rules: Mapping[str, str]) -> None:
        """Write the rules of dbo.Orders into the configuration, as its author does."""
        document = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        for table in document["pipelines"]["sales"]["tables"]:
            if table["source"] == "dbo.Orders":
                table["rules"] = list(rules)
        self.config.write_text(yaml.safe_dump(document), encoding="utf-8")

    @contextmanager
    def workload(self) -> Iterator[None]:
        """Change rows all the time."""
        ended = threading.Event()

        def write() -> None:
            with self.emulator.connect_pymssql("Sales", autocommit=True) as session, session.cursor() as cursor:
                while not ended.wait(0.05):
                    cursor.execute("UPDATE dbo.Orders SET Quantity = Quantity + 1 WHERE OrderID = 2")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            ended.set()
            writer.join()


@pytest.fixture
def company(tmp_path: Path) -> Iterator[Company]:
    with (
        server_folder("sqlserver-emulator-") as servers,  # each test has its own
        running_kdc(tmp_path / "kdc") as kdc,
        token_service(tmp_path / "tokens") as tokens,
        kerberos_emulator(kdc, servers / "source", "--capture-interval", "0.2", databases=("Sales",)) as emulator,
        PreparedPostgres(servers / "warehouse") as warehouse,
    ):
        folder = tmp_path / "company"
        folder.mkdir()
        made = Company(emulator, warehouse, kdc, tokens, folder)
        made.change(
            "CREATE TABLE dbo.Orders (OrderID int PRIMARY KEY, Quantity int)",
            "CREATE TABLE dbo.Customers (CustomerID int PRIMARY KEY, Name nvarchar(40))",
            "INSERT INTO dbo.Orders VALUES (1, 10), (2, 20)",
            "INSERT INTO dbo.Customers VALUES (1, N'Åse')",
            "CREATE LOGIN loader WITH PASSWORD = N'Unused-1'",
            f"EXEC emulator.accept_principal @principal = N'{PRINCIPAL}', @login = N'loader'",
            f"EXEC emulator.accept_tokens @key = N'{tokens.public_key}', @subject = N'{CLIENT}', @login = N'loader'",
        )
        yield made


def enable_and_grant(company: Company) -> None:
    """Do what a DBA does with the two scripts that Floodmark prints."""
    dba = company.by_dba()
    options = ("--warehouse", "warehouse", "--name", "sales", "--output", str(company.config))
    printed = company.call(dba, "init", "--source", "sales_mssql", *options)
    company.change(*(line for line in printed.splitlines() if line.startswith("EXEC ")))
    script = company.call(dba, "doctor", "sales", "--grants", "loader")
    company.change(script[script.index("-- All rights") :])


def load_first(company: Company) -> None:
    """Set the pipeline up, and load its tables by a token."""
    enable_and_grant(company)
    by_entra, by_kerberos = company.by_entra(), company.by_kerberos()
    for environment, kind in ((by_entra, "a token of client"), (by_kerberos, "a ticket of loader@")):
        findings = company.read(environment, "doctor", "sales", "--all")
        assert [each["text"].startswith(kind) for each in findings if each["check"] == "login"] == [True]
        assert [each for each in findings if each["grade"] == "problem"] == []
    wait_until(lambda: company.count("SELECT COUNT(*) FROM cdc.lsn_time_mapping") > 0)
    company.call(by_entra, "run", "sales")
    assert company.target(BEFORE_THE_COLUMN) == [(1, 10), (2, 20)]
    assert company.target("SELECT customer_id, name FROM sales.customers") == [(1, "Åse")]


def test_database_is_loaded_by_what_pip_installed(company: Company) -> None:
    load_first(company)


def test_own_database_from_the_first_load_to_a_comparison_under_load(company: Company) -> None:
    load_first(company)
    by_entra, by_kerberos = company.by_entra(), company.by_kerberos()

    # A bad row, by a ticket.
    company.set_rules({"name": "positive", "sql": "quantity > 0", "on_failure": "quarantine"})
    company.change_and_capture("INSERT INTO dbo.Orders VALUES (3, -30)")
    company.call(by_kerberos, "run", "sales")
    assert company.target(BEFORE_THE_COLUMN) == [(1, 10), (2, 20)]
    assert [each["kind"] for each in company.read(by_kerberos, "alerts", "list")] == ["rows_quarantined"]
    company.set_rules()
    company.call(by_kerberos, "quarantine", "release", "sales", "dbo.Orders")
    assert company.target(BEFORE_THE_COLUMN) == [(1, 10), (2, 20), (3, -30)]

    # A new column: this login proposes it, and the DBA runs the script.
    company.change("ALTER TABLE dbo.Orders ADD Note nvarchar(40)")
    company.change_and_capture("UPDATE dbo.Orders SET Note = N'fragile', Quantity = 11 WHERE OrderID = 1")
    company.call(by_entra, "run", "sales")
    (event,) = company.read(by_entra, "drift", "list")
    assert (event["kind"], event["column"]) == ("column_added", "Note")
    company.change(event["proposal"], database="master")
    company.call(by_kerberos, "drift", "approve", str(event["event_id"]))
    company.change_and_capture("INSERT INTO dbo.Orders VALUES (4, 40, N'gift')")
    for command in ("run sales", f"drift switch {event['source']}", "reload sales dbo.Orders", "run sales"):
        company.call(by_kerberos, *command.split())
    expected = [(1, 11, "fragile"), (2, 20, None), (3, -30, None), (4, 40, "gift")]
    assert company.target(ORDERS) == expected
    company.call(by_kerberos, "drift", "switch", event["source"])
    (alert,) = company.read(by_kerberos, "alerts", "list")
    assert (alert["kind"], "sp_cdc_disable_table" in alert["do"]) == ("instance_switch", True)

    # A comparison while the source is in use.
    with company.workload():
        wait_until(lambda: company.count("SELECT Quantity FROM dbo.Orders WHERE OrderID = 2") > 20)
        compared = company.read(by_entra, "verify", "sales")
    assert {each["source"]: each["equal"] for each in compared} == {"dbo.Orders": True, "dbo.Customers": True}
    assert [each["changed_rows"] for each in compared if each["source"] == "dbo.Orders"] == [1]
