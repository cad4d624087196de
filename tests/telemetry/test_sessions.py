"""Spans and metrics of sessions: what is under what, what they say, and that they are in nobody's way."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import anyio
import anyio.lowlevel
import msgspec
import pytest
from opentelemetry import propagate
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id, get_current_span

import outrider
from outrider import Approvals, Policy, compat, sync, telemetry
from outrider.answers import ask
from outrider.errors import AgentNotFound, OptionsError, OutputInvalid, ProcessExited, TurnFailed
from outrider.options import Options
from outrider.session import Session
from outrider.telemetry import Telemetry, _session
from outrider.telemetry._spans import Branch, Call
from outrider.testing import Simulator, answer, fail, hang, say, structured, subagent, use_tool
from outrider.transcripts import MemoryStore
from outrider.transports import intercept
from tests.cases import every_case
from tests.fleet.working import Works, until
from tests.telemetry.recorder import HIDDEN, Recorder
from tests.transports.conftest import own_processes

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_spans_of_tools_hooks_and_callbacks_nest(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However busy the machine is.
    monkeypatch.setattr(_session, "_SLOW", 60.0)

    @outrider.tool
    async def look_up(ticket: int) -> str:
        """Look a ticket up."""
        with recorder.tracer.start_as_current_span("in the tool"):
            return f"ticket {ticket}"

    @outrider.tool
    def block() -> str:
        """Run in a thread."""
        with recorder.tracer.start_as_current_span("in a thread"):
            pass
        raise ValueError("secret")

    @outrider.hook("PreToolUse", matcher="look_up")
    async def watch(_: Any) -> None:
        pass

    async def permit(request: outrider.PermissionRequest) -> bool:
        with recorder.tracer.start_as_current_span(f"permit {request.tool_name}"):
            return True

    agent = Simulator([use_tool("look_up", ticket=7), use_tool("block"), say("done")])
    with recorder.tracer.start_as_current_span("request"):
        async with Session(
            transport=agent,
            tools=[look_up, block],
            hooks=[watch],
            permission=permit,
            telemetry=recorder.telemetry,
        ) as session:
            result = await session.ask("go")
    recorder.check()
    assert recorder.tree((*HIDDEN, "gen_ai.tool.call.id")) == dedent("""\
        request
          outrider.agent.start [resumed=False, transport=Simulator, process.command=claude]
          invoke_agent Claude Code [response.finish_reasons=end_turn, usage.input_tokens=30, usage.output_tokens=15, turn.num_turns=3, turn.terminal_reason=completed]
            chat claude-opus-5-5 [usage.input_tokens=10]
            execute_tool mcp__tools__look_up [mcp.server=tools, tool.where=host]
              * outrider.hook [hook.event=PreToolUse]
              * outrider.permission [decision=allow]
              permit mcp__tools__look_up
              in the tool
            chat claude-opus-5-5 [usage.input_tokens=10]
            execute_tool mcp__tools__block [error.type=ValueError, mcp.server=tools, tool.where=host]
              * outrider.permission [decision=allow]
              * exception [exception.type=ValueError]
              permit mcp__tools__block
              in a thread
            chat claude-opus-5-5 [usage.input_tokens=10]""")  # noqa: E501
    # Nothing of what was said is there.
    assert "secret" not in str([span.to_json() for span in recorder.started])
    turn = recorder.span("invoke_agent Claude Code")
    assert turn.attributes is not None
    assert turn.attributes["outrider.turn.cost_usd"] == result.cost_usd
    assert turn.attributes["gen_ai.conversation.id"] == result.session_id
    assert [link.context for link in turn.links] == [recorder.span("outrider.agent.start").context]
    metrics = recorder.metrics()
    assert recorder.total("gen_ai.client.inference.usage.input_tokens") == result.usage.input_tokens
    assert recorder.total("outrider.cost") == pytest.approx(result.usage.cost_usd)
    outcome = (("gen_ai.agent.name", "Claude Code"), ("outrider.outcome", "success"))
    assert metrics["outrider.turns"] == {outcome: 1}
    assert recorder.total("gen_ai.execute_tool.duration") == 2
    assert recorder.total("gen_ai.client.inference.duration") == 3
    assert metrics["outrider.process.count"] == {(): 0}


async def test_answers_that_take_long_are_spans(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_session, "_SLOW", 0.0)

    @outrider.hook("PreToolUse")
    async def watch(_: Any) -> None:
        pass

    agent = Simulator([use_tool("Bash", command="touch made", tool_result="ok"), say("done")])
    async with Session(
        transport=agent, hooks=[watch], permission=lambda _: True, telemetry=recorder.telemetry
    ) as session:
        await session.ask("go")
    recorder.check()
    for name in ("outrider.hook PreToolUse", "outrider.permission Bash"):
        assert recorder.parent(name) == "execute_tool Bash"


async def test_sessions_and_subagents_side_by_side_keep_apart(recorder: Recorder) -> None:
    @outrider.tool
    async def note(name: str) -> str:
        """Note a name."""
        with recorder.tracer.start_as_current_span(f"note {name}"):
            await anyio.lowlevel.checkpoint()
        return name

    async def work(name: str) -> None:
        calls = answer(use_tool("note", name=f"{name}.1"), use_tool("note", name=f"{name}.2"))
        agents = answer(subagent("one", calls, say("ok")), subagent("two", calls, say("ok")))
        agent = Simulator([agents, say("done")])
        with recorder.tracer.start_as_current_span(f"request {name}"):
            async with Session(transport=agent, tools=[note], telemetry=recorder.telemetry) as session:
                await session.ask("go")

    async with anyio.create_task_group() as tasks:
        for name in "abc":
            tasks.start_soon(work, name)
    recorder.check()
    assert len({span.get_span_context().trace_id for span in recorder.started}) == 3
    by_id = {span.get_span_context().span_id: span for span in recorder.started}
    for span in [span for span in recorder.started if span.name.startswith("note ")]:
        way = [span]
        while way[-1].parent is not None:
            way.append(by_id[way[-1].parent.span_id])
        assert [each.name for each in way[1:]] == [
            "execute_tool mcp__tools__note",
            "invoke_agent general-purpose",
            "execute_tool Agent",
            "invoke_agent Claude Code",
            f"request {span.name[5]}",
        ]
    assert sum(name == "invoke_agent general-purpose" for name in recorder.names) == 6


async def test_background_work_belongs_to_the_turn_that_waits_for_it(recorder: Recorder) -> None:
    script = [subagent("look", say("seen"), background=True), say("it looks"), say("it has seen")]
    result = await outrider.run("go", transport=Simulator(script), telemetry=recorder.telemetry)
    recorder.check()
    assert [line.split(" [")[0] for line in recorder.tree().splitlines()] == [
        "outrider.agent.start",
        "invoke_agent Claude Code",
        "  chat claude-opus-5-5",
        "  execute_tool Agent",
        "    invoke_agent general-purpose",
        "      chat claude-opus-5-5",
        "  chat claude-opus-5-5",
        "  chat claude-opus-5-5",
    ]
    turn = recorder.span("invoke_agent Claude Code")
    assert turn.attributes is not None
    assert turn.attributes["gen_ai.usage.input_tokens"] == result.usage.input_tokens
    assert turn.attributes["outrider.turn.cost_usd"] == pytest.approx(result.cost_usd)


async def test_a_process_that_is_killed_ends_all_spans(recorder: Recorder, tmp_path: Path) -> None:
    options = Works(tmp_path).options(telemetry=recorder.telemetry)
    async with Session(options) as session:
        turn = await session.send("wait for ever")
        assert session.pid is not None
        os.kill(session.pid, signal.SIGKILL)
        with pytest.raises(ProcessExited):
            await turn.result()
    recorder.check()
    span = recorder.span("invoke_agent Claude Code")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ProcessExited"
    start = recorder.span("outrider.agent.start")
    assert start.attributes is not None
    assert start.attributes["process.command"] == "claude"
    assert recorder.total("outrider.process.count") == 0


async def test_a_session_that_is_dropped_ends_as_without_telemetry(
    recorder: Recorder, tmp_path: Path
) -> None:
    session = Session(Works(tmp_path).options(telemetry=recorder.telemetry))
    await session.connect()
    await session.send("wait for ever")
    gc.disable()
    try:
        with pytest.warns(ResourceWarning, match="dropped"):
            del session
    finally:
        gc.enable()
    await until(lambda: len(recorder.ended) == len(recorder.started) and not own_processes())
    recorder.check()


def test_a_session_that_outlives_its_event_loop_ends_its_spans(recorder: Recorder) -> None:
    async def begin(agent: Simulator) -> Session:
        session = Session(transport=agent, telemetry=recorder.telemetry)
        await session.connect()
        await session.send("go")
        return session

    # Nobody reads the agent's output any more once the loop is closed, so the block ends it.
    with Simulator([hang()]) as agent:
        loop = asyncio.new_event_loop()
        session = loop.run_until_complete(begin(agent))
        loop.close()
        with pytest.warns(ResourceWarning, match="dropped"):
            del session
    recorder.check()
    assert recorder.total("outrider.process.count") == 0


async def test_nothing_is_kept_of_what_has_ended(recorder: Recorder) -> None:
    @outrider.hook("PreToolUse", matcher="Agent")
    async def deny(_: Any) -> outrider.Answer:
        return outrider.deny("not today")

    for hooks in ([deny], []):
        once = [subagent("look", say("seen")), say("done")]
        agent = Simulator([*once, *once])
        async with Session(transport=agent, hooks=hooks, telemetry=recorder.telemetry) as session:
            await session.ask("go")
            await session.ask("again")
            gc.collect()
            assert not [each for each in gc.get_objects() if isinstance(each, Branch | Call)]
    recorder.check()


async def test_failures_are_named_and_not_told(recorder: Recorder) -> None:
    async with Session(transport=Simulator([fail(400)]), telemetry=recorder.telemetry) as session:
        result = await session.ask("go", check=False)
    with pytest.raises(AgentNotFound):
        await outrider.run("go", cli_path="/nowhere/claude", telemetry=recorder.telemetry)
    recorder.check()
    assert isinstance(result.error, TurnFailed)
    turn, (_, start) = (
        recorder.span("invoke_agent Claude Code"),
        [span for span in recorder.started if span.name == "outrider.agent.start"],
    )
    assert turn.attributes is not None
    assert turn.attributes["error.type"] == "ApiFailed"
    assert turn.attributes["http.response.status_code"] == 400
    assert turn.status.description is None
    assert start.attributes is not None
    assert start.attributes["error.type"] == "AgentNotFound"
    labels = dict(next(iter(recorder.metrics()["outrider.turns"])))
    assert labels["outrider.outcome"] == "ApiFailed"


async def test_a_turn_that_is_left_ends_with_its_session(recorder: Recorder) -> None:
    async with Session(transport=Simulator([hang()]), telemetry=recorder.telemetry) as session:
        await session.send("go")
    recorder.check()
    turn = recorder.span("invoke_agent Claude Code")
    assert turn.attributes is not None
    assert turn.attributes["error.type"] == "TransportClosed"


async def test_content_is_there_if_asked_for_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    @outrider.tool
    async def look_up(key: str) -> str:
        """Look something up."""
        return f"found {key} " + "x" * 200_000

    async def spans(recorder: Recorder) -> list[Any]:
        agent = Simulator([use_tool("look_up", key="sk-ant-api03-0123456789abcdefghij"), say("Ada said so.")])
        async with Session(
            transport=agent, tools=[look_up], telemetry=recorder.telemetry, system_prompt="Be brief."
        ) as session:
            await session.ask("Who is Ada?")
        recorder.check()
        return [{**(span.attributes or {}), "events": span.events} for span in recorder.started]

    _, turn, chat, tool, _ = await spans(Recorder(content=True, scrub=lambda text: text.replace("Ada", "A.")))
    assert turn["gen_ai.input.messages"] == (
        '[{"role":"user","parts":[{"type":"text","content":"Who is A.?"}]}]'
    )
    assert '"A. said so."' in turn["gen_ai.output.messages"]
    assert turn["gen_ai.system_instructions"] == '[{"type":"text","content":"Be brief."}]'
    assert '"type":"tool_call"' in chat["gen_ai.output.messages"]
    assert tool["gen_ai.tool.call.arguments"] == '{"key":"sk-ant-***"}'
    assert "found sk-ant-***" in tool["gen_ai.tool.call.result"]
    assert len(tool["gen_ai.tool.call.result"]) <= 64 * 1024
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "EVENT_ONLY")
    _, turn, *_ = await spans(Recorder())
    assert "gen_ai.input.messages" not in turn
    names = {name for event in turn["events"] for name in event.attributes}
    assert names == {"gen_ai.system_instructions", "gen_ai.input.messages", "gen_ai.output.messages"}
    _, turn, *_ = await spans(Recorder(content=False))
    assert not [name for name in turn if "messages" in name]
    assert not turn["events"]


class Visit(msgspec.Struct):
    """What a schema cannot say of it: there is no such day."""

    day: date


class Unable:
    """A redaction that does not work."""

    def mask_json(self, value: object) -> object:
        raise ValueError(value)


KEYS = f"sk-ant-api03-{'a' * 68} " * 898


@every_case(
    "fields, prompt",
    [
        ({"redaction": Unable()}, "secret"),
        ({"scrub": lambda _: 1 / 0}, "secret"),
        ({}, "half a pair: \ud83d"),
        ({}, "é" * 50_000),
        ({}, "sk-ant-api03-0123456789abcdefghij " * 300_000),
        # Masked, all of it is short, so that the place where it was cut is shown.
        *(({}, f"{KEYS}{'x' * gap} postgres://me:secretsecret@host {KEYS}") for gap in (66, 70, 74)),
    ],
)
def test_content_of_any_kind_leaves_spans_whole(fields: Any, prompt: str) -> None:
    recorder = Recorder(content=True, **fields)

    async def ask() -> None:
        async with Session(
            transport=Simulator([use_tool("Nothing", text=prompt), say("done")]),
            telemetry=recorder.telemetry,
            system_prompt="Be brief.",
        ) as session:
            await session.ask(prompt)

    anyio.run(ask)
    recorder.check()
    texts = [str(value) for span in recorder.started for value in (span.attributes or {}).values()]
    assert all(len(text.encode()) <= 64 * 1024 for text in texts)
    assert not any("secret" in text or "sk-ant-api" in text for text in texts)
    assert recorder.parent("execute_tool Nothing") == "invoke_agent Claude Code"


async def test_content_of_what_is_not_sampled_is_not_looked_at() -> None:
    def scrub(text: str) -> str:
        looked_at.append(text)
        return text

    looked_at: list[str] = []
    provider = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)
    given = Telemetry(tracer_provider=provider, content=True, scrub=scrub)
    agent = Simulator([use_tool("Nothing", text="much"), fail(400)])
    async with Session(transport=agent, telemetry=given, system_prompt="Be brief.") as session:
        await session.ask("go", check=False)
    assert not looked_at


async def test_events_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_AND_EVENT")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT", "false")
    recorder = Recorder()
    async with Session(transport=Simulator([say("hi")]), telemetry=recorder.telemetry) as session:
        await session.ask("go")
    turn = recorder.span("invoke_agent Claude Code")
    assert "gen_ai.input.messages" in (turn.attributes or {})
    assert not turn.events


async def test_turns_that_are_answered_together_cost_once(recorder: Recorder) -> None:
    @outrider.tool
    async def wait() -> str:
        """Wait until both prompts are there."""
        turns.append(await session.send("two"))
        return "waited"

    turns: list[outrider.Turn] = []
    agent = Simulator([use_tool("wait"), say("both")])
    async with Session(transport=agent, tools=[wait], telemetry=recorder.telemetry) as session:
        turns.append(await session.send("one"))
        await session.wait_idle()
        total = session.usage
    recorder.check()
    spans = [span.attributes or {} for span in recorder.started if span.name == "invoke_agent Claude Code"]
    assert len(spans) == 2
    assert [span.get("outrider.turn.cost_usd") for span in spans] == [total.cost_usd, None]
    assert recorder.total("outrider.cost") == total.cost_usd


async def test_an_output_of_another_shape_is_the_outcome(recorder: Recorder) -> None:
    agent = Simulator([structured({"day": "some day"}), say("done")])
    async with Session(transport=agent, telemetry=recorder.telemetry, output=Visit) as session:
        with pytest.raises(OutputInvalid):
            await session.ask("go")
    assert (recorder.span("invoke_agent Claude Code").attributes or {})["error.type"] == "OutputInvalid"


async def test_partial_messages_tell_more_of_the_model(recorder: Recorder) -> None:
    async with Session(
        transport=Simulator([say("one two three")]),
        telemetry=recorder.telemetry,
        include_partial_messages=True,
    ) as session:
        await session.ask("go")
    chat = recorder.span("chat claude-opus-5-5")
    assert chat.attributes is not None
    assert chat.attributes["gen_ai.usage.output_tokens"] == 5
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert "gen_ai.response.time_to_first_chunk" in chat.attributes
    assert recorder.total("gen_ai.client.inference.time_to_first_chunk") == 1


async def test_models_are_those_of_each_message(recorder: Recorder) -> None:
    agent = Simulator([subagent("look", say("seen"), model="haiku"), say("done")])
    async with Session(transport=agent, telemetry=recorder.telemetry, forward_subagent_text=True) as session:
        result = await session.ask("go")
    own, other = result.usage.by_model
    (chat,) = (span for span in recorder.started if span.name == f"chat {other}")
    assert chat.attributes is not None
    assert chat.attributes["gen_ai.request.model"] == other
    metrics = recorder.metrics()
    durations = metrics["gen_ai.client.inference.duration"]
    assert {dict(labels)["gen_ai.request.model"]: count for labels, count in durations.items()} == {
        own: 2,
        other: 1,
    }
    # Which model a subagent has is not known before it answers.
    models = [dict(labels).get("gen_ai.request.model") for labels in metrics["gen_ai.invoke_agent.duration"]]
    assert sorted(map(str, models)) == ["None", own]


async def test_older_conventions() -> None:
    recorder = Recorder(semconv="1.41", agent_name="Reviewer")
    async with Session(transport=Simulator([say("hi")]), telemetry=recorder.telemetry) as session:
        result = await session.ask("go")
    turn = recorder.span("invoke_agent Reviewer")
    assert turn.attributes is not None
    assert turn.attributes["gen_ai.provider.name"] == "anthropic"
    metrics = recorder.metrics()
    assert {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"} <= metrics.keys()
    assert not any(name.startswith("gen_ai.client.inference") for name in metrics)
    kinds = {dict(labels)["gen_ai.token.type"] for labels in metrics["gen_ai.client.token.usage"]}
    assert (kinds, result.usage.cache_read_tokens) == ({"input", "output"}, 0)


@every_case("semconv", ["latest", "1.41"])
async def test_histograms_are_as_the_conventions_want_them(semconv: str) -> None:
    recorder = Recorder(semconv=semconv)
    calls = answer(use_tool("Nothing"), use_tool("Nothing"))
    agent = Simulator([subagent("look", use_tool("Nothing"), say("seen")), calls, say("done")])
    async with Session(transport=agent, telemetry=recorder.telemetry, forward_subagent_text=True) as session:
        await session.ask("go")
    found: dict[str, list[Any]] = {}
    for name, point in recorder.points():
        found.setdefault(name, []).append(point)

    def sums(name: str) -> dict[str, int]:
        return {point.attributes["gen_ai.agent.name"]: point.sum for point in found[name]}

    assert sums("gen_ai.invoke_agent.inference_calls") == {"Claude Code": 3, "general-purpose": 2}
    assert sums("gen_ai.invoke_agent.tool_calls") == {"Claude Code": 3, "general-purpose": 1}
    bounds = {name: points[0].explicit_bounds for name, points in found.items() if "_bounds" in str(points)}
    assert bounds["gen_ai.invoke_agent.duration"][-1] == pytest.approx(409.6)
    assert bounds["gen_ai.execute_tool.duration"][-1] == pytest.approx(81.92)
    assert bounds["gen_ai.invoke_agent.tool_calls"] == (1, 2, 4, 8, 16, 32, 64, 128)
    if semconv == "1.41":
        assert bounds["gen_ai.client.token.usage"][-1] == 67108864
    tokens = [points for name, points in found.items() if "token" in name]
    assert {point.attributes["gen_ai.operation.name"] for points in tokens for point in points} == {"chat"}


async def test_labels_that_a_model_makes_up_come_to_an_end(recorder: Recorder) -> None:
    calls = [use_tool(f"made_up_{number}") for number in range(250)]
    async with Session(transport=Simulator([*calls, say("no")]), telemetry=recorder.telemetry) as session:
        await session.ask("go")
    labels = {dict(each)["gen_ai.tool.name"] for each in recorder.metrics()["gen_ai.execute_tool.duration"]}
    assert len(labels) == 201
    assert "_OTHER" in labels
    for number in range(250):
        recorder.telemetry.metrics.turn_ended(f"MadeUp{number}", "an agent")
        recorder.telemetry.metrics.took(recorder.telemetry.metrics.start_seconds, 0, 1, {}, f"MadeUp{number}")
    assert len(recorder.metrics()["outrider.turns"]) == 201
    assert len(recorder.metrics()["outrider.process.start.duration"]) <= 202


# One call for a whole process.


async def test_one_call_serves_sessions_the_drop_in_and_code_without_await(recorder: Recorder) -> None:
    telemetry.instrument(tracer_provider=recorder.tracers, meter_provider=recorder.meters)
    await outrider.run("go", transport=Simulator([say("hi")]))
    await outrider.run("go", transport=Simulator([say("hi")]), telemetry=False)
    with recorder.tracer.start_as_current_span("request"), intercept(lambda _: Simulator([say("hi")])):
        async for _ in compat.query(prompt="go"):
            pass
        await anyio.to_thread.run_sync(lambda: sync.run("go"))
    telemetry.uninstrument()
    await outrider.run("go", transport=Simulator([say("hi")]))
    recorder.check()
    turns = [span for span in recorder.started if span.name == "invoke_agent Claude Code"]
    request = recorder.span("request").context
    assert [span.parent for span in turns] == [None, request, request]


@dataclass
class Wrapped:
    """A provider around another, as Logfire has one: it cannot be hashed."""

    meters: MeterProvider

    def get_meter(self, *names: Any) -> Any:
        return self.meters.get_meter(*names)


def test_a_provider_need_not_be_hashable(recorder: Recorder) -> None:
    wrapped = cast("MeterProvider", Wrapped(recorder.meters))
    made = [Telemetry(meter_provider=wrapped) for _ in range(2)]
    # One set of gauges, as for any other.
    assert len({id(each.metrics._gauges) for each in made}) == 1
    (gauges,) = {each.metrics._gauges for each in made}
    assert gauges is not recorder.telemetry.metrics._gauges


@every_case("given", [True, "yes", {"content": True}])
def test_what_is_no_telemetry_is_rejected(given: Any) -> None:
    with pytest.raises(OptionsError, match="telemetry"):
        Options(telemetry=given)


@every_case(
    "fields",
    [
        {"semconv": "1.0"},
        {"content": "yes"},
        {"scrub": "x"},
        {"agent_name": ""},
        {"redaction": "x"},
        {"tracer_provider": "x"},
        {"meter_provider": 1},
    ],
)
def test_settings_are_checked_at_once(fields: Any) -> None:
    with pytest.raises(OptionsError, match=next(iter(fields))):
        Telemetry(**fields)


def test_it_travels_to_another_process_without_its_providers() -> None:
    sent = Recorder(content=True, semconv="1.41").telemetry
    came: Telemetry = pickle.loads(pickle.dumps(sent))
    assert repr(came) == repr(sent) == "Telemetry(content=True, semconv='1.41')"


# In nobody's way.


class Broken:
    """Raises whatever it is asked."""

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    extract = inject = _fail


async def test_what_fails_in_telemetry_is_logged_and_nothing_else(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(propagate, "get_global_textmap", Broken)
    monkeypatch.setattr(propagate, "propagator", Broken())
    for name in ("on_start", "on_end"):
        monkeypatch.setattr(Recorder, name, Broken._fail)

    @outrider.tool
    async def look_up() -> str:
        """Look something up."""
        return "found"

    with caplog.at_level(logging.ERROR, "outrider.telemetry"):
        result = await outrider.run("go", Works(tmp_path).options(telemetry=recorder.telemetry))
        agent = Simulator([use_tool("look_up"), say("done")])
        async with Session(transport=agent, tools=[look_up], telemetry=recorder.telemetry) as session:
            assert str(await session.ask("go")) == "done"
    assert str(result) == "did go"
    assert {record.name for record in caplog.records} == {"outrider.telemetry"}


async def test_without_an_sdk_nothing_is_recorded_and_all_works() -> None:
    async with Session(transport=Simulator([say("hi")]), telemetry=Telemetry()) as session:
        assert str(await session.ask("go")) == "hi"
    assert not get_current_span().is_recording()


WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
import anyio, outrider
from outrider.testing import Simulator, say
print(anyio.run(lambda: outrider.run("go", transport=Simulator([say("hi")]))))
print([name for name in sys.modules if "telemetry" in name and sys.modules[name] is not None])
import logging
record = logging.makeLogRecord({"msg": "x"})
outrider.telemetry.LogContext().filter(record)
print(repr(record.trace_id))
try:
    outrider.telemetry.instrument()
except outrider.OptionsError as error:
    print(error)
"""


def test_without_opentelemetry_only_telemetry_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:3] == ["hi", "[]", "''"]
    assert "pip install 'outrider[otel]'" in done.stdout


# Approvals.


@every_case("is_deferred", [True, False])
async def test_a_turn_that_goes_on_is_linked_to_the_one_that_was_parked(is_deferred: bool) -> None:
    # What a rule asks about is left open; what a callback asks about is denied, and made again.
    recorder = Recorder()
    approvals = Approvals(MemoryStore(), patience=0)
    call = use_tool("Bash", command="echo x >> made")
    script = [call, say("Done.")] if is_deferred else [call, say("Later."), call, say("Done.")]
    with anyio.fail_after(30), Simulator(script) as agent, agent.stand_in():
        options = Options(
            cwd=agent.folder,
            permission=Policy.of({"ask": "Bash"}) if is_deferred else lambda _: ask(),
            approvals=approvals,
            telemetry=recorder.telemetry,
        )
        parked = await outrider.run("Make it", options)
        (pending,) = parked.pending
        assert pending.is_deferred is is_deferred
        await approvals.decide(pending.id, True)
        assert parked.session_id is not None
        result = await outrider.go_on(parked.session_id, options)
        assert result.text == "Done."
    recorder.check()
    first, second = (span for span in recorder.started if span.name.startswith("invoke_agent"))
    # The call that is made when it is approved, too, though the model does not make it again.
    assert recorder.names.count("execute_tool Bash") == 2
    assert first.context is not None
    assert first.context.span_id in [link.context.span_id for link in second.links]
    assert pending.trace.split("-")[1:3] == [
        format_trace_id(first.context.trace_id),
        format_span_id(first.context.span_id),
    ]
    told: list[Any] = [each for span in recorder.started for each in (span, *span.events)]
    permissions = [each for each in told if each.name.startswith("outrider.permission")]
    decisions = [each.attributes["outrider.decision"] for each in permissions]
    assert "pending" in decisions
    assert "deny" not in decisions
    assert "allow" in decisions
