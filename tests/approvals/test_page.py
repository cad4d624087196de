"""The service in the guide, as somebody sees it in a browser."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
import uvicorn
from playwright.sync_api import sync_playwright

from outrider import Approvals
from scripts.test_servers import browser_program
from tests.documented_agent import documented_agent
from tests.test_readme import EXAMPLES

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@contextmanager
def served(app: Any) -> Generator[str]:
    """The address of a service that runs in a thread."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.mark.skipif(browser_program() is None, reason="no Chromium: APT=yes installs it")
def test_two_buttons_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = EXAMPLES["approvals.md 2"][0].partition("# ----")[0]
    service: dict[str, Any] = {"__name__": "service"}
    with ExitStack() as stack, documented_agent(tmp_path, monkeypatch, is_real=False):
        exec(compile(code, "service", "exec"), service)
        with served(service["app"]) as address, sync_playwright() as started:
            # The address of a socket in there can only be so long.
            short = stack.enter_context(TemporaryDirectory(dir="/tmp"))
            browser = started.chromium.launch(
                executable_path=str(browser_program()), args=FLAGS, env={**os.environ, "TMPDIR": short}
            )
            page = browser.new_page()
            page.request.post(f"{address}/work", params={"prompt": "Deploy it."})
            page.goto(address)
            assert "./deploy.sh" in page.locator("code").inner_text()
            id = page.locator("input[name=id]").get_attribute("value")
            page.get_by_role("button", name="Allow").click()
            page.get_by_text("It is deployed.").wait_for()
            assert page.get_by_role("button").count() == 0
            # Somebody else has the page open still, and decides otherwise.
            late = page.request.post(f"{address}/decide", form={"id": id or "", "verdict": "deny"})
            assert (late.ok, late.url.rstrip("/")) == (True, address)
            page.request.post(f"{address}/work", params={"prompt": "Deploy it."})
            # It shows what waits by itself.
            id = page.locator("input[name=id]").get_attribute("value")
            page.get_by_role("button", name="Deny").click()
            # The model has said something about it, too.
            page.get_by_text("It is deployed. It is deployed.").wait_for()
            assert page.get_by_role("button").count() == 0
            browser.close()
        denied = anyio.run(Approvals("sqlite:///approvals.db").get, id or "")
    assert (denied.state, denied.by, denied.message, denied.is_delivered) == (
        *("denied", "the page", "Not now."),
        True,
    )
