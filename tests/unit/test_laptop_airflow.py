"""The client of the laptop's Airflow, where Airflow does not answer."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from floodmark_laptop.airflow import Airflow, AirflowBusyError
from floodmark_laptop.processes import LaptopError


def airflow_with(folder: Path, *answers: httpx.Response | httpx.TransportError) -> Airflow:
    """Return an Airflow that gives these answers, one after the other."""
    left = list(answers)

    def answer(_request: httpx.Request) -> httpx.Response:
        given = left.pop(0)
        if isinstance(given, httpx.TransportError):
            raise given
        return given

    airflow = Airflow(folder, folder, 8080, "postgresql://", {})
    airflow._client = httpx.Client(base_url=airflow.url, transport=httpx.MockTransport(answer))
    return airflow


def test_a_late_answer_is_waited_for(tmp_path: Path) -> None:
    late = httpx.ReadTimeout("timed out")
    airflow = airflow_with(tmp_path, late, late, httpx.Response(200, json={"dag_runs": [{"dag_run_id": "one"}]}))
    airflow.wait_for(lambda: bool(airflow.runs("cdc_shop")), "a run", 60)


def test_a_missing_answer_is_one_message(tmp_path: Path) -> None:
    airflow = airflow_with(tmp_path, httpx.ReadTimeout("timed out"), httpx.ConnectError("refused"))
    with pytest.raises(AirflowBusyError, match=r"no answer to PATCH /dags/cdc_shop in 30 s"):
        airflow.unpause("cdc_shop")
    with pytest.raises(LaptopError, match=r"could not be asked for PATCH /dags/cdc_shop: refused"):
        airflow.unpause("cdc_shop")
