"""The identity of the server: texts behind @@SERVERNAME and its like."""

from __future__ import annotations

from typing import Final

SERVER_NAME: Final = "sqlserver-emulator"
SERVICE_NAME: Final = "MSSQLSERVER"
LANGUAGE: Final = "us_english"
