"""A Python process with Airflow set up in a folder of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class DagProcess:
    folder: Path

    def run(self, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Keyword arguments become environment variables."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "FLOODMARK"))}
        environment = {
            **kept,
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.folder}/airflow.db",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            **variables,
        }
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
