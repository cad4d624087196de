"""Viewers to look at: in this process, and over a real socket."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, sync_playwright
from starlette.testclient import TestClient

from outrider.view import View
from scripts.test_servers import browser_program

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
HOME = "http://127.0.0.1:8450"

needs_browser = pytest.mark.skipif(browser_program() is None, reason="no Chromium: APT=yes installs it")


def client(view: Any, *, is_in: bool = True, base: str = HOME, **fields: Any) -> TestClient:
    """One who looks, with the cookie already."""
    made = TestClient(view, base_url=base, follow_redirects=False, **fields)
    if is_in:
        assert made.get(f"/?token={view.token}").status_code == 303
    return made


@contextmanager
def served(app: Any) -> Generator[str]:
    """The address of a service that runs in a thread."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3, loop="asyncio")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            if isinstance(app, View):
                app.hang_up()
            server.should_exit = True
            thread.join()


@contextmanager
def chromium() -> Generator[Browser]:
    # The address of a socket in there can only be so long.
    with TemporaryDirectory(dir="/tmp") as short, sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=str(browser_program()), args=FLAGS, env={**os.environ, "TMPDIR": short}
        )
        try:
            yield browser
        finally:
            browser.close()
