"""Work that goes on in the background of the real program: shells and subagents, and who waits for them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import outrider
from outrider.session import Session, SessionState
from outrider.testing import Gate, answer, say, use_tool
from outrider.wire import (
    AssistantMessage,
    ResultMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    UserMessage,
)
from outrider.wire.control import GetTaskOutput
from tests.session.real.talking import (
    DEADLINE,
    HOLD,
    began,
    end,
    make_pipes,
    opened,
    reached,
    real_agent,
    requested,
    state_of,
    talking,
)

pytestmark = pytest.mark.anyio

SHELL = use_tool("Bash", command=HOLD, run_in_background=True)
AGENT = use_tool("Agent", description="look", prompt="look there")
FOREGROUND = use_tool("Agent", description="look", prompt="look there", run_in_background=False)


async def first(session: Session, is_it: Any) -> Any:
    """The first message from here on that is the one, whatever turn it belongs to."""
    async for message in session:
        if is_it(message):
            return message
    raise AssertionError("no such message")


# Shells.


async def test_a_shell_in_the_background_is_not_waited_for() -> None:
    async with talking(SHELL, say("started"), say("it ended")) as (agent, session):
        turn = await session.send("start it")
        result = await turn.result(until="idle")
        assert result.text == "started"
        (task,) = result.unfinished_tasks
        assert (task.type, task.id) == ("local_bash", session.tasks[0].id)
        assert state_of(session) is SessionState.IDLE
        await session.wait_idle()
        assert (await session.request(GetTaskOutput(task.id))).output == ""
        # When it ends, the agent tells the model, in a turn that nobody asked for.
        reader = aiter(session)
        await began(agent)
        await end(agent)
        results = []
        async for message in reader:
            if isinstance(message, TaskNotificationMessage):
                assert (message.task_id, message.status) == (task.id, "completed")
            if isinstance(message, ResultMessage):
                results.append(message)
                break
        assert [message.result for message in results] == ["it ended"]
        assert session.tasks == ()
        await session.wait_idle()
        # It belongs to no turn, but it was paid for.
        assert session.usage.total_tokens > result.usage.total_tokens


async def test_run_ends_with_a_shell_in_the_background() -> None:
    with real_agent(SHELL, say("started")) as agent, anyio.fail_after(DEADLINE):
        make_pipes(agent)
        options = agent.options(permission_mode="bypassPermissions", timeouts={"close": 0.1})
        result = await outrider.run("start it", options)
        assert result.text == "started"
        assert [task.type for task in result.unfinished_tasks] == ["local_bash"]


async def test_a_task_can_be_stopped() -> None:
    async with talking(SHELL, say("started"), say("next")) as (agent, session):
        result = await session.ask("start it")
        (task,) = result.unfinished_tasks
        await began(agent)
        turn = await session.send("go on")
        await session.stop_task(task.id)
        assert session.tasks == ()
        assert (await turn.result()).text == "next"
        await session.wait_idle()
        await session.stop_task("b00000000")


async def test_a_prompt_sent_while_a_shell_reports_has_its_own_answer() -> None:
    gate = Gate()
    async with talking(SHELL, say("started"), say("it ended", gate=gate), say("next")) as (agent, session):
        await session.ask("start it")
        await began(agent)
        await end(agent)
        await reached(gate)
        turn = await session.send("go on")
        gate.open()
        assert (await turn.result()).text in ("next", "it ended")
        assert turn.delivery == "consumed"


# Subagents.


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_subagent_in_the_background_is_waited_for_if_asked_to() -> None:
    gate = Gate(after=0)
    script = [AGENT, say("sent it"), say("it is back")]
    async with talking(*script, subagents=[say("I saw it", gate=gate)]) as (_, session):
        turn = await session.send("delegate")
        early = await turn.result()
        assert early.text == "sent it"
        assert [task.type for task in early.unfinished_tasks] == ["local_agent"]
        await reached(gate)
        assert state_of(session) is SessionState.BUSY
        assert [task.type for task in session.tasks] == ["local_agent"]
        gate.open()
        late = await turn.result(until="idle")
        assert late.text == "it is back"
        assert late.unfinished_tasks == ()
        assert session.tasks == ()
        assert state_of(session) is SessionState.IDLE
        # Both answers and the subagent's.
        assert late.usage == session.usage
        assert late.message is not None
        assert late.message.model_usage is not None
        told = list(late.message.model_usage.values())
        assert sum(usage["inputTokens"] for usage in told) == session.usage.input_tokens


async def test_run_waits_for_subagents_and_streams_all_of_it() -> None:
    script = [AGENT, say("sent it"), say("it is back")]
    with real_agent(*script, subagents=[say("I saw it")]) as agent, anyio.fail_after(DEADLINE):
        options = agent.options(permission_mode="bypassPermissions")
        async with outrider.stream("delegate", options) as turn:
            results = [message async for message in turn if isinstance(message, ResultMessage)]
        assert [message.result for message in results] == ["sent it", "it is back"]
        assert (await turn.result()).text == "it is back"


async def test_the_wait_for_subagents_has_a_deadline() -> None:
    gate = Gate(after=0)
    script = [AGENT, say("sent it")]
    subagents = [say("I saw it", gate=gate)]
    timeouts = {"background": 0.3, "close": 0.1}
    async with talking(*script, subagents=subagents, timeouts=timeouts) as (_, session):
        result = await session.ask("delegate", until="idle")
        assert result.text == "sent it"
        assert [task.type for task in result.unfinished_tasks] == ["local_agent"]


async def test_a_subagent_that_is_stopped_is_over() -> None:
    gate = Gate(after=0)
    script = [AGENT, say("sent it"), say("then not")]
    async with talking(*script, subagents=[say("no", gate=gate)]) as (_, session):
        turn = await session.send("delegate")
        (task,) = (await turn.result()).unfinished_tasks
        await reached(gate)
        await session.stop_task(task.id)
        result = await turn.result(until="idle")
        # Unlike that of a command, its end is told to the model.
        assert (result.text, result.unfinished_tasks) == ("then not", ())


async def test_each_turn_hears_of_its_own_subagent() -> None:
    gates = [Gate(after=0), Gate(after=0)]
    script = [AGENT, say("one sent"), AGENT, say("two sent"), say("two is back"), say("one is back")]
    subagents = [say("A", gate=gates[0]), say("B", gate=gates[1])]
    async with talking(*script, subagents=subagents) as (_, session):
        one = await session.send("delegate")
        await one.result()
        await reached(gates[0])
        two = await session.send("delegate too")
        await two.result()
        gates[1].open()
        second = await two.result(until="idle")
        assert second.text == "two is back"
        assert [message.result for message in second.messages if isinstance(message, ResultMessage)] == [
            "two sent",
            "two is back",
        ]
        gates[0].open()
        first = await one.result(until="idle")
        assert first.text == "one is back"
        assert session.usage == first.usage + second.usage
        for result, said in ((first, "A"), (second, "B")):
            inner = [
                message.text
                for message in result.messages
                if isinstance(message, AssistantMessage) and message.parent_tool_use_id
            ]
            assert inner == [said]


async def test_the_messages_of_a_subagent_belong_to_the_turn() -> None:
    subagents = [use_tool("Bash", command="echo seen"), say("I saw it")]
    async with talking(FOREGROUND, say("done"), subagents=subagents, forward_subagent_text=True) as (
        agent,
        session,
    ):
        turn = await session.send("delegate")
        texts = [text async for text in turn.text()]
        assert texts == ["done"]
        result = await turn.result()
        inner = [
            message
            for message in result.messages
            if isinstance(message, AssistantMessage | UserMessage) and message.parent_tool_use_id
        ]
        assert [type(message) for message in inner] == [
            UserMessage,
            AssistantMessage,
            UserMessage,
            AssistantMessage,
        ]
        assert any(isinstance(message, TaskStartedMessage) for message in result.messages)
        assert (result.text, result.unfinished_tasks, session.tasks) == ("done", (), ())
        # Two rounds of the subagent and two of ours.
        assert len(agent.api.requests) == 4
        assert result.usage.input_tokens == 40
        assert result.usage == session.usage


async def test_two_subagents_work_side_by_side() -> None:
    both = answer(AGENT, AGENT)
    gates = [Gate(after=0), Gate(after=0)]
    subagents = [say("A", gate=gates[0]), say("B", gate=gates[1])]
    async with talking(both, say("sent"), subagents=subagents, otherwise=say("back")) as (_, session):
        turn = await session.send("delegate")
        assert len((await turn.result()).unfinished_tasks) == 2
        for gate in gates:
            await reached(gate)
        gates[0].open()
        await first(session, lambda message: isinstance(message, TaskNotificationMessage))
        assert len(session.tasks) == 1
        gates[1].open()
        result = await turn.result(until="idle")
        assert (result.text, result.unfinished_tasks) == ("back", ())
        assert result.usage == session.usage


async def test_a_prompt_during_background_work_has_a_turn_of_its_own() -> None:
    gate = Gate(after=0)
    script = [AGENT, say("sent it"), say("meanwhile"), say("it is back")]
    with real_agent(*script, subagents=[say("I saw it", gate=gate)]) as agent:
        async with opened(agent) as session:
            turn = await session.send("delegate")
            await turn.result()
            await requested(agent, lambda request: request.kind == "subagent")
            other = await session.send("and you?")
            assert (await other.result()).text == "meanwhile"
            # It has nothing to wait for.
            assert (await other.result(until="idle")).text == "meanwhile"
            gate.open()
            assert (await turn.result(until="idle")).text == "it is back"
            assert session.usage == (await turn.result()).usage + (await other.result()).usage
