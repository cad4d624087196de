"""What the user supplies, inside a session: each answer at once, in the context of the turn that asks."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

import outrider
from outrider.errors import ConnectionLost, OptionsError, UsageError
from outrider.handlers import (
    ElicitationHandled,
    Handled,
    HookHandled,
    PermissionHandled,
    PermissionRequest,
    ToolContext,
    ToolHandled,
)
from outrider.protocol import RequestAnswered, RequestReceived, RequestRefused
from outrider.session import Session, SessionState
from outrider.transports import Transport
from outrider.wire import JsonObject
from outrider.wire.hooks import PreToolUseInput
from tests.cases import every_case
from tests.session.other_end import OtherEnd, assistant, init, playing, result

pytestmark = pytest.mark.anyio

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")

ASK: dict[str, Any] = {"tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "toolu_1"}
"""A question for permission."""

TOLD: dict[str, Any] = {
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "ls"},
    "tool_use_id": "toolu_1",
    "session_id": "s",
    "transcript_path": "/t",
    "cwd": "/",
}


def call(name: str, id: int = 1, **arguments: Any) -> dict[str, Any]:
    """A call of one of the session's own tools."""
    meta = {"claudecode/toolUseId": f"toolu_{id}"}
    params = {"name": name, "arguments": arguments, "_meta": meta}
    return {
        "server_name": "tools",
        "message": {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params},
    }


async def answer_to(agent: OtherEnd, subtype: str, **fields: Any) -> JsonObject:
    """Ask the host, and wait for the answer."""
    id = await agent.ask(subtype, **fields)
    while not isinstance(event := await agent.next(), RequestAnswered | RequestRefused) or event.id != id:
        assert event is not None
    assert isinstance(event, RequestAnswered), event
    return event.payload


async def ask_everything(agent: OtherEnd) -> list[JsonObject]:
    return [
        await answer_to(agent, "hook_callback", callback_id="hook_0", input=TOLD, tool_use_id="toolu_1"),
        await answer_to(agent, "can_use_tool", **ASK),
        await answer_to(agent, "mcp_message", **call("who")),
        await answer_to(agent, "elicitation", mcp_server_name="s", message="?", mode="form"),
    ]


class Supplied:
    """One of each kind, which note in which context they were called, and for whom."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Any]] = []

    def options(self) -> dict[str, Any]:
        @outrider.hook("PreToolUse")
        async def on_tool(_: PreToolUseInput, ctx: outrider.HookContext) -> outrider.Answer:
            self.note("hook", ctx)
            return outrider.allow()

        async def permit(request: PermissionRequest) -> outrider.Answer:
            self.note("permission", request)
            return outrider.allow()

        @outrider.tool
        def who(ctx: ToolContext) -> str:
            """Say who asks; runs in a thread."""
            self.note("tool", ctx)
            return WHO.get()

        async def elicit(request: Any) -> None:
            self.note("elicitation", request)

        return {"hooks": [on_tool], "permission": permit, "tools": [who], "on_elicitation": elicit}

    def note(self, kind: str, context: outrider.handlers.CallContext) -> None:
        self.seen.append((kind, WHO.get(), context))


async def test_each_is_called_in_the_context_of_the_turn_that_asks() -> None:
    supplied = Supplied()

    async def play(agent: OtherEnd) -> None:
        for _ in range(2):
            prompt = await agent.prompt()
            await agent.say(init(str(prompt.uuid)))
            await ask_everything(agent)
            await agent.say(result(str(prompt.uuid)))

    token = WHO.set("opener")
    async with playing(play, **supplied.options()) as session:
        turns = []
        for name in ("alice", "bob"):
            WHO.set(name)
            turn = await session.send("go")
            WHO.set("elsewhere")
            turns += [turn] * 4
            await turn.result()
        assert [kind for kind, *_ in supplied.seen] == ["hook", "permission", "tool", "elicitation"] * 2
        assert [who for _, who, _ in supplied.seen] == ["alice"] * 4 + ["bob"] * 4
        for (_, _, context), sent in zip(supplied.seen, turns, strict=True):
            assert context.session is session
            assert context.turn.uuid == sent.uuid
    WHO.reset(token)


async def test_before_the_first_turn_the_context_is_that_of_the_opening() -> None:
    supplied = Supplied()
    answers: list[JsonObject] = []
    asked = anyio.Event()

    async def play(agent: OtherEnd) -> None:
        answers.extend(await ask_everything(agent))
        asked.set()
        await agent.reply()

    token = WHO.set("opener")
    async with playing(play, **supplied.options()) as session:
        WHO.set("elsewhere")
        await asked.wait()
        await session.ask("go")
    WHO.reset(token)
    assert {who for _, who, _ in supplied.seen} == {"opener"}
    assert all(context.turn is None for *_, context in supplied.seen)
    assert answers[2]["mcp_response"]["result"]["content"] == [{"type": "text", "text": "opener"}]


async def test_all_are_answered_while_nobody_reads() -> None:
    supplied = Supplied()
    asked = anyio.Event()

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        await agent.say(init(str(prompt.uuid)))
        # Far more than is kept for a reader that may pause.
        for _ in range(40):
            await agent.say(*(assistant("x" * 50_000) for _ in range(10)))
        await ask_everything(agent)
        asked.set()
        await agent.say(result(str(prompt.uuid)))

    def prepare(session: Session) -> None:
        session._conversation.budget = 100_000

    async with playing(play, prepare=prepare, **supplied.options()) as session:
        turn = await session.send("go")
        reader = aiter(turn)
        await anext(reader)
        await asked.wait()
        assert len(supplied.seen) == 4
        assert len([message async for message in reader]) == 401


async def test_many_are_answered_at_once() -> None:
    """Each waits until all have been called."""
    count = 60
    together = 0
    all_there = anyio.Event()

    @outrider.tool
    async def meet(number: int) -> int:
        """Wait for the others."""
        nonlocal together
        together += 1
        if together == count:
            all_there.set()
        await all_there.wait()
        return number

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        ids = [
            await agent.ask("mcp_message", **call("meet", number, number=number)) for number in range(count)
        ]
        answered: set[object] = set()
        while len(answered) < count:
            event = await agent.next()
            assert isinstance(event, RequestAnswered)
            answered.add(event.id)
        assert answered == set(ids)
        await agent.say(result(str(prompt.uuid)))

    async with playing(play, tools=[meet]) as session:
        assert (await session.ask("go")).text == "done"


@pytest.mark.parametrize("in_thread", [False, True])
async def test_progress_reaches_the_agent_before_the_result(in_thread: bool) -> None:
    def report(ctx: ToolContext) -> str:
        for done in range(3):
            ctx.progress(done, 3, f"step {done}")
        return "done"

    @outrider.tool
    async def on_loop(ctx: ToolContext) -> str:
        """Report on the way."""
        return report(ctx)

    @outrider.tool
    def elsewhere(ctx: ToolContext) -> str:
        """Report on the way, from a thread."""
        return report(ctx)

    tool = elsewhere if in_thread else on_loop
    heard: list[Any] = []

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        fields = call(tool.name)
        fields["message"]["params"]["_meta"]["progressToken"] = "t"
        await agent.ask("mcp_message", **fields)
        while not isinstance(event := await agent.next(), RequestAnswered):
            assert isinstance(event, RequestReceived)
            heard.append(event.request.to_wire())
            await agent.answer(event)
        await agent.say(result(str(prompt.uuid)))

    async with playing(play, tools=[tool]) as session:
        await session.ask("go")
    assert [frame["server_name"] for frame in heard] == ["tools"] * 3
    assert [frame["message"]["params"]["progress"] for frame in heard] == [0, 1, 2]
    assert {frame["message"]["params"]["progressToken"] for frame in heard} == {"t"}


# Ends.


@pytest.mark.parametrize("subtype", ["hook_callback", "can_use_tool", "elicitation"])
async def test_what_is_withdrawn_is_cancelled(subtype: str) -> None:
    """The agent takes its question back: the function is cancelled, and nothing is answered."""
    began, ended = anyio.Event(), anyio.Event()

    async def wait(*_: object) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    fields: dict[str, dict[str, Any]] = {
        "hook_callback": {"callback_id": "hook_0", "input": TOLD},
        "can_use_tool": ASK,
        "elicitation": {"mcp_server_name": "s", "message": "?"},
    }

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        id = await agent.ask(subtype, **fields[subtype])
        await began.wait()
        agent.peer.cancel(id)
        await agent.flush()
        await ended.wait()
        await agent.say(result(str(prompt.uuid)))

    options: dict[str, Any] = {"hooks": {"PreToolUse": [wait]}, "permission": wait, "on_elicitation": wait}
    async with playing(play, **options) as session:
        events = session.handled()
        assert (await session.ask("go")).text == "done"
        assert (await anext(events)).outcome == "cancelled"
        assert session.state is SessionState.IDLE


async def test_what_is_running_when_the_session_closes_is_cancelled() -> None:
    began, ended = anyio.Event(), anyio.Event()

    @outrider.tool
    async def wait() -> None:
        """Never return."""
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def play(agent: OtherEnd) -> None:
        await agent.prompt()
        await agent.ask("mcp_message", **call("wait"))
        await agent.wait_ended()

    async with playing(play, tools=[wait]) as session:
        await session.send("go")
        await began.wait()
        await session.close()
        assert ended.is_set()
        assert session.state is SessionState.CLOSED


async def test_what_is_allowed_after_the_session_began_to_close_is_denied() -> None:
    """The agent has not read the end of its input yet, and would go ahead."""
    asked, decided = anyio.Event(), anyio.Event()
    answers: list[JsonObject] = []

    async def permit(_: object) -> bool:
        asked.set()
        with anyio.CancelScope(shield=True):
            await decided.wait()
        return True

    async def play(agent: OtherEnd) -> None:
        await agent.prompt()
        answers.append(await answer_to(agent, "can_use_tool", **ASK))

    async with playing(play, permission=permit) as session:
        await session.send("go")
        await asked.wait()
        session._conversation.handlers.close()
        decided.set()
        while not answers:
            await anyio.lowlevel.checkpoint()
    assert answers[0]["behavior"] == "deny"


async def test_a_decision_may_have_a_deadline() -> None:
    answers: list[JsonObject] = []

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        answers.append(await answer_to(agent, "can_use_tool", **ASK))
        answers.append(await answer_to(agent, "elicitation", mcp_server_name="s", message="?"))
        await agent.say(result(str(prompt.uuid)))

    async def wait(_: object) -> bool:
        await anyio.sleep_forever()
        return True

    options: dict[str, Any] = {"permission": wait, "on_elicitation": wait}
    async with playing(play, timeouts={"permission": 0.01}, **options) as session:
        events = session.handled()
        await session.ask("go")
        assert [(await anext(events)).outcome for _ in range(2)] == ["timed_out"] * 2
    assert [answer.get("behavior") or answer["action"] for answer in answers] == ["deny", "cancel"]


async def test_a_hook_sees_how_long_it_may_take() -> None:
    left: list[float] = []

    @outrider.hook("PreToolUse", timeout=50)
    async def look(_: PreToolUseInput) -> None:
        left.append(anyio.current_effective_deadline() - anyio.current_time())

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        await answer_to(agent, "hook_callback", callback_id="hook_0", input=TOLD)
        await agent.say(result(str(prompt.uuid)))

    async with playing(play, hooks=[look]) as session:
        await session.ask("go")
    assert 0 < left[0] <= 50


async def test_a_session_waits_for_an_approval() -> None:
    asked, decided = anyio.Event(), anyio.Event()

    async def permit(_: object) -> bool:
        asked.set()
        await decided.wait()
        return True

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        await answer_to(agent, "can_use_tool", **ASK)
        await agent.say(result(str(prompt.uuid)))

    async with playing(play, permission=permit) as session:
        turn = await session.send("go")
        await asked.wait()
        assert session.state is SessionState.WAITING
        decided.set()
        await turn.result()


async def test_a_dropped_session_is_collected_whatever_its_functions_mention() -> None:
    """In a turn that nobody holds any more, with a tool, a hook and a permission callback of its own."""
    ended = anyio.Event()

    async def play(agent: OtherEnd) -> None:
        await agent.wait_ended()
        ended.set()

    async def open_and_drop(agent: OtherEnd) -> weakref.ref[Session]:
        sessions: list[Session] = []

        @outrider.tool
        def mine() -> str:
            """Mention the session."""
            return str(sessions)

        def permit(_: object) -> bool:
            return bool(sessions)

        session = Session(
            transport=agent.transport, tools=[mine], permission=permit, hooks={"Stop": [permit]}
        )
        sessions.append(session)
        await session.connect()
        return weakref.ref(session)

    agent = OtherEnd()

    async def answer() -> None:
        await agent.open()
        await play(agent)

    with anyio.fail_after(5), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            reference = await open_and_drop(agent)
            while reference() is not None:
                gc.collect()
                await anyio.lowlevel.checkpoint()
            await ended.wait()
    assert [warning.category for warning in warned] == [ResourceWarning]


async def test_a_session_of_which_only_a_turn_is_left_is_made_anew_for_its_functions() -> None:
    found: list[Session] = []

    async def permit(request: PermissionRequest) -> bool:
        found.append(request.session)
        return True

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        gc.collect()
        await answer_to(agent, "can_use_tool", **ASK)
        await agent.say(result(str(prompt.uuid)))
        await agent.wait_ended()

    agent = OtherEnd()

    async def answer() -> None:
        await agent.open()
        await play(agent)

    async def send() -> outrider.Turn:
        session = Session(transport=agent.transport, permission=permit)
        await session.connect()
        return await session.send("go")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            turn = await send()
            await turn.result()
            assert isinstance(found[0], Session)
            await found[0].close()


# Being told of it.


async def test_each_answer_is_an_event_with_its_latency() -> None:
    supplied = Supplied()

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        await ask_everything(agent)
        await agent.say(result(str(prompt.uuid)))

    async with playing(play, **supplied.options()) as session:
        first, second = session.handled(), session.handled()
        await session.ask("go")
        kinds: list[type[Handled]] = [HookHandled, PermissionHandled, ToolHandled, ElicitationHandled]
        events = [await anext(first) for _ in kinds]
        assert [type(event) for event in events] == kinds
        assert all(event.seconds >= 0 and event.outcome == "answered" for event in events)
    # They are still there after the end, and nothing follows.
    assert [event async for event in second] == events
    assert [event async for event in session.handled()] == []


async def test_of_too_many_events_the_last_are_kept() -> None:
    from outrider.session._connection.observers import EventFeed

    feed = EventFeed()
    events = feed.subscribe()
    for number in range(10_005):
        feed(Handled(seconds=float(number), outcome="answered"))
    feed.close()
    seconds = [event.seconds async for event in events]
    assert (seconds[0], seconds[-1], len(seconds)) == (5.0, 10_004.0, 10_000)
    assert events.missed == 5


async def test_events_may_be_followed_before_and_after_a_session_could_not_be_opened() -> None:
    agents: list[OtherEnd] = []
    followed = anyio.Event()

    class Second(Transport):
        """Leads to an agent that leaves at once, and then to one that stays."""

        async def connect(self) -> None:
            agents.append(OtherEnd())
            await self.now.connect()
            if len(agents) == 1:
                await agents[0].leave()
            else:
                tasks.start_soon(play)

        @property
        def now(self) -> Transport:
            return agents[-1].transport

        async def receive(self) -> bytes:
            return await self.now.receive()

        async def send(self, data: bytes) -> None:
            await self.now.send(data)

        async def end_input(self) -> None:
            await self.now.end_input()

        async def close(self) -> None:
            await self.now.close()

        @property
        def is_ready(self) -> bool:
            return self.now.is_ready

    async def play() -> None:
        await agents[-1].open()
        await followed.wait()
        await answer_to(agents[-1], "can_use_tool", **ASK)
        await session.close()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            session = Session(transport=Second(), permission=lambda _: True)
            events = session.handled()
            with pytest.raises(ConnectionLost):
                await session.connect()
            assert [event async for event in events] == []
            await session.connect()
            events = session.handled()
            followed.set()
            assert [getattr(event, "decision", None) async for event in events] == ["allow"]
        unopened = Session()
        events = unopened.handled()
        await unopened.close()
        assert [event async for event in events] == []


async def test_two_may_read_from_one_follower() -> None:
    from outrider.session._connection.observers import EventFeed

    feed = EventFeed()
    events = feed.subscribe()
    read: list[Handled] = []

    async def take() -> None:
        read.append(await anext(events))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            tasks.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            for number in range(2):
                feed(Handled(seconds=number, outcome="answered"))
    assert len(read) == 2


# What the agent is told.


async def test_the_first_request_names_hooks_and_servers() -> None:
    told: list[JsonObject] = []
    agent = OtherEnd()

    async def play() -> None:
        told.append(await agent.open())
        again = await agent.asked("initialize")
        told.append(again.request.to_wire())
        await agent.answer(again)

    server = outrider.ToolServer("db")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            options: dict[str, Any] = Supplied().options()
            options |= {"mcp_servers": {"db": server}, "output": list[int]}
            async with Session(transport=agent.transport, **options) as session:
                await session.reinitialize()
    for request in told:
        assert "value" in request["jsonSchema"]["properties"]
        assert request["sdkMcpServers"] == ["db", "tools"]
        assert [item["hookCallbackIds"] for item in request["hooks"]["PreToolUse"]] == [["hook_0"]]


@every_case(
    "fields, words",
    [
        ({"tools": [5]}, "tool"),
        ({"mcp_servers": {"a": object()}}, "server"),
        ({"hooks": {"PreToolUse": [5]}}, "hook"),
        ({"tools": [len], "mcp_servers": {"tools": outrider.ToolServer("tools")}}, "name"),
        ({"tools": [print]}, "print"),
    ],
    ids=["tool", "server", "hook", "two of a name", "no signature"],
)
async def test_what_cannot_be_used_is_refused_before_anything_starts(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(OptionsError, match=words):
        Session(**fields)


def allowed(**fields: Any) -> tuple[str, ...]:
    return Session(**fields)._conversation.options.allowed_tools


def test_own_tools_may_be_used_unless_somebody_is_asked() -> None:
    @outrider.tool
    def mine() -> None:
        """Do nothing."""

    def permit(_: object) -> bool:
        return False

    assert allowed(tools=[mine]) == ("mcp__tools",)
    assert allowed(tools=[mine], allowed_tools=["Read"]) == ("Read", "mcp__tools")
    assert allowed(tools=[mine], permission=permit) == ()
    assert allowed(tools=["Read"]) == ()
    # A server is a server: who adds one says what may be used of it.
    for name in ("db", "tools"):
        assert allowed(mcp_servers={name: outrider.ToolServer(name, [mine])}) == ()


async def test_what_does_not_come_from_a_session_that_is_gone_says_so() -> None:
    from outrider.session._connection.answering import TurnOrigin
    from outrider.session._connection.tasks import current_loop

    conversation = Session()._conversation
    origin = TurnOrigin(conversation, None, current_loop())
    assert origin.turn is None
    del conversation
    gc.collect()
    with pytest.raises(UsageError, match="dropped"):
        _ = origin.session


async def ask_at(agent: OtherEnd, ask: Callable[[OtherEnd], Awaitable[JsonObject]]) -> JsonObject:
    prompt = await agent.prompt()
    answer = await ask(agent)
    await agent.say(result(str(prompt.uuid)))
    return answer


async def test_a_server_that_is_not_there_is_told_in_its_own_protocol() -> None:
    answers: list[JsonObject] = []

    async def play(agent: OtherEnd) -> None:
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
        answers.append(
            await ask_at(agent, lambda end: answer_to(end, "mcp_message", server_name="x", message=message))
        )

    async with playing(play) as session:
        await session.ask("go")
    (answer,) = answers
    assert answer["mcp_response"]["id"] == 7
    assert "'x'" in answer["mcp_response"]["error"]["message"]
