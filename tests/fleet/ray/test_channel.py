"""What an attempt elsewhere asks for is answered here, and what it spends counts here: without a cluster."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

import outrider
from outrider.errors import OutriderError, UsageError
from outrider.fleet import Budget, Gate, Left, Note, Shared, Spent
from outrider.fleet._ray.channel import (
    ChannelMessage,
    DriverChannel,
    FarGate,
    Mailbox,
    MessageKind,
    Share,
    current_channel,
)
from outrider.fleet._ray.engine import Visit
from outrider.fleet._ray.worker import travelling
from outrider.handlers import PermissionRequest, Question
from outrider.options import Options
from outrider.testing import Simulator, ask_question, say, use_tool

pytest.importorskip("ray")

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

DEADLINE = 20.0
KEY = "attempt"

who: ContextVar[str] = ContextVar("who")


class Handle:
    """A mailbox as Ray hands it out: methods begin when they are called, whoever waits for them."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._mailbox, name)

        class Remote:
            @staticmethod
            def remote(*arguments: object) -> Awaitable[object]:
                # What is sent is what was pickled.
                begun: Awaitable[object] = asyncio.ensure_future(
                    method(*pickle.loads(pickle.dumps(arguments)))
                )
                return begun

        return Remote


class Driver:
    """Fetches messages and answers them, as the engine does."""

    def __init__(self, mailbox: Handle, visit: Visit) -> None:
        self.mailbox = mailbox
        self.visit = visit
        self.messages: list[ChannelMessage] = []

    async def serve(self) -> None:
        while True:
            for message in await self.mailbox.collect.remote(1.0):
                self.messages.append(message)
                self.visit.receive(message)


@asynccontextmanager
async def elsewhere(options: Options, **shared: Any) -> AsyncGenerator[tuple[DriverChannel, Driver]]:
    """A channel from an attempt with these options to whoever serves them."""
    mailbox = Handle(Mailbox())
    await mailbox.expect.remote(KEY)

    def send(kind: MessageKind, body: bytes, call: str = "") -> None:
        mailbox.send.remote(ChannelMessage(key=KEY, kind=kind, body=body, call=call))

    visit = Visit(options, Shared(**shared), lambda _: None, send)
    driver = Driver(mailbox, visit)
    channel = DriverChannel(mailbox, KEY, None)
    current_channel.set(channel)
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            visit.begin(tasks)
            tasks.start_soon(driver.serve)
            tasks.start_soon(channel.hear, anyio.CancelScope())
            yield channel, driver
            tasks.cancel_scope.cancel()


def sent(options: Options, agent: Simulator) -> Options:
    found: Options = pickle.loads(pickle.dumps(travelling(options)))
    return found.replace(transport=agent)


async def test_tools_hooks_and_callbacks_are_called_here() -> None:
    called: list[object] = []

    @outrider.tool
    async def lookup(ticket: int) -> str:
        """Fetch a ticket."""
        called.append((ticket, who.get()))
        return f"Ticket {ticket} is Ada's."

    @outrider.hook("PostToolUse")
    def seen(told: Any) -> None:
        called.append(told.tool_name)

    def permit(request: PermissionRequest) -> object:
        called.append(request.tool_input)
        return outrider.deny("not here") if request.tool_name == "Bash" else True

    def answer(question: Question) -> str:
        called.append(question.text)
        return question.labels[1]

    options = Options(tools=[lookup], hooks=[seen], permission=permit, on_question=answer)
    script = [
        use_tool("lookup", ticket=7),
        use_tool("Bash", command="rm x", description="Remove"),
        ask_question("Which one?", ["this", "that"]),
        say("Over."),
    ]
    who.set("the run")
    async with elsewhere(options):
        with Simulator(script) as agent:
            async with outrider.Session(sent(options, agent)) as session:
                assert str(await session.ask("Go.")) == "Over."
            results = [str(request.tool_results) for request in agent.requests[1:]]
    assert called == [
        {"ticket": 7},
        (7, "the run"),
        "mcp__tools__lookup",
        {"command": "rm x", "description": "Remove"},
        "Which one?",
        "AskUserQuestion",
    ]
    assert "Ticket 7 is Ada's." in results[0]
    assert "not here" in results[1]
    assert "that" in results[2]


async def test_a_request_that_was_changed_in_place_is_not_allowed() -> None:
    def permit(request: PermissionRequest) -> bool:
        request.tool_input["command"] = "true"
        return True

    options = Options(permission=permit)
    script = [use_tool("Bash", command="rm x", description="Remove"), say("Over.")]
    async with elsewhere(options):
        with Simulator(script) as agent:
            async with outrider.Session(sent(options, agent)) as session:
                await session.ask("Go.")
            assert "not allowed" in str(agent.requests[1].tool_results)


async def test_what_is_raised_here_is_raised_there() -> None:
    def permit(request: PermissionRequest) -> bool:
        _ = request.session
        return True

    options = Options(permission=permit)
    async with elsewhere(options) as (channel, _):
        with pytest.raises(UsageError, match="another machine"):
            await channel.ask("permission", _asked())
        with pytest.raises(KeyError):
            await channel.ask("nonsense")


class Odd(Exception):
    """Can be written, but not read."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


async def test_what_cannot_be_read_there_is_an_error_there() -> None:
    def permit(request: PermissionRequest) -> bool:
        raise Odd("no", "because")

    async with elsewhere(Options(permission=permit)) as (channel, _):
        with pytest.raises(OutriderError, match="cannot be read here"):
            await channel.ask("permission", _asked())


async def test_a_call_that_is_given_up_is_cancelled_here() -> None:
    begun, ended = anyio.Event(), anyio.Event()

    async def permit(request: PermissionRequest) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with elsewhere(Options(permission=permit)) as (channel, _), anyio.create_task_group() as tasks:
        tasks.start_soon(channel.ask, "permission", _asked())
        await begun.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await ended.wait()


async def test_an_attempt_that_nobody_waits_for_is_told_so() -> None:
    mailbox = Handle(Mailbox())
    await mailbox.expect.remote(KEY)
    channel = DriverChannel(mailbox, KEY, None)
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.hear, tasks.cancel_scope)
            tasks.start_soon(_ask_in_vain, channel)
            while not (await mailbox.collect.remote(1.0)):
                pass
            await mailbox.drop.remote(KEY)
            await anyio.sleep_forever()
        with pytest.raises(UsageError):
            await channel.ask("permission", _asked())


async def _ask_in_vain(channel: DriverChannel) -> None:
    with pytest.raises(UsageError):
        await channel.ask("permission", _asked())


async def test_messages_keep_their_order_and_the_last_one_is_the_last() -> None:
    mailbox = Handle(Mailbox())
    share = Share(Left(), name="", grace=1)
    channel = DriverChannel(mailbox, KEY, share)
    for number in range(50):
        channel.note(Note(session_id=str(number)))
    share.budget.charge(Spent(usd=1))
    await channel.end()
    messages = await mailbox.collect.remote(1.0)
    assert [message.kind for message in messages] == ["note"] * 50 + ["charge", "end"]
    assert [pickle.loads(message.body).session_id for message in messages[:50]] == list(map(str, range(50)))
    assert pickle.loads(messages[50].body) == Spent(usd=1)


async def test_the_gate_is_that_of_the_run() -> None:
    gate = Gate(jitter=0)
    async with elsewhere(Options(), gate=gate) as (channel, driver):

        async def publish() -> None:
            body = pickle.dumps(gate.opens_at or 0.0)
            await driver.mailbox.publish.remote(ChannelMessage(key="", kind="gate", body=body))

        driver.visit.gate_changed = publish
        far, other = FarGate(channel), FarGate(channel)
        await publish()
        await far.wait()
        # The driver is asked only while it is closed.
        assert not driver.messages
        await far.pause(4e9, "limit")
        assert (gate.opens_at, gate.why) == (4e9, "limit")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(far.wait)
            tasks.start_soon(other.wait)
            await far.open()
        assert gate.is_open


async def test_a_share_has_no_more_than_is_left_of_the_whole() -> None:
    whole = Budget(usd=10, tokens=100)
    shares = [Share(whole.left, name="run", grace=1) for _ in range(2)]
    for usd in (3, 4):
        for share in shares:
            share.budget.charge(Spent(usd=usd / 2, tokens=usd))
            whole.charge(share.news())
            assert share.news() == Spent()
        for share in shares:
            share.correct(whole.left, whole.exceeded)
            assert share.budget.left.usd == pytest.approx(whole.left.usd)
            assert share.budget.left.tokens == whole.left.tokens
            assert share.news() == Spent()
    shares[0].budget.charge(Spent(usd=5))
    whole.charge(shares[0].news())
    assert whole.exceeded == "usd"
    shares[1].correct(whole.left, whole.exceeded)
    # Sessions that run elsewhere are stopped, too.
    assert shares[1].budget.exceeded == "usd"
    assert shares[1].news() == Spent()


async def test_the_time_of_the_run_goes_on_while_an_attempt_waits_for_a_place() -> None:
    share = Share(Left(usd=1.0, wall=1000.0), name="run", grace=1)
    share.budget.charge(Spent(usd=0.25))
    share.correct(Left(usd=1.0, wall=0.0), "wall")
    assert share.budget.exceeded == "wall"
    # Time is nothing that an attempt spends of the others'.
    assert share.news() == Spent(usd=0.25)
    assert share.news() == Spent()


def _asked() -> Any:
    from outrider.wire.control import CanUseTool

    return CanUseTool(tool_name="Bash", input={"command": "ls"}, tool_use_id="t")
