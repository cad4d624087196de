"""An observer sees all that comes, before who waits for it, and is in nobody's way."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import anyio
import pytest

from outrider.errors import LimitReached, OutriderError, UsageError
from outrider.session import Session, Usage, observe
from outrider.testing import Simulator, hang, say
from outrider.wire import InitMessage, Message, ResultMessage

pytestmark = pytest.mark.anyio

DEADLINE = 20.0


class Notes:
    """Notes down what it is told."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.begun = 0
        self.ends = 0
        self.objection: OutriderError | None = None

    def begins(self) -> None:
        if self.objection is not None:
            raise self.objection
        self.begun += 1

    def received(self, messages: Sequence[Message]) -> None:
        self.messages += messages

    def ended(self) -> None:
        self.ends += 1


async def test_it_sees_everything_before_others_do() -> None:
    notes = Notes()
    with anyio.fail_after(DEADLINE):
        async with Session(transport=Simulator([say("one"), say("two"), say("three")])) as session:
            observed = observe(session, notes)
            results = [await session.ask("go on") for _ in range(2)]
            assert results[-1].message in notes.messages
            assert observed.usage == session.usage == results[-1].total_usage
            seen = list(notes.messages)
            observed.stop()
            observed.stop()
            await session.ask("go on")
            assert notes.messages == seen
            was_closed = observed.is_closed
        assert (was_closed, observed.is_closed) == (False, True)
    assert (notes.begun, notes.ends) == (2, 0)
    assert [message for message in seen if isinstance(message, ResultMessage)] == [
        result.message for result in results
    ]


async def test_it_is_no_reader() -> None:
    notes = Notes()
    with anyio.fail_after(DEADLINE):
        async with Session(transport=Simulator([say("one")])) as session:
            observe(session, notes)
            turn = await session.send("go on")
            while not turn.is_over:
                await anyio.lowlevel.checkpoint()
            session.end_input()
            read = [message async for message in session]
    assert read == notes.messages
    assert notes.ends == 1


async def test_a_turn_that_it_objects_to_is_not_sent() -> None:
    notes = Notes()
    agent = Simulator([say("one")])
    with anyio.fail_after(DEADLINE):
        async with Session(transport=agent) as session:
            observe(session, notes)
            notes.objection = LimitReached("budget.usd", 1)
            for prompt in ("a text", iter(["one", "and another"])):
                with pytest.raises(LimitReached) as caught:
                    await session.ask(prompt)
                assert caught.value is notes.objection
            with pytest.raises(LimitReached):
                await session.enqueue("later")
            await session.wait_idle()
            assert not agent.requests
            notes.objection = None
            assert (await session.ask("go on")).text == "one"
            assert session.usage != Usage()


async def test_all_turns_are_ended_with_the_failure_that_it_makes() -> None:
    notes = Notes()

    def failure(messages: Sequence[Message], session_id: str | None) -> OutriderError:
        return LimitReached("budget.usd", 1, messages=messages, session_id=session_id)

    with anyio.fail_after(DEADLINE):
        async with Session(transport=Simulator([], otherwise=hang())) as session:
            observed = observe(session, notes)
            assert observed.end_turns(failure, 5) == 0
            turns = [await session.send("think") for _ in range(3)]
            async for message in turns[0]:
                if isinstance(message, InitMessage):
                    break
            assert observed.end_turns(failure, 10) == 3
            for turn in turns:
                with pytest.raises(LimitReached) as caught:
                    await turn.result()
                assert caught.value.session_id == session.id
            assert all(one is not other for one, other in pairwise(turns))


async def test_a_session_that_is_not_open_is_not_observed() -> None:
    with pytest.raises(UsageError):
        observe(Session(transport=Simulator([])), Notes())
