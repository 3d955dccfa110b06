"""Django over mssql-django, unmodified, in an environment of its own, on both of its drivers."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from drivers import DRIVERS, odbc_library
from emulator_process import Emulator

_HERE = Path(__file__).parent
_PYTHON = Path(__file__).parents[4] / "build" / "clients" / "django" / "bin" / "python"
_SECONDS = 120

ANSWERS = """\
migrated [('Lamp', Decimal('3.00'), False)]
constraints [('check', ['price']), ('check', ['traits']), ('primary_key', ['id']), ('unique', ['name'])]
login ada None
permissions 12
session {'items': [1, 'ü']}
stored Crab 🦀 12.50 1815-12-10 2 days, 0:00:00.000005 {'legs': [8, 2], 'sea': 'Nordsee'} b'\\x00\\x01\\xff'
recent True True
page ['n289', 'n288', 'n287']
json 1
text 3
months [(datetime.date(2024, 1, 1), 25, Decimal('3600.00')), (datetime.date(2024, 2, 1), 25, Decimal('3625.00'))]
window [(1, 'n299', 2024), (2, 'n298', 2024)]
changed 11
made False True
joined [('Crab 🦀', 5000, 3), ('Crab 🦀', 5000, 0)]
exists [('CRAB 🦀!', 3.5)]
union ['n298', 'n299']
refused True
locked kept
checked True
words ['kept', 'x']
deleted {'shop.Order_tags': 3, 'shop.Order': 2, 'shop.Product': 1}
flushed 0 0
left []
"""


@pytest.mark.parametrize("driver", ["pyodbc", "mssql_python"])
def test_django_migrates_stores_and_queries(driver: str, emulator: Emulator, tmp_path: Path) -> None:
    assert _PYTHON.exists(), "there is no environment with Django; make test-clients makes it"
    assert not (reason := DRIVERS["pyodbc"].why_not()), reason
    with closing(emulator.connect_pymssql("master", autocommit=True)) as connection:
        connection.cursor().execute(f"DROP DATABASE IF EXISTS Django_{driver}; CREATE DATABASE Django_{driver}")
    # mssql-django takes a server with a port from drivers of this name only.
    (tmp_path / "odbcinst.ini").write_text(f"[ODBC Driver 18 for SQL Server]\nDriver={odbc_library()}\n")
    where = {"HOST": emulator.host, "PORT": str(emulator.port), "DATABASE": f"Django_{driver}", "PYTHON_DRIVER": driver}
    login = {"LOGIN": emulator.user, "PASSWORD": emulator.password, "SSL_CERT_FILE": str(emulator.ca_file)}
    done = subprocess.run(
        [_PYTHON, _HERE / "django_shop.py"],
        env={**os.environ, **where, **login, "ODBCSYSINI": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert (done.stdout, done.returncode) == (ANSWERS, 0)
