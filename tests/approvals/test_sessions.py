"""Calls that wait for a person: asked, parked, decided elsewhere, gone on with, and made once at most."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

import outrider
from outrider import Approval, Approvals, Options, Policy, Session, allow, deny
from outrider.answers import ask
from outrider.approvals import ApprovalSettled, SessionParked
from outrider.errors import OptionsError, UsageError
from outrider.handlers import PermissionHandled
from outrider.testing import Simulator, answer, say, use_tool
from outrider.transcripts import MemoryStore
from outrider.wire import ToolResultBlock, UserMessage
from tests.session.real.talking import real_agent
from tests.transports.conftest import nothing_is_left

__all__ = ["nothing_is_left"]

pytestmark = pytest.mark.anyio

DEADLINE = 30.0
MAKE = "echo x >> made"
POLICY = Policy.of({"ask": "Bash"}, {"allow": "*"})

Make: TypeAlias = Callable[..., Options]


@asynccontextmanager
async def simulated(*script: Any, **more: Any) -> AsyncGenerator[tuple[Make, Path]]:
    with anyio.fail_after(DEADLINE), Simulator(script, **more) as agent, agent.stand_in():

        def make(**fields: Any) -> Options:
            return Options(cwd=agent.folder, **fields)

        yield make, agent.folder


@asynccontextmanager
async def real(*script: Any, **more: Any) -> AsyncGenerator[tuple[Make, Path]]:
    with anyio.fail_after(DEADLINE), real_agent(*script, **more) as agent:
        yield agent.options, agent.folder


AGENTS = pytest.mark.parametrize(
    "playing",
    [pytest.param(simulated, id="simulated"), pytest.param(real, id="real", marks=pytest.mark.real)],
)

ONE = (use_tool("Bash", command=MAKE), say("All done."), say("Hello."))


def parking(patience: float = 0.0, **more: Any) -> Approvals:
    """Approvals that a session does not wait for by itself."""
    return Approvals(MemoryStore(), patience=patience, **more)


async def parked(options: Options) -> tuple[str, Approval]:
    """A session that was left with a call, and what it waits for."""
    result = await outrider.run("Make it", options)
    assert result.session_id is not None
    (pending,) = result.pending
    assert pending.state == "pending"
    return result.session_id, pending


def made(folder: Path) -> int:
    """How often the call has run."""
    path = folder / "made"
    return len(path.read_text().splitlines()) if path.exists() else 0


def refusals(result: outrider.Result) -> list[str]:
    blocks = [
        block
        for message in result.messages
        if isinstance(message, UserMessage) and isinstance(message.content, list)
        for block in message.content
    ]
    return [str(block.content) for block in blocks if isinstance(block, ToolResultBlock) and block.is_error]


@AGENTS
async def test_a_call_waits_and_runs_once_it_is_allowed(playing: Any) -> None:
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        assert (pending.tool, pending.input["command"], pending.session_id) == ("Bash", MAKE, id)
        assert pending.reason == "by rule 1 (ask Bash)"
        assert await approvals.list() == (pending,)
        assert made(folder) == 0
        with pytest.raises(SessionParked, match=pending.id):
            await outrider.go_on(id, options)
        decided = await approvals.decide(pending.id, allow(), by="ada")
        assert (decided.state, decided.by) == ("granted", "ada")
        assert await anext(aiter(approvals.ready())) == id
        result = await outrider.go_on(id, options)
        assert (result.text, made(folder), result.pending) == ("All done.", 1, ())
        now = await approvals.get(pending.id)
        assert (now.state, now.outcome) == ("done", "succeeded")
        assert await approvals.list() == ()
        with pytest.raises(UsageError, match="Nothing waits"):
            await outrider.go_on(id, options)


@AGENTS
async def test_a_denial_is_told_to_the_model(playing: Any) -> None:
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        await approvals.decide(pending.id, deny("Not on a Friday."), by="ada")
        result = await outrider.go_on(id, options)
        assert (result.text, made(folder)) == ("All done.", 0)
        assert "Not on a Friday." in refusals(result)[0]
        assert (await approvals.get(pending.id)).is_delivered
        assert await approvals.list() == ()


@AGENTS
async def test_another_input_may_be_approved(playing: Any) -> None:
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        await approvals.decide(pending.id, allow({"command": "echo other > other"}))
        await outrider.go_on(id, options)
        assert (made(folder), (folder / "other").exists()) == (0, True)


@AGENTS
async def test_what_is_decided_in_time_is_not_parked(playing: Any) -> None:
    approvals = parking(patience=20.0)
    async with playing(*ONE) as (make, folder), anyio.create_task_group() as tasks:

        async def decide() -> None:
            while not (found := await approvals.list()):  # noqa: ASYNC110 - as another process would
                await anyio.sleep(0.01)
            await approvals.decide(found[0].id, allow({"command": "echo y >> made"}))

        tasks.start_soon(decide)
        result = await outrider.run("Make it", make(permission=POLICY, approvals=approvals))
        assert (result.text, result.pending) == ("All done.", ())
        # With the input that was approved, not the one that was asked about.
        assert (folder / "made").read_text() == "y\n"
        assert await approvals.list() == ()


@AGENTS
async def test_a_prompt_does_not_destroy_a_call_that_waits(playing: Any) -> None:
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        async with Session(make(permission=POLICY, approvals=approvals)) as session:
            events = session.handled()
            pending = (await session.ask("Make it")).pending
            handled = await anext(events)
            assert isinstance(handled, PermissionHandled)
            assert (handled.decision, handled.reason) == ("pending", f"approval {pending[0].id}")
            with pytest.raises(SessionParked, match=pending[0].id):
                await session.send("Never mind")
        await approvals.decide(pending[0].id, True)
        async with Session(make(permission=POLICY, approvals=approvals, resume=session.id)) as again:
            assert (await again.go_on()).text == "All done."
            # From now on it is a session like any other.
            assert (await again.ask("And now?")).text == "Hello."
        assert made(folder) == 1


@AGENTS
async def test_a_session_that_is_resumed_too_early_waits_on(playing: Any) -> None:
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        async with Session(options.replace(resume=id)) as session:
            early = await session.go_on()
            assert [each.id for each in early.pending] == [pending.id]
            with pytest.raises(SessionParked):
                await session.send("Never mind")
        await approvals.decide(pending.id, True)
        assert (await outrider.go_on(id, options)).text == "All done."
        assert made(folder) == 1


@AGENTS
async def test_of_two_calls_in_a_message_one_is_parked(playing: Any) -> None:
    both = answer(use_tool("Bash", command=MAKE), use_tool("Bash", command="echo y >> made"))
    approvals = parking()
    async with playing(both, say("All done."), say("Hello.")) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        await approvals.decide(pending.id, True)
        result = await outrider.go_on(id, options)
        assert (result.text, made(folder)) == ("All done.", 1)


@AGENTS
async def test_nobody_decides_in_time(playing: Any) -> None:
    approvals = parking(expires=0.001)
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        result = await outrider.run("Make it", options)
        if result.pending:  # it expired after it was parked
            result = await outrider.go_on(result.pending[0].session_id, options)
        assert (result.text, made(folder)) == ("All done.", 0)
        assert "Nobody decided" in refusals(result)[0]


@AGENTS
async def test_a_fork_does_not_make_the_call_a_second_time(playing: Any) -> None:
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        await approvals.decide(pending.id, True)
        async with Session(options.replace(resume=id, fork_session=True)) as fork:
            assert (await fork.go_on()).text == "All done."
        async with Session(options.replace(resume=id)) as session:
            async for message in session:
                if isinstance(message, outrider.ResultMessage):
                    break
        assert made(folder) == 1


@AGENTS
async def test_a_callback_may_let_a_call_wait(playing: Any) -> None:
    approvals = parking()
    again = use_tool("Bash", command=MAKE)
    script = (use_tool("Bash", command=MAKE), say("I wait."), again, say("All done."))
    async with playing(*script) as (make, folder):
        options = make(permission=lambda _: ask("it writes"), approvals=approvals)
        id, pending = await parked(options)
        assert (pending.reason, pending.is_deferred) == ("it writes", False)
        await approvals.decide(pending.id, True)
        result = await outrider.go_on(id, options)
        assert (result.text, made(folder), result.pending) == ("All done.", 1, ())
        assert (await approvals.get(pending.id)).state == "done"


@AGENTS
async def test_questions_can_wait(playing: Any) -> None:
    options_ = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    question = {"question": "Which colour?", "header": "Colour", "options": options_, "multiSelect": False}
    approvals = parking()
    script = (use_tool("AskUserQuestion", questions=[question]), say("All done."), say("Hello."))
    async with playing(*script) as (make, _):
        options = make(approvals=approvals)
        id, pending = await parked(options)
        assert pending.kind == "question"
        await approvals.answer(pending.id, {"Which colour?": "Blue"}, by="ada")
        result = await outrider.go_on(id, options)
        assert result.text == "All done."
        assert refusals(result) == []
        assert "Blue" in str(result.messages)


@AGENTS
async def test_a_tool_of_this_process_can_wait(playing: Any) -> None:
    calls: list[str] = []

    @outrider.tool
    def deploy(target: str) -> str:
        """Deploy it."""
        calls.append(target)
        return "deployed"

    approvals = parking()
    async with playing(use_tool(deploy, target="prod"), say("All done."), say("Hello.")) as (make, _):
        policy = Policy.of({"ask": deploy}, {"allow": "*"})
        options = make(permission=policy, approvals=approvals, tools=[deploy])
        id, pending = await parked(options)
        assert pending.tool == "mcp__tools__deploy"
        await approvals.decide(pending.id, True)
        result = await outrider.go_on(id, options)
        assert (result.text, calls) == ("All done.", ["prod"])
        assert (await approvals.get(pending.id)).state == "done"


@AGENTS
async def test_a_subagent_does_not_wait_for_long(playing: Any) -> None:
    approvals = parking()
    script = (
        use_tool(
            "Agent",
            prompt="Make it",
            description="d",
            subagent_type="general-purpose",
            run_in_background=False,
        ),
        say("All done."),
    )
    async with playing(*script, subagents=[use_tool("Bash", command=MAKE), say("I could not.")]) as (
        make,
        folder,
    ):
        result = await outrider.run("Make it", make(permission=POLICY, approvals=approvals))
        assert (result.text, result.pending, made(folder)) == ("All done.", (), 0)
        assert await approvals.list() == ()


@AGENTS
async def test_plans_can_wait(playing: Any) -> None:
    approvals = parking()
    script = (use_tool("ExitPlanMode", plan="1. Make it."), say("All done."), say("Hello."))
    async with playing(*script) as (make, _):
        options = make(approvals=approvals, permission_mode="plan")
        id, pending = await parked(options)
        assert pending.kind == "plan"
        await approvals.decide(pending.id, True)
        result = await outrider.go_on(id, options)
        assert (result.text, refusals(result)) == ("All done.", [])


@AGENTS
async def test_a_session_goes_on_from_a_store(playing: Any) -> None:
    approvals, store = parking(), MemoryStore()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals, session_store=store)
        id, pending = await parked(options)
        for left in folder.parent.rglob(f"{id}.jsonl"):
            # It is nowhere but in the store.
            left.unlink()
        await approvals.decide(pending.id, True)
        elsewhere = folder.parent / "elsewhere"
        elsewhere.mkdir()
        assert (await outrider.go_on(id, options, cwd=elsewhere)).text == "All done."
        assert (made(folder), made(elsewhere)) == (0, 1)


@AGENTS
async def test_the_latest_session_goes_on_without_its_id(playing: Any) -> None:
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        _, pending = await parked(options)
        await approvals.decide(pending.id, True)
        async with Session(options.replace(continue_conversation=True)) as session:
            async for message in session:
                if isinstance(message, outrider.ResultMessage):
                    break
        assert (made(folder), (await approvals.get(pending.id)).state) == (1, "done")


@AGENTS
async def test_a_call_whose_end_nobody_saw_is_unknown(playing: Any) -> None:
    approvals = parking()
    async with playing(use_tool("Bash", command="echo x; sleep 60"), say("All done.")) as (make, _):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        await approvals.decide(pending.id, True)
        async with Session(options.replace(resume=id)) as session:
            await session.continue_turn()
            while (await approvals.get(pending.id)).state != "claimed":  # noqa: ASYNC110 - as others see it
                await anyio.sleep(0.01)
        assert (await approvals.get(pending.id)).state == "unknown"


@AGENTS
async def test_of_two_decisions_at_once_the_first_counts(playing: Any) -> None:
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        settled: list[ApprovalSettled] = []

        async def decide(by: str, answer: outrider.Answer) -> None:
            try:
                await approvals.decide(pending.id, answer, by=by)
            except ApprovalSettled as error:
                settled.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(decide, "ada", allow())
            tasks.start_soon(decide, "bob", deny("no"))
        now = await approvals.get(pending.id)
        assert (now.state, now.by) in (("granted", "ada"), ("denied", "bob"))
        assert [(error.state, error.by) for error in settled] == [(now.state, now.by)]
        result = await outrider.go_on(id, options)
        is_granted = now.state == "granted"
        assert (result.text, made(folder), len(refusals(result))) == ("All done.", is_granted, not is_granted)


@AGENTS
async def test_what_was_approved_is_not_made_of_another_input(playing: Any) -> None:
    approvals = parking()
    async with playing(*ONE) as (make, folder):
        options = make(permission=POLICY, approvals=approvals)
        id, pending = await parked(options)
        await approvals.decide(pending.id, True)

        @outrider.hook("PreToolUse")
        def change(_: object) -> Any:
            return outrider.answers.modify(command="echo other >> made")

        result = await outrider.go_on(id, options, hooks=[change])
        assert made(folder) == 0
        (another,) = result.pending
        assert another.input["command"] == "echo other >> made"


async def test_a_session_without_an_id_is_no_session_to_go_on_with() -> None:
    approvals = parking()
    # Of another session.
    await approvals.ask("2f5b6a4e-0000-4000-8000-000000000000", "Bash", {"command": MAKE})
    missing: Any = None
    with pytest.raises(OptionsError, match="`session_id` must be a text, not None"):
        await outrider.go_on(missing, approvals=approvals)


async def test_without_approvals_there_is_nothing_to_go_on_with() -> None:
    with pytest.raises(OptionsError, match="no `approvals`"):
        await outrider.go_on("2f5b6a4e-0000-4000-8000-000000000000")
