"""The identity of the server: product version and texts behind @@VERSION and its like."""

from __future__ import annotations

from typing import Final

VERSION: Final = (16, 0, 4135, 4)
"""SQL Server 2022 CU14, whose behaviour is imitated; the wire's handshake says the same major, minor and build."""
VERSION_TEXT: Final = (
    "Microsoft SQL Server 2022 (RTM-CU14) (KB5038325) - 16.0.4135.4 (X64) \n\tJul 10 2024 14:09:09 \n\t"
    "Copyright (C) 2022 Microsoft Corporation\n\tDeveloper Edition (64-bit) on Linux (sqlserver_emulator) <X64>"
)
SERVER_NAME: Final = "sqlserver-emulator"
SERVICE_NAME: Final = "MSSQLSERVER"
MICROSOFT_VERSION: Final = VERSION[0] << 24 | VERSION[1] << 16 | VERSION[2]
LANGUAGE: Final = "us_english"
