"""Attacks on the start of a session that is gone on with: calls that want to get past its guards, and results
that want to pass for an answer."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import msgspec
import pytest

import outrider
from outrider import compat
from outrider.errors import AgentTooOld
from outrider.handlers import Hook, allow, defer, deny
from outrider.options import Options, Timeouts
from outrider.protocol import RequestAnswered
from outrider.session import Session
from outrider.testing import Simulator, say, use_tool
from outrider.transcripts import MemoryStore
from outrider.transports import ProcessTransport, Transport, Unreachable, intercept
from outrider.wire import AttachmentMessage, ResultMessage, ToolResultBlock, UserMessage
from tests.session.other_end import OtherEnd, assistant, init, lifecycle, result, tool_result, turn
from tests.session.real.talking import real_agent
from tests.transports.conftest import nothing_is_left

__all__ = ["nothing_is_left"]

pytestmark = pytest.mark.anyio

DEADLINE = 30.0
MARK = "made"
SCRIPT = (use_tool("Bash", command=f"echo x > {MARK}"), say("All done."), say("Hello to you."))
"""What the model does: a call that gets deferred, what it says of that, and its answer to a prompt."""

Make: TypeAlias = Callable[..., Options]
"""Makes options for an agent, of those given."""


class Guard:
    """A hook that is asked before each tool, and keeps what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.asked: list[str] = []
        self.answer = answer

    @property
    def hook(self) -> Hook[..., Any]:
        return Hook(self._decide, "PreToolUse")

    async def _decide(self, input: Any) -> Any:
        self.asked.append(input.tool_input["command"])
        return self.answer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def simulated() -> AsyncGenerator[tuple[Make, Path]]:
    """The simulated agent, and where it works."""
    with anyio.fail_after(DEADLINE), Simulator(SCRIPT) as agent, agent.stand_in():

        def make(**fields: Any) -> Options:
            return Options(
                cwd=agent.folder, permission_mode="bypassPermissions", env={"IS_SANDBOX": "1"}, **fields
            )

        yield make, agent.folder


@asynccontextmanager
async def real() -> AsyncGenerator[tuple[Make, Path]]:
    """The program itself, and where it works."""
    with anyio.fail_after(DEADLINE), real_agent(*SCRIPT) as agent:

        def make(**fields: Any) -> Options:
            return agent.options(permission_mode="bypassPermissions", **fields)

        yield make, agent.folder


async def left_with_a_call(make: Make, **fields: Any) -> str:
    """A session whose call waits to be decided."""
    async with Session(make(hooks=[Guard(defer()).hook], **fields)) as session:
        left = await session.ask("Make it.")
    assert left.message is not None
    assert left.message.deferred_tool_use is not None
    assert left.session_id is not None
    return left.session_id


async def until_result(session: Session) -> list[Any]:
    """All that comes up to the first result, whomever it is for."""
    seen: list[Any] = []
    async for message in session:
        seen.append(message)
        if isinstance(message, ResultMessage):
            return seen
    raise AssertionError(f"there was no result among {seen}")


WAYS: dict[str, Callable[[str], dict[str, Any]]] = {
    "resumed": lambda id: {"resume": id},
    "continued": lambda _: {"continue_conversation": True},
    "forked": lambda id: {"resume": id, "fork_session": True},
    "from the latest, forked": lambda _: {"continue_conversation": True, "fork_session": True},
}
AGENTS = pytest.mark.parametrize(
    "playing",
    [pytest.param(simulated, id="simulated"), pytest.param(real, id="real", marks=pytest.mark.real)],
)


# The guard is asked, whichever way a session is gone on with.


@AGENTS
@pytest.mark.parametrize("way", WAYS)
async def test_a_deferred_call_does_not_get_past_a_hook(way: str, playing: Any) -> None:
    guard = Guard(deny("no"))
    async with playing() as (make, folder):
        id = await left_with_a_call(make)
        async with Session(make(hooks=[guard.hook], **WAYS[way](id))) as session:
            seen = await until_result(session)
        assert guard.asked == [f"echo x > {MARK}"]
        assert not (folder / MARK).exists()
    (refused,) = [block for message in seen if isinstance(message, UserMessage) for block in message.content]
    assert isinstance(refused, ToolResultBlock)
    assert refused.is_error


@AGENTS
async def test_a_deferred_call_from_a_store_does_not_get_past_a_hook(playing: Any, tmp_path: Path) -> None:
    guard, store = Guard(deny("no")), MemoryStore()
    async with playing() as (make, folder):
        id = await left_with_a_call(make, session_store=store)
        for left in folder.parent.rglob(f"{id}.jsonl"):
            # It is nowhere but in the store.
            left.unlink()
        async with Session(make(hooks=[guard.hook], session_store=store, resume=id)) as session:
            await until_result(session)
        assert guard.asked == [f"echo x > {MARK}"]
        assert not (folder / MARK).exists()


@pytest.mark.real
async def test_a_deferred_call_does_not_get_past_a_hook_of_the_drop_in() -> None:
    asked: list[str] = []

    async def guard(input: Any, _: str | None, __: Any) -> Any:
        asked.append(input["tool_name"])
        specific = {"hookEventName": "PreToolUse", "permissionDecision": "deny"}
        return {"hookSpecificOutput": specific}

    with real_agent(*SCRIPT) as agent, anyio.fail_after(DEADLINE):
        id = await left_with_a_call(
            lambda **fields: agent.options(permission_mode="bypassPermissions", **fields)
        )
        options = compat.ClaudeAgentOptions(
            cli_path=agent.program,
            cwd=agent.folder,
            env=agent.environment,
            permission_mode="bypassPermissions",
            resume=id,
            hooks={"PreToolUse": [compat.HookMatcher(hooks=[guard])]},
        )
        async with compat.ClaudeSDKClient(options) as client:
            async for _ in client.receive_response():
                pass
        assert asked == ["Bash"]
        assert not (agent.folder / MARK).exists()


async def test_the_drop_in_leaves_out_what_the_reference_has_no_class_for() -> None:
    async def watch(*_: Any) -> Any:
        return {}

    async with simulated() as (make, folder):
        id = await left_with_a_call(make)
        options = compat.ClaudeAgentOptions(
            cwd=folder,
            permission_mode="bypassPermissions",
            env={"IS_SANDBOX": "1"},
            resume=id,
            hooks={"PreToolUse": [compat.HookMatcher(hooks=[watch])]},
        )
        async with compat.ClaudeSDKClient(options) as client:
            came = [message async for message in client.receive_response()]
        assert (folder / MARK).exists()
    # A native session is told what the hook came to.
    assert came
    assert not [message for message in came if isinstance(message, AttachmentMessage)]


async def test_the_simulated_race_is_lost_by_a_host_that_does_not_ask_to_be_waited_for() -> None:
    """Else nobody would notice in a test that a resume goes without the flag."""
    guard = Guard(deny("no"))

    def without_the_flag(transport: Transport) -> Transport:
        if not isinstance(transport, ProcessTransport | Unreachable):
            return transport
        another, command = agent.again(), transport.command
        assert "--await-initialize" in command.argv
        argv = tuple(word for word in command.argv if word != "--await-initialize")
        another.prepare(msgspec.structs.replace(command, argv=argv))
        return another

    async with simulated() as (make, folder):
        id = await left_with_a_call(make)
        agent = Simulator([say("All done.")], folder=folder, config_dir=_config_of(folder, id))
        with agent, intercept(without_the_flag):
            async with Session(make(hooks=[guard.hook], resume=id)) as session:
                await until_result(session)
        assert guard.asked == []
        assert (folder / MARK).exists()


def _config_of(folder: Path, id: str) -> Path:
    (kept,) = folder.parent.rglob(f"{id}.jsonl")
    return kept.parents[2]


async def test_a_program_too_old_to_wait_is_not_asked_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "claude"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "if '-v' in sys.argv: sys.exit(print('2.1.100 (Claude Code)'))\n"
        "assert '--await-initialize' in sys.argv\n"
        "sys.exit(\"error: unknown option '--await-initialize'\")\n"
    )
    program.chmod(0o755)
    options = Options(cli_path=program, cwd=tmp_path, hooks=[Guard(deny("no")).hook])
    options = options.replace(resume="5e551011-0000-4000-8000-000000000001")
    monkeypatch.setenv("CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK", "1")
    # The first time it learns the version; the second time it knows it before the start.
    for _ in range(2):
        with anyio.fail_after(DEADLINE), pytest.raises(AgentTooOld, match="claude update") as caught:
            await Session(options).connect()
        assert caught.value.options == ("resume", "hooks")


# What comes of it belongs to nobody.


@AGENTS
async def test_what_a_resumed_session_finishes_by_itself_answers_no_prompt(playing: Any) -> None:
    async with playing() as (make, folder):
        id = await left_with_a_call(make)
        async with Session(make(hooks=[Guard(allow()).hook], resume=id)) as session:
            answer = await session.ask("Hello")
        assert answer.text == "Hello to you."
        assert (folder / MARK).exists()


@AGENTS
async def test_a_call_that_is_deferred_again_answers_no_prompt(playing: Any) -> None:
    async with playing() as (make, _):
        id = await left_with_a_call(make)
        async with Session(make(hooks=[Guard(defer()).hook], resume=id)) as session:
            seen = await until_result(session)
    assert seen[-1].deferred_tool_use is not None
    attached = [message.attachment["type"] for message in seen if isinstance(message, AttachmentMessage)]
    assert attached == ["hook_success", "hook_deferred_tool"]


async def test_what_was_going_on_before_a_prompt_is_no_part_of_its_turn() -> None:
    async def play(agent: OtherEnd) -> None:
        await agent.open()
        await agent.say(lifecycle("theirs", "started"))
        uuid = (await agent.prompt()).uuid or ""
        own = [assistant("All done."), result(text="All done."), lifecycle("theirs", "completed")]
        await agent.say(lifecycle(uuid, "queued"), tool_result("toolu_1"), init(), *own)
        await agent.say(*turn(uuid, "Hello to you."))

    agent = OtherEnd()
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play, agent)
            async with Session(transport=agent.transport) as session:
                answer = await session.ask("Hello")
            assert answer.text == "Hello to you."
            assert not [message for message in answer.messages if isinstance(message, UserMessage)]
            results = [message.result for message in answer.messages if isinstance(message, ResultMessage)]
            assert results == ["Hello to you."]


# Requests of the agent before it has answered the first one.


@outrider.tool
def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


REQUESTS: dict[str, dict[str, Any]] = {
    "hook_callback": {
        "callback_id": "hook_0",
        "tool_use_id": "toolu_1",
        "input": {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "rm x"}},
    },
    "can_use_tool": {"tool_name": "Bash", "input": {"command": "rm x"}, "tool_use_id": "toolu_1"},
    "mcp_message": {
        "server_name": "tools",
        "message": {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "double", "arguments": {"number": 21}},
        },
    },
}
ANSWERS = {"hook_callback": "deny", "can_use_tool": "deny", "mcp_message": "42"}


@pytest.mark.parametrize("is_read", [True, False], ids=["initialize read", "at once"])
@pytest.mark.parametrize("subtype", REQUESTS)
async def test_what_is_asked_before_the_session_is_open_is_answered(subtype: str, is_read: bool) -> None:
    async def play(agent: OtherEnd) -> None:
        await agent.connect()
        if not is_read:
            await agent.ask(subtype, **REQUESTS[subtype])
        first = await agent.asked("initialize")
        if is_read:
            await agent.ask(subtype, **REQUESTS[subtype])
        event = await agent.next()
        assert isinstance(event, RequestAnswered), event
        answers.append(str(event.payload))
        await agent.answer(first, claude_code_version="2.1.325")

    answers: list[str] = []
    agent = OtherEnd()
    options = Options(
        transport=agent.transport,
        hooks=[Guard(deny("no")).hook],
        permission=lambda _: deny("no"),
        tools=[double],
        timeouts=Timeouts(connect=10),
    )
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play, agent)
            async with Session(options):
                pass
    assert len(answers) == 1
    assert ANSWERS[subtype] in answers[0]
