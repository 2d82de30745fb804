"""Drives the page: Debian's Chromium by Playwright. Every page must run without an error and without a breach of its
content security policy."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, List, Optional

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from page_png import smaller
from playwright.sync_api import Browser, Page, expect, sync_playwright

# Milliseconds for what should happen soon; generous, because the machine may be busy.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)
VIEWS = ("cluster", "data", "conflicts", "traffic", "history")
# Pictures that were taken.
TAKEN: List[Path] = []
WATCH = """
window.breaches = [];
document.addEventListener('securitypolicyviolation', (e) => window.breaches.push(e.violatedDirective + ' ' + e.blockedURI));
"""


def pytest_addoption(parser: Any) -> None:
    """Where pictures of the page are to be put."""
    parser.addoption("--screenshots", metavar="DIR", help="put pictures of the page there")


def pytest_sessionfinish() -> None:
    """Makes the pictures small: it takes too long for a test that looks at what happens."""
    for path in TAKEN:
        path.write_bytes(smaller(path.read_bytes()))


def chromium() -> str:
    """The browser's path."""
    path = os.environ.get("DISTKV_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "the page's tests need Chromium (Debian: apt-get install chromium)"
    return path


@pytest.fixture(scope="session")
def playwright():
    """The driver."""
    with sync_playwright() as running:
        yield running


@contextmanager
def browser_at(running: Any, path: str) -> Iterator[Browser]:
    """A browser, started by that program."""
    # Its sandbox is of no use here: it sees nothing but our own page, and cannot be had in containers.
    args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    browser = running.chromium.launch(executable_path=path, args=args)
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="session")
def browser(playwright):  # pylint: disable=redefined-outer-name
    """A browser."""
    with browser_at(playwright, chromium()) as running:
        yield running


class Watched:
    """A page that is looked after."""

    def __init__(self, browser: Browser, address: str, **options: Any):  # pylint: disable=redefined-outer-name
        options = {"viewport": {"width": 1100, "height": 800}, "reduced_motion": "reduce", **options}
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(PATIENCE)
        self.page: Page = self.context.new_page()
        self.address = address
        self.errors: List[str] = []
        self.longest_ms = 0.0
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._said)
        self.page.add_init_script(WATCH)

    def _said(self, message: Any) -> None:
        # That a request was refused is told by the page itself.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def open(self, view: str = "cluster") -> Page:
        """Shows a view."""
        self.page.goto(f"{self.address}/#{view}")
        # A browser that has just been started on a busy machine takes its time.
        self.page.locator("h1").wait_for(timeout=2 * PATIENCE)
        return self.page

    @contextmanager
    def no_long_task(self, most_ms: float = 100) -> Iterator[None]:
        """No task of the page takes longer meanwhile: of the processor's time, which does not depend on how busy the
        machine is."""
        browser = self.context.browser  # pylint: disable=redefined-outer-name
        assert browser
        browser.start_tracing(page=self.page, categories=["disabled-by-default-devtools.timeline"])
        yield
        events = json.loads(browser.stop_tracing())["traceEvents"]
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        main = [e for e in events if names.get((e["pid"], e["tid"])) == "CrRendererMain"]
        tasks = [e["tdur"] / 1000 for e in main if e["name"].endswith("RunTask") and "tdur" in e]
        assert tasks, "nothing was traced"
        self.longest_ms = max(tasks)
        assert self.longest_ms <= most_ms

    def check(self) -> None:
        """Nothing went wrong."""
        assert self.errors == []
        assert self.page.evaluate("window.breaches") == []

    def close(self) -> None:
        """Ends it, and checks it."""
        if self.page.is_closed():
            return
        try:
            self.check()
        finally:
            # What a test answers in the node's place may still be under way: its error would come up in the next test.
            self.page.unroute_all(behavior="ignoreErrors")
            self.context.close()


@pytest.fixture
def watch(browser):  # pylint: disable=redefined-outer-name
    """Opens pages, and looks after them."""
    opened: List[Watched] = []

    def start(address: str, within: Optional[Browser] = None, **options: Any) -> Watched:
        opened.append(Watched(within or browser, address, **options))
        return opened[-1]

    yield start
    for watched in opened:
        watched.close()


def axe(page: Page) -> List[str]:
    """What axe-core finds wrong with what is shown."""
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(AXE_FILE_PATH.read_text())
    found = page.evaluate("axe.run(document)")
    return [f"{rule['id']}: {[node['html'] for node in rule['nodes']]}" for rule in found["violations"]]


@pytest.fixture
def picture(request):
    """Takes a picture of a page, if that is asked for."""
    folder = request.config.getoption("--screenshots")

    def take(page: Page, name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            path = Path(folder) / f"{name}.png"
            page.screenshot(path=str(path), animations="disabled")
            TAKEN.append(path)

    return take
