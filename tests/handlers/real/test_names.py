"""Names of tools with the real program: what is denied by its own name does not run, whichever way."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import fail_after

import outrider
from outrider import AgentDefinition, Policy, Session
from outrider.testing import say, use_tool
from outrider.wire.permissions import PermissionRuleValue, PermissionUpdate
from tests.session.real.talking import DEADLINE, real_agent

pytestmark = pytest.mark.anyio


class Customers:
    """A tool, and what it was called with."""

    def __init__(self) -> None:
        self.deleted: list[int] = []

    @outrider.tool
    def delete_customer(self, id: int) -> str:
        """Delete a customer."""
        self.deleted.append(id)
        return "gone"


@outrider.hook("PreToolUse", matcher="delete_customer")
def deny_one(input: object) -> outrider.Answer:
    return outrider.deny("Not here.")


@outrider.hook("PreToolUse", matcher=["Bash", "mcp__tools"])
def deny_all_of_a_server(input: object) -> outrider.Answer:
    return outrider.deny("Not here.")


async def deny_later(request: outrider.PermissionRequest) -> outrider.Answer:
    rules = [PermissionRuleValue(tool_name="delete_customer")]
    update = PermissionUpdate(type="addRules", rules=rules, behavior="deny", destination="session")
    return outrider.allow(updates=[update])


FREELY: dict[str, Any] = {"permission_mode": "bypassPermissions"}
WAYS: dict[str, dict[str, Any]] = {
    "policy": {"permission": Policy.of({"deny": "delete_customer"}, {"allow": "*"})},
    "guard": {"hooks": [Policy.of({"deny": "delete_*"}, {"allow": "*"}).guard()], **FREELY},
    "rule": {"disallowed_tools": ["delete_customer"], **FREELY},
    "rule with a pattern": {"disallowed_tools": ["delete_*"], **FREELY},
    "settings": {"settings": {"permissions": {"deny": ["delete_customer"]}}, **FREELY},
    "hook": {"hooks": [deny_one], **FREELY},
    "hook of a server": {"hooks": [deny_all_of_a_server], **FREELY},
    "update": {"permission": deny_later},
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_tool_that_is_denied_by_its_own_name_does_not_run(way: str) -> None:
    customers = Customers()
    script = [use_tool("Bash", command="touch x"), use_tool("mcp__tools__delete_customer", id=3), say("done")]
    with real_agent(*script) as agent, fail_after(DEADLINE):
        async with Session(agent.options(tools=[customers.delete_customer], **WAYS[way])) as session:
            await session.ask("go")
        assert len(agent.api.main_requests) == 3
    assert customers.deleted == []


async def test_a_subagent_has_no_tool_that_is_denied_by_its_own_name() -> None:
    customers = Customers()
    worker = AgentDefinition(description="d", prompt="p", disallowed_tools=["delete_*"])
    options: dict[str, Any] = {"tools": [customers.delete_customer], "agents": {"worker": worker}, **FREELY}
    script = [
        use_tool("Agent", description="d", prompt="p", subagent_type="worker"),
        say("done"),
        say("done"),
    ]
    subagent = [use_tool("mcp__tools__delete_customer", id=3), say("done")]
    with real_agent(*script, subagents=subagent) as agent, fail_after(DEADLINE):
        async with Session(agent.options(**options)) as session:
            await session.ask("go")
        offered = [request.tools for request in agent.api.requests if request.kind == "subagent"]
        assert offered
        assert "mcp__tools__delete_customer" not in offered[0]
    assert customers.deleted == []


@pytest.mark.filterwarnings("ignore::outrider.options.PermissionShadowedWarning")
async def test_a_tool_that_is_allowed_by_its_own_name_is_not_asked_about() -> None:
    customers = Customers()
    asked: list[str] = []

    async def deny(request: outrider.PermissionRequest) -> bool:
        asked.append(request.tool_name)
        return False

    script = [use_tool("mcp__tools__delete_customer", id=3), say("done")]
    with real_agent(*script) as agent, fail_after(DEADLINE):
        tool = customers.delete_customer
        async with Session(agent.options(tools=[tool], allowed_tools=[tool], permission=deny)) as session:
            await session.ask("go")
    assert (customers.deleted, asked) == ([3], [])
