"""Sessions, turns, `run` and `stream` without `await`."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import outrider.sync
from outrider.errors import OptionsError, RequestFailed, TransportClosed, TurnInterrupted, UsageError
from outrider.session import SessionState
from outrider.sync._portal import Portal, portal
from outrider.wire import AssistantMessage, Message, ResultMessage
from outrider.wire.control import SetModel
from tests.session.other_end import SESSION
from tests.sync.agent import Agent


@pytest.fixture
def agent() -> Agent:
    return Agent({"set_model": {"model": "claude-sonnet-5-5"}})


@pytest.fixture
def session(agent: Agent) -> Iterator[outrider.sync.Session]:
    with outrider.sync.Session(transport=agent) as session:
        yield session


def test_run_gives_what_a_prompt_comes_to(agent: Agent) -> None:
    result = outrider.sync.run("say hello there", transport=agent)
    assert result.text == "hello there"
    assert agent.is_closed
    assert agent.threads == {"outrider-sync"}


def test_stream_gives_what_comes_on_the_way(agent: Agent) -> None:
    with outrider.sync.stream("say hello there", transport=agent) as turn:
        words = [message.text for message in turn if isinstance(message, AssistantMessage)]
    assert words == ["hello", "there"]
    assert agent.is_closed


def test_stream_is_left_early(agent: Agent) -> None:
    with outrider.sync.stream("think", transport=agent) as turn:
        assert not turn.is_over
    assert agent.is_closed
    assert turn.is_over


def test_a_session_talks(session: outrider.sync.Session) -> None:
    assert session.state is SessionState.IDLE
    assert session.options.transport is not None
    result = session.ask("say hello")
    assert result.text == "hello"
    assert session.id == SESSION
    assert session.pid is None
    assert SESSION in repr(session)
    session.wait_idle()


def test_a_session_that_was_left_is_closed(agent: Agent) -> None:
    with outrider.sync.Session(transport=agent) as session:
        assert agent.asked == ["initialize"]
    assert agent.is_closed
    assert session.state is SessionState.CLOSED
    session.close()
    with pytest.raises(TransportClosed):
        session.ask("say hello")


def test_a_session_can_be_opened_in_one_thread_and_closed_in_another(agent: Agent) -> None:
    session = outrider.sync.Session(transport=agent)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(session.connect).result()
    session.close()
    assert agent.is_closed


def test_what_is_raised_inside_goes_on(agent: Agent) -> None:
    session = outrider.sync.Session(transport=agent)

    def fail() -> None:
        with session:
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert agent.is_closed


def test_a_turn_is_read(session: outrider.sync.Session) -> None:
    turn = session.send("say one two three")
    first = next(message for message in turn if isinstance(message, AssistantMessage))
    assert first.text == "one"
    rest = list(turn)
    assert [message.text for message in rest if isinstance(message, AssistantMessage)] == ["two", "three"]
    assert isinstance(rest[-1], ResultMessage)
    assert list(turn) == []
    assert turn.is_over
    assert turn.messages[-1] is rest[-1]
    assert turn.uuid is not None
    assert turn.uuid in repr(turn)


def test_the_text_of_a_turn_is_read(session: outrider.sync.Session) -> None:
    assert list(session.send("say one two three").text()) == ["one", "two", "three"]


def test_many_messages_are_read_at_a_time(session: outrider.sync.Session) -> None:
    turn = session.send("say one two")
    turn.result()
    reader = iter(turn)
    count = len(turn.messages)
    seen: list[Message] = []
    while len(seen) < count:
        seen += reader.batch()
    assert tuple(seen) == turn.messages
    with pytest.raises(StopIteration):
        reader.batch()


def test_a_session_is_read(session: outrider.sync.Session) -> None:
    session.send("say one")
    session.send("say two")
    words: list[str] = []
    for message in session:
        if isinstance(message, AssistantMessage):
            words.append(message.text)
        if len(words) == 2:
            break
    assert words == ["one", "two"]


def test_prompts_of_a_generator_are_one_turn(session: outrider.sync.Session) -> None:
    def prompts() -> Iterator[str]:
        yield "say one"
        yield "say two"

    assert list(session.send(prompts()).text()) == ["one", "two"]


def test_a_turn_is_cancelled(session: outrider.sync.Session, agent: Agent) -> None:
    turn = session.send("think")
    receipt = turn.cancel(grace=30)
    assert receipt.outcome == "cancelled"
    assert "interrupt" in agent.asked
    with pytest.raises(TurnInterrupted):
        turn.result()
    assert turn.result(check=False).error is not None
    assert session.ask("say hello").text == "hello"


def test_a_turn_is_added_to(session: outrider.sync.Session) -> None:
    turn = session.send("think")
    queued = turn.steer("say more")
    assert queued.uuid in repr(queued)
    assert queued.turn is queued.turn
    with pytest.raises(RequestFailed):
        queued.withdraw()
    assert queued.state == "queued"
    turn.cancel(grace=30)
    assert queued.wait() == "consumed"
    assert list(queued.turn.text()) == ["more"]


def test_a_prompt_is_queued(session: outrider.sync.Session) -> None:
    queued = session.enqueue("say later")
    assert queued.wait() == "consumed"
    assert list(queued.turn.text()) == ["later"]


def test_the_agent_is_asked(session: outrider.sync.Session, agent: Agent) -> None:
    assert session.set_model("sonnet") == "claude-sonnet-5-5"
    assert session.request(SetModel("sonnet")).model == "claude-sonnet-5-5"
    assert session.request("set_model", model="sonnet") == {"model": "claude-sonnet-5-5"}
    assert session.interrupt().still_queued == []
    with pytest.raises(RequestFailed, match="I will not"):
        session.rename("x")
    with pytest.raises(OptionsError):
        session.rename("")
    assert agent.asked[1:] == ["set_model"] * 3 + ["interrupt", "rename_session"]
    assert session.reinitialize() == session.info


def test_bad_options_are_refused_at_once() -> None:
    with pytest.raises(OptionsError):
        outrider.sync.Session(max_turns=-1)


# Hosts.


def test_it_works_inside_a_running_loop(agent: Agent) -> None:
    async def main() -> list[str]:
        with outrider.sync.stream("say hello there", transport=agent) as turn:
            return list(turn.text())

    assert asyncio.run(main()) == ["hello", "there"]
    assert agent.threads == {"outrider-sync"}


def test_many_threads_each_have_their_session() -> None:
    def talk(number: int) -> str:
        with outrider.sync.Session(transport=Agent()) as session:
            return session.ask(f"say {number}").text

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(talk, range(32))) == [str(number) for number in range(32)]


def test_many_threads_share_a_session(session: outrider.sync.Session) -> None:
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda number: list(session.send(f"say {number}").text()), range(16)))
    assert said == [[str(number)] for number in range(16)]


def test_in_the_loop_itself_it_is_refused(session: outrider.sync.Session) -> None:
    async def tool() -> None:
        # What is known can be read there.
        assert session.state is SessionState.IDLE
        session.ask("say hello")

    with pytest.raises(UsageError, match="its own event loop"):
        portal().call(tool)


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to one thread")
def test_an_interrupt_ends_the_agent(agent: Agent) -> None:
    def interrupt() -> None:
        agent.has_heard.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        outrider.sync.run("think", transport=agent)
    thread.join()
    assert agent.is_closed


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to one thread")
def test_an_interrupt_leaves_the_session_usable(session: outrider.sync.Session) -> None:
    turn = session.send("think")

    async def interrupted() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await turn._async.result()

    with pytest.raises(KeyboardInterrupt):
        portal().call(interrupted)
    assert not turn.is_over
    assert turn.cancel(grace=30).outcome == "cancelled"
    assert list(session.send("say hello").text()) == ["hello"]


def test_a_context_that_was_entered_as_the_wait_was_interrupted_is_left_again() -> None:
    steps: list[str] = []

    class Context:
        async def __aenter__(self) -> str:
            steps.append("entered")
            return "value"

        async def __aexit__(self, kind: object, *_: object) -> None:
            steps.append(f"left for {getattr(kind, '__name__', kind)}")

    class Interrupted(Portal):
        """The interrupt comes when the call is done, and before it has returned."""

        def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
            value: object = super().call(function, *args, **kwargs)
            if steps == ["entered"]:
                raise KeyboardInterrupt
            return value

    loop = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        loop.enter(Context())
    assert loop.close(10)
    assert steps == ["entered", "left for KeyboardInterrupt"]


def test_a_session_that_is_dropped_ends_its_agent(agent: Agent) -> None:
    session = outrider.sync.Session(transport=agent)
    session.connect()
    held = [session]
    del session
    with pytest.warns(ResourceWarning, match="dropped without being closed"):
        held.clear()
    assert agent.closed.wait(10)
