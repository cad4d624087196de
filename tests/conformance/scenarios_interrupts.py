"""Scenarios: interrupts, and prompts that come while another is being answered."""

from __future__ import annotations

import json

from outrider.testing import say, use_tool
from tests.conformance.host import HOLD, SILENT, Host
from tests.conformance.scenario import scenario
from tests.conformance.scenarios_permissions import ASKING, CHANGE
from tests.conformance.scenarios_tools import ANYTHING

PARTIAL = ("--include-partial-messages",)


@scenario(held=lambda stage: [say("one two", gate=stage.gate()), say("next")], flags=PARTIAL)
async def interrupt_while_the_model_writes(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.prompt("count", uuid="prompt-1")
        await host.until_text()
        await host.post("interrupt")
        await host.result()
        await host.ask("go on", uuid="prompt-2")


@scenario(held=lambda stage: [say("one two", gate=stage.gate(after=0)), say("next")])
async def interrupt_before_the_model_says_anything(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.prompt("count")
        await host.reached()
        await host.post("interrupt")
        await host.result()
        await host.ask("go on")


@scenario(use_tool("Bash", command=HOLD), say("next"), flags=ANYTHING, everywhere=True)
async def interrupt_while_a_tool_runs(host: Host) -> None:
    host.make_pipes()
    async with host.started():
        await host.initialize()
        await host.prompt("wait", uuid="prompt-1")
        await host.began()
        await host.post("interrupt")
        await host.result()
        await host.ask("go on")


@scenario(CHANGE, say("next"), flags=ASKING)
async def interrupt_while_permission_is_asked(host: Host) -> None:
    host.answers["can_use_tool"] = lambda _: SILENT
    async with host.started():
        await host.initialize()
        await host.prompt("go")
        await host.until_requested("can_use_tool")
        await host.post("interrupt")
        await host.result()
        await host.ask("go on")


@scenario(say("one"), everywhere=True)
async def interrupt_when_nothing_runs(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.request("interrupt")
        await host.ask("hi")
        await host.request("interrupt")


@scenario(
    held=lambda stage: [say("one two", gate=stage.gate()), say("both")],
    flags=PARTIAL,
    env={"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"},
)
async def prompts_while_the_model_writes(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.prompt("first", uuid="prompt-1")
        await host.until_text()
        await host.prompt("second", uuid="prompt-2")
        await host.prompt("third", uuid="prompt-3")
        await host.until(type="command_lifecycle", command_uuid="prompt-3", state="queued")
        host.gates[0].open()
        await host.result()
        await host.result()
        await host.until(subtype="session_state_changed", state="idle")


@scenario(use_tool("Bash", command=HOLD), say("both"), flags=ANYTHING)
async def a_prompt_while_a_tool_runs(host: Host) -> None:
    host.make_pipes()
    async with host.started():
        await host.initialize()
        await host.prompt("first", uuid="prompt-1")
        await host.began()
        await host.prompt("second", uuid="prompt-2")
        await host.until(type="command_lifecycle", command_uuid="prompt-2", state="queued")
        await host.let_end()
        await host.result()


@scenario(held=lambda stage: [say("one two", gate=stage.gate()), say("next")], flags=PARTIAL)
async def interrupt_with_a_prompt_that_waits(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.prompt("first", uuid="prompt-1")
        await host.until_text()
        await host.prompt("second", uuid="prompt-2")
        await host.until(type="command_lifecycle", command_uuid="prompt-2", state="queued")
        await host.post("interrupt")
        await host.result()
        await host.result()


@scenario(held=lambda stage: [say("one two", gate=stage.gate()), say("next")], flags=PARTIAL)
async def interrupt_of_all_that_waits(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.prompt("first", uuid="prompt-1")
        await host.until_text()
        await host.prompt("second", uuid="prompt-2")
        await host.until(type="command_lifecycle", command_uuid="prompt-2", state="queued")
        await host.post("interrupt", cancel_queued=True)
        await host.result()
        await host.ask("go on")


@scenario(held=lambda stage: [say("one two", gate=stage.gate()), say("next")], flags=PARTIAL)
async def a_prompt_that_is_taken_back(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.prompt("first", uuid="prompt-1")
        await host.until_text()
        await host.prompt("second", uuid="prompt-2")
        await host.until(type="command_lifecycle", command_uuid="prompt-2", state="queued")
        await host.request("cancel_async_message", message_uuid="prompt-2")
        await host.request("cancel_async_message", message_uuid="unknown")
        host.gates[0].open()
        await host.result()


@scenario(held=lambda stage: [say("one two", gate=stage.gate()), say("next")], flags=PARTIAL)
async def a_prompt_that_goes_first(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.prompt("first", uuid="prompt-1")
        await host.until_text()
        await host.prompt("second", uuid="prompt-2", priority="now")
        await host.result()
        await host.result()


@scenario(say("one"))
async def a_prompt_that_is_only_noted(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("note this", uuid="prompt-1", shouldQuery=False)
        await host.ask("and answer", uuid="prompt-2")


@scenario(say("one"), say("two"))
async def a_prompt_that_comes_twice(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("hi", uuid="prompt-1")
        await host.prompt("hi", uuid="prompt-1")
        await host.ask("again", uuid="prompt-2")


@scenario(held=lambda stage: [say("one", gate=stage.gate(after=0)), say("both")])
async def three_prompts_at_once(host: Host) -> None:
    async with host.started():
        await host.initialize()
        # In one piece: whether lines that are sent one by one arrive together is left to chance.
        lines = [
            {
                "type": "user",
                "message": {"role": "user", "content": f"prompt {number}"},
                "uuid": f"prompt-{number}",
            }
            for number in (1, 2, 3)
        ]
        await host.write("\n".join(map(json.dumps, lines)))
        await host.until(type="command_lifecycle", command_uuid="prompt-3", state="queued")
        await host.reached()
        host.gates[0].open()
        await host.result()
        await host.result()


@scenario(say("one"), say("two"), say("as text"))
async def commands_of_the_program(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("first")
        await host.ask("/clear")
        await host.ask("second")
        await host.ask("/no-such-command here")
