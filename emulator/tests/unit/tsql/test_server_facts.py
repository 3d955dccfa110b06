from __future__ import annotations

import pytest

from sqlserver_emulator.release import RELEASES, Release


@pytest.mark.parametrize("release", RELEASES.values(), ids=lambda release: str(release.year))
def test_version_text_fits_its_variable(release: Release) -> None:
    assert len(release.text) <= 300
