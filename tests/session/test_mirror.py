"""What an agent writes goes to the session store: all of it, once, in order; and nobody waits for a store
that does not answer."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.errors import SessionBusy, StoreError
from outrider.session import Session, SessionState
from outrider.session._connection import connection as _connection
from outrider.session._store import link
from outrider.session._store import mirror as _mirror
from outrider.testing import Simulator, say, use_tool
from outrider.transcripts import MemoryStore, SqliteStore, project_key
from outrider.transcripts.stores import _base
from outrider.transports import Command, ProcessTransport
from outrider.wire import ConversationResetMessage, MirrorErrorMessage, ResultMessage, UserMessage
from tests.session.other_end import SESSION, OtherEnd, assistant, init, lifecycle, playing, result
from tests.session.stores import MAIN, PROJECT, Told, errors_of, has_lease, hurried, mirrored, on_disk

pytestmark = pytest.mark.anyio

ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""A cancellation from outside of any scope is only possible there."""

DOWN = StoreError("Told", "append", "gone", retryable=True)


def working(*frames: Any, later: Any = ()) -> Any:
    """An agent that says this before each result, and that after it."""

    async def play(agent: OtherEnd) -> None:
        while (event := await agent.next()) is not None:
            if isinstance(event, UserMessage):
                uuid = event.uuid or ""
                said: list[Any] = [frame() if callable(frame) else frame for frame in frames]
                await agent.say(
                    lifecycle(uuid, "started"), init(uuid), assistant(), *said, result(uuid), *later
                )

    return play


def counting() -> Any:
    """Frames with one entry each, numbered from 1 on."""
    numbers = iter(range(1, 1000))
    return lambda: mirrored(next(numbers))


def entries_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Everything, once, in order.


@pytest.mark.parametrize("flush", ["batched", "eager"])
async def test_all_that_the_agent_writes_is_in_the_store_once(tmp_path: Path, flush: Any) -> None:
    store, config = MemoryStore(), tmp_path / "config"
    script = [use_tool("Bash", command="true"), say("one"), say("two")]
    with anyio.fail_after(20), Simulator(script, config_dir=config) as agent:
        options = agent.options(
            session_store=store,
            session_store_flush=flush,
            cwd=tmp_path,
            permission_mode="bypassPermissions",
            allow_dangerously_skip_permissions=True,
        )
        async with Session(options) as session:
            first = await session.ask("first")
            await session.ask("second")
        key: Any = {"project_key": project_key(tmp_path), "session_id": first.session_id}
        # What it writes when its input has ended is there too.
        written = entries_of(on_disk(config, tmp_path, first.session_id or ""))
        assert written[-1]["type"] == "cost-state"
        assert store.get_entries(key) == written


async def test_frames_are_stored_together_and_in_order() -> None:
    store = Told()
    store.barrier = anyio.Event()
    frames = [mirrored(number) for number in range(10)]
    frames += [mirrored(0, 1, part="subagents/agent-a"), mirrored(10), mirrored(11)]
    async with playing(working(*frames), session_store=store) as session:
        turn = await session.send("go")
        await store.asked.wait()
        store.barrier.set()
        await turn.result()
        assert store.numbers() == list(range(12))
        assert store.numbers({**MAIN, "subpath": "subagents/agent-a"}) == [0, 1]
        assert [count for _, count in store.calls] == [10, 2, 2]
    assert store.is_free
    assert not store.is_closed, "it is the user's"


async def test_a_store_without_batches_gets_appends() -> None:
    class Plain:
        def __init__(self) -> None:
            self.entries: list[Any] = []

        async def append(self, key: Any, entries: Any) -> None:
            self.entries += entries

        async def load(self, key: Any) -> Any:
            return None

    store = Plain()
    async with playing(working(mirrored(1, 2)), session_store=store) as session:
        await session.ask("go")
        assert [entry["number"] for entry in store.entries] == [1, 2]


async def test_what_is_no_transcript_is_dropped_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    store = Told()
    odd = {"type": "transcript_mirror", "filePath": "/etc/passwd", "entries": [{"type": "user"}]}
    empty = {**mirrored(), "entries": []}
    async with playing(working(odd, odd, empty, mirrored(1)), session_store=store) as session:
        assert not errors_of((await session.ask("go")).messages)
    assert store.numbers() == [1]
    assert [record.getMessage() for record in caplog.records if "/etc/passwd" in record.getMessage()] == [
        "what is written to '/etc/passwd' is not a transcript and is not stored"
    ]


async def test_a_cleared_conversation_has_a_transcript_and_a_lease_of_its_own() -> None:
    store = MemoryStore()
    with anyio.fail_after(20), Simulator([say("one"), say("two")]) as agent:
        async with Session(agent.options(session_store=store)) as session:
            first = await session.ask("first")
            reset = await session.ask("/clear")
            assert any(isinstance(message, ConversationResetMessage) for message in reset.messages)
            second = await session.ask("second")
            for result in (first, second):
                (project,) = await store.find_session(result.session_id or "")
                with pytest.raises(SessionBusy):
                    await store.acquire_lease(
                        {"project_key": project, "session_id": result.session_id or ""}, "me", 1
                    )
    assert first.session_id != second.session_id
    assert not has_lease(store)


# Results wait, within a bound.


async def test_a_result_waits_for_the_store_and_nothing_else_does() -> None:
    store = Told()
    store.barrier = anyio.Event()
    answered = anyio.Event()

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        uuid = prompt.uuid or ""
        await agent.say(init(uuid), assistant("said"), mirrored(1), result(uuid))
        await agent.ask("hook_callback", callback_id="hook_0", input={"hook_event_name": "Stop"})
        await agent.next()
        answered.set()
        await agent.answer(await agent.asked("mcp_status"))
        await agent.wait_ended()

    called: list[Any] = []

    async def hook(given: Any) -> None:
        called.append(given)

    hooks: Any = {"Stop": [hook]}
    async with playing(play, session_store=store, hooks=hooks) as session:
        turn = await session.send("go")
        reader = aiter(session)
        while not isinstance(await anext(reader), outrider.AssistantMessage):
            pass
        # The result came before the question, and that is answered.
        await answered.wait()
        assert called
        # So are our own.
        await session.request("mcp_status")
        assert not turn.is_over
        assert not any(isinstance(message, ResultMessage) for message in turn.messages)
        assert not store.numbers()
        store.barrier.set()
        assert isinstance(await anext(reader), ResultMessage)
        assert store.numbers() == [1]
        assert (await turn.result()).is_success
        assert str(await turn.cancel()) == "finished_first"


async def test_a_store_that_is_slow_is_reported_before_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_mirror, "HOLD_SECONDS", 0.01)
    store = Told()
    store.barrier = anyio.Event()
    async with playing(working(counting()), session_store=store) as session:
        turn = await session.send("go")
        kinds = [type(message) async for message in turn]
        assert kinds.index(MirrorErrorMessage) == kinds.index(ResultMessage) - 1
        got = await turn.result()
        assert "is not stored yet" in errors_of(got.messages)[0]
        # It is known to be slow now: nobody waits for it, and nothing is told twice.
        monkeypatch.setattr(_mirror, "HOLD_SECONDS", 60.0)
        assert not errors_of((await session.ask("again")).messages)
        store.barrier.set()
        # And now to be quick.
        store.barrier = None
        await session.ask("again")
        assert not errors_of((await session.ask("again")).messages)
    assert store.numbers() == [1, 2, 3, 4]


async def test_no_deadline_runs_while_a_result_waits() -> None:
    store = Told()
    store.barrier = anyio.Event()
    async with playing(working(mirrored(1)), session_store=store) as session:
        turn = await session.send("go")
        await store.asked.wait()
        connection = session._conversation.opened()
        assert connection.mirror is not None
        assert connection.mirror.is_holding
        assert connection._watch._look(is_earnest=True) is None
        store.barrier.set()
        assert (await turn.result()).is_success


async def test_waiting_for_idleness_waits_for_the_result_too() -> None:
    store = Told()
    store.barrier = anyio.Event()
    async with playing(working(mirrored(1)), session_store=store) as session:
        turn = await session.send("go")
        await store.asked.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.wait_idle)
            await anyio.lowlevel.checkpoint()
            store.barrier.set()
        assert turn.is_over


async def test_a_result_waits_though_the_agent_ends_right_after_it() -> None:
    store = Told()
    store.barrier = anyio.Event()

    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(lifecycle(uuid, "started"), init(uuid), assistant(), mirrored(1), result(uuid))
        await agent.leave()

    async with playing(play, session_store=store) as session:
        turn = await session.send("go")
        await store.asked.wait()
        mirror = session._conversation.opened().mirror
        assert mirror is not None
        while not mirror._is_ending:
            await anyio.lowlevel.checkpoint()
        assert not turn.is_over
        store.barrier.set()
        await turn.result()
        assert store.numbers() == [1]


async def test_closing_lets_a_waiting_result_through() -> None:
    store = Told()
    store.barrier = anyio.Event()
    async with playing(working(mirrored(1)), session_store=store) as session:
        turn = await session.send("go")
        await store.asked.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.close)
            assert (await turn.result()).is_success
            store.barrier.set()
    assert store.numbers() == [1]


# A store that fails.


async def test_a_failure_that_passes_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    hurried(monkeypatch)
    store = Told(DOWN, OSError("lost"))
    async with playing(working(mirrored(1)), session_store=store) as session:
        assert not errors_of((await session.ask("go")).messages)
    assert store.numbers() == [1]
    assert len({batch for batch, _ in store.calls}) == 1, "it is one batch, tried three times"
    assert len(store.calls) == 3


ODD: list[BaseException] = [KeyError(), ExceptionGroup("two", [ValueError(), OSError()]), GeneratorExit()]


@pytest.mark.parametrize("error", [DOWN, *ODD], ids=lambda error: type(error).__name__)
async def test_a_failure_is_told_once_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    caplog.set_level(logging.INFO)
    hurried(monkeypatch)
    store = Told()
    for rounds in (1, 2):
        store.failing = lambda: error
        async with playing(working(counting()), session_store=store) as session:
            told = errors_of((await session.ask("go")).messages)
            assert len(told) == 1
            assert "failed in" in told[0]
            assert not errors_of((await session.ask("go on")).messages)
            store.failing = None
            store.asked = anyio.Event()
            await store.asked.wait()
            assert not errors_of((await session.ask("and on")).messages)
        assert store.numbers() == [1, 2, 3] * rounds
        assert any("takes entries again" in record.getMessage() for record in caplog.records)


async def test_the_key_of_what_failed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    hurried(monkeypatch)
    store = Told()
    store.failing = lambda: ValueError("no room")
    async with playing(working(mirrored(1)), session_store=store) as session:
        (told,) = [m for m in (await session.ask("go")).messages if isinstance(m, MirrorErrorMessage)]
        assert told.key == MAIN
        assert told.subtype == told.data["subtype"] == "mirror_error"
        assert "ValueError: no room" in told.error
        store.failing = None


async def test_a_store_may_change_what_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    class Changing(Told):
        async def append_batch(self, key: Any, entries: Any, batch: str) -> None:
            try:
                await super().append_batch(key, entries, batch)
            finally:
                for each in entries:
                    each["number"], each["inner"]["id"] = -1, object()
                entries.clear()

    hurried(monkeypatch)
    store = Changing(DOWN)
    frame = mirrored(1)
    frame["entries"][0]["inner"] = {}
    async with playing(working(frame), session_store=store) as session:
        await session.ask("go")
    assert store.numbers() == [1]


async def test_what_the_store_refuses_does_not_keep_the_rest_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hurried(monkeypatch)
    store = Told(outrider.OptionsError("not such a key"))
    async with playing(working(mirrored(1), mirrored(2, part="subagents/a")), session_store=store) as session:
        assert "rejects an entry" in errors_of((await session.ask("go")).messages)[0]
        await store.asked.wait()
    assert not store.numbers()
    assert store.numbers({**MAIN, "subpath": "subagents/a"}) == [2]


async def test_a_store_that_never_answers_does_not_keep_a_session_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(link, "FLUSH_SECONDS", 0.05)
    monkeypatch.setattr(_mirror, "HOLD_SECONDS", 0.01)
    store = Told()
    store.barrier = anyio.Event()
    session: Session
    async with playing(working(mirrored(1), mirrored(2)), session_store=store) as session:
        reader = aiter(session)
        await session.ask("go")
    told = errors_of([message async for message in reader])
    assert len(told) == 2
    assert f"/config/projects/{PROJECT}/{SESSION}.jsonl" in told[1]
    assert told[1] in [record.getMessage() for record in caplog.records]
    assert store.is_free


async def test_a_store_that_cannot_be_cancelled_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(Told):
        async def append_batch(self, key: Any, entries: Any, batch: str) -> None:
            with anyio.CancelScope(shield=True):
                await super().append_batch(key, entries, batch)

    monkeypatch.setattr(link, "FLUSH_SECONDS", 0.05)
    monkeypatch.setattr(link, "LEAVE_SECONDS", 0.05)
    monkeypatch.setattr(_mirror, "HOLD_SECONDS", 0.01)
    store = Stuck()
    store.barrier = anyio.Event()
    async with playing(working(mirrored(1)), session_store=store) as session:
        await session.ask("go")
    store.barrier.set()


async def test_a_call_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    hurried(monkeypatch)
    store = Told()
    store.barrier = anyio.Event()
    async with playing(working(mirrored(1)), session_store=store, timeouts={"store": 0.01}) as session:
        told = errors_of((await session.ask("go")).messages)
        assert "did not answer `append_batch` within 0.01 s" in told[0]
        store.barrier.set()
    assert store.numbers() == [1]


async def test_the_only_copy_is_rescued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hurried(monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Told()
    store.failing = lambda: DOWN
    frames = (mirrored(1), mirrored(2, part="subagents/agent-a"), mirrored(3))
    async with playing(working(*frames), session_store=store, isolation="hermetic") as session:
        reader = aiter(session)
        await session.ask("go")
    told = errors_of([message async for message in reader])[-1]
    found = re.search(r"it is in (\S+):", told)
    assert found
    path = Path(found[1])
    assert path.parent == tmp_path
    assert mode_of(path) == 0o600
    assert any(str(path) in record.getMessage() for record in caplog.records)
    lines = entries_of(path)
    assert [(line["key"].get("subpath"), [e["number"] for e in line["entries"]]) for line in lines] == [
        (None, [1]),
        ("subagents/agent-a", [2]),
        (None, [3]),
    ]


@pytest.mark.parametrize("isolation", ["inherit", "hermetic"])
async def test_a_store_that_is_too_far_behind_gets_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, isolation: Any
) -> None:
    hurried(monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(_mirror, "MEMORY_BYTES", 600)
    store = Told()
    store.failing = lambda: DOWN
    frames = [mirrored(number) for number in range(1, 9)]
    async with playing(working(*frames), session_store=store, isolation=isolation) as session:
        reader = aiter(session)
        told = errors_of((await session.ask("go")).messages)
        assert any("is behind by" in words for words in told)
        store.failing = None
    told = errors_of([message async for message in reader])
    numbers = list(range(1, 9))
    if isolation == "inherit":
        # What waited is stored; what came after it is on disk.
        assert store.numbers() == numbers[: len(store.numbers())]
        assert 0 < len(store.numbers()) < len(frames)
        assert "it is on disk" in told[-1]
    else:
        found = re.search(r"it is in (\S+):", told[-1])
        assert found
        rescued = [entry["number"] for line in entries_of(Path(found[1])) for entry in line["entries"]]
        assert rescued == numbers[len(numbers) - len(rescued) :]
        assert {*store.numbers(), *rescued} == {*numbers}


async def test_after_what_is_too_large_nothing_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    store = Told()
    large = mirrored(2)
    large["entries"][0]["text"] = "x" * 100_000
    frames = (mirrored(1), large, mirrored(3), {**large, "entries": [large["entries"][0]] * 2})
    async with playing(working(*frames), session_store=store, max_buffer_size=50_000) as session:
        reader = aiter(session)
        told = errors_of((await session.ask("go")).messages)
        assert len(told) == 1
        assert "too large to be read" in told[0]
    assert store.numbers() == [1]
    assert "it is on disk" in errors_of([message async for message in reader])[-1]


@pytest.mark.parametrize("isolation, where", [("hermetic", "it is lost"), ("inherit", "it is on disk")])
async def test_where_the_rest_is_can_be_read_if_nothing_could(isolation: Any, where: str) -> None:
    large = mirrored(1)
    large["entries"][0]["text"] = "x" * 100_000
    fields: Any = {"max_buffer_size": 50_000, "isolation": isolation}
    async with playing(working(large), session_store=Told(), **fields) as session:
        reader = aiter(session)
        await session.ask("go")
    assert errors_of([message async for message in reader])[-1].endswith(where)


# Leases.


async def test_losing_the_lease_ends_the_mirror_and_not_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "LEASE_SECONDS", 0.001)
    monkeypatch.setattr(link, "RENEW_SECONDS", 60.0)
    store = Told()
    async with playing(working(counting()), session_store=store) as session:
        await session.ask("go")
        other = MemoryStore(store)
        token = ""
        with anyio.fail_after(5):
            while not token:
                try:
                    token = await other.acquire_lease(MAIN, "elsewhere:7", 60)
                except SessionBusy:
                    await anyio.lowlevel.checkpoint()
        told = errors_of((await session.ask("go on")).messages)
        assert len(told) == 1
        assert "elsewhere:7" in told[0]
        assert not errors_of((await session.ask("and on")).messages)
        theirs: Any = {"type": "user", "number": 99}
        await other.append(MAIN, [theirs])
    assert store.numbers() == [1, 99]
    await other.release_lease(MAIN, token)


async def test_a_lease_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = anyio.Event()

    class Renewing(Told):
        async def renew_lease(self, key: Any, token: str, seconds: float) -> None:
            await super().renew_lease(key, token, seconds)
            assert (key, seconds) == (MAIN, link.LEASE_SECONDS)
            renewed.set()

    monkeypatch.setattr(link, "RENEW_SECONDS", 0.001)
    async with playing(working(mirrored(1)), session_store=Renewing()) as session:
        await session.ask("go")
        await renewed.wait()


async def test_a_lease_whose_grant_got_lost_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(Told):
        async def acquire_lease(self, key: Any, holder: str, seconds: float) -> str:
            token = await super().acquire_lease(key, holder, seconds)
            if len(holders) < 2:
                holders.append(holder)
            if len(holders) == 1:
                raise DOWN
            return token

    holders: list[str] = []
    hurried(monkeypatch)
    monkeypatch.setattr(link, "LEASE_SECONDS", 0.05)
    store = Forgetful()
    async with playing(working(counting()), session_store=store) as session:
        await session.ask("go")
        with anyio.fail_after(5):
            while not store.numbers():
                await anyio.lowlevel.checkpoint()
    assert store.numbers() == [1]
    assert store.is_free


async def test_after_a_sleep_of_the_machine_the_lease_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another may have taken over, and ended, meanwhile: the store would let both write."""
    store, up = Told(), _base.up
    async with playing(working(counting()), session_store=store) as session:
        await session.ask("go")
        for module in (_base, link):
            monkeypatch.setattr(module, "up", lambda: up() + link.LEASE_SECONDS + 1)
        other = MemoryStore(store)
        token = await other.acquire_lease(MAIN, "elsewhere:7", 60)
        theirs: Any = {"type": "user", "number": 99}
        await other.append(MAIN, [theirs])
        await other.release_lease(MAIN, token)
        assert len(errors_of((await session.ask("go on")).messages)) == 1
    assert store.numbers() == [1, 99]


async def test_a_lease_that_ran_out_is_looked_at_before_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "LEASE_SECONDS", 0.001)
    monkeypatch.setattr(link, "RENEW_SECONDS", 60.0)
    store = Told()
    async with playing(working(counting()), session_store=store) as session:
        await session.ask("go")
        # By the same object, to which the store lets both write.
        with anyio.fail_after(5):
            token = ""
            while not token:
                with suppress(SessionBusy):
                    token = await store.acquire_lease(MAIN, "another thread", 60)
                await anyio.lowlevel.checkpoint()
        told = errors_of((await session.ask("go on")).messages)
    assert "another thread" in told[0]
    assert store.numbers() == [1]


# How it ends.


# How it ends.


@pytest.mark.requirement("F2")
def test_the_bounds_are_those_of_the_documentation() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "endings.md").read_text(encoding="utf-8")
    table = page.partition("### `session.close()`")[2].partition("That is")[0]
    bounds = [float(number) for number in re.findall(r"^\|[^|]*\| ([\d.]+) s", table, re.MULTILINE)]
    assert bounds == [
        _connection._INTERRUPT_SECONDS,
        ProcessTransport(Command(("true",))).bound,
        _connection._END_SECONDS,
        _connection._END_SECONDS,
        link.FLUSH_SECONDS,
        link.LEAVE_SECONDS,
    ]
    assert f"That is {sum(bounds):g} s, or {sum(bounds[:-2]):g} s without a store" in page
    turns = (docs / "turns.md").read_text(encoding="utf-8")
    assert f"after {_mirror.HOLD_SECONDS:g} s at the latest" in turns


@pytest.mark.requirement("F2")
async def test_closing_is_bounded_whatever_the_store_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(Told):
        async def release_lease(self, key: Any, token: str) -> None:
            with anyio.CancelScope(shield=True):
                await done.wait()

    done = anyio.Event()
    for name in ("FLUSH_SECONDS", "LEAVE_SECONDS"):
        monkeypatch.setattr(link, name, 0.1)
    monkeypatch.setattr(_mirror, "HOLD_SECONDS", 0.01)
    store = Deaf()
    async with playing(working(counting()), session_store=store) as session:
        await session.ask("go")
        store.barrier = anyio.Event()
        await session.ask("go on")
        with anyio.fail_after(5):
            await session.close()
    done.set()
    store.barrier.set()


@ASYNCIO
async def test_a_close_that_is_cut_short_is_finished_without_its_caller() -> None:
    store, agent = Told(), OtherEnd()
    store.barrier = anyio.Event()

    async def play() -> None:
        await agent.open()
        await agent.say(mirrored(1))
        await agent.wait_ended()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            session = Session(transport=agent.transport, session_store=store)
            await session.connect()
            closing = asyncio.create_task(session.close())
            await store.asked.wait()
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert session.state is SessionState.CLOSED
            store.barrier.set()
            while not store.is_free or not store.numbers():
                await anyio.lowlevel.checkpoint()
    assert store.numbers() == [1]


async def test_a_close_in_a_cancelled_scope_waits_for_the_store() -> None:
    class Slow(Told):
        async def append_batch(self, key: Any, entries: Any, batch: str) -> None:
            await super().append_batch(key, entries, batch)
            for _ in range(100):
                await anyio.lowlevel.checkpoint()

    store = Slow()
    with anyio.fail_after(20), Simulator([say("one")], executable=True) as agent:
        session = Session(agent.options(session_store=store))
        await session.connect()
        id = (await session.ask("go")).session_id or ""
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.close()
        assert store.is_free
    (project,) = await store.find_session(id)
    assert store.get_entries({"project_key": project, "session_id": id})[-1]["type"] == "cost-state"


async def test_a_dropped_session_is_stored_to_its_end(recwarn: pytest.WarningsRecorder) -> None:
    store = Told()
    with anyio.fail_after(20), Simulator([say("one")]) as agent:

        async def hook(_: Any) -> None: ...

        hooks: Any = {"Stop": [hook]}
        session: Any = Session(agent.options(session_store=store, hooks=hooks))
        await session.connect()
        result = await session.ask("go")
        # What the options hold leads back to it.
        vars(hook)["session"] = session
        del hook, hooks
        (project,) = await store.find_session(result.session_id)
        key: Any = {"project_key": project, "session_id": result.session_id}
        del session, result
        gc.collect()
        while not store.is_free:
            await anyio.lowlevel.checkpoint()
        assert store.get_entries(key)[-1]["type"] == "cost-state"
    assert [str(warning.message)[:29] for warning in recwarn.list] == ["a session was dropped without"]


async def test_a_store_that_is_named_is_opened_and_closed(tmp_path: Path) -> None:
    place = tmp_path / "agents.db"
    with anyio.fail_after(20), Simulator([say("one")]) as agent:
        async with Session(agent.options(session_store=place, cwd=tmp_path)) as session:
            result = await session.ask("go")
    async with SqliteStore(place) as store:
        key: Any = {"project_key": project_key(tmp_path), "session_id": result.session_id}
        entries = await store.load(key)
        assert entries
        assert entries[-1]["type"] == "cost-state"
        await store.release_lease(key, await store.acquire_lease(key, "me", 1))


@pytest.mark.parametrize("place", ["nonsense://a", "memory://a?unknown=1"])
async def test_a_store_that_is_none_is_refused(place: str) -> None:
    with anyio.fail_after(10), pytest.raises(outrider.OptionsError):
        await Session(session_store=place, transport=OtherEnd().transport).connect()


async def test_a_store_that_ends_the_program_ends_the_session() -> None:
    store = Told(SystemExit(3))
    async with playing(working(mirrored(1)), session_store=store) as session:
        turn = await session.send("go")
        with pytest.raises(SystemExit):
            async for _ in session:
                pass
        assert turn.is_over


async def test_an_agent_that_does_not_mirror_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    async with playing(working(), session_store=Told()) as session:
        await session.ask("go")
    assert "nothing is stored; it may be too old" in caplog.text


async def test_an_agent_that_fails_is_not_taken_for_an_old_one(caplog: pytest.LogCaptureFixture) -> None:
    async def play(agent: OtherEnd) -> None:
        uuid = (await agent.prompt()).uuid or ""
        await agent.say(lifecycle(uuid, "started"), result(uuid, is_error=True))

    async with playing(play, session_store=Told()) as session:
        await (await session.send("go")).result(check=False)
    assert "too old" not in caplog.text


async def test_an_agent_that_ends_by_itself_is_stored_to_its_end() -> None:
    store = Told()

    async def play(agent: OtherEnd) -> None:
        await agent.prompt()
        await agent.say(mirrored(1), mirrored(2))
        await agent.leave()

    async with playing(play, session_store=store) as session:
        with pytest.raises(outrider.ConnectionLost):
            await session.ask("go")
    assert store.numbers() == [1, 2]
    assert store.is_free
