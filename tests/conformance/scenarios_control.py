"""Scenarios: what a host asks for, and how it is answered."""

from __future__ import annotations

from outrider.testing import fail, say
from tests.conformance.host import Host
from tests.conformance.scenario import scenario
from tests.conformance.scenarios_tools import serve


@scenario(say("hello"), full=True, everywhere=True)
async def requests_that_change_nothing(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("hi")
        for subtype in (
            "mcp_status",
            "get_binary_version",
            "get_session_cost",
            "list_permission_rules",
            "get_plan",
        ):
            await host.request(subtype)
        await host.request("get_context_usage", detail="summary")
        await host.request("get_usage")
        await host.request("list_models")


@scenario(say("hello"), say("again"))
async def another_model(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.request("set_model", model="haiku")
        await host.ask("hi")
        await host.request("set_model", model="default")
        await host.request("set_model", model=5)
        await host.request("set_model")
        await host.ask("hi")


@scenario(say("hello"))
async def another_mode(host: Host) -> None:
    async with host.started():
        await host.initialize()
        for mode in ("acceptEdits", "acceptEdits", "plan", "default", "nonsense", "bypassPermissions"):
            await host.request("set_permission_mode", mode=mode)
        await host.ask("hi")


@scenario()
async def requests_that_are_refused(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.request("no_such_request")
        await host.request("can_use_tool")
        await host.request("mcp_toggle", serverName="none", enabled=False)
        await host.request("mcp_reconnect", serverName="none")
        await host.request("mcp_call", tool="mcp__none__x", arguments={})
        await host.request("rename_session", title="")
        await host.request("rewind_files", user_message_id="none")
        await host.request("rewind_files", user_message_id="none", dry_run=True)
        await host.request("set_max_thinking_tokens", max_thinking_tokens="many")
        await host.write({"type": "control_request", "request_id": "no-subtype", "request": {}})
        await host.answered("no-subtype")


@scenario(say("hello"))
async def requests_without_an_answer_of_their_own(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.request("set_max_thinking_tokens", max_thinking_tokens=1000)
        await host.request("set_max_thinking_tokens", max_thinking_tokens=None)
        await host.request("rename_session", title="A title")
        await host.request("stop_task", task_id="none")
        await host.request("background_tasks")
        await host.request("set_has_subscribers", has_subscribers=True)
        await host.ask("hi")
        await host.request("end_session")


@scenario(files={"here.txt": "a text\n"})
async def requests_about_files(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.request("read_file", path="here.txt")
        await host.request("read_file", path="missing.txt")
        await host.request("read_file", path=str(host.folder / "here.txt"), max_bytes=3)


@scenario(say("hello"))
async def servers_that_come_and_go(host: Host) -> None:
    host.answers["mcp_message"] = serve
    async with host.started():
        await host.initialize(sdkMcpServers=["tools"])
        await host.until(
            lambda frame: (
                frame["type"] == "control_request"
                and frame["request"].get("message", {}).get("method") == "tools/list"
            )
        )
        # A turn waits for the servers.
        await host.ask("hi")
        await host.request("mcp_call", tool="mcp__tools__add", arguments={"a": 1})
        await host.request("mcp_toggle", serverName="tools", enabled=False)
        await host.request("mcp_status")
        await host.request("mcp_set_servers", servers={})


@scenario(say("hello"))
async def initialized_twice(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.initialize(title="A title")
        await host.ask("hi")


@scenario(fail(403), say("hello"), flags=("--model", "haiku"))
async def started_with_a_model(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("hi")
        await host.ask("hi")
