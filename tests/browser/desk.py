"""A server with jobs, and people in front of its dashboard: owner, tenant, read-only."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, StorageState, expect, sync_playwright

from tests.support.clients import Raw, Visitor
from tests.support.server import ServerProcess
from tools.browser import CHROMIUM
from tools.browser import Browser as InstalledBrowser
from tools.toolbox import Toolbox

PATIENCE = 120.0
"""Seconds: other lanes of tests run beside these."""
PAUSE = 0.1


HIDE = """(isHidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Tells the page that its tab is hidden, or seen again; a browser without a screen hides none."""


@dataclass
class Desk:
    server: ServerProcess
    tokens: dict[str, str] = field(default_factory=dict)
    """Of `owner` and tenants."""
    front: str = ""
    """The address of the page behind a proxy, if people use that."""

    @property
    def kube(self) -> Raw:
        return self._connect(self.server.url, "owner")

    @property
    def rest(self) -> Raw:
        """As the owner."""
        return self.connect("owner")

    @property
    def page_url(self) -> str:
        """Of the proxy, or of the door without TLS."""
        return self.front or str(self.server.info["dashboard"]["url"])

    def connect(self, who: str) -> Raw:
        return self._connect(self.server.rest_url, who)

    def _connect(self, url: str, who: str) -> Raw:
        return Visitor(url, ssl.create_default_context(cafile=str(self.server.ca)), self.tokens[who])

    def make_link(self, who: str, *, read_only: bool = False) -> str:
        """The address that `trainmaster dashboard` prints."""
        link = self.connect(who).create("/api/v1/login-links", {"read_only": read_only})["link"]
        return f"{self.page_url}#/login?link={link}"

    def add_tenant(self, name: str) -> None:
        made = self.rest.create("/api/v1/tenants", {"name": name, "without_walls": True})
        self.tokens[name] = made["token"]

    def read_job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.rest.get(f"/api/v1/jobs/{name}?namespace=default")
        return found

    def wait_for(self, name: str, is_reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while not is_reached(job := self.read_job(name)):
            assert time.monotonic() < deadline, job
            time.sleep(PAUSE)
        return job

    def end_jobs(self) -> None:
        """Programs outlive their server, so they have to end before it."""
        for job in self.rest.get("/api/v1/jobs?limit=500")["items"]:
            self.rest.delete(f"/api/v1/jobs/{job['name']}?namespace={job['namespace']}&kind={job['kind']}")
        deadline = time.monotonic() + PATIENCE
        while pods := self.kube.get("/api/v1/pods")["items"]:
            left = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["namespace"] != "kubeflow-system"]
            if not left:
                return
            assert time.monotonic() < deadline, left
            time.sleep(PAUSE)

    def find_address(self, name: str) -> str:
        """Of the job's page, as a fragment."""
        return f"#/job/default/{name}/{self.read_job(name)['uid']}"


def open_desk(server: ServerProcess) -> Desk:
    return Desk(server, {"owner": read_owner_token(server.home)})


def launch(driver: Playwright, found: InstalledBrowser) -> Browser:
    """Chromium's own sandbox needs privileges that test machines rarely give; the pages are ours."""
    environ: dict[str, str | float | bool] = {**os.environ, **found.environ}
    return driver.chromium.launch(executable_path=found.program, env=environ, chromium_sandbox=False)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Skips the test without Chromium. As long as it is there, this thread has a running event loop."""
    toolbox = Toolbox()
    found = toolbox.find_browser()
    if found is None:
        pytest.skip(toolbox.why_missing(CHROMIUM))
    # Other lanes of tests run beside this one.
    expect.set_options(timeout=30_000)
    with sync_playwright() as driver:
        program = launch(driver, found)
        yield program
        program.close()


def read_owner_token(home: Path) -> str:
    return (home / "pki" / "owner.token").read_text().strip()


_REPORT_POLICY = """
document.addEventListener("securitypolicyviolation", (event) => console.error("POLICY", event.violatedDirective));
window.alert = (text) => console.error("ALERT", text);
"""


@dataclass
class Watch:
    """What a page must not do."""

    origin: str
    complaints: list[str] = field(default_factory=list)

    def attach(self, page: Page) -> None:
        page.on("console", lambda message: self._note_message(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", lambda request: self._note_request(request.url))

    def _note_message(self, kind: str, text: str) -> None:
        # Answers such as 404 are expected here and there; the browser names them in the console.
        if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.complaints.append(f"console: {text}")

    def _note_request(self, url: str) -> None:
        if not url.startswith((self.origin, "blob:", "data:")):
            self.complaints.append(f"request to another origin: {url}")


class Door(Protocol):
    """Where people open the dashboard: a home, or a cluster (tests/seam)."""

    @property
    def page_url(self) -> str: ...

    def make_link(self, who: str, *, read_only: bool = False) -> str:
        """A one-time link, with the address of the page."""
        ...


@dataclass
class People:
    """Opens pages, each person logged in once."""

    browser: Browser
    door: Door
    watches: list[Watch] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)
    known: dict[tuple[str, bool], StorageState] = field(default_factory=dict)

    def open(
        self, address: str = "#/", who: str = "owner", *, read_only: bool = False, width: int = 1440, **options: Any
    ) -> Page:
        """`options`: of the browser's context, such as `locale` and `color_scheme`."""
        page = self.open_stranger(width=width, storage_state=self._log_in(who, read_only), **options)
        page.goto(self.door.page_url + address)
        page.locator("header.top").wait_for()
        return page

    def open_stranger(self, *, width: int = 1440, base: str = "", **options: Any) -> Page:
        """A page of somebody who is not logged in; no address is opened yet."""
        wanted = {"locale": "en-US", "timezone_id": "Asia/Seoul", **options}
        # The authority of the server's certificate is its own.
        wanted.setdefault("ignore_https_errors", self.door.page_url.startswith("https:"))
        context = self.browser.new_context(viewport={"width": width, "height": 900}, **wanted)
        context.add_init_script(_REPORT_POLICY)
        self.contexts.append(context)
        watch = Watch((base or self.door.page_url).removesuffix("ui/"))
        self.watches.append(watch)
        context.on("page", watch.attach)
        return context.new_page()

    def _log_in(self, who: str, read_only: bool) -> StorageState:
        key = who, read_only
        if key not in self.known:
            page = self.open_stranger()
            page.goto(self.door.make_link(who, read_only=read_only))
            page.locator("header.top").wait_for()
            self.known[key] = page.context.storage_state()
        return self.known[key]

    def close(self) -> list[str]:
        """Closes all pages of a test; what they complained about."""
        for context in self.contexts:
            context.close()
        found = [complaint for watch in self.watches for complaint in watch.complaints]
        self.contexts.clear()
        self.watches.clear()
        return found
