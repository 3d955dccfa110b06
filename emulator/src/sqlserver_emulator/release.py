"""The releases of SQL Server as which the emulator can present itself.

The texts are those that servers of these builds were seen to return. What a release lacks is refused by its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Release:
    """A release, with what ``SERVERPROPERTY`` and ``@@VERSION`` say of it."""

    year: int
    version: tuple[int, int, int, int]
    """Major, minor, build and revision; the wire's handshake has the first three."""
    update: str
    article: str
    built: str
    """When the build was made, as @@VERSION writes it."""
    edition: str
    database_version: int
    """The version of the files of a database, ``DATABASEPROPERTYEX(…, 'Version')``."""

    @property
    def text(self) -> str:
        """@@VERSION."""
        return (
            f"Microsoft SQL Server {self.year} (RTM-{self.update}) ({self.article}) - {self.version_text} (X64) \n"
            f"\t{self.built} \n\tCopyright (C) {self.year} Microsoft Corporation\n"
            f"\t{self.edition} on Linux (sqlserver_emulator) <X64>"
        )

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def microsoft_version(self) -> int:
        """@@MICROSOFTVERSION."""
        major, minor, build, _ = self.version
        return major << 24 | minor << 16 | build

    @property
    def has_event_streaming(self) -> bool:
        """Whether the release has change event streaming."""
        return self.year >= SQL_SERVER_2025.year


SQL_SERVER_2022: Final = Release(
    2022, (16, 0, 4135, 4), "CU14", "KB5038325", "Jul 10 2024 14:09:09", "Developer Edition (64-bit)", 957
)
SQL_SERVER_2025: Final = Release(
    2025, (17, 0, 4055, 5), "CU6", "KB5093421", "Jun  9 2026 12:41:10", "Enterprise Developer Edition (64-bit)", 998
)
RELEASES: Final = {release.year: release for release in (SQL_SERVER_2022, SQL_SERVER_2025)}
