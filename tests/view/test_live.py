"""Pages that follow what is new, and clients that do not read."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import pytest
import uvicorn

from outrider import Session, Sessions
from outrider.testing import Simulator, say, use_tool
from outrider.transcripts import MemoryStore, SessionKey
from outrider.transports import read_trace
from outrider.view import View, _live, app
from outrider.view import _app as app_module
from outrider.wire import Message, decode
from tests.view.sample import KEY, SESSION, Writer, text, use
from tests.view.serving import client, served

_SECONDS = 20
RECORDINGS = Path(__file__).parents[1] / "recordings"


class Stream:
    """Server-sent events, read from a socket."""

    def __init__(self, address: str, cookie: str, path: str, **headers: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        self.socket = socket.create_connection((parts.hostname, parts.port or 80), timeout=_SECONDS)
        lines = [f"GET {path} HTTP/1.1", f"Host: {parts.netloc}", f"Cookie: {cookie}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = b""
        while (line := self.file.readline()).strip():
            self.headers += line.lower()

    def piece(self) -> str:
        """What comes next."""
        size = int(self.file.readline() or b"0", 16)
        assert size, "the stream has ended"
        return self.file.read(size + 2)[:-2].decode()

    def next(self, wanted: str) -> dict[str, str]:
        """The next event with a name."""
        while True:
            told: dict[str, str] = {}
            for line in self.piece().splitlines():
                name, _, value = line.partition(": ")
                told[name] = f"{told[name]}\n{value}" if name in told else value
            if told.get("event") == wanted:
                return told

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@contextmanager
def followed(view: View) -> Generator[tuple[str, str]]:
    """The address of a viewer, and the cookie of one who may look."""
    looking = client(view)
    cookie = "; ".join(f"{name}={value}" for name, value in looking.cookies.items())
    with served(view) as address:
        yield address, cookie


def append(path: Path, w: Writer) -> None:
    with path.open("ab") as file:
        file.write(w.data())
    w.lines = []


@pytest.mark.parametrize("between, calls", [(5, 1), (15, 1), (0, 40)])
def test_a_result_that_comes_later_is_shown_with_its_call(
    view: View, config: Path, between: int, calls: int
) -> None:
    path = config / "projects" / KEY / f"{SESSION}.jsonl"
    w = Writer()
    w.count = 9_000
    w.say(*(use(f"n{number}", "Bash", command=f"make {number}") for number in range(calls)))
    for _ in range(between):
        w.add("system", subtype="task_progress")
    append(path, w)
    start = path.stat().st_size
    with followed(view) as (address, cookie):
        for number in range(calls):
            w.result(f"n{number}", f"built {number}")
            append(path, w)
            with closing(Stream(address, cookie, f"/s/{SESSION}/live?from={start}")) as stream:
                told = stream.next("rows")
            assert f"built {number}" in told["data"]
            assert "<b>Result</b>" not in told["data"]
            assert len(re.findall(r'class="call shell done"', told["data"])) >= number + 1
            start = int(told["id"])


def test_what_is_written_appears_and_a_result_changes_its_call(view: View, config: Path) -> None:
    path = config / "projects" / KEY / f"{SESSION}.jsonl"
    w = Writer()
    w.count = 9_000
    start = path.stat().st_size
    with followed(view) as (address, cookie):
        with closing(Stream(address, cookie, f"/s/{SESSION}/live?from={start}")) as stream:
            assert stream.status == 200
            assert b"text/event-stream" in stream.headers
            w.prompt("A new prompt")
            w.say(use("n1", "Bash", command="make"))
            append(path, w)
            told = stream.next("rows")
            assert "A new prompt" in told["data"]
            assert "running" in told["data"]
            row = re.findall(r'id="(e\d+)" class="row claude work"', told["data"])[-1]
            w.result("n1", "all is built")
            append(path, w)
            told = stream.next("rows")
            assert "all is built" in told["data"]
            assert f'id="{row}"' in told["data"]
            last = told["id"]
            assert int(last) == path.stat().st_size
        w.say(text("While nobody listened"))
        append(path, w)
        with closing(Stream(address, cookie, f"/s/{SESSION}/live?from=0", Last_Event_ID=last)) as stream:
            told = stream.next("rows")
            assert "While nobody listened" in told["data"]
            assert "binary floats" not in told["data"]
            path.unlink()
            stream.next("gone")


def test_a_file_that_was_exchanged_is_read_anew(view: View, config: Path) -> None:
    path = config / "projects" / KEY / f"{SESSION}.jsonl"
    with (
        followed(view) as (address, cookie),
        closing(Stream(address, cookie, f"/s/{SESSION}/live?from={path.stat().st_size}")) as stream,
    ):
        path.write_bytes(path.read_bytes()[:500])
        stream.next("reset")


def test_a_store_is_followed(config: Path) -> None:
    store = MemoryStore()

    async def fill() -> None:
        await Sessions(config=config).copy(SESSION, Sessions(store))

    anyio.run(fill)
    with (
        followed(app(store)) as (address, cookie),
        closing(Stream(address, cookie, f"/s/{SESSION}/live?from=0")) as stream,
    ):
        while "begin with the model" not in stream.next("rows")["data"]:
            pass
        w = Writer()
        w.count = 9_000
        w.prompt("From another machine")
        lines: Any = w.lines
        key: SessionKey = {"project_key": KEY, "session_id": SESSION}
        anyio.run(store.append, key, lines)
        assert "From another machine" in stream.next("rows")["data"]


class Wavering(MemoryStore):
    """A store that cannot be reached at times."""

    is_away = False

    async def load(self, key: SessionKey) -> Any:
        if self.is_away:
            raise ConnectionError("no route to the store")
        return await super().load(key)

    async def get_session_summary(self, key: Any) -> Any:
        if self.is_away:
            raise ConnectionError("no route to the store")
        return await super().get_session_summary(key)

    async def list_latest_sessions(self, *arguments: Any, **fields: Any) -> Any:
        if self.is_away:
            raise ConnectionError("no route to the store")
        return await super().list_latest_sessions(*arguments, **fields)


def test_a_store_that_is_away_is_not_taken_for_a_session_that_is_gone(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "_SLOW", 0.1)
    store = Wavering()
    anyio.run(Sessions(config=config).copy, SESSION, Sessions(store))
    with (
        followed(app(store)) as (address, cookie),
        closing(Stream(address, cookie, f"/s/{SESSION}/live?from=0")) as stream,
        closing(Stream(address, cookie, "/watch/sessions")) as listed,
    ):
        assert listed.piece() == "retry: 2000\n\n"
        while "begin with the model" not in stream.next("rows")["data"]:
            pass
        store.is_away = True
        assert "no route to the store" in stream.next("away")["data"]
        listed.next("changed")
        with closing(Stream(address, cookie, "/")) as page:
            assert page.status == 502
        w = Writer()
        w.count = 9_000
        w.prompt("Written meanwhile")
        lines: Any = w.lines
        key: SessionKey = {"project_key": KEY, "session_id": SESSION}
        anyio.run(store.append, key, lines)
        store.is_away = False
        assert "Written meanwhile" in stream.next("rows")["data"]
        listed.next("changed")


def test_the_list_tells_that_it_changed(view: View, config: Path) -> None:
    with (
        followed(view) as (address, cookie),
        closing(Stream(address, cookie, "/watch/sessions")) as stream,
    ):
        assert stream.piece() == "retry: 2000\n\n"
        other = "99999999-0000-4000-8000-000000000000"
        w = Writer(other)
        w.prompt("hello")
        append(config / "projects" / KEY / f"{other}.jsonl", w)
        stream.next("changed")


def test_clients_do_not_pile_up(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_live, "_MOST_CLIENTS", 3)
    with followed(view) as (address, cookie):
        streams = [Stream(address, cookie, "/watch/sessions") for _ in range(3)]
        refused = Stream(address, cookie, "/watch/sessions")
        assert (refused.status, b"retry-after" in refused.headers) == (503, True)
        refused.close()
        # Pages are still served, and a place becomes free when one leaves.
        with closing(Stream(address, cookie, "/")) as page:
            assert page.status == 200
        for stream in streams:
            stream.close()
        # The test's own timeout ends this if there never is a free place.
        while (again := Stream(address, cookie, "/watch/sessions")).status == 503:
            again.close()
        again.close()


def test_a_client_that_does_not_read_is_dropped(
    view: View, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_live, "_PATIENCE", 0.2)
    path = config / "projects" / KEY / f"{SESSION}.jsonl"
    w = Writer()
    for number in range(3_000):
        w.say(text(f"{number} " + "word " * 1_000))
    append(path, w)
    with followed(view) as (address, cookie):
        lazy = Stream(address, cookie, f"/s/{SESSION}/live?from=0")
        # It gets what fits into buffers, and then the end.
        clients = view._clients
        done = threading.Event()
        for _ in range(_SECONDS * 50):
            if clients.count == 0:
                break
            done.wait(0.02)
        assert clients.count == 0
        lazy.close()


def test_a_session_of_this_process_is_heard() -> None:
    agent = Simulator([use_tool("Bash", command="echo built"), say("It is **built**.")])

    async def main() -> None:
        async with Session(transport=agent, permission_mode="bypassPermissions") as session:
            view = app(session)
            config = uvicorn.Config(
                view, log_level="warning", timeout_graceful_shutdown=3, port=0, loop="asyncio"
            )
            server = uvicorn.Server(config)
            page = ""
            async with anyio.create_task_group() as group:
                group.start_soon(server.serve)
                while not server.started:  # noqa: ASYNC110 - nothing announces it
                    await anyio.sleep(0.01)
                port = server.servers[0].sockets[0].getsockname()[1]
                await session.ask("Build it")

                def look() -> str:
                    looking = client(view, base=f"http://127.0.0.1:{port}")
                    cookie = "; ".join(f"{name}={value}" for name, value in looking.cookies.items())
                    address = f"http://127.0.0.1:{port}"
                    with closing(Stream(address, cookie, "/")) as first:
                        assert first.status == 307
                    (id,) = view._library._fixed
                    with closing(Stream(address, cookie, f"/s/{id}/live?from=0")) as stream:
                        return stream.next("rows")["data"]

                with anyio.fail_after(_SECONDS):
                    page = await anyio.to_thread.run_sync(look)
                view.hang_up()
                server.should_exit = True
            for expected in ("Build it", "echo built", "<strong>built</strong>", "Turn ended"):
                assert expected in page

    anyio.run(main)


def test_what_is_being_said_is_shown() -> None:
    recording = read_trace(RECORDINGS / "02-partial-text-and-tool.jsonl.gz")
    frames = [decode(record.data) for record in recording.records if record.direction == "cli->host"]

    async def main() -> None:
        async with Session(transport=Simulator([say("Hello")])) as session:
            view = app(session)
            (opened,) = view._library._fixed.values()
            assert opened.live is not None
            heard: list[str] = []
            for frame in frames:
                opened.live.received([cast("Message", frame)])
                heard.append(opened.partial)
            assert len(max(heard, key=len)) > len(min(filter(None, heard), key=len)) > 0
            assert heard[-1] == ""
            await view.close()

    anyio.run(main)
