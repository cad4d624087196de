"""Names that would guard nothing: of tools that are known by another one, and of what does not exist.

Whoever denies a tool means that tool, and whoever misspells one has to be told before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from anyio import fail_after

import outrider
from outrider import AgentDefinition, Policy, Rule, Session, ToolServer, compat, hook
from outrider.compat._options import translated_options
from outrider.errors import OptionsError
from outrider.launch import make_initialize
from outrider.options import StdioServer
from outrider.testing import Simulator, say, use_tool
from outrider.wire.permissions import PermissionRuleValue, PermissionUpdate

anyio = pytest.mark.anyio

FULL = "mcp__tools__delete_customer"


class Customers:
    """A tool that must not run, and whether it did."""

    def __init__(self) -> None:
        self.deleted: list[int] = []

    @outrider.tool
    def delete_customer(self, id: int) -> str:
        """Delete a customer."""
        self.deleted.append(id)
        return "gone"

    @outrider.tool
    def find_customer(self, id: int) -> str:
        """Find a customer."""
        return f"customer {id}"


async def used(tool: Any, calls: str = FULL, **fields: Any) -> list[str]:
    """What a model is told that uses a tool of the session."""
    script = [use_tool(calls, id=3), say("done")]
    with Simulator(script) as agent, fail_after(20):
        async with Session(agent.options(tools=[tool], **fields)) as session:
            await session.ask("go")
        return [str(result["content"]) for result in agent.main_requests[1].tool_results]


def refuses(**fields: Any) -> OptionsError:
    """Why a session is refused when it is made."""
    with pytest.raises(OptionsError) as refused:
        Session(**fields)
    return refused.value


# A tool of one's own is denied by its own name.


@hook("PreToolUse", matcher="delete_customer")
def deny_by_name(input: object) -> outrider.Answer:
    return outrider.deny("Not here.")


@hook("PreToolUse", matcher=["Bash", "delete_customer"])
def deny_in_list(input: object) -> outrider.Answer:
    return outrider.deny("Not here.")


@hook("PreToolUse", matcher="mcp__tools")
def deny_by_server(input: object) -> outrider.Answer:
    return outrider.deny("Not here.")


@hook("PreToolUse", matcher="Teleport|delete_customer", allow_unknown=True)
def deny_with_unknown(input: object) -> outrider.Answer:
    return outrider.deny("Not here.")


def updating(name: str) -> Callable[..., Any]:
    """A callback that allows one call, and denies a tool from then on."""

    async def permission(request: outrider.PermissionRequest) -> object:
        rule = PermissionRuleValue(tool_name=name)
        update = PermissionUpdate(type="addRules", rules=[rule], behavior="deny", destination="session")
        return outrider.allow(updates=[update])

    return permission


WAYS: dict[str, dict[str, Any]] = {
    "policy": {"permission": Policy.of({"deny": "delete_customer"}, {"allow": "*"})},
    "policy, pattern": {"permission": Policy.of({"deny": "delete_*"}, {"allow": "*"})},
    "policy, notation": {"permission": Policy.of({"deny": "delete_customer(*)"}, {"allow": "*"})},
    "policy, value": {"permission": Policy([Rule("deny", ["Bash", "delete_customer"])], default="allow")},
    "policy, read": {"permission": Policy.from_data([{"deny": ["delete_customer"]}, {"allow": "*"}])},
    "policy, within": {"permission": Policy.of({"ask": "*"}, otherwise=Policy.of({"deny": "delete_*"}))},
    "guard": {
        "hooks": [Policy.of({"deny": "delete_customer"}, {"allow": "*"}).guard()],
        "permission_mode": "bypassPermissions",
    },
    "disallowed_tools": {"disallowed_tools": ["delete_customer"]},
    "disallowed_tools, pattern": {"disallowed_tools": ["delete_*"]},
    "disallowed_tools, all uses": {"disallowed_tools": ["delete_customer(*)"]},
    "settings": {"settings": {"permissions": {"deny": ["delete_customer"]}}},
    "settings, text": {"settings": '{"permissions": {"deny": ["delete_customer"]}}'},
    "hook": {"hooks": [deny_by_name]},
    "hook, list": {"hooks": [deny_in_list]},
    "hook, server": {"hooks": [deny_by_server]},
    "hook, beside an unknown one": {"hooks": [deny_with_unknown]},
}


@anyio
@pytest.mark.parametrize("way", WAYS)
async def test_a_tool_of_ones_own_is_denied_by_its_name(way: str) -> None:
    customers = Customers()
    (told,) = await used(customers.delete_customer, **WAYS[way])
    assert customers.deleted == []
    assert "gone" not in told


@anyio
@pytest.mark.parametrize("way", ["policy", "disallowed_tools", "hook"])
async def test_a_tool_is_denied_as_itself(way: str) -> None:
    customers = Customers()
    tool = customers.delete_customer

    @hook("PreToolUse", matcher=tool)
    def deny(input: object) -> outrider.Answer:
        return outrider.deny("Not here.")

    ways: dict[str, dict[str, Any]] = {
        "policy": {"permission": Policy.of({"deny": tool}, {"allow": "*"})},
        "disallowed_tools": {"disallowed_tools": [tool]},
        "hook": {"hooks": [deny]},
    }
    await used(tool, **ways[way])
    assert customers.deleted == []


@anyio
async def test_a_policy_that_the_session_never_saw_denies_by_name() -> None:
    customers = Customers()
    policy = Policy.of({"deny": "delete_customer"}, {"allow": "*"})

    async def permission(request: outrider.PermissionRequest) -> object:
        return await policy(request)

    await used(customers.delete_customer, permission=permission)
    assert customers.deleted == []


@anyio
async def test_a_policy_that_the_session_never_saw_allows_nothing_if_it_is_misspelled() -> None:
    customers = Customers()
    policy = Policy.of({"deny": "delete_custommer"}, {"allow": "*"})

    async def permission(request: outrider.PermissionRequest) -> object:
        return await policy(request)

    await used(customers.delete_customer, permission=permission)
    assert customers.deleted == []


@anyio
async def test_a_tool_that_is_added_later_is_denied_by_name() -> None:
    customers, server = Customers(), ToolServer("customers")
    script = [use_tool("mcp__customers__delete_customer", id=3), say("done")]
    options: dict[str, Any] = {
        "mcp_servers": {"customers": server},
        "permission": Policy.of({"deny": "delete_customer"}, {"allow": "*"}),
        "extra_tools": ["delete_customer"],
    }
    with Simulator(script) as agent, fail_after(20):
        async with Session(agent.options(**options)) as session:
            server.add(customers.delete_customer)
            await session.ask("go")
    assert customers.deleted == []


@anyio
async def test_a_permission_update_denies_by_name() -> None:
    customers = Customers()
    script = [use_tool("Bash", command="touch x"), use_tool("delete_customer", id=3), say("done")]
    with Simulator(script) as agent, fail_after(20):
        options = agent.options(tools=[customers.delete_customer], permission=updating("delete_customer"))
        async with Session(options) as session:
            await session.ask("go")
    assert customers.deleted == []


@anyio
async def test_a_permission_update_for_no_tool_allows_nothing() -> None:
    customers = Customers()
    await used(customers.delete_customer, permission=updating("delete_custommer"))
    assert customers.deleted == []


@anyio
async def test_settings_that_are_changed_later_deny_by_name() -> None:
    customers = Customers()
    script = [use_tool(FULL, id=3), say("done")]
    with Simulator(script) as agent, fail_after(20):
        async with Session(agent.options(tools=[customers.delete_customer])) as session:
            with pytest.raises(OptionsError, match="Did you mean 'delete_customer'"):
                await session.apply_settings({"permissions": {"deny": ["delete_custmer"]}})
            await session.apply_settings({"permissions": {"deny": ["delete_customer"]}})
            await session.ask("go")
    assert customers.deleted == []


# What allows is never wider than what was said.


@anyio
async def test_a_tool_of_ones_own_is_allowed_by_its_name_alone() -> None:
    customers = Customers()
    policy = Policy.of({"allow": "find_customer"})
    (told,) = await used(customers.find_customer, "mcp__tools__find_customer", permission=policy)
    assert "customer 3" in told


def sent(**fields: Any) -> outrider.Options:
    """The options that a session starts its agent with."""
    return Session(**fields)._conversation.options


@outrider.tool(name="Read")
def own_read(id: int) -> str:
    """Read a record."""
    return "read"


def test_a_tool_that_is_called_like_a_built_in_one() -> None:
    tools: list[Any] = [own_read]
    assert sent(tools=tools, disallowed_tools=["Read"]).disallowed_tools == ("Read", "mcp__tools__Read")
    # Whoever gives a tool and no callback has allowed all of their own.
    assert sent(tools=tools, allowed_tools=["Read"]).allowed_tools == ("Read", "mcp__tools")
    policy = Policy.of({"allow": "Read"}).with_full_names(Session(tools=tools)._names_of_tools())
    assert policy.rules[0].tools == ("Read",)
    for given in ({"disallowed_tools": [own_read]}, {"allowed_tools": [own_read]}):
        assert "has the name of a built-in one" in str(refuses(tools=tools, **given))
    guard = hook("PreToolUse", matcher="Read")(lambda input: None)
    assert "'Read', 'mcp__tools__Read'" in refuses(tools=tools, hooks=[guard]).hint
    Session(tools=tools, hooks=[hook("PreToolUse", matcher=["Read", "mcp__tools__Read"])(lambda input: None)])


def two_servers() -> dict[str, Any]:
    """Servers that have a tool of the same name."""
    return {"mcp_servers": {name: ToolServer(name, [Customers().find_customer]) for name in ("a", "b")}}


def test_a_name_that_two_servers_have() -> None:
    both = ("mcp__a__find_customer", "mcp__b__find_customer")
    assert sent(**two_servers(), disallowed_tools=["find_customer"]).disallowed_tools == both
    for given in (
        {"allowed_tools": ["find_customer"]},
        {"permission": Policy.of({"allow": "find_customer"})},
        {"hooks": [hook("PreToolUse", matcher="find_customer")(lambda input: None)]},
        {"permission_prompt_tool_name": "find_customer"},
    ):
        refused = refuses(**two_servers(), **given)
        assert "several tools are called 'find_customer'" in str(refused)
        assert "mcp__b__find_customer" in refused.hint


def test_subagents_have_the_tools_that_are_named() -> None:
    customers = Customers()
    worker = AgentDefinition(
        description="d",
        prompt="p",
        tools=["Read", "find_customer", customers.delete_customer],
        disallowed_tools=["delete_*"],
    )
    tools: list[Any] = [customers.delete_customer, customers.find_customer]
    found = sent(tools=tools, agents={"worker": worker}).agents["worker"]
    assert found.tools == ("Read", "mcp__tools__find_customer", FULL)
    # The program passes over patterns there.
    assert found.disallowed_tools == (FULL,)


@pytest.mark.parametrize("rule", ["Bash(*)", "Bash()", "Bash"])
def test_a_subagent_does_not_have_what_is_denied_to_it_for_all_uses(rule: str) -> None:
    worker = AgentDefinition(description="d", prompt="p", disallowed_tools=[rule])
    assert sent(agents={"worker": worker}).agents["worker"].disallowed_tools == ("Bash",)


def test_another_name_for_a_tool_is_denied_with_the_tool() -> None:
    tools: list[Any] = [Customers().delete_customer]
    aliases = {"Erase": "delete_customer", "Shell": "Bash"}
    options = sent(tools=tools, tool_aliases=aliases, disallowed_tools=["Erase", "Shell"])
    assert options.tool_aliases == {"Erase": FULL, "Shell": "Bash"}
    assert options.disallowed_tools == (FULL, "Bash")


def running(matcher: str, event: str = "PreToolUse") -> dict[str, Any]:
    """Settings with a hook that the agent runs itself."""
    return {"hooks": {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": "guard"}]}]}}


def test_hooks_in_settings_are_for_the_tools_that_are_named() -> None:
    tools: list[Any] = [Customers().delete_customer]
    assert sent(tools=tools, settings=running("Bash|delete_customer")).settings == running(f"Bash|{FULL}")
    assert sent(tools=tools, managed_settings=running("delete_customer")).managed_settings == running(FULL)
    as_text = '{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": []}]}}'
    assert sent(tools=tools, settings=as_text).settings == as_text


# A name that stands for nothing.

GITHUB = {"github": StdioServer(command="github-mcp")}


def matching(matcher: Any, event: Any = "PreToolUse") -> list[Any]:
    return [hook(event, matcher=matcher)(lambda input: None)]


@pytest.mark.parametrize(
    "fields, meant",
    [
        ({"disallowed_tools": ["delete_custmer"]}, "delete_customer"),
        ({"disallowed_tools": ["mcp__tools__delete_custmer"]}, FULL),
        ({"disallowed_tools": ["mcp__tool__delete_customer"]}, FULL),
        ({"disallowed_tools": ["mcp__toolz"]}, "mcp__tools"),
        ({"disallowed_tools": ["mcp__tools__remove_*"]}, None),
        ({"disallowed_tools": ["bash"]}, "Bash"),
        ({"disallowed_tools": ["Bsh(rm *)"]}, "Bash"),
        ({"disallowed_tools": ["Ba?h"]}, None),
        ({"disallowed_tools": [f"{FULL}(3)"]}, None),
        ({"disallowed_tools": ["delete_customer(3)"]}, None),
        ({"disallowed_tools": ["mcp__gitub__push"], "mcp_servers": GITHUB}, "mcp__github"),
        ({"allowed_tools": ["find_custmer"]}, None),
        ({"tools": ["Bsh"]}, "Bash"),
        ({"settings": {"permissions": {"deny": ["delete_custmer"]}}}, "delete_customer"),
        ({"settings": '{"permissions": {"deny": ["delete_custmer"]}}'}, "delete_customer"),
        ({"settings": running("delete_custmer")}, "delete_customer"),
        ({"settings": running("Bash", "PreToolUsee")}, "PreToolUse"),
        ({"managed_settings": {"permissions": {"ask": ["delete_custmer"]}}}, "delete_customer"),
        ({"permission": Policy.of({"deny": "delete_custmer"})}, "delete_customer"),
        ({"permission": Policy.of({"deny": "bash"}, {"allow": "*"})}, "Bash"),
        ({"permission": Policy.of({"ask": "*"}, otherwise=Policy.of({"deny": "Bsh"}))}, "Bash"),
        ({"permission": Policy.of({"deny": "*", "server": "gitub"}), "mcp_servers": GITHUB}, "github"),
        ({"hooks": [Policy.of({"deny": "delete_custmer"}).guard()]}, "delete_customer"),
        ({"hooks": matching("Bsh")}, "Bash"),
        ({"hooks": matching("Write|Bsh")}, "Bash"),
        ({"hooks": matching(["Write", "delete_custmer"])}, "delete_customer"),
        ({"hooks": matching("Bsh.*")}, None),
        ({"hooks": matching("^delete_")}, None),
        ({"hooks": matching("^(Bash|delete_customer)$")}, None),
        ({"hooks": matching("^(Bsh|Write)$")}, "Bash"),
        ({"hooks": matching("Write|^(?:Bsh)$")}, "Bash"),
        ({"hooks": matching("^Bsh$"), "mcp_servers": GITHUB}, "Bash"),
        ({"hooks": matching("Write|^Bsh.*"), "mcp_servers": GITHUB}, "Bash"),
        ({"hooks": matching("Write|mcp__gitub__.*"), "mcp_servers": GITHUB}, None),
        ({"hooks": matching("Bsh", "PermissionRequest")}, "Bash"),
        ({"agents": {"w": {"description": "d", "prompt": "p", "tools": ["find_custmer"]}}}, None),
        (
            {"agents": {"w": {"description": "d", "prompt": "p", "disallowedTools": ["delete_custmer"]}}},
            "delete_customer",
        ),
        # The program passes over it.
        ({"agents": {"w": {"description": "d", "prompt": "p", "disallowedTools": ["Bash(rm *)"]}}}, None),
        ({"tool_aliases": {"Shell": "Bsh"}}, "Bash"),
        ({"permission_prompt_tool_name": "delete_custmer"}, "delete_customer"),
    ],
)
def test_a_name_that_no_tool_has_is_refused_before_anything_starts(
    fields: dict[str, Any], meant: str | None
) -> None:
    tools = [Customers().delete_customer, *fields.pop("tools", ())]
    refused = refuses(tools=tools, **fields)
    if meant is not None:
        assert f"Did you mean {meant!r}?" in refused.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"disallowed_tools": ["Teleport", "Teleport(home)"], "extra_tools": ["Teleport"]},
        {"disallowed_tools": ["mcp__later__x", "mcp__later"], "extra_tools": ["mcp__later*"]},
        {"permission": Policy.of({"deny": "Teleport"}), "extra_tools": ["*"]},
        {"hooks": matching("Teleport|Bash"), "extra_tools": ["Teleport"]},
        {"hooks": [hook("PreToolUse", matcher="Teleport", allow_unknown=True)(lambda input: None)]},
        {"disallowed_tools": ["mcp__github__push", "mcp__github"], "mcp_servers": GITHUB},
        {"disallowed_tools": ["mcp__any__push"], "setting_sources": ["project"]},
        {"disallowed_tools": ["mcp__any__push"], "mcp_servers": "servers.json"},
        {"disallowed_tools": ["mcp__any__push"], "plugins": ["a-plugin"]},
        {"disallowed_tools": ["mcp__tools__*", "mcp__*", "*", "Task", "KillShell", "MultiEdit"]},
        {"hooks": matching("mcp__github__.*"), "mcp_servers": GITHUB},
        {"hooks": matching("^(?!mcp__)")},
        {"hooks": matching("^(Bash|Write)$")},
        {"hooks": matching("Write|mcp__.*")},
        {"hooks": matching("^mcp__git(hub|lab)__|[Bb]ash|Note(?:book|pad)Edit"), "mcp_servers": GITHUB},
        {"hooks": matching("find_repo.*"), "mcp_servers": GITHUB},
        {"hooks": [hook("PreToolUse", matcher="^Tele|Bash", allow_unknown=True)(lambda input: None)]},
        {"settings": {**running("", "Stop"), **running("*"), "model": "m"}},
    ],
)
def test_a_name_that_a_tool_may_have_is_taken(fields: dict[str, Any]) -> None:
    Session(tools=[Customers().delete_customer], **fields)


@anyio
async def test_an_extra_name_does_not_keep_a_tool_from_being_denied() -> None:
    customers = Customers()
    await used(customers.delete_customer, disallowed_tools=["delete_customer"], extra_tools=["*"])
    assert customers.deleted == []


# Events, and what their matchers may name.


def later(input: object) -> None: ...


@pytest.mark.parametrize(
    "event, matcher, meant",
    [
        ("PreToolUsee", None, "PreToolUse"),
        ("pre_tool_use", None, "PreToolUse"),
        ("TotallyNew", None, None),
        ("SessionStart", "startap", "startup"),
        ("PreCompact", "manual|atuo", "auto"),
        ("Notification", "permision_prompt", "permission_prompt"),
        ("SessionEnd", "^never$", None),
        ("ConfigChange", ["user_setings"], "user_settings"),
    ],
)
def test_a_misspelled_event_or_cause_is_refused_at_once(event: Any, matcher: Any, meant: str | None) -> None:
    with pytest.raises(OptionsError) as refused:
        hook(event, matcher=matcher)
    assert "allow_unknown=True" in refused.value.hint
    if meant is not None:
        assert f"Did you mean {meant!r}?" in refused.value.hint


def test_a_misspelled_event_of_a_plain_function_is_refused_at_once() -> None:
    misspelled: Any = "PreToolUsee"
    with pytest.raises(OptionsError, match="Did you mean 'PreToolUse'"):
        outrider.Options(hooks={misspelled: [later]})
    with pytest.raises(OptionsError, match="Did you mean 'PreToolUse'"):
        outrider.Options(hooks={misspelled: []})
    with pytest.raises(OptionsError, match="Did you mean 'PreToolUse'"):
        outrider.Options().with_hook(misspelled, later)


def test_an_event_of_tomorrow_is_taken_if_that_is_said() -> None:
    tomorrow: Any = "EventOfTomorrow"
    new = hook(tomorrow, matcher="x", allow_unknown=True)(later)
    assert outrider.Options(hooks=[new]).hooks == outrider.Options(hooks={tomorrow: [new]}).hooks
    Session(hooks=[new, hook("PreCompact", matcher="eclipse", allow_unknown=True)(later)])


# The drop-in is as its model: any name is taken, and none stands for another.


def test_the_drop_in_sends_names_as_they_are() -> None:
    @compat.tool("delete_customer", "Delete a customer.", {"id": int})
    async def delete_customer(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": []}

    async def go_on(*_: object) -> Any:
        return {}

    matchers = ["Bsh", "delete_customer", "^delete_", "mcp__tools", "(", "Bash(rm *)"]
    hooks: Any = {
        "PreToolUse": [compat.HookMatcher(matcher=each, hooks=[go_on]) for each in matchers],
        "PreToolUsee": [compat.HookMatcher(matcher="Bsh", hooks=[go_on])],
        "Stop": [compat.HookMatcher(matcher="x", hooks=[go_on])],
    }
    rules = ["delete_customer", "delete_*", "Bsh", "mcp__tools", "mcp__tools__delete_customer(3)"]
    given = compat.ClaudeAgentOptions(
        mcp_servers={"tools": compat.create_sdk_mcp_server("tools", tools=[delete_customer])},
        tools=["Bsh"],
        allowed_tools=rules,
        disallowed_tools=rules,
        agents={
            "w": compat.AgentDefinition(description="d", prompt="p", tools=["delete_customer", "mcp__tools"])
        },
        hooks=hooks,
    )
    session = Session(translated_options(given))._conversation
    assert session.options.allowed_tools == session.options.disallowed_tools == tuple(rules)
    assert session.options.agents["w"].tools == ("delete_customer", "mcp__tools")
    told = session.handlers.complete(make_initialize(session.options)).hooks or {}
    assert [each.matcher for each in told["PreToolUse"]] == matchers
    assert told["PreToolUsee"][0].matcher == "Bsh"
