"""Maps each option to its validator, which accepts the forms it may be given in and returns the one kept.

Looks at one option at a time; `_checks` validates options against each other.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from outrider.command import Runner
from outrider.errors import OptionsError
from outrider.options._checks import is_free_flag, is_one_rule, is_skill_name, is_tool_name
from outrider.options._servers import (
    read_agents,
    read_effort,
    read_permission_mode,
    read_servers,
    read_variables,
)
from outrider.options._tool_names import tool_name
from outrider.options._validators import (
    Validator,
    above_zero,
    any_text,
    checked,
    choice,
    did_you_mean,
    either,
    function,
    invalid_value,
    is_list,
    is_mapping,
    is_path,
    json_object,
    listed,
    mapped,
    optional,
    path_text,
    secret_text,
    switch,
    text,
    thing,
    whole,
    within,
)
from outrider.options._values import (
    AdaptiveThinking,
    CustomPrompt,
    DisabledThinking,
    EnabledThinking,
    EnvPolicy,
    FilePrompt,
    Isolation,
    JsonSchemaFormat,
    LocalPlugin,
    OptionValue,
    PresetPrompt,
    Sandbox,
    Timeouts,
    Trace,
    from_mapping,
    named,
    value_of,
)
from outrider.wire.choices import SETTING_SOURCES

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z]:[\\/]|\\\\")
_STORING: Final = ("append", "load")
_LARGEST_UID: Final = 2**32 - 2
"""One more stands for "no user" in the system's calls."""


NEW_EVENT: Final = "An event that is not known here needs `@outrider.hook(…, allow_unknown=True)`."


# Single options.


def _is_uuid(place: str, value: str) -> None:
    if not _UUID.match(value):
        raise invalid_value(place, "a UUID", value, "Make one with `str(uuid.uuid4())`.")


def _is_absolute(place: str, value: str) -> None:
    if not _ABSOLUTE.match(value):
        raise invalid_value(place, "an absolute path", value, "Give `Path(…).resolve()`.")


def _session_store(place: str, value: object) -> object:
    if is_path(value):
        # A path stays one: as text it might be taken for a URL.
        return path_text(place, value) if isinstance(value, str) else Path(path_text(place, value))
    if isinstance(value, type) or not all(_is_async(getattr(value, name, None)) for name in _STORING):
        wanted = "a session store, with async `append` and `load`, or its URL or path"
        raise invalid_value(
            place, wanted, value, "Derive it from `outrider.transcripts.SessionStore`.", hidden=True
        )
    return value


def _is_async(method: object) -> bool:
    """Whether it can be awaited, as far as that is known without calling it."""
    own = inspect.unwrap(method) if callable(method) else method
    is_plain = inspect.isfunction(own) or inspect.ismethod(own)
    return callable(own) and (not is_plain or inspect.iscoroutinefunction(own))


def _has_no_comma(place: str, value: str) -> None:
    if "," in value:
        raise invalid_value(place, "one name, without a comma", value, "Give each name as its own entry.")


def _tools(place: str, value: object) -> object:
    if is_mapping(value):
        if value.get("type") != "preset" or value.get("preset", "claude_code") != "claude_code":
            raise invalid_value(place, "a list, or the preset 'claude_code'", value)
        return "default"
    if isinstance(value, str) and value == "default":
        return value
    own = thing("the name of a tool, or a tool of your own")
    return listed(either(str, checked(is_tool_name), own))(place, value)


def _rule(place: str, value: object) -> object:
    return checked(is_one_rule)(place, tool_name(place, value))


def _fallback_models(place: str, value: object) -> object:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    return listed(checked(_has_no_comma))(place, names) or None


def _task_budget(place: str, value: object) -> object:
    if is_mapping(value):
        if set(value) != {"total"}:
            raise invalid_value(place, 'a whole number, or {"total": number}', value)
        value = value["total"]
    return whole(1)(place, value)


def _env_policy(place: str, value: object) -> object:
    if isinstance(value, EnvPolicy):
        return value
    if isinstance(value, str):
        if value != "inherit":
            raise invalid_value(place, '"inherit" or a list of names', value, f"Did you mean [{value!r}]?")
        return EnvPolicy.INHERIT
    names = cast("tuple[str, ...]", listed(text)(place, value))
    return named(place, lambda: EnvPolicy.only(*names))


def _isolation(place: str, value: object) -> object:
    if isinstance(value, Isolation):
        return value
    kinds = {"inherit": Isolation.INHERIT, "hermetic": Isolation.HERMETIC}
    return kinds[cast(str, choice(*kinds)(place, value))]


def _skills(place: str, value: object) -> object:
    if isinstance(value, str) and value == "all":
        return value
    return listed(checked(is_skill_name), example='Give a list of names, or "all".')(place, value)


def _hooks(place: str, value: object) -> object:
    if is_list(value):
        return _by_event(place, value)
    if not is_mapping(value):
        hint = f"Did you mean [{getattr(value, '__name__', '…')}]?" if callable(value) else ""
        raise invalid_value(
            place, "a list of hooks, or a mapping of events to such lists", value, hint, hidden=True
        )
    found = mapped(text, listed(thing("a hook or a function")))(place, value)
    for event, hooks in cast("Mapping[str, Sequence[object]]", found).items():
        if not hooks or not all(getattr(hook, "allow_unknown", False) for hook in hooks):
            _check_event(f"a key of {place}", event)
    return found


def _by_event(place: str, hooks: Sequence[object]) -> object:
    found: dict[str, tuple[object, ...]] = {}
    for number, hook in enumerate(hooks):
        event: object = getattr(hook, "event", None)
        if not isinstance(event, str) or isinstance(hook, type):
            hint = 'Write @outrider.hook("PreToolUse") above a function, or say {"PreToolUse": [function]}.'
            raise invalid_value(within(place, number), "a hook that knows its event", hook, hint, hidden=True)
        found[event] = (*found.get(event, ()), hook)
    return found


def _check_event(place: str, event: str) -> None:
    from outrider.wire.hooks import HOOK_EVENTS

    if event not in HOOK_EVENTS:
        hint = f"{did_you_mean(event, HOOK_EVENTS)} {NEW_EVENT}".lstrip()
        raise invalid_value(place, "the name of an event", event, hint)


def _runner(place: str, value: object) -> object:
    if isinstance(value, type) or not isinstance(value, Runner) or not callable(value.wrap):
        raise invalid_value(place, "a runner: something with `wrap` and `is_local`", value, hidden=True)
    return value


def _mcp_servers(place: str, value: object) -> object:
    return path_text(place, value) if is_path(value) else read_servers(place, value)


def _settings(place: str, value: object) -> object:
    return json_object(place, value) if is_mapping(value) else path_text(place, value)


def _buffer_size(place: str, value: object) -> object:
    return whole(0)(place, value) or None


# Options that are parts.


def _tagged(*kinds: type[OptionValue]) -> Validator:
    """One of several parts, or a mapping whose `type` tells which."""
    by_tag = {cast(str, kind.__struct_config__.tag): kind for kind in kinds}
    names = ", ".join(kind.__name__ for kind in kinds)

    def read(place: str, value: object) -> object:
        if isinstance(value, kinds):
            return value.copied()
        if not is_mapping(value):
            raise invalid_value(place, f"a {names} or a mapping", value)
        tag = cast(str, choice(*by_tag)(f"the type of {place}", value.get("type")))
        return from_mapping(by_tag[tag], place, value)

    return read


_any_prompt: Final = _tagged(PresetPrompt, CustomPrompt, FilePrompt)
_any_thinking: Final = _tagged(AdaptiveThinking, EnabledThinking, DisabledThinking)
_any_plugin: Final = _tagged(LocalPlugin)
_any_format: Final = _tagged(JsonSchemaFormat)
_any_trace: Final = value_of(Trace)


def _system_prompt(place: str, value: object) -> object:
    if isinstance(value, str):
        return CustomPrompt(any_text(place, value))
    if is_list(value):
        return CustomPrompt(cast("tuple[str, ...]", listed(any_text)(place, value)))
    return _any_prompt(place, value)


def _thinking(place: str, value: object) -> object:
    return _any_thinking(place, {"type": value} if isinstance(value, str) else value)


def _plugin(place: str, value: object) -> object:
    return LocalPlugin(path_text(place, value)) if is_path(value) else _any_plugin(place, value)


def _trace(place: str, value: object) -> object:
    return named(place, lambda: Trace(cast(str, value))) if is_path(value) else _any_trace(place, value)


def _output_format(place: str, value: object) -> object:
    if is_mapping(value) and (given := value.get("type")) != "json_schema":
        raise OptionsError(
            f"{place} must have the type 'json_schema', not {given!r}",
            hint='Put a schema into it like this: {"type": "json_schema", "schema": {…}}.',
        )
    return _any_format(place, value)


# The table.

VALIDATORS: Final[Mapping[str, Validator]] = {
    # The program.
    **dict.fromkeys(("cli_path", "bundled_path", "executable"), optional(path_text)),
    "executable_args": listed(secret_text),
    "extra_args": mapped(checked(is_free_flag, of=any_text), optional(secret_text)),
    "runner": optional(_runner),
    "transport": optional(thing("a transport")),
    # Where it runs.
    "cwd": optional(path_text),
    "add_dirs": listed(path_text),
    "project_config_root": optional(checked(_is_absolute, of=path_text)),
    "env": read_variables,
    "env_policy": _env_policy,
    "isolation": _isolation,
    "user": optional(either(str, text, whole(0, _LARGEST_UID))),
    "timeouts": value_of(Timeouts),
    "give_up_on": listed(whole(100, 599)),
    # The model.
    "model": optional(text),
    "fallback_model": optional(_fallback_models),
    "betas": listed(checked(_has_no_comma)),
    "thinking": optional(_thinking),
    "max_thinking_tokens": optional(whole(0)),
    "effort": optional(read_effort),
    "max_turns": optional(whole(1)),
    "max_budget_usd": optional(above_zero),
    "task_budget": optional(_task_budget),
    "output_format": optional(_output_format),
    # What it is told.
    "system_prompt": optional(_system_prompt),
    "append_system_prompt": optional(any_text),
    "append_subagent_system_prompt": optional(any_text),
    "plan_mode_instructions": optional(any_text),
    "verbatim_prompts": switch,
    # What it may use.
    "tools": optional(_tools),
    "allowed_tools": listed(_rule),
    "disallowed_tools": listed(_rule),
    "extra_tools": listed(checked(is_tool_name)),
    "tool_aliases": mapped(checked(is_tool_name), lambda place, value: text(place, tool_name(place, value))),
    "question_preview_format": optional(choice("markdown", "html")),
    "skills": optional(_skills),
    "agents": read_agents,
    "agent": optional(text),
    "plugins": listed(_plugin),
    "plugin_delivery": choice("argv", "initialize"),
    "mcp_servers": _mcp_servers,
    "strict_mcp_config": switch,
    # What it must ask for.
    "permission_mode": optional(read_permission_mode),
    **dict.fromkeys(("permission", "on_question", "on_plan"), optional(function)),
    "permission_prompt_tool_name": optional(lambda place, value: text(place, tool_name(place, value))),
    "permission_prompts": optional(choice("host", "none")),
    "allow_dangerously_skip_permissions": switch,
    "hooks": _hooks,
    "on_elicitation": optional(function),
    "on_user_dialog": optional(function),
    "supported_dialog_kinds": listed(text),
    "sandbox": optional(value_of(Sandbox)),
    # Settings.
    "setting_sources": optional(listed(choice(*SETTING_SOURCES))),
    "settings": optional(_settings),
    "managed_settings": optional(json_object),
    "strict_settings_merge": switch,
    # Sessions.
    "continue_conversation": switch,
    "resume": optional(text),
    "fork_session": switch,
    "resume_session_at": optional(text),
    "resume_drops_turn": optional(text),
    "session_id": optional(checked(_is_uuid)),
    "title": optional(text),
    "persist_session": switch,
    "enable_file_checkpointing": switch,
    "session_store": optional(_session_store),
    "session_store_flush": choice("batched", "eager"),
    # What comes back.
    "include_partial_messages": switch,
    "include_hook_events": switch,
    "replay_user_messages": switch,
    "forward_subagent_text": switch,
    "forward_nested_subagent_tool_calls": switch,
    "prompt_suggestions": switch,
    "agent_progress_summaries": switch,
    "per_task_stop_affordance": switch,
    "max_buffer_size": optional(_buffer_size),
    "stderr": optional(function),
    "debug": either(str, text, switch),
    "debug_file": optional(path_text),
    "client_app": optional(any_text),
    "trace": optional(_trace),
}
"""How each option is read; every option is here."""
