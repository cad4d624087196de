"""What is recorded is played again without a program; what is said otherwise is told, with both frames."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import outrider
import outrider.sync
from outrider.errors import (
    ConnectionLost,
    OptionsError,
    OutriderError,
    ProcessExited,
    RequestFailed,
    UsageError,
)
from outrider.options import Options
from outrider.redaction import Redaction
from outrider.session import Session
from outrider.testing import (
    Gate,
    RealAgent,
    Replay,
    ReplayMismatch,
    answer,
    hang,
    record,
    replay,
    say,
    use_tool,
)
from outrider.transports import Transport, intercept, read_trace
from outrider.wire import StreamEvent
from tests.real_program import require_program
from tests.session.other_end import VERSION
from tests.sync.agent import Agent

DEADLINE = 60.0

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cassette(tmp_path: Path) -> Path:
    return tmp_path / "cassette.jsonl"


@outrider.tool
def lookup(ticket: int) -> str:
    """Look a ticket up."""
    return f"Ada owns {ticket}"


async def two_turns(options: Options, *prompts: str) -> list[str]:
    async with Session(options) as session:
        return [(await session.ask(prompt)).text for prompt in prompts]


def use_agent(_: Transport) -> Transport:
    return Agent()


async def record_agent(path: Path, *prompts: str) -> None:
    """A cassette with one run for each prompt."""
    with record(path), intercept(use_agent):
        for prompt in prompts:
            await outrider.run(prompt)


def frames(path: Path, direction: str) -> list[dict[str, Any]]:
    return [r.frame for r in read_trace(path).records if r.direction == direction and r.frame is not None]


def json_of(frame: Any) -> dict[str, Any]:
    assert isinstance(frame, dict)
    return frame


# With the real program.


def real_agent(*script: Any, **more: Any) -> RealAgent:
    return RealAgent(script, program=require_program(), **more)


Play = Callable[[Options], Awaitable[Any]]


async def recorded_and_replayed(path: Path, agent: RealAgent, play: Play, **options: Any) -> tuple[Any, Any]:
    with anyio.fail_after(DEADLINE):
        with agent, record(path):
            first = await play(agent.options(**options))
        # The program is gone, and would not be looked for.
        with replay(path):
            return first, await play(Options(cli_path="/nowhere/claude", **options))


@pytest.mark.real
async def test_a_real_run_is_played_again_without_the_program(cassette: Path) -> None:
    agent = real_agent(use_tool("mcp__tools__lookup", ticket=7), say("Ada."), say("Still Ada."))
    first, second = await recorded_and_replayed(
        cassette, agent, lambda options: two_turns(options, "Who?", "And now?"), tools=[lookup]
    )
    assert first == second == ["Ada.", "Still Ada."]


class Taking:
    """A tool whose calls, made at the same time, are answered in an order of their own."""

    def __init__(self, *order: int) -> None:
        self._may_go = [anyio.Event() for _ in order]
        self._next = dict(pairwise(order))
        self._first = order[0]
        self._asked = 0
        self.answered: list[int] = []

    async def take(self, number: int) -> str:
        self._asked += 1
        if self._asked == len(self._may_go):
            self._may_go[self._first].set()
        await self._may_go[number].wait()
        self.answered.append(number)
        if number in self._next:
            self._may_go[self._next[number]].set()
        return f"took {number}"


@pytest.mark.real
async def test_parallel_calls_are_played_again_in_any_order(cassette: Path) -> None:
    takings = [Taking(2, 0, 1), Taking(0, 1, 2)]

    async def play(options: Options) -> list[str]:
        taking = takings[0 if "nowhere" not in str(options.cli_path) else 1]

        @outrider.tool(read_only=True)
        async def take(number: int) -> str:
            """Take one."""
            return await taking.take(number)

        return await two_turns(options.replace(tools=[take]), "go")

    calls = [use_tool("mcp__tools__take", number=number) for number in range(3)]
    first, second = await recorded_and_replayed(cassette, real_agent(answer(*calls), say("done")), play)
    assert first == second == ["done"]
    assert [taking.answered for taking in takings] == [[2, 0, 1], [0, 1, 2]]


@pytest.mark.real
async def test_an_interrupt_is_played_again(cassette: Path) -> None:
    gate = Gate()

    async def play(options: Options) -> list[object]:
        async with Session(options) as session:
            turn = await session.send("count")
            async for message in turn:
                if isinstance(message, StreamEvent) and message.event["type"] == "content_block_delta":
                    await turn.cancel()
            return [(await turn.result(check=False)).is_success, (await session.ask("go on")).text]

    first, second = await recorded_and_replayed(
        cassette, real_agent(say("one two", gate=gate), say("next")), play, include_partial_messages=True
    )
    assert first == second == [False, "next"]


@pytest.mark.real
async def test_closing_in_the_middle_of_a_turn_is_played_again(cassette: Path) -> None:
    async def play(options: Options) -> str:
        async with Session(options) as session:
            turn = await session.send("think")
            async for _ in turn:
                break
        with pytest.raises(OutriderError) as caught:
            await turn.result()
        return type(caught.value).__name__

    first, second = await recorded_and_replayed(cassette, real_agent(hang()), play)
    assert first == second == "TransportClosed"


@pytest.mark.real
async def test_a_resumed_session_is_the_next_run(cassette: Path) -> None:
    async def play(options: Options) -> list[object]:
        first = await outrider.run("remember 7", options=options)
        second = await outrider.run("which?", options=options.replace(resume=first.session_id))
        return [first.session_id, first.text, second.session_id, second.text]

    first, second = await recorded_and_replayed(cassette, real_agent(say("ok"), say("7")), play)
    assert first == second
    assert first[0] == first[2]
    assert len(read_trace(cassette).runs) == 2


@pytest.mark.real
async def test_a_start_that_failed_fails_again(cassette: Path) -> None:
    async def play(options: Options) -> str:
        with pytest.raises(OutriderError) as caught:
            await outrider.run("hi", options=options, resume="00000000-0000-4000-8000-000000000000")
        return type(caught.value).__name__

    first, second = await recorded_and_replayed(cassette, real_agent(), play)
    assert first == second == "SessionNotFound"


# Recording.


async def test_every_session_of_the_block_is_a_run(cassette: Path) -> None:
    await record_agent(cassette, "say one", "say two")
    runs = read_trace(cassette).runs
    assert [run.number for run in runs] == [1, 2]
    assert all(run.first("exit") is not None for run in runs)


async def test_sessions_side_by_side_are_told_apart(cassette: Path) -> None:
    async def ask(word: str) -> None:
        assert (await outrider.run(f"say {word}")).text == word

    with anyio.fail_after(DEADLINE):
        with record(cassette), intercept(use_agent):
            async with anyio.create_task_group() as tasks:
                for word in ("one", "two", "three"):
                    tasks.start_soon(ask, word)
        with replay(cassette, strict=False, ignore=["message.content"]) as played:
            async with anyio.create_task_group() as tasks:
                for word in ("one", "two", "three"):
                    tasks.start_soon(partial(outrider.run, f"say {word}"))
    assert len(played.players) == 3


def test_blocking_sessions_are_recorded_and_replayed(cassette: Path) -> None:
    with record(cassette), intercept(use_agent):
        assert outrider.sync.run("say hello").text == "hello"
    with replay(cassette):
        assert outrider.sync.run("say hello").text == "hello"


async def failing_block(path: Path) -> None:
    with record(path), intercept(use_agent):
        await outrider.run("say hello")
        raise ZeroDivisionError


def test_a_block_that_fails_leaves_the_cassette_as_it_was(cassette: Path) -> None:
    cassette.write_text("the old one")
    with pytest.raises(ZeroDivisionError):
        anyio.run(failing_block, cassette)
    assert cassette.read_text() == "the old one"
    assert "say hello" in cassette.with_name("cassette.jsonl.part").read_text()
    anyio.run(record_agent, cassette, "say again")
    assert "say again" in cassette.read_text()
    assert not cassette.with_name("cassette.jsonl.part").exists()


def test_a_block_in_which_nothing_was_recorded_is_an_error(cassette: Path) -> None:
    with pytest.raises(UsageError, match="No session was recorded"), record(cassette):
        pass
    assert list(cassette.parent.iterdir()) == []


async def test_secrets_are_masked_by_the_rules_of_the_user(cassette: Path) -> None:
    with record(cassette, redaction=Redaction(patterns=[r"plan-\d+"])), intercept(use_agent):
        await outrider.run("say plan-9 sk-ant-api03-abcdefgh")
    assert not any(word in str(read_trace(cassette)) for word in ("plan-9", "abcdefgh"))
    # What was hidden may be anything.
    with replay(cassette):
        result = await outrider.run("say plan-9 sk-ant-api03-abcdefgh")
    assert result.text == "*** sk-ant-***"
    with pytest.raises(ReplayMismatch), replay(cassette):
        await outrider.run("tell plan-9 sk-ant-api03-abcdefgh")


@pytest.mark.parametrize(
    "name, match", [("missing/c.jsonl", "cannot be written"), ("c.jsonl.gz", "gzipped"), (".", "folder")]
)
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, name: str, match: str) -> None:
    with pytest.raises(OptionsError, match=match), record(tmp_path / name):
        pass


# Replaying.


async def test_it_is_a_transport_too(cassette: Path) -> None:
    await record_agent(cassette, "say one", "say two")
    player = replay(cassette, run=2)
    async with Session(transport=player) as session:
        assert (await session.ask("say two")).text == "two"
        assert session.pid is None
    player.check()


async def test_a_trace_of_a_session_is_a_cassette(tmp_path: Path) -> None:
    async with Session(transport=Agent(), trace=tmp_path / "flight.jsonl") as session:
        await session.ask("say hello")
    with replay(tmp_path / "flight.jsonl"):
        assert (await outrider.run("say hello")).text == "hello"


async def test_a_replay_can_be_recorded(cassette: Path, tmp_path: Path) -> None:
    await record_agent(cassette, "say hello")
    with record(tmp_path / "again.jsonl"), replay(cassette):
        await outrider.run("say hello")
    assert [f["type"] for f in frames(tmp_path / "again.jsonl", "cli->host")] == [
        f["type"] for f in frames(cassette, "cli->host")
    ]


async def test_ids_of_this_run_take_the_place_of_the_recorded_ones(cassette: Path) -> None:
    await record_agent(cassette, "say hello")
    recorded = [f["uuid"] for f in frames(cassette, "host->cli") if f["type"] == "user"]
    async with Session(transport=replay(cassette), trace=cassette.with_name("now.jsonl")) as session:
        turn = await session.send("say hello")
        assert (await turn.result()).text == "hello"
    now = cassette.with_name("now.jsonl").read_text()
    assert not any(uuid in now for uuid in recorded)


async def test_a_mismatch_shows_both_frames(cassette: Path) -> None:
    await record_agent(cassette, "say hello")
    with anyio.fail_after(DEADLINE), pytest.raises(ReplayMismatch) as caught, replay(cassette):
        await outrider.run("say goodbye")
    text = str(caught.value)
    assert "This prompt is not the recorded one" in text
    assert '-   "content": "say hello"' in text
    assert '+   "content": "say goodbye"' in text
    # What is made up in each run is no difference.
    assert '- "uuid"' not in text
    assert '+  "uuid"' not in text
    assert f"{cassette}, run 1" in text
    assert json_of(caught.value.expected)["message"]["content"] == "say hello"
    assert json_of(caught.value.actual)["message"]["content"] == "say goodbye"
    assert isinstance(caught.value, AssertionError)


async def test_a_mismatch_of_an_answer_ends_the_session(tmp_path: Path) -> None:
    path = tmp_path / "asked.jsonl"
    path.write_text(
        "\n".join(
            json.dumps(line)
            for line in (
                {"outrider_trace": 1},
                said("host->cli", type="control_request", request_id="r1", request={"subtype": "initialize"}),
                said(
                    "cli->host",
                    type="control_response",
                    response={
                        "subtype": "success",
                        "request_id": "r1",
                        "response": {"claude_code_version": "2.1.325"},
                    },
                ),
                said("host->cli", type="user", message={"role": "user", "content": "go"}),
                said(
                    "cli->host",
                    type="control_request",
                    request_id="q1",
                    request={"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}},
                ),
                said(
                    "host->cli",
                    type="control_response",
                    response={"subtype": "success", "request_id": "q1", "response": {"behavior": "deny"}},
                ),
            )
        )
        + "\n"
    )
    places = ["request", "session_id", "parent_tool_use_id"]
    with anyio.fail_after(DEADLINE), pytest.raises(ReplayMismatch, match="answer `q1`") as caught:
        async with Session(transport=replay(path, ignore=places), permission=lambda call: True) as session:
            await session.ask("go")
    assert json_of(caught.value.expected)["response"]["response"] == {"behavior": "deny"}
    assert json_of(caught.value.actual)["response"]["response"]["behavior"] == "allow"


def said(direction: str, **frame: object) -> dict[str, object]:
    return {"run": 1, "t": 0, "dir": direction, "json": frame}


async def test_a_request_that_was_not_recorded_is_a_mismatch(cassette: Path) -> None:
    await record_agent(cassette, "say hello")
    with anyio.fail_after(DEADLINE), pytest.raises(ReplayMismatch, match="request `mcp_status`"):
        async with Session(transport=replay(cassette)) as session:
            await session.mcp_status()


async def test_what_was_not_said_is_told_at_the_end_of_the_block(cassette: Path) -> None:
    with record(cassette), intercept(use_agent):
        async with Session() as session:
            await session.ask("say one")
            await session.ask("say two")
    with pytest.raises(ReplayMismatch, match="has not been said: prompt") as caught, replay(cassette):
        await outrider.run("say one")
    assert '"content": "say two"' in str(caught.value)
    with replay(cassette, strict=False):
        await outrider.run("say one")


async def test_sessions_that_were_not_opened_are_told_at_the_end_of_the_block(cassette: Path) -> None:
    await record_agent(cassette, "say one", "say two")
    with pytest.raises(ReplayMismatch, match="2 sessions were recorded, and 1 have"), replay(cassette):
        await outrider.run("say one")


async def test_a_session_that_was_not_recorded_is_refused(cassette: Path) -> None:
    await record_agent(cassette, "say one")
    with replay(cassette):
        await outrider.run("say one")
        with pytest.raises(ReplayMismatch, match="1 sessions were recorded, and one more"):
            await outrider.run("say two")


async def test_an_error_of_the_block_is_not_hidden_by_what_was_not_played(cassette: Path) -> None:
    await record_agent(cassette, "say one")
    with pytest.raises(ZeroDivisionError), replay(cassette):
        raise ZeroDivisionError


async def test_a_mismatch_that_was_caught_is_told_at_the_end_of_the_block(cassette: Path) -> None:
    await record_agent(cassette, "say one")
    with pytest.raises(ReplayMismatch, match="not the recorded one"), replay(cassette):  # noqa: SIM117
        with pytest.raises(ReplayMismatch):
            await outrider.run("say two")


@pytest.mark.parametrize("ignore", [["message.content"], ["message.*"], ["*.content"], ["message"]])
async def test_places_that_differ_each_time_can_be_ignored(cassette: Path, ignore: list[str]) -> None:
    await record_agent(cassette, "say at 12:00")
    with replay(cassette, ignore=ignore):
        assert (await outrider.run("say at 13:00")).text == "at 12:00"


@pytest.mark.parametrize("ignore, match", [("message", "Did you mean"), (["a..b"], "not a place")])
def test_what_is_no_place_is_refused(cassette: Path, ignore: Any, match: str) -> None:
    cassette.write_text('{"outrider_trace":1}\n{"run":1,"t":0,"dir":"meta","event":"start"}\n')
    with pytest.raises(OptionsError, match=match):
        replay(cassette, ignore=ignore)


def make_older(path: Path) -> None:
    recorded, prompt = path.read_text(encoding="utf-8"), ',"systemPrompt":[""]'
    assert prompt in recorded
    path.write_text(recorded.replace(prompt, "").replace(VERSION, "2.1.100"), encoding="utf-8")


async def test_it_is_played_as_the_version_that_was_recorded(cassette: Path) -> None:
    """Whatever version is installed where it is played: what is sent depends on it."""
    await record_agent(cassette, "say hello")
    make_older(cassette)
    async with Session(transport=replay(cassette)) as session:
        assert session.info.version == "2.1.100"
        assert (await session.ask("say hello")).text == "hello"


async def test_if_it_is_not_strict_kinds_are_enough(cassette: Path) -> None:
    await record_agent(cassette, "say hello")
    with anyio.fail_after(DEADLINE), replay(cassette, strict=False):
        async with Session(system_prompt="another", model="other") as session:
            with pytest.raises(RequestFailed, match="not in the recording"):
                await session.mcp_status()
            assert (await session.ask("say something else")).text == "hello"
    async with Session(transport=replay(cassette, strict=False)) as session:
        await session.ask("one")
        with pytest.raises(ReplayMismatch, match="nothing more was said"):
            await session.ask("two")


async def test_a_program_that_died_dies_again(cassette: Path, tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\nread line\necho 'out of luck' >&2\nexit 7\n")
    program.chmod(0o755)
    for play in (record, replay):
        with anyio.fail_after(DEADLINE), play(cassette), pytest.raises(ProcessExited) as caught:
            await outrider.run("hi", cli_path=program)
        assert caught.value.returncode == 7
        assert caught.value.stderr_tail == "out of luck"


def break_off(path: Path) -> None:
    """As if the host had been killed after it had sent the prompt."""
    lines = path.read_bytes().splitlines(keepends=True)
    prompt = next(number for number, line in enumerate(lines) if b'"type":"user"' in line)
    path.write_bytes(b"".join(lines[: prompt + 2]) + b'{"run":1,"t":')


async def test_a_recording_that_breaks_off_is_a_lost_connection(cassette: Path) -> None:
    await record_agent(cassette, "say hello")
    break_off(cassette)
    with anyio.fail_after(DEADLINE), pytest.raises(ConnectionLost, match="the recording ends here"):
        async with Session(transport=replay(cassette)) as session:
            await session.ask("say hello")


async def test_a_line_that_was_cut_cannot_be_replayed(cassette: Path) -> None:
    with record(cassette, max_line=50), intercept(use_agent):
        await outrider.run("say hello")
    with pytest.raises(UsageError, match="larger `max_line`"), replay(cassette):
        await outrider.run("say hello")


async def test_a_run_that_is_not_there_is_refused(cassette: Path) -> None:
    await record_agent(cassette, "say hello")
    with pytest.raises(UsageError, match="has 1 runs"):
        replay(cassette, run=2)


async def test_one_cassette_is_played_by_one_block_at_a_time(cassette: Path) -> None:
    await record_agent(cassette, "say hello")
    with replay(cassette) as played:
        assert isinstance(played, Replay)
        with pytest.raises(UsageError, match="already"), played:
            pass
        await outrider.run("say hello")


async def test_it_cannot_be_used_before_it_is_connected_or_after_it_is_closed(cassette: Path) -> None:
    await record_agent(cassette, "say hello")
    player = replay(cassette)
    for _ in range(2):
        with pytest.raises(ConnectionLost):
            await player.send(b"{}\n")
        with pytest.raises(ConnectionLost):
            await player.receive()
        await player.close()
    with pytest.raises(ConnectionLost):
        await player.connect()


# What would never end, and what must not be taken for the same.


async def record_interrupt(path: Path) -> None:
    with record(path), intercept(use_agent):
        async with Session() as session:
            turn = await session.send("think")
            await session.interrupt()
            await turn.result(check=False)
            await session.ask("say more")


async def test_a_replay_that_waits_for_what_nobody_says_fails(cassette: Path) -> None:
    await record_interrupt(cassette)
    with anyio.fail_after(DEADLINE), pytest.raises(ReplayMismatch) as caught, replay(cassette, patience=0.01):
        await outrider.run("think")
    assert "no request `interrupt` was said" in str(caught.value)
    assert json_of(caught.value.expected)["request"]["subtype"] == "interrupt"


async def test_between_turns_there_is_no_need_to_hurry(cassette: Path) -> None:
    async def play() -> list[str]:
        async with Session() as session:
            first = (await session.ask("say one")).text
            # The recording waits for the next prompt.
            await anyio.wait_all_tasks_blocked()
            return [first, (await session.ask("say two")).text]

    with record(cassette), intercept(use_agent):
        first = await play()
    with anyio.fail_after(DEADLINE), replay(cassette, patience=1e-9) as played:
        assert await play() == first == ["one", "two"]
    played.check()


@pytest.mark.parametrize(
    "name, value",
    [("patience", 0), ("patience", float("nan")), ("patience", "1"), ("run", "1"), ("ignore", [5])],
    ids=str,
)
async def test_what_makes_no_sense_is_refused(cassette: Path, name: str, value: Any) -> None:
    await record_agent(cassette, "say hello")
    with pytest.raises(OutriderError, match=name if name != "run" else "no run '1'"):
        replay(cassette, **{name: value})


async def test_stars_that_were_said_stand_for_nothing_else(cassette: Path) -> None:
    await record_agent(cassette, "say *** twice")
    with replay(cassette):
        assert (await outrider.run("say *** twice")).text == "*** twice"
    with anyio.fail_after(DEADLINE), pytest.raises(ReplayMismatch), replay(cassette):
        await outrider.run("say it twice")


def test_stars_of_a_recording_that_does_not_say_what_was_hidden_stand_for_anything(cassette: Path) -> None:
    anyio.run(record_agent, cassette, "say *** twice")
    cassette.write_bytes(b"".join(cassette.read_bytes().splitlines(keepends=True)[1:]))
    with replay(cassette):
        outrider.sync.run("say it twice")


async def test_sessions_of_several_threads_get_a_run_each(cassette: Path) -> None:
    await record_agent(cassette, *["say hello"] * 8)

    def ask() -> None:
        outrider.sync.run("say hello")

    with anyio.fail_after(DEADLINE), replay(cassette, everywhere=True) as played:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(anyio.to_thread.run_sync, ask)
    assert [player.run.number for player in played.players] == [*range(1, 9)]


def test_a_block_may_be_ended_in_another_context(cassette: Path) -> None:
    def block() -> Iterator[None]:
        with record(cassette), intercept(use_agent):
            outrider.sync.run("say hello")
            yield

    running = block()
    copy_context().run(next, running)
    with pytest.raises(StopIteration):
        copy_context().run(next, running)
    assert len(read_trace(cassette).runs) == 1
