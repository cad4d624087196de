"""Scenarios: subagents, and what goes on beside a turn."""

from __future__ import annotations

from outrider.testing import say, use_tool
from tests.conformance.host import HOLD, Host
from tests.conformance.scenario import scenario
from tests.conformance.scenarios_hooks import answering, registered
from tests.conformance.scenarios_tools import ANYTHING, each_in_a_turn

STATE = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}


AGENT = {"description": "Look around", "prompt": "look around", "subagent_type": "general-purpose"}


@scenario(
    use_tool("Agent", AGENT, run_in_background=False),
    say("all done"),
    subagents=(use_tool("Bash", command="echo hi"), say("found it")),
    flags=ANYTHING,
    env=STATE,
    everywhere=True,
)
async def a_subagent(host: Host) -> None:
    await each_in_a_turn(host, 1)


@scenario(
    use_tool("Agent", AGENT, run_in_background=False),
    say("all done"),
    subagents=(use_tool("Bash", command="echo hi"), say("found it")),
    flags=ANYTHING,
)
async def a_subagent_with_hooks_and_text(host: Host) -> None:
    host.answers["hook_callback"] = answering({})
    async with host.started():
        events = ("SubagentStart", "SubagentStop", "PreToolUse", "Stop")
        await host.initialize(hooks=registered(*events), forwardSubagentText=True)
        await host.ask("go")


@scenario(
    # What a subagent writes beside the turn comes in an order of its own, unless the turn waits for it.
    held=lambda stage: [
        use_tool("Agent", AGENT),
        say("it has begun", gate=stage.gate(after=0)),
        say("all done"),
    ],
    subagents=(use_tool("Bash", command=HOLD), say("found it")),
    flags=ANYTHING,
    env=STATE,
)
async def a_subagent_in_the_background(host: Host) -> None:
    host.make_pipes()
    async with host.started():
        await host.initialize()
        await host.prompt("go")
        await host.until(subtype="task_progress")
        await host.reached()
        host.gates[0].open()
        await host.result()
        await host.began()
        await host.let_end()
        await host.result()
        await host.until(subtype="session_state_changed", state="idle")


@scenario(
    use_tool("Bash", command=HOLD, description="Wait", run_in_background=True),
    say("it has begun"),
    say("it is over"),
    flags=ANYTHING,
    env=STATE,
    everywhere=True,
)
async def a_command_in_the_background(host: Host) -> None:
    host.make_pipes()
    async with host.started():
        await host.initialize()
        await host.ask("go")
        await host.until(subtype="session_state_changed", state="idle")
        await host.began()
        await host.let_end()
        await host.result()
        await host.until(subtype="session_state_changed", state="idle")


@scenario(
    use_tool("Bash", command=HOLD, description="Wait", run_in_background=True),
    say("it has begun"),
    say("next"),
    flags=ANYTHING,
)
async def a_command_in_the_background_that_is_stopped(host: Host) -> None:
    host.make_pipes()
    async with host.started():
        await host.initialize()
        await host.prompt("go")
        started = await host.until(subtype="task_started")
        await host.result()
        await host.began()
        await host.request("stop_task", task_id=started["task_id"])
        await host.ask("go on")


@scenario(
    use_tool("Bash", command=f"{HOLD}; exit 3", description="Wait", run_in_background=True),
    say("it has begun"),
    say("it is over"),
    flags=ANYTHING,
)
async def a_command_in_the_background_at_the_end_of_input(host: Host) -> None:
    host.make_pipes()
    async with host.started():
        await host.initialize()
        await host.ask("go")
        await host.began()
        await host.end_input()
        await host.let_end()
