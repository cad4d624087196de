"""What the user's code raises ends what it was asked about, never anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import outrider
from outrider.handlers import AgentLink, Endpoint, Observe, Origin
from outrider.protocol import RequestAnswered, RequestRefused
from outrider.session import SessionState
from outrider.session._connection.answering import is_failure, words_of
from outrider.wire import JsonObject
from tests.cases import every_case
from tests.session.other_end import OtherEnd, playing, result
from tests.session.test_answering import ASK, TOLD, call

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("error")]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has no text")

    __repr__ = __str__


class Crash(BaseException):
    """As Ctrl-C, but nobody else looks at it."""


def cancellation() -> BaseException:
    """As what comes out of a function when something that it waited for was cancelled."""
    kind: Any = anyio.get_cancelled_exc_class()
    # Trio lets nobody else make one.
    return kind() if kind.__module__.startswith("asyncio") else Exception("cancelled")


FAILURES: dict[str, Callable[[], BaseException]] = {
    "an error": lambda: ValueError("no"),
    "no text": Unspeakable,
    "not a Unicode text": lambda: ValueError("\ud800"),
    "GeneratorExit": GeneratorExit,
    "a cancellation": cancellation,
    "a group": lambda: BaseExceptionGroup("", [cancellation(), ValueError(), GeneratorExit()]),
}


class OddServer:
    """A server of the user's own kind, which does what it should not."""

    def __init__(
        self, on_message: Callable[[], BaseException] | None, in_run: Callable[[], BaseException] | None
    ) -> None:
        self.on_message = on_message
        self.in_run = in_run
        self._was_asked = anyio.Event()
        self.has_ended = anyio.Event()

    def open(self, link: AgentLink, observe: Observe) -> Endpoint:
        return self

    async def receive(self, message: JsonObject, origin: Origin) -> JsonObject | None:
        self._was_asked.set()
        if self.on_message is not None:
            raise self.on_message()
        return {}

    async def run(self) -> None:
        try:
            await self._was_asked.wait()
            if self.in_run is not None:
                raise self.in_run()
            await anyio.sleep_forever()
        finally:
            self.has_ended.set()


async def reply_to(agent: OtherEnd, subtype: str, **fields: Any) -> RequestAnswered | RequestRefused:
    id = await agent.ask(subtype, **fields)
    while not isinstance(event := await agent.next(), RequestAnswered | RequestRefused) or event.id != id:
        assert event is not None
    return event


MESSAGE: dict[str, Any] = {"server_name": "odd", "message": {"jsonrpc": "2.0", "id": 1, "method": "ping"}}


@every_case("failure", FAILURES)
async def test_whatever_a_handler_raises_is_an_answer_and_the_session_goes_on(failure: str) -> None:
    """Of a server of the user's own kind, a tool, a hook, and two callbacks."""
    make = FAILURES[failure]

    @outrider.tool
    async def tool() -> None:
        """Fail."""
        raise make()

    async def fail(_: object) -> None:
        raise make()

    asks: list[tuple[str, dict[str, Any]]] = [
        ("mcp_message", MESSAGE),
        ("mcp_message", call("tool")),
        ("hook_callback", {"callback_id": "hook_0", "input": TOLD}),
        ("can_use_tool", ASK),
        ("elicitation", {"mcp_server_name": "s", "message": "?"}),
    ]
    replies: list[RequestAnswered | RequestRefused] = []

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        for subtype, fields in asks:
            replies.append(await reply_to(agent, subtype, **fields))
        await agent.say(result(str(prompt.uuid)))

    async def play_another(agent: OtherEnd) -> None:
        await agent.reply("still here")

    options: dict[str, Any] = {"permission": fail, "on_elicitation": fail, "hooks": {"PreToolUse": [fail]}}
    options |= {"tools": [tool], "mcp_servers": {"odd": OddServer(make, None)}}
    async with playing(play_another) as another:
        async with playing(play, **options) as session:
            assert (await session.ask("go")).text == "done"
        # Whatever it is, it is none of the business of others on the same event loop.
        assert (await another.ask("go")).text == "still here"
    assert len(replies) == len(asks)
    assert isinstance(replies[0], RequestRefused)
    assert replies[0].error
    for reply in replies[2:4]:
        is_refused = isinstance(reply, RequestRefused)
        assert is_refused or "'allow'" not in str(reply.payload)  # type: ignore[union-attr]


@every_case("failure", FAILURES)
async def test_a_server_that_does_not_run_takes_nothing_else_with_it(failure: str) -> None:
    server = OddServer(None, FAILURES[failure])

    async def play(agent: OtherEnd) -> None:
        prompt = await agent.prompt()
        for _ in range(2):
            assert isinstance(await reply_to(agent, "mcp_message", **MESSAGE), RequestAnswered)
            await server.has_ended.wait()
        await agent.say(result(str(prompt.uuid)))

    async with playing(play, mcp_servers={"odd": server}) as session:
        assert (await session.ask("go")).text == "done"


CRASHES: dict[str, Callable[[], BaseException]] = {
    "alone": Crash,
    "in groups of one": lambda: BaseExceptionGroup("", [BaseExceptionGroup("", [Crash()])]),
}


@every_case("place", ["on a message", "while it runs"])
@every_case("crash", CRASHES)
async def test_what_is_meant_for_the_whole_program_reaches_it(crash: str, place: str) -> None:
    make = CRASHES[crash]
    server = OddServer(make, None) if place == "on a message" else OddServer(None, make)

    async def play(agent: OtherEnd) -> None:
        await agent.prompt()
        await agent.ask("mcp_message", **MESSAGE)
        await agent.wait_ended()

    async with playing(play, mcp_servers={"odd": server}) as session:
        with pytest.raises(Crash):
            await session.ask("go")


async def test_it_reaches_whoever_sends_next() -> None:
    """Between turns nobody reads. The server may still want to say something, which is not its business."""
    links: list[AgentLink] = []

    class Talking(OddServer):
        def open(self, link: AgentLink, observe: Observe) -> Endpoint:
            links.append(link)
            return self

    async def play(agent: OtherEnd) -> None:
        await agent.ask("mcp_message", **MESSAGE)
        await agent.wait_ended()

    async with playing(play, mcp_servers={"odd": Talking(Crash, None)}) as session:
        while session.state is not SessionState.CLOSED:
            await checkpoint()
        with pytest.raises(Crash):
            await session.send("go")
        links[0].post({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await session.close()
        with pytest.raises(Crash):
            await session.send("go")
        links[0].post({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


@every_case("failure", FAILURES)
async def test_a_failure_is_told_from_what_ends_programs(failure: str) -> None:
    assert is_failure(FAILURES[failure]())
    assert not is_failure(BaseExceptionGroup("", [FAILURES[failure](), KeyboardInterrupt()]))


async def test_an_exception_always_has_words() -> None:
    assert words_of(ValueError("no")) == "no"
    assert words_of(ValueError()) == "ValueError"
    assert words_of(Unspeakable()) == "Unspeakable"
