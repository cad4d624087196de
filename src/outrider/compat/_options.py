"""Translates `ClaudeAgentOptions` into `Options` with the same effect, `extra_args` and skills included.

Leaves to Claude Code what the reference leaves to it, and drops what the reference silently drops. Invalid
values are passed on, and rejected by name where options are made.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, cast

import msgspec

from outrider.compat._callbacks import decide_with, hooks_of
from outrider.compat._transport import native
from outrider.compat._types.options import AgentDefinition, CanUseToolShadowedWarning, ClaudeAgentOptions
from outrider.errors import SessionNotFound
from outrider.launch import make_environment
from outrider.options import Options, Timeouts
from outrider.options._checks import level_of_caller, split_rules
from outrider.options._table import OPTIONS, flag_owners
from outrider.transports import is_intercepted

if TYPE_CHECKING:
    from outrider import transports
    from outrider.compat._transport import Transport
    from outrider.options import OptionFields


def _is_mapping(given: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(given, Mapping)


# Flags in `extra_args`.

Fields: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[Fields, str], Fields]
"""Takes the fields and the value of a flag, and returns the fields that it changes."""


def with_flags(fields: Fields, flags: object) -> Fields:
    """Move flags that Outrider has options for from `extra_args` to those options."""
    if not _is_mapping(flags):
        return {**fields, "extra_args": flags}
    changed, rest, owners = {**fields}, Fields(), flag_owners()
    for flag, value in flags.items():
        option = str(flag).replace("-", "_")
        if flag in _FLAGS:
            changed |= _FLAGS[flag](changed, "" if value is None else value)
        elif owners.get(flag) == option:
            changed[option] = True if isinstance(OPTIONS[option].default, bool) else value
        elif flag not in ("await-initialize", "verbose", "print"):
            # Set already, where they have an effect.
            rest[flag] = value
    return {**changed, "extra_args": rest}


def _number(option: str, kind: type[int | float]) -> Change:
    def change(_: Fields, value: str) -> Fields:
        try:
            return {option: kind(value)}
        except ValueError:
            # Rejected by name where options are made.
            return {option: value}

    return change


def _more(option: str, parts: Callable[[str], list[Any]] = lambda value: [value]) -> Change:
    """Add to the list that the option has."""

    def change(fields: Fields, value: str) -> Fields:
        before = fields.get(option)
        return {option: [*(before if isinstance(before, list | tuple) else ()), *parts(value)]}

    return change


def _json(option: str) -> Change:
    def change(fields: Fields, value: str) -> Fields:
        found, before = _decoded(value), fields.get(option)
        return {option: {**found, **before} if _is_mapping(found) and _is_mapping(before) else found}

    return change


def _unless(option: str, change: Change) -> Change:
    """Change it only if the option is unset: the reference lets the option win."""
    return lambda fields, value: change(fields, value) if fields.get(option) is None else {}


def _of_prompt(name: str, kinds: tuple[str, ...], read: Callable[[str], object]) -> Change:
    def change(fields: Fields, value: str) -> Fields:
        prompt = fields.get("system_prompt")
        parts = {"type": "custom", "prompt": prompt} if isinstance(prompt, str) else prompt
        if not _is_mapping(parts) or parts.get("type") not in kinds:
            return {}
        return {"system_prompt": {**parts, name: read(value)}}

    return change


def _thinking_display(fields: Fields, value: str) -> Fields:
    given = fields.get("thinking")
    if given is not None and not _is_mapping(given):
        return {}
    return {"thinking": {"type": "adaptive", "display": value, **(given or {})}}


def _mcp_config(fields: Fields, config: str) -> Fields:
    before = fields.get("mcp_servers")
    if not before or not _is_mapping(before):
        return {"mcp_servers": config}
    try:
        if not config.lstrip().startswith("{"):
            config = Path(fields.get("cwd") or "", config).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"extra_args['mcp-config'] names a file that cannot be read: {error}") from error
    found = _decoded(config)
    more = found.get("mcpServers") if _is_mapping(found) else None
    if not _is_mapping(more):
        raise ValueError("extra_args['mcp-config'] must have `mcpServers`, a mapping of names to servers")
    return {"mcp_servers": {**before, **more}}


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except ValueError:
        return text


_FLAGS: Final[dict[str, Change]] = {
    "add-dir": _more("add_dirs"),
    "agents": _json("agents"),
    "allowedTools": _more("allowed_tools", split_rules),
    "allowed-tools": _more("allowed_tools", split_rules),
    "betas": _more("betas", split_rules),
    "continue": lambda _, __: {"continue_conversation": True},
    "dangerously-skip-permissions": lambda _, __: {"permission_mode": "bypassPermissions"},
    "debug": lambda _, value: {"debug": value or True},
    "disallowedTools": _more("disallowed_tools", split_rules),
    "disallowed-tools": _more("disallowed_tools", split_rules),
    "effort": _unless("effort", lambda _, value: {"effort": value}),
    "exclude-dynamic-system-prompt-sections": _of_prompt(
        "exclude_dynamic_sections", ("preset",), lambda _: True
    ),
    "json-schema": _unless(
        "output_format",
        lambda _, value: {"output_format": {"type": "json_schema", "schema": _decoded(value)}},
    ),
    "managed-settings": _json("managed_settings"),
    "max-budget-usd": _number("max_budget_usd", float),
    "max-thinking-tokens": _unless("max_thinking_tokens", _number("max_thinking_tokens", int)),
    "max-turns": _number("max_turns", int),
    "mcp-config": _mcp_config,
    "name": lambda _, value: {"title": value},
    "no-session-persistence": lambda _, __: {"persist_session": False},
    "permission-prompt-tool": lambda _, value: {"permission_prompt_tool_name": value},
    "plugin-dir": _more("plugins"),
    "setting-sources": lambda _, value: {"setting_sources": value.replace(",", " ").split()},
    "system-prompt-file": lambda _, value: {"system_prompt": {"type": "file", "path": value}},
    "system-prompt-snapshot": _of_prompt("snapshot", ("preset", "custom"), lambda value: value == "on"),
    "task-budget": _number("task_budget", int),
    "thinking": _unless("thinking", lambda _, value: {"thinking": {"type": value}}),
    "thinking-display": _thinking_display,
    "tools": _more("tools", split_rules),
}
"""Flags that are more than a text or a switch for the option of the same name."""


# Single values.

_OF_PROMPT: Final = {
    "preset": ("type", "exclude_dynamic_sections", "snapshot"),
    "custom": ("type", "prompt", "snapshot"),
    "file": ("type", "path"),
}
_OF_THINKING: Final = {
    "adaptive": ("type", "display"),
    "enabled": ("type", "budget_tokens", "display"),
    "disabled": ("type",),
}
_SWITCHES: Final = ("exclude_dynamic_sections", "snapshot")


def _rules(given: object) -> object:
    """Permission rules. Claude Code splits each at commas and spaces."""
    texts = _texts(given)
    return given if texts is None else split_rules(",".join(texts))


def _tools(given: object) -> object:
    """Tool names; any mapping is the preset."""
    if _is_mapping(given):
        return "default"
    texts = _texts(given)
    return given if texts is None else [name for text in texts for name in text.replace(",", " ").split()]


def _fallback_models(given: object, model: object) -> object:
    """The fallback models, without the model itself."""
    if not isinstance(given, str):
        return given
    names = dict.fromkeys(name.strip() for name in given.split(","))
    return [name for name in names if name and name != model] or None


def _prompt(given: object) -> object:
    """The system prompt, without what is appended."""
    if given is None:
        return ""
    if not _is_mapping(given):
        return given
    known = _known(given, _OF_PROMPT)
    return {name: item for name, item in known.items() if name not in _SWITCHES or isinstance(item, bool)}


def _appended_prompt(given: object) -> object:
    """What is appended to the preset system prompt."""
    return _of(given, "append") or None if _of(given, "type") == "preset" else None


def _thinking(given: object) -> object:
    """The thinking configuration; None for a budget of 0, which `_thinking_tokens` handles."""
    if not _is_mapping(given) or _thinking_tokens(given, None) == 0:
        return None if _is_mapping(given) else given
    return _known(given, _OF_THINKING)


def _thinking_tokens(given: object, otherwise: object) -> object:
    """The limit of thinking tokens."""
    is_nothing = _of(given, "type") == "enabled" and _of(given, "budget_tokens") == 0
    return 0 if is_nothing else otherwise


def _servers(given: object) -> object:
    """MCP servers; in-process ones as their instances."""
    if not _is_mapping(given):
        return given or {}
    return {name: _of(server, "instance") if _is_own(server) else server for name, server in given.items()}


def _is_own(server: object) -> bool:
    return _of(server, "type") == "sdk" and _of(server, "instance") is not None


def _agents(given: object) -> object:
    """Subagents, without unset fields."""
    if not _is_mapping(given):
        return given or {}
    return {name: _agent(agent) for name, agent in given.items()}


def _agent(given: object) -> object:
    fields = dataclasses.asdict(given) if isinstance(given, AgentDefinition) else given
    if not _is_mapping(fields):
        return fields
    return {name: value for name, value in fields.items() if value is not None}


def _plugins(given: object) -> object:
    """Plugins. Raises `ValueError` for one that is not local."""
    if not isinstance(given, list | tuple):
        return given
    every = cast("list[object]", given)
    for plugin in every:
        if _is_mapping(plugin) and plugin.get("type") != "local":
            raise ValueError(f"Unsupported plugin type: {plugin.get('type')}")
    return every


def _output_format(given: object) -> object:
    """The output schema; other formats are ignored."""
    if not _is_mapping(given):
        return given
    schema = _of(given, "schema") if _of(given, "type") == "json_schema" else None
    return None if schema is None else {"type": "json_schema", "schema": schema}


def _sandbox(given: object) -> object:
    """The sandbox. The reference runs commands without one if it is unavailable."""
    if not _is_mapping(given) or not _of(given, "enabled"):
        return given
    return {"failIfUnavailable": False, **given}


def _variables(options: ClaudeAgentOptions) -> object:
    """Environment variables, without those that options override in the reference."""
    given: object = options.env
    if not _is_mapping(given):
        return given
    beaten = {
        "CLAUDE_AGENT_SDK_VERSION": True,
        "CLAUDE_AGENT_SDK_DERIVED_CLIENT_APP": True,
        "CLAUDE_AGENT_SDK_CLIENT_APP": options.client_app is not None,
        "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": options.enable_file_checkpointing,
        "PWD": options.cwd is not None,
    }
    return {name: value for name, value in given.items() if not beaten.get(name)}


def _texts(given: object) -> list[str] | None:
    if not isinstance(given, list | tuple):
        return None
    items = cast("list[object]", given)
    return None if any(not isinstance(item, str) for item in items) else cast("list[str]", items)


def _of(given: object, name: str) -> object:
    return given.get(name) if _is_mapping(given) else None


def _known(given: Mapping[Any, Any], names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Drop the keys that a mapping of this type does not have."""
    known = names.get(str(given.get("type")))
    return {name: item for name, item in given.items() if known is None or name in known}


_CONTROL: Final = "[\x00-\x1f\x7f-\x9f\ufeff(),]"
_SURROGATE: Final = "[\ud800-\udfff]"


def checked_skills(skills: object) -> object:
    """Validate skills. Raises `TypeError` or `ValueError`."""
    if skills is None or (isinstance(skills, str) and skills == "all"):
        return skills
    if not isinstance(skills, list):
        meant = f" Did you mean [{skills!r}]?" if isinstance(skills, str) else ""
        raise TypeError(f'skills must be a list of skill names or "all", got {skills!r}.{meant}')
    names = cast("list[object]", skills)
    for name in names:
        _check(name)
    return names


def _check(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"Skill names must be strings, got {type(name).__name__}: {name!r}")
    if not name.strip():
        raise ValueError(f"Skill names must be non-empty, got {name!r}")
    problems = {
        "it holds a lone surrogate, which cannot be sent.": re.search(_SURROGATE, name),
        "leading or trailing whitespace never matches.": name != name.strip(),
        "parentheses, commas and control characters would be read as others.": re.search(_CONTROL, name),
        'use skills="all" for every skill.': name == "*",
        "wildcard-suffix names are not taken; name each skill.": name.endswith((":*", " *")),
        "a name may not start with '/'; give it without.": name.startswith("/"),
        "consecutive backslashes would be read as one.": "\\\\" in name,
        "an unpaired backslash at the end would be read with what follows.": name.endswith("\\"),
    }
    for problem, is_there in problems.items():
        if is_there:
            raise ValueError(f"Invalid skill name {name!r}: {problem}")


# Options.

_SAME: Final = (
    *("strict_mcp_config", "permission_mode", "max_budget_usd", "cli_path", "max_buffer_size"),
    *("user", "include_partial_messages", "include_hook_events", "forward_subagent_text"),
    *("verbatim_prompts", "continue_conversation", "fork_session", "resume_drops_turn"),
    *("setting_sources", "effort", "enable_file_checkpointing", "session_store"),
    *("session_store_flush", "task_budget", "client_app"),
)
"""Options with the same name and meaning."""

_DROPPED_IF_EMPTY: Final = (
    *("model", "fallback_model", "max_turns", "resume", "session_id", "resume_session_at"),
    *("permission_prompt_tool_name", "settings", "cwd"),
)
"""Options that the reference ignores if they are empty."""


def translated_options(
    given: ClaudeAgentOptions | None, transport: Transport | transports.Transport | None = None
) -> Options:
    """Translate options. Raises `ValueError` and `TypeError` as the reference does."""
    options = ClaudeAgentOptions() if given is None else given
    if options.can_use_tool is not None and options.permission_prompt_tool_name:
        raise ValueError(
            "can_use_tool callback cannot be used with permission_prompt_tool_name: one of them decides."
        )
    fields = _settled(with_flags(_fields(options), options.extra_args), transport)
    # Nothing has to be validated where nothing is set.
    given_fields = {name: value for name, value in fields.items() if value is not OPTIONS[name].default}
    made = Options(**cast("OptionFields", given_fields))
    if made.continue_conversation and not _can_continue(made):
        # Claude Code then starts a new session.
        made = made.replace(continue_conversation=False, fork_session=False)
    _warn_of_what_is_not_asked(options)
    return made


def _fields(options: ClaudeAgentOptions) -> Fields:
    fields: Fields = {name: getattr(options, name) for name in _SAME}
    fields |= {name: getattr(options, name) or None for name in _DROPPED_IF_EMPTY}
    fields |= {
        "betas": options.betas or (),
        "add_dirs": options.add_dirs or (),
        "tools": _tools(options.tools),
        "allowed_tools": _rules(options.allowed_tools or ()),
        "disallowed_tools": _rules(options.disallowed_tools or ()),
        # The reference sends any name.
        "extra_tools": ("*",),
        "skills": checked_skills(options.skills),
        "system_prompt": _prompt(options.system_prompt),
        "append_system_prompt": _appended_prompt(options.system_prompt),
        "thinking": _thinking(options.thinking),
        "max_thinking_tokens": _thinking_tokens(options.thinking, options.max_thinking_tokens),
        "mcp_servers": _servers(options.mcp_servers),
        "agents": _agents(options.agents),
        "plugins": _plugins(options.plugins or ()),
        "output_format": _output_format(options.output_format),
        "sandbox": _sandbox(options.sandbox),
        # Without a sandbox, settings are passed on unread.
        "strict_settings_merge": options.sandbox is not None,
        "env": _variables(options),
        "stderr": _to_stderr if options.stderr is None else options.stderr,
        "hooks": hooks_of(options.hooks),
        "permission": decide_with(options.can_use_tool),
        "timeouts": _timeouts(options),
        "give_up_on": (),
    }
    if options.skills is not None and options.setting_sources is None:
        # Otherwise skills of the user and the project would not be found.
        fields["setting_sources"] = ("user", "project")
    return fields


def _settled(fields: Fields, transport: Transport | transports.Transport | None) -> Fields:
    """Resolve fields that depend on each other, and combinations that Outrider rejects."""
    settled = {**fields}
    if transport is not None:
        settled["transport"] = native(transport)
        if fields["session_store"] is not None:
            # No process would read the restored session.
            settled |= {"resume": None, "continue_conversation": False}
    if settled["resume"]:
        # `resume` is more specific.
        settled["continue_conversation"] = False
    elif settled["continue_conversation"] is False:
        # There is nothing to fork.
        settled["fork_session"] = False
    settled["fallback_model"] = _fallback_models(fields["fallback_model"], fields["model"])
    return settled


def _can_continue(options: Options) -> bool:
    """Whether there is a session to continue, as far as can be known here."""
    elsewhere = (options.session_store, options.user, options.transport)
    if any(place is not None for place in elsewhere) or is_intercepted():
        return True
    # Here: few programs continue a session, and the others start sooner.
    from outrider.transcripts import check_can_continue, config_folder

    try:
        check_can_continue(config_folder(make_environment(options)), options.cwd or Path.cwd())
    except SessionNotFound:
        return False
    except OSError:
        # The folder is not there, which is said when something is started in it.
        return True
    return True


def _timeouts(options: ClaudeAgentOptions) -> Timeouts:
    """Turns may take as long as they like, as long as there is a sign of life."""
    limit = cast("object", options.load_timeout_ms)
    if options.session_store is None:
        return Timeouts(turn=None, background=None, retries=None)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit <= 0:
        raise ValueError(f"load_timeout_ms must be a number over 0, not {limit!r}")
    return Timeouts(turn=None, background=None, retries=None, store=limit / 1000)


def _to_stderr(line: str) -> None:
    # As if the program had inherited it. A process without a terminal may have none.
    if sys.stderr is not None:
        sys.stderr.write(f"{line}\n")


def _warn_of_what_is_not_asked(options: ClaudeAgentOptions) -> None:
    if options.can_use_tool is None:
        return
    if options.permission_mode == "bypassPermissions":
        why = "the permission_mode 'bypassPermissions' allows every call that no rule denies"
        _warn(f"can_use_tool will not be invoked: {why}. A PreToolUse hook is asked about each.")
        return
    rules = [*(options.allowed_tools or ()), *(("Skill",) if options.skills == "all" else ())]
    whole = dict.fromkeys(
        name
        for name, bracket, inside in (rule.partition("(") for rule in rules)
        if not bracket or inside in (")", "*)")
    )
    if whole:
        why = "allowed_tools allows them whatever they are used for"
        hint = "Leave them out, narrow the rules, or use a PreToolUse hook"
        _warn(f"can_use_tool will not be invoked for: {', '.join(whole)}. That is because {why}. {hint}.")


def _warn(text: str) -> None:
    warnings.warn(text, CanUseToolShadowedWarning, stacklevel=level_of_caller())
