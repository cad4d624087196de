"""A simulated agent in the place of the program that a session would start."""

from __future__ import annotations

import threading

import pytest

import outrider
from outrider.errors import AgentNotFound, SessionNotFound
from outrider.testing import Simulator, say

MISSING = "/nowhere/claude"


def ask(prompt: str) -> str:
    """As code under test does, which knows nothing of transports."""
    return outrider.sync.run(prompt, cli_path=MISSING, model="claude-x").text


def test_sessions_talk_to_it_and_their_options_count() -> None:
    with Simulator([say("one"), say("two")]) as agent, agent.stand_in():
        assert [ask("first"), ask("second")] == ["one", "two"]
    assert [(request.prompt, request.model) for request in agent.requests] == [
        ("first", "claude-x"),
        ("second", "claude-x"),
    ]


def test_outside_of_the_block_the_program_is_looked_for() -> None:
    with Simulator([say("one")]) as agent, agent.stand_in():
        pass
    with pytest.raises(AgentNotFound):
        ask("first")


def test_it_counts_for_other_threads_only_if_it_is_said() -> None:
    def elsewhere() -> object:
        seen: list[object] = []

        def work() -> None:
            try:
                seen.append(ask("hi"))
            except AgentNotFound as error:
                seen.append(type(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return seen[0]

    with Simulator([say("one")]) as agent:
        with agent.stand_in():
            assert elsewhere() is AgentNotFound
        with agent.stand_in(everywhere=True):
            assert elsewhere() == "one"


def test_an_agent_that_a_session_is_given_is_kept() -> None:
    other = Simulator([say("the other")])
    with Simulator([say("one")]) as agent, agent.stand_in():
        assert outrider.sync.run("hi", transport=other).text == "the other"
    assert agent.requests == []


def test_there_must_be_a_session_to_continue() -> None:
    with Simulator([say("one"), say("two")]) as agent, agent.stand_in():
        with pytest.raises(SessionNotFound):
            outrider.sync.run("first", cli_path=MISSING, continue_conversation=True)
        ask("first")
        again = outrider.sync.run("second", cli_path=MISSING, continue_conversation=True)
    assert again.text == "two"
    assert "first" in str(agent.requests[-1].messages)
