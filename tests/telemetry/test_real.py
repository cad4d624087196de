"""Telemetry of the real program: over HTTP, with the program's own spans in the same trace."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import outrider
from outrider.telemetry import Telemetry
from outrider.testing import RealAgent, say, use_tool
from tests.real_program import require_program
from tests.telemetry.otlp import Receiver

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.mark.timeout(120)
async def test_both_sides_of_a_trace_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    @outrider.tool
    async def look_up(ticket: int) -> str:
        """Look a ticket up."""
        return f"ticket {ticket}"

    script = [use_tool("mcp__tools__look_up", ticket=7), use_tool("Bash", command="echo hi"), say("done")]
    with Receiver() as receiver, RealAgent(script, program=require_program()) as agent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        provider = TracerProvider(resource=Resource({"service.name": "mine"}), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        telemetry = Telemetry(tracer_provider=provider, agent_spans=True)
        options = agent.options(telemetry=telemetry, tools=[look_up, "Bash"], allowed_tools=["Bash"])
        with provider.get_tracer("mine").start_as_current_span("request"):
            result = await outrider.run("go", options)
        provider.shutdown()
        spans = list(receiver.spans)
    assert str(result) == "done"
    assert len({span.trace for span in spans}) == 1
    ours = {span.name: span for span in spans if span.service == "mine"}
    theirs = [span for span in spans if span.service != "mine"]
    assert {
        "request",
        "outrider.agent.start",
        "invoke_agent Claude Code",
        "execute_tool mcp__tools__look_up",
        "execute_tool Bash",
    } <= set(ours)
    assert ours["outrider.agent.start"].parent == ours["request"].id
    # The program's own spans hang under its start, and name the same calls.
    (interaction,) = (span for span in theirs if span.name == "claude_code.interaction")
    assert interaction.parent == ours["outrider.agent.start"].id
    calls = {span.attributes.get("gen_ai.tool.call.id") for span in theirs if span.name == "claude_code.tool"}
    assert calls == {
        ours[f"execute_tool {name}"].attributes["gen_ai.tool.call.id"]
        for name in ("mcp__tools__look_up", "Bash")
    }
    assert interaction.attributes["session.id"] == result.session_id
