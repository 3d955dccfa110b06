"""The machine's Chromium, without a window and without a profile, driven by Selenium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

REQUIRED = "FLOODMARK_REQUIRE_BROWSER"
"""With this variable, a machine without Chromium fails the tests instead of skipping them."""
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def why_no_browser() -> str:
    """Return why there is no browser, "" where there is one."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if not missing or os.environ.get(REQUIRED):
        return ""
    return f"there is no {' and no '.join(missing)} (Debian: chromium, chromium-driver); make test-clients has them"


@contextmanager
def open_browser(profile: Path) -> Iterator[Chrome]:
    """Start the browser with an empty folder for its profile; its console is kept for ``console_of``."""
    options = Options()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Named, so that Selenium downloads none.
    browser = Chrome(options, Service(shutil.which("chromedriver") or "chromedriver"))
    try:
        yield browser
    finally:
        browser.quit()


def show(browser: Chrome, width: int, scheme: str) -> None:
    """Set the width of the page in pixels, and the scheme, light or dark. Empty the console."""
    console_of(browser)
    _order(browser, "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    _order(browser, "Emulation.setEmulatedMedia", features=media)


def console_of(browser: Chrome) -> list[str]:
    """Return what the console has got since it was last asked, as one line each."""
    return [entry["message"] for entry in browser.get_log("browser")]  # type: ignore[no-untyped-call]


def _order(browser: Chrome, command: str, **parameters: Any) -> None:
    browser.execute_cdp_cmd(command, parameters)
