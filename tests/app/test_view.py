"""`outrider view`: where it listens, whom it lets in, and how it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.app.machines import clean, run
from tests.view import sample


@contextmanager
def viewer(config: Path, *arguments: str, **environment: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """A viewer that runs, and the address that it printed; it is ended by Ctrl-C."""
    env = {**clean(), "CLAUDE_CONFIG_DIR": str(config), **environment}
    child = subprocess.Popen(
        [sys.executable, "-m", "outrider", "view", "--no-open", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        yield child.stdout.readline().strip(), child
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
        assert (out, err) == ("", "")
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


def get(address: str, cookie: str = "") -> tuple[int, str, str]:
    """The status, the cookie and the body of an answer."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    connection.request("GET", f"{parts.path}?{parts.query}", headers={"cookie": cookie})
    answer = connection.getresponse()
    told = answer.status, (answer.getheader("set-cookie") or "").partition(";")[0], answer.read().decode()
    connection.close()
    return told


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    sample.write(folder)
    return folder


def test_it_prints_one_address_and_serves_it_here_only(config: Path) -> None:
    with viewer(config, "--port", "0") as (address, child):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", address)
        status, cookie, _ = get(address)
        assert status == 303
        plain = address.partition("?")[0]
        assert "Fix checkout totals" in get(plain, cookie)[2]
        assert get(plain)[0] == 401
        port = f"{urlsplit(address).port:04X}"
        listening = [
            line.split()[1]
            for name in ("tcp", "tcp6")
            for line in Path(f"/proc/{child.pid}/net/{name}").read_text().splitlines()[1:]
            if line.split()[3] == "0A" and line.split()[1].endswith(f":{port}")
        ]
        assert listening == [f"0100007F:{port}"]


def test_two_at_once_find_a_port_each(config: Path) -> None:
    with viewer(config) as (first, _), viewer(config) as (second, _):
        assert urlsplit(first).port != urlsplit(second).port
        for address in (first, second):
            assert get(address)[0] == 303


def test_a_session_by_the_beginning_of_its_id(config: Path) -> None:
    with viewer(config, sample.SESSION[:8], "--port", "0") as (address, _):
        _, cookie, _ = get(address)
        status, _, page = get(f"{address.partition('?')[0]}s/{sample.SESSION}", cookie)
        assert status == 200
        assert "begin with the model." in page


def test_others_are_let_in_with_a_password_only(config: Path) -> None:
    code, out, err = run("view", "--no-open", "--host", "0.0.0.0", stdin="")
    assert (code, out) == (2, "")
    assert "OUTRIDER_VIEW_PASSWORD" in err
    with viewer(config, "--host", "0.0.0.0", "--port", "0", OUTRIDER_VIEW_PASSWORD="correct horse") as (
        address,
        _,
    ):
        assert "token" not in address
        assert "correct" not in address
        status, _, page = get(address)
        assert status == 401
        assert 'type="password"' in page


def test_a_password_is_never_a_flag() -> None:
    out = run("view", "--help").out
    assert "--password" not in out
    assert "OUTRIDER_VIEW_PASSWORD" in out


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("nothing.db",), "'nothing.db' does not exist"),
        (("",), "The path is empty"),
        ((str(Path(__file__).parent),), "the folder holds something else"),
        (("postgresql://nobody:secret@127.0.0.1:1/x",), "connection failed"),
        (("sqlite:///nothing.db",), "There is no store"),
        (("--approve",), "Say where approvals are kept"),
        (("--port", "70000"), "less than or equal to 65535"),
    ],
    ids=["missing", "empty", "folder", "unreachable", "store", "approve", "port"],
)
def test_what_cannot_be_looked_at(arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run("view", "--no-open", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "secret" not in err


def test_a_port_that_is_taken(config: Path) -> None:
    with viewer(config, "--port", "0") as (address, _):
        code, _, err = run("view", "--no-open", "--port", str(urlsplit(address).port))
        assert code == 2
        assert "Cannot listen on" in err


def test_without_its_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, out, err = run("view", "--no-open")
    assert (code, out) == (2, "")
    assert "pip install 'outrider[view]'" in err
