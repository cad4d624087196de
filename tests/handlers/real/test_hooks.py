"""Hooks with the real program: each event that it fires, each kind of answer, and every way to fail."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.lowlevel import checkpoint

from outrider.errors import RequestFailed
from outrider.handlers import (
    Answer,
    Hook,
    HookContext,
    HookHandled,
    HookNeverCalledWarning,
    add_context,
    allow,
    ask,
    defer,
    deny,
    hook,
    later,
    modify,
    notify,
    stop,
)
from outrider.options import StdioServer
from outrider.session import Result, Session
from outrider.testing import RealAgent, answer, fail, say, use_tool
from outrider.wire.choices import EXIT_REASONS
from outrider.wire.control import RegisterRepoRoot
from outrider.wire.hooks import (
    HOOK_EVENTS,
    HookInput,
    PermissionDeniedOutput,
    PreToolUseInput,
    SessionEndInput,
    SessionStartInput,
    SessionStartOutput,
)
from tests.handlers.real import asking_server
from tests.session.real.talking import DEADLINE, real_agent, talking

pytestmark = pytest.mark.anyio

NEVER = ("Setup", "CwdChanged", "Notification", "PermissionDenied", "TeammateIdle")
"""The events that the program has not been seen to deliver."""


class Says:
    """A hook that says what it is told to, and keeps what it was shown."""

    def __init__(self, event: str, **how: Any) -> None:
        self.hook = Hook(self._call, event, **how)
        self.answer: Any = None
        self.seen: list[Any] = []

    async def _call(self, input: Any) -> object:
        self.seen.append(input)
        return self.answer(input) if callable(self.answer) else self.answer


def makes(name: object) -> Any:
    """The model has a file made, and is done."""
    return use_tool("Bash", command=f"echo made > {name}")


async def turn(session: Session, text: str = "go") -> Result[Any]:
    return await (await session.send(text)).result()


def told(agent: RealAgent, number: int = -1) -> str:
    """All that the model has been told."""
    return json.dumps(agent.api.main_requests[number].messages)


def result_of_tool(agent: RealAgent) -> str:
    """What the model was told of its last tool call."""
    return json.dumps(agent.api.main_requests[-1].tool_results[-1]["content"])


# Before a tool runs.


@pytest.mark.smoke
async def test_each_answer_about_a_tool_does_what_it_says() -> None:
    guard, asked = Says("PreToolUse", matcher="Bash"), list[Any]()

    async def permission(request: Any) -> Answer:
        asked.append((request.decision_reason, request.tool_input["command"]))
        return allow()

    script = [step for number in range(9) for step in (makes(f"f{number}"), say(f"done {number}"))]
    script += [makes("f9"), makes("f10"), makes("f11")]
    async with talking(*script, hooks=[guard.hook], permission=permission, permission_mode="default") as (
        agent,
        session,
    ):

        def made(number: int) -> bool:
            return (agent.folder / f"f{number}").exists()

        await turn(session)
        assert made(0)
        assert asked == [(None, "echo made > f0")]

        guard.answer = allow()
        await turn(session)
        assert made(1)
        assert len(asked) == 1

        guard.answer = deny("not today")
        result = await turn(session)
        assert not made(2)
        assert "not today" in result_of_tool(agent)
        assert [denial["tool_name"] for denial in result.permission_denials] == ["Bash"]

        guard.answer = ask("please look")
        await turn(session)
        assert made(3)
        assert asked[1:] == [("please look", "echo made > f3")]

        guard.answer = lambda input: modify(command=input.tool_input["command"] + "; echo changed")
        await turn(session)
        assert made(4)
        assert "changed" in result_of_tool(agent)
        assert asked[2:] == [(None, "echo made > f4; echo changed")]

        guard.answer = allow({"command": "echo instead"})
        await turn(session)
        assert not made(5)
        assert "instead" in result_of_tool(agent)
        assert len(asked) == 3

        guard.answer = allow(context="the folder is shared", notice="a tool ran")
        result = await turn(session)
        assert made(6)
        assert "the folder is shared" in told(agent)
        assert "a tool ran" in str(result.messages)

        guard.answer = later()
        await turn(session)
        assert made(7)
        assert len(asked) == 4

        guard.answer = {"decision": "block", "reason": "the old way"}
        await turn(session)
        assert not made(8)
        assert "the old way" in result_of_tool(agent)

        guard.answer = stop("enough")
        result = await turn(session)
        assert not made(9)
        assert result.terminal_reason == "hook_stopped"

        guard.answer = deny("enough", interrupt=True)
        result = await turn(session)
        assert not made(10)
        assert result.terminal_reason == "hook_stopped"

        guard.answer = defer()
        result = await turn(session)
        assert not made(11)
        assert result.stop_reason == "tool_deferred"
        assert len(asked) == 4
        assert agent.api.remaining == ()


async def test_a_permission_request_is_decided_by_the_first_that_does() -> None:
    first, second = Says("PermissionRequest"), Says("PermissionRequest", matcher="Bash")
    script = [step for number in range(4) for step in (makes(f"f{number}"), say("done"))]
    withdrawn: list[bool] = []

    async def permission(request: Any) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.append(True)

    async with talking(
        *script,
        makes("f4"),
        hooks=[first.hook, second.hook],
        permission=permission,
        permission_mode="default",
    ) as (agent, session):
        first.answer = allow()
        await turn(session)
        assert (len(first.seen), len(second.seen), len(withdrawn)) == (1, 0, 1)

        first.answer = allow().with_changes(command="echo instead")
        await turn(session)
        assert "instead" in result_of_tool(agent)

        first.answer, second.answer = None, deny("no writing")
        await turn(session)
        assert "no writing" in result_of_tool(agent)

        second.answer = {"hookSpecificOutput": {"decision": "nonsense"}}
        await turn(session)
        assert "Not allowed: the hook Says._call" in result_of_tool(agent)

        second.answer = stop("enough")
        with pytest.raises(Exception, match=r"aborted_tools|interrupted"):
            await turn(session)
        assert sorted(path.name for path in agent.folder.glob("f?")) == ["f0"]


# Every way to fail.


async def slow(input: HookInput) -> None:
    await anyio.sleep_forever()


def raises(input: HookInput) -> None:
    raise ValueError("of the user's")


async def cancels_itself(input: HookInput) -> None:
    raise anyio.get_cancelled_exc_class()


FAILURES: list[Callable[[Any], Any]] = [
    slow,
    raises,
    cancels_itself,
    lambda _: "yes",
    lambda _: False,
    lambda _: {"permissionDecision": "allow"},
    lambda _: {"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": "x"}},
    lambda _: {"hookSpecificOutput": {"permissionDecision": "perhaps"}},
    lambda _: modify({"command": object()}),
    lambda _: PermissionDeniedOutput(retry=True),
]


@pytest.mark.parametrize("fails", ["closed", "open"])
async def test_a_guard_that_fails_lets_nothing_through_unless_it_may(fails: Any) -> None:
    current: list[Callable[[Any], Any]] = []

    async def guard(input: HookInput) -> object:
        result = current[0](input)
        return await result if inspect.isawaitable(result) else result

    script = [step for number in range(len(FAILURES)) for step in (makes(f"f{number}"), say("done"))]
    hooks = [Hook(guard, "PreToolUse", timeout=0.2, fails=fails)]
    async with talking(*script, hooks=hooks) as (agent, session):
        for number, each in enumerate(FAILURES):
            current[:] = [each]
            await turn(session)
            assert (agent.folder / f"f{number}").exists() is (fails == "open"), number
            assert ("Not allowed: the hook" in result_of_tool(agent)) is (fails == "closed"), number


async def test_a_prompt_whose_guard_fails_does_not_reach_the_model() -> None:
    guard = Says("UserPromptSubmit")

    def fails(input: HookInput) -> None:
        raise ValueError

    async with talking(say("one"), say("two"), say("three"), hooks=[guard.hook]) as (agent, session):
        guard.answer = fails
        result = await turn(session, "a secret")
        assert (result.num_turns, agent.api.main_requests) == (0, [])
        assert "Not allowed: the hook" in result.text

        guard.answer = deny("not this one")
        result = await turn(session, "a secret")
        assert "not this one" in result.text
        assert agent.api.main_requests == []

        guard.answer = add_context("it is raining")
        assert (await turn(session, "a question")).text == "one"
        assert "it is raining" in told(agent)
        assert "a secret" not in told(agent)

        guard.answer = stop("enough for today")
        result = await turn(session, "another")
        assert "enough for today" in result.text
        assert len(agent.api.main_requests) == 1


# After a tool has run.


async def test_each_answer_after_a_tool_does_what_it_says() -> None:
    after, failed, batch = Says("PostToolUse"), Says("PostToolUseFailure"), Says("PostToolBatch")
    echo = [use_tool("Bash", command="echo the secret"), say("done")]
    breaks = [use_tool("Bash", command="exit 3"), say("done")]
    script = [*echo * 3, *breaks * 2, *echo, *echo[:1] * 3]
    async with talking(*script, hooks=[after.hook, failed.hook, batch.hook]) as (agent, session):
        after.answer = modify(stdout="nothing")
        await turn(session)
        assert result_of_tool(agent) == '"nothing"'
        assert batch.seen[0].tool_calls[0].tool_response == "nothing"

        after.answer = deny("do not look at it")
        await turn(session)
        assert "do not look at it" in told(agent)

        after.answer = add_context("it took long")
        await turn(session)
        assert "it took long" in told(agent)

        failed.answer = add_context("try again")
        await turn(session)
        assert failed.seen[0].error == "Exit code 3"
        assert "try again" in told(agent)

        failed.answer = deny("never do this")
        await turn(session)
        assert "never do this" in told(agent)

        after.answer, batch.answer = None, add_context("all are done")
        await turn(session)
        assert "all are done" in told(agent)

        batch.answer = deny("enough")
        assert (await turn(session)).terminal_reason == "hook_stopped"

        batch.answer, after.answer = None, stop("enough")
        assert (await turn(session)).terminal_reason == "hook_stopped"

        # What could not be checked is kept from the model.
        after.answer = deny("enough", interrupt=True)
        assert (await turn(session)).terminal_reason == "hook_stopped"
        assert agent.api.remaining == ()


# When the model wants to stop, and what is shown of it.


async def test_each_answer_to_a_stop_does_what_it_says() -> None:
    gate, display = Says("Stop"), Says("MessageDisplay")
    script = [say("one"), say("two"), say("three"), say("four"), say("five"), say("six"), say("seven")]
    async with talking(*script, hooks=[gate.hook, display.hook]) as (agent, session):

        def once(first: Answer) -> Callable[[Any], Answer | None]:
            return lambda input: None if input.stop_hook_active else first

        gate.answer = once(deny("the tests have not run"))
        assert (await turn(session)).text == "two"
        assert "the tests have not run" in told(agent)
        assert [input.stop_hook_active for input in gate.seen] == [False, True]

        texts = iter([add_context("it is late"), None])
        gate.answer = lambda _: next(texts)
        assert (await turn(session)).text == "four"
        assert "it is late" in told(agent)

        gate.answer = stop("enough")
        assert (await turn(session)).terminal_reason == "stop_hook_prevented"

        gate.answer, display.answer = None, lambda input: modify(input.delta.upper())
        assert (await turn(session)).text == "SIX"
        assert [input.delta for input in display.seen] == ["one", "two", "three", "four", "five", "six"]


async def test_a_gate_that_fails_closed_ends_the_turn_at_last() -> None:
    gate = Hook(raises, "Stop", fails="closed")
    async with talking(say("one"), say("two"), hooks=[gate]) as (agent, session):
        result = await turn(session)
        assert result.terminal_reason == "stop_hook_prevented"
        assert len(agent.api.main_requests) == 2


# Several.


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_hooks_speak_in_their_order_whatever_their_matchers() -> None:
    order: list[Any] = []

    def noting(name: str, matcher: str | None, said: Callable[[str], Any]) -> Hook[..., object]:
        async def call(input: PreToolUseInput) -> Any:
            command = input.tool_input["command"]
            order.append((name, command))
            return said(command)

        return Hook(call, "PreToolUse", matcher=matcher)

    hooks = [
        noting("first", "Bash|Write", lambda command: modify(command=f"{command}; echo one")),
        noting("other", "Write", lambda command: deny("not meant")),
        noting("second", None, lambda command: modify(command=f"{command}; echo two")),
        noting("guard", "Ba.*", lambda command: deny("seen it all") if "sudo" in command else None),
        noting("last", "", lambda command: None),
    ]
    script = [
        use_tool("Bash", command="echo zero"),
        say("done"),
        use_tool("Bash", command="sudo true"),
        say("done"),
    ]
    async with talking(*script, hooks=hooks) as (agent, session):
        await turn(session)
        assert order == [
            ("first", "echo zero"),
            ("second", "echo zero; echo one"),
            ("guard", "echo zero; echo one; echo two"),
            ("last", "echo zero; echo one; echo two"),
        ]
        assert result_of_tool(agent) == '"zero\\none\\ntwo"'
        order.clear()
        await turn(session)
        assert [name for name, _ in order] == ["first", "second", "guard"]
        assert "seen it all" in result_of_tool(agent)


async def test_tools_that_run_beside_each_other_have_their_hooks_so() -> None:
    both, here = anyio.Event(), list[str]()

    @hook("PreToolUse", matcher="Read", timeout=20)
    async def meet(input: PreToolUseInput, ctx: HookContext) -> Answer | None:
        assert ctx.tool_use_id == input.tool_use_id
        here.append(input.tool_input["file_path"])
        if len(here) == 2:
            both.set()
        await both.wait()
        return deny("not this one") if input.tool_input["file_path"].endswith("b") else None

    async with talking(hooks=[meet]) as (agent, session):
        for name in "ab":
            (agent.folder / name).write_text(f"in {name}", encoding="utf-8")
        reads = [use_tool("Read", file_path=str(agent.folder / name)) for name in "ab"]
        agent.api.add(answer(*reads), say("done"))
        await turn(session)
        results = sorted(str(each["content"]) for each in agent.api.main_requests[-1].tool_results)
        assert "in a" in results[0]
        assert "not this one" in results[1]


async def test_a_hook_in_a_thread_and_one_that_is_withdrawn() -> None:
    began, ended = anyio.Event(), list[bool]()

    @hook("PreToolUse", fails="open")
    async def waits(input: PreToolUseInput, ctx: HookContext) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    @hook("UserPromptSubmit")
    def threaded(input: HookInput, ctx: HookContext) -> Answer:
        return add_context(f"from process {ctx.session.pid}")

    async with talking(makes("f"), hooks=[waits, threaded]) as (agent, session):
        following = session.handled()
        sent = await session.send("go")
        await began.wait()
        await sent.cancel()
        assert ended == [True]
        assert not (agent.folder / "f").exists()
        assert f"from process {session.pid}" in told(agent)
    events = [event async for event in following if isinstance(event, HookHandled)]
    outcomes = [(event.event, event.name.rpartition(".")[2], event.outcome) for event in events]
    assert outcomes == [
        ("UserPromptSubmit", "threaded", "answered"),
        ("PreToolUse", "waits", "cancelled"),
    ]
    assert all(event.seconds > 0 for event in events)


# Subagents.


async def test_hooks_speak_to_subagents_too() -> None:
    start, guard, end = Says("SubagentStart"), Says("PreToolUse", matcher="Bash"), Says("SubagentStop")
    delegate = use_tool(
        "Agent",
        description="d",
        prompt="count",
        subagent_type="general-purpose",
        run_in_background=False,
    )
    subagents = [makes("f"), say("I could not"), say("I tried again")]
    start.answer = add_context("hurry up")
    guard.answer = deny("not in a subagent")
    end.answer = lambda input: None if input.stop_hook_active else deny("try again")
    async with talking(
        delegate, say("done"), subagents=subagents, hooks=[start.hook, guard.hook, end.hook]
    ) as (agent, session):
        assert (await turn(session)).text == "done"
        assert "I tried again" in result_of_tool(agent)
        (call,) = guard.seen
        assert (call.agent_id, call.agent_type) == (start.seen[0].agent_id, "general-purpose")
        assert call.agent_id
        heard = json.dumps([each.messages for each in agent.api.requests if each.kind == "subagent"])
        assert all(words in heard for words in ("hurry up", "not in a subagent", "try again"))
        assert not (agent.folder / "f").exists()


# Everything else that happens in a session.


async def test_tasks_models_and_worktrees_are_guarded() -> None:
    created, completed = Says("TaskCreated"), Says("TaskCompleted")
    before, after = Says("PreModelSwitch"), Says("PostModelSwitch")
    makes_tree, removed = Says("WorktreeCreate"), Says("WorktreeRemove")
    create = use_tool("TaskCreate", subject="write", description="it")
    script = [
        create,
        create,
        use_tool("TaskUpdate", taskId="2", status="completed"),
        use_tool("TaskList"),
        say("done"),
        say("with the new model"),
        use_tool("EnterWorktree", name="one"),
        use_tool("EnterWorktree", name="two"),
        use_tool("ExitWorktree", action="remove", discard_changes=True),
        say("done"),
    ]
    tools = ["TaskCreate", "TaskUpdate", "TaskList", "EnterWorktree", "ExitWorktree"]
    hooks = [each.hook for each in (created, completed, before, after, makes_tree, removed)]
    async with talking(*script, hooks=hooks, tools=tools) as (agent, session):
        created.answer = lambda input: deny("one is enough") if len(created.seen) == 1 else None
        completed.answer = deny("not done yet")
        await turn(session)
        results = [str(each.tool_results) for each in agent.api.main_requests[1:5]]
        assert "one is enough" in results[0]
        assert "not done yet" in results[2]
        assert "pending" in results[3]

        before.answer = deny("stay")
        with pytest.raises(RequestFailed, match="stay"):
            await session.set_model("sonnet")
        before.answer, after.answer = allow(), add_context("you are new here")
        assert "sonnet" in await session.set_model("sonnet")
        await turn(session)
        assert "you are new here" in told(agent)

        tree = agent.home / "tree"
        tree.mkdir()
        makes_tree.answer = lambda input: tree if input.name == "two" else Path
        await turn(session)
        results = [str(each.tool_results) for each in agent.api.main_requests[-3:]]
        assert "WorktreeCreate hook failed" in results[0]
        assert str(tree) in results[1]
        assert [input.worktree_path for input in removed.seen] == [str(tree)]


async def test_a_server_s_question_and_its_result_are_guarded() -> None:
    question, result, after = Says("Elicitation"), Says("ElicitationResult"), Says("PostToolUse")
    script = [
        step
        for tool in ("ask", "ask", "ask", "add")
        for step in (use_tool(f"mcp__asking__{tool}", {"a": 1} if tool == "add" else {}), say("done"))
    ]
    server = StdioServer(sys.executable, (str(Path(asking_server.__file__)),))

    async def on_elicitation(asked: Any) -> Any:
        return {"name": "Ann"}

    async with talking(
        *script,
        hooks=[question.hook, result.hook, after.hook],
        mcp_servers={"asking": server},
        on_elicitation=on_elicitation,
    ) as (agent, session):
        await _connected(session, "asking")
        await turn(session)
        assert '{\\"name\\": \\"Ann\\"}' in told(agent)
        assert (question.seen[0].message, result.seen[0].action) == ("Who?", "accept")

        question.answer = deny("do not ask")
        await turn(session)
        assert "decline" in result_of_tool(agent)

        question.answer, result.answer = None, deny("do not tell")
        await turn(session)
        assert "decline" in result_of_tool(agent)

        after.answer = modify("more than you think")
        await turn(session)
        assert "more than you think" in result_of_tool(agent)


async def _connected(session: Session, name: str) -> None:
    """Wait until a server is there."""
    while {each.name: each.status for each in await session.mcp_status()}[name] != "connected":
        await checkpoint()


async def test_every_event_that_the_program_fires_is_seen() -> None:
    """Those of the tests above are not made to happen again, but for what begins and ends all the same."""
    seen: list[HookInput] = []
    changed = {"ConfigChange": anyio.Event(), "FileChanged": anyio.Event(), "DirectoryAdded": anyio.Event()}

    def noting(event: str) -> Hook[..., object]:
        async def note(input: HookInput) -> Any:
            seen.append(input)
            if event in changed:
                changed[event].set()
            match event:
                case "SessionStart":
                    return SessionStartOutput(watch_paths=[str(agent.folder / "watched")])
                case "PreCompact" if len([each for each in seen if type(each) is type(input)]) == 1:
                    return deny("not yet")
                case "ConfigChange":
                    return deny("leave it as it is")
                case "StopFailure" | "SessionEnd" | "PostCompact":
                    return notify("noted")
                case _:
                    return None

        return Hook(note, event)

    events = [event for event in HOOK_EVENTS if event not in (*NEVER, "WorktreeCreate")]
    script = [
        use_tool("Bash", command="exit 3"),
        say("done"),
        say("greeted"),
        say("<summary>They met.</summary>"),
        fail(403),
        use_tool("Bash", command="echo again"),
        say("done"),
    ]
    with real_agent(*script) as agent:
        await to_thread.run_sync(_set_up, agent.folder)
        with pytest.warns(HookNeverCalledWarning) as warned:
            session = Session(
                agent.options(
                    hooks=[noting(event) for event in events],
                    setting_sources=["user", "project", "local"],
                    permission=lambda _: allow(),
                )
            )
        unsure = [str(each.message).partition(" waits for ")[2].partition(".")[0] for each in warned]
        assert sorted(unsure) == ["SessionEnd", "SessionStart"]
        with anyio.fail_after(DEADLINE):
            async with session:
                await _live(session, agent, changed)
    assert {each.reason for each in seen if isinstance(each, SessionEndInput)} <= {*EXIT_REASONS}
    elsewhere = {
        *("SubagentStart", "TaskCreated", "TaskCompleted", "PreModelSwitch", "PostModelSwitch"),
        *("Elicitation", "ElicitationResult", "WorktreeRemove"),
    }
    assert {input.hook_event_name for input in seen} == set(events) - elsewhere
    assert [input.source for input in seen if isinstance(input, SessionStartInput)] == ["compact", "clear"]


async def _live(session: Session, agent: RealAgent, changed: dict[str, anyio.Event]) -> None:
    """Have all these things happen."""
    await turn(session)
    await turn(session, "/greet Ann")
    await turn(session, "/compact")
    assert len(agent.api.main_requests) == 3
    await turn(session, "/compact")
    with pytest.raises(Exception, match=r"403|permission"):
        await turn(session)
    await session.request(RegisterRepoRoot(str(agent.folder / "nested")))
    await changed["DirectoryAdded"].wait()
    # It takes a moment until they are watched.
    for event, path, text in (
        ("FileChanged", agent.folder / "watched", "changed"),
        ("ConfigChange", agent.folder / ".claude" / "settings.json", '{"permissions": {"deny": ["Bash"]}}'),
    ):
        for times in count(1):
            path.write_text(text + "\n" * times, encoding="utf-8")
            with anyio.move_on_after(2):
                await changed[event].wait()
                break
    # The settings were not taken over.
    await turn(session)
    assert result_of_tool(agent) == '"again"'
    await turn(session, "/clear")


def _set_up(folder: Path) -> None:
    commands = folder / ".claude" / "commands"
    (folder / "CLAUDE.md").write_text("Be kind.", encoding="utf-8")
    (folder / "watched").write_text("", encoding="utf-8")
    (folder / "nested").mkdir()
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text("Say hello to $ARGUMENTS", encoding="utf-8")
    (folder / ".claude" / "settings.json").write_text("{}", encoding="utf-8")
