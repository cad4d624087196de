"""Resolves the tool names of a session, in options, policies, settings and permission updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import msgspec

from outrider.errors import OptionsError
from outrider.options import AgentDefinition, SdkServer
from outrider.options._tool_names import ToolNames, all_uses_of, full_name, is_pattern, known_tools
from outrider.options._validators import did_you_mean, is_list, is_mapping, within

if TYPE_CHECKING:
    from outrider.options import Options
    from outrider.wire import JsonObject
    from outrider.wire.permissions import PermissionUpdate

_RULES = ("allow", "ask", "deny")


def names_of(options: Options, servers: Mapping[str, SdkServer]) -> ToolNames:
    """The tools of a session with these options and these servers of this process."""
    named = () if isinstance(options.mcp_servers, str) else tuple(options.mcp_servers)
    known = dict.fromkeys((*named, *servers), False)
    own: dict[str, tuple[str, ...]] = {}
    for name, given in servers.items():
        # Here, because most sessions have none.
        from outrider.handlers._tools.server import ToolServer

        if isinstance(given.instance, ToolServer):
            known[name] = True
            for tool in given.instance.entries:
                own[full_name(name, tool)] = (tool,) if given.instance.has_short_names else ()
    return ToolNames(
        own=own,
        servers=known,
        has_other_servers=_has_other_servers(options),
        aliases=options.tool_aliases,
        extra=options.extra_tools,
    )


def _has_other_servers(options: Options) -> bool:
    """Whether the agent may get MCP servers that the options do not name."""
    if isinstance(options.mcp_servers, str) or options.extra_args:
        return True
    if any(agent.mcp_servers for agent in options.agents.values()):
        return True
    if any(not plugin.skip_mcp_discovery for plugin in options.plugins):
        return True
    if options.strict_mcp_config or options.isolation.is_hermetic:
        return False
    brings_plugins = isinstance(options.settings, str) or "enabledPlugins" in (options.settings or {})
    return options.setting_sources != () or brings_plugins


def resolved_options(options: Options, names: Callable[[], ToolNames]) -> dict[str, object]:
    """The options that name tools, with full names; only those that change. Raises `OptionsError` for a name
    that no tool of the session has."""
    given = {name: value for name in _RESOLVERS if (value := getattr(options, name))}
    # Most sessions name none, and need no names.
    if not given or (known := names()).takes_any:
        return {}
    found = {name: _RESOLVERS[name](f"`{name}`", value, known) for name, value in given.items()}
    return {name: value for name, value in found.items() if value != given[name]}


def _offered(place: str, tools: object, names: ToolNames) -> object:
    """Check `tools`, which selects built-in tools only."""
    of_agent = msgspec.structs.replace(names, own={}, servers={}, has_other_servers=False, aliases={})
    for number, tool in enumerate(tools if is_list(tools) else ()):
        if isinstance(tool, str) and tool != "default":
            of_agent.resolve(within(place, number), tool, permits=True)
    return tools


def _agents(place: str, agents: Mapping[str, AgentDefinition], names: ToolNames) -> object:
    return {name: _agent(within(place, name), agent, names) for name, agent in agents.items()}


def _aliases(place: str, aliases: Mapping[str, str], names: ToolNames) -> object:
    return {alias: one_tool(within(place, alias), tool, names) for alias, tool in aliases.items()}


def _prompt_tool(place: str, tool: str, names: ToolNames) -> str:
    return tool if tool == "stdio" else one_tool(place, tool, names)


def _settings(place: str, given: object, names: ToolNames) -> object:
    settings = _decoded(given)
    if not is_mapping(settings):
        return given
    resolved = resolved_settings(place, cast("JsonObject", settings), names)
    # As written, if nothing changes.
    return given if resolved == settings else resolved


def _rules(place: str, rules: Sequence[str], names: ToolNames, *, permits: bool) -> tuple[str, ...]:
    found = [
        each
        for number, rule in enumerate(rules)
        for each in names.resolve_rule(within(place, number), rule, permits=permits)
    ]
    return tuple(dict.fromkeys(found))


def _agent(place: str, agent: AgentDefinition, names: ToolNames) -> AgentDefinition:
    changes: dict[str, object] = {}
    if agent.tools is not None:
        changes["tools"] = _tools_of_agent(f"{place} (tools)", agent.tools, names, permits=True)
    if agent.disallowed_tools is not None:
        where = f"{place} (disallowed_tools)"
        changes["disallowed_tools"] = _tools_of_agent(where, agent.disallowed_tools, names, permits=False)
    return msgspec.structs.replace(agent, **changes) if changes else agent


def _tools_of_agent(place: str, tools: Sequence[object], names: ToolNames, *, permits: bool) -> list[str]:
    """The tools of a subagent. The agent accepts names there, and all tools of a server, but ignores other
    patterns, and rules for some or all uses of a disallowed tool."""
    found: list[str] = []
    for rule in cast("Sequence[str]", tools):
        for resolved in names.resolve_rule(place, rule, permits=permits):
            tool = all_uses_of(resolved)
            if not permits and "(" in tool:
                raise OptionsError(
                    f"{place}: a subagent has a tool or has it not, and the agent would pass over {rule!r}",
                    hint="Name the tool alone, or decide by the use in a hook or a `Policy`.",
                )
            if names.is_server(tool):
                found.append(f"{tool}__*")
            elif (
                not is_pattern(tool) or (tool == "*" and permits) or names.is_server(tool.removesuffix("__*"))
            ):
                found.append(tool)
            else:
                found += _fitting(place, tool, names)
    return list(dict.fromkeys(found))


def _fitting(place: str, pattern: str, names: ToolNames) -> list[str]:
    from fnmatch import fnmatchcase

    if names.may_be_unknown(pattern.partition("*")[0]):
        raise OptionsError(
            f"{place}: the agent takes no patterns there but for all tools of a server: {pattern!r}",
            hint="Name the tools.",
        )
    return [each for each in (*sorted(known_tools()), *names.own) if fnmatchcase(each, pattern)]


def one_tool(place: str, name: str, names: ToolNames) -> str:
    """The full name of the one tool that a name stands for. Raises `OptionsError` if it is not one."""
    tool, *others = names.resolve(place, name, permits=True)
    if others or is_pattern(tool) or names.is_server(tool):
        raise OptionsError(f"{place} must be the name of one tool, not {name!r}", hint="Give its full name.")
    return tool


def _decoded(settings: object) -> object:
    """The settings in a text that is JSON, and not the name of a file."""
    if not isinstance(settings, str) or not settings.lstrip().startswith("{"):
        return settings
    try:
        return msgspec.json.decode(settings)
    except (ValueError, RecursionError):
        # Rejected where it is used.
        return settings


def resolved_settings(place: str, settings: JsonObject, names: ToolNames) -> JsonObject:
    """Settings with the full names of tools in their permission rules and in the matchers of their hooks.
    Raises `OptionsError`."""
    if names.takes_any:
        return settings
    permissions: object = settings.get("permissions")
    hooks: object = settings.get("hooks")
    found = {**settings}
    if is_mapping(permissions):
        found["permissions"] = _resolved_permissions(place, permissions, names)
    if is_mapping(hooks):
        found["hooks"] = {
            event: _resolved_hooks(within(within(place, "hooks"), event), event, given, names)
            for event, given in hooks.items()
        }
    return found


def _resolved_hooks(place: str, event: object, given: object, names: ToolNames) -> object:
    # Here, because most settings have none.
    from outrider.handlers._hooks.events import EVENTS
    from outrider.handlers._hooks.hook import read_matcher, resolve_matcher

    if not isinstance(event, str) or event not in EVENTS:
        hint = "One that is not known here can be in a settings file, which only the agent reads."
        meant = did_you_mean(event, tuple(EVENTS))
        raise OptionsError(f"{place}: no event is called {event!r}", hint=f"{meant} {hint}".lstrip())
    if not EVENTS[event].tool or not is_list(given):
        return given
    found: list[object] = []
    for each in given:
        if is_mapping(each) and isinstance(each.get("matcher"), str):
            matcher = read_matcher(each["matcher"], event)
            found.append(
                each if matcher is None else {**each, "matcher": resolve_matcher(place, matcher, names)}
            )
        else:
            found.append(each)
    return found


def _resolved_permissions(place: str, permissions: Mapping[object, object], names: ToolNames) -> JsonObject:
    rules = {
        kind: [
            each
            for rule in given
            for each in (
                names.resolve_rule(within(within(place, "permissions"), kind), rule, permits=kind == "allow")
                if isinstance(rule, str)
                else (rule,)
            )
        ]
        for kind, given in permissions.items()
        if kind in _RULES and is_list(given)
    }
    return cast("JsonObject", {**permissions, **rules})


def resolved_updates(
    updates: Sequence[JsonObject], suggested: Sequence[PermissionUpdate], names: ToolNames
) -> list[JsonObject]:
    """Changes to permission rules with the full names of tools; those that the agent suggested stay as they
    are. Raises `OptionsError` for a name that no tool of the session has."""
    known = [each.to_dict() for each in suggested]
    return [each if each in known else _resolved_update(each, names) for each in updates]


def _resolved_update(update: JsonObject, names: ToolNames) -> JsonObject:
    rules: object = update.get("rules")
    if not is_list(rules) or names.takes_any:
        return update
    found: list[object] = []
    for rule in rules:
        name: object = rule.get("toolName") if is_mapping(rule) else None
        if not is_mapping(rule) or not isinstance(name, str):
            found.append(rule)
            continue
        content = rule.get("ruleContent")
        text = name if content is None else f"{name}({content})"
        tools = names.resolve_rule("a permission update", text, permits=update.get("behavior") == "allow")
        found += [rule if tool == text else {"toolName": tool} for tool in tools]
    return {**update, "rules": found}


def check_names(decider: object, names: ToolNames) -> None:
    """Let a policy, or the guard of one, check its names of tools. Raises `OptionsError`."""
    check: object = getattr(decider, "check_names", None)
    if callable(check):
        check(names)


_RESOLVERS: Final[Mapping[str, Callable[..., object]]] = {
    "tools": _offered,
    "allowed_tools": partial(_rules, permits=True),
    "disallowed_tools": partial(_rules, permits=False),
    "agents": _agents,
    "tool_aliases": _aliases,
    "permission_prompt_tool_name": _prompt_tool,
    "settings": _settings,
    "managed_settings": _settings,
}
"""The options that name tools."""
