"""Scenarios: how a session begins, goes on and ends."""

from __future__ import annotations

from outrider.testing import answer, fail, say, think, use_tool
from tests.conformance.host import Host
from tests.conformance.scenario import scenario

STATE = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}
ANYTHING = ("--permission-mode", "bypassPermissions")


@scenario(say("hello"), full=True, everywhere=True)
async def one_shot(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("hi")


@scenario(say("hello"))
async def without_initialize(host: Host) -> None:
    async with host.started():
        await host.ask("hi")


@scenario(say("one"), say("two"), env=STATE, everywhere=True)
async def two_turns(host: Host) -> None:
    async with host.started():
        await host.initialize()
        for number in (1, 2):
            await host.ask("hi", uuid=f"prompt-{number}")
            await host.until(subtype="session_state_changed", state="idle")


@scenario(say("hello"))
async def a_prompt_before_the_answer_to_initialize(host: Host) -> None:
    async with host.started():
        await host.post("initialize")
        await host.ask("hi")


@scenario(say("hello"), env={"CLAUDE_CODE_SDK_READS_SESSION_STATE": "1"})
async def session_state_for_the_host(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask([{"type": "text", "text": "hi"}])
        await host.until(subtype="session_state_changed", state="idle")


@scenario(
    answer(think("hm ", "so"), say("let ", "us ", "see"), use_tool("Bash", command="echo hi")),
    say("do", "ne"),
    flags=("--include-partial-messages", *ANYTHING),
    full=True,
    everywhere=True,
)
async def partial_messages(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("go", uuid="prompt-1")


@scenario(think("hm ", "so", then=say("done")))
async def thinking(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("go")


@scenario(say("one"), say("two"), flags=("--replay-user-messages",))
async def replayed_prompts(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("hi", uuid="prompt-1")
        await host.until(type="command_lifecycle", state="completed")
        await host.ask("again")


@scenario(
    say("spent", usage={"input_tokens": 1000, "output_tokens": 200, "cache_read_input_tokens": 50}),
    say("more", usage={"input_tokens": 7, "output_tokens": 3}),
    full=True,
)
async def usage_adds_up(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("hi")
        await host.ask("hi")


# How it ends.


@scenario(everywhere=True)
async def end_of_input_at_once(host: Host) -> None:
    async with host.started():
        pass


@scenario(everywhere=True)
async def end_of_input_behind_initialize(host: Host) -> None:
    async with host.started():
        await host.post("initialize")


@scenario(say("hello"))
async def end_of_input_behind_a_prompt(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.prompt("hi")


@scenario(*[fail(400, message="no such thing")] * 8, env={"CLAUDE_CODE_MAX_RETRIES": "0"})
async def an_error_last_is_the_exit_code(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("hi")


@scenario(everywhere=True)
async def a_line_that_is_not_json(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.write("this is not it")


@scenario()
async def a_line_that_is_null(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.write("null")


@scenario()
async def a_prompt_without_a_role(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.write({"type": "user", "message": {"content": "hi"}})


@scenario()
async def a_request_without_one(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.write({"type": "control_request", "request_id": "empty"})


@scenario(say("hello"))
async def lines_that_mean_nothing(host: Host) -> None:
    async with host.started():
        await host.initialize()
        for line in (
            '["list"]',
            "5",
            '"text"',
            '{"type": "no_such_type"}',
            "{}",
            '{"type": "keep_alive"}',
            "",
            "\r",
        ):
            await host.write(line)
        await host.ask("hi")


@scenario()
async def awaiting_initialize(host: Host) -> None:
    async with host.started("--await-initialize"):
        await host.prompt("hi")


# Command lines.


@scenario(everywhere=True, alone=True)
async def version(host: Host) -> None:
    for flag in ("--version", "-v"):
        async with host.started(flag, streaming=False):
            pass


@scenario(everywhere=True)
async def bad_flags(host: Host) -> None:
    async with host.started("--no-such-flag"):
        pass
    async with host.started("--permission-mode", "nonsense"):
        pass
    async with host.started("--max-turns", "many"):
        pass


@scenario()
async def bad_values(host: Host) -> None:
    async with host.started("--settings", "{broken"):
        pass
    async with host.started("--session-id", "not-a-uuid"):
        pass
    async with host.started("--json-schema", "{broken"):
        pass
    async with host.started(
        "--output-format", "stream-json", "--input-format", "stream-json", streaming=False
    ):
        pass
