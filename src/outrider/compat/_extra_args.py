"""`extra_args` that name what Outrider has an option for: they become that option.

Outrider refuses such flags, because the last of two equal ones wins; the reference hands on whatever it is
given, in its place on the command line. All others stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from outrider.compat._option_values import is_mapping
from outrider.options._rules import split_rules

Fields: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[Fields, str | None], None]


def with_flags(fields: Fields, flags: object) -> Fields:
    """The fields of options with what the flags say, and the other flags as `extra_args`."""
    if not is_mapping(flags):
        return {**fields, "extra_args": flags}
    changed = {**fields}
    rest: Fields = {}
    for flag, value in flags.items():
        if flag in _FLAGS:
            _FLAGS[flag](changed, value)
        elif flag not in ("await-initialize", "verbose", "print"):
            # Those are there already, where they have an effect.
            rest[flag] = value
    return {**changed, "extra_args": rest}


# What a flag does to the fields.


def _text(option: str) -> Change:
    def change(fields: Fields, value: str | None) -> None:
        fields[option] = value

    return change


def _fixed(option: str, value: object = True) -> Change:
    def change(fields: Fields, _: str | None) -> None:
        fields[option] = value

    return change


def _number(option: str, kind: type[int | float]) -> Change:
    def change(fields: Fields, value: str | None) -> None:
        try:
            fields[option] = kind(value or "")
        except ValueError:
            # It is refused by name where options are made.
            fields[option] = value

    return change


def _names(option: str) -> Change:
    def change(fields: Fields, value: str | None) -> None:
        fields[option] = [name.strip() for name in (value or "").split(",") if name.strip()]

    return change


def _more(option: str, parts: Callable[[str], list[Any]] = lambda value: [value]) -> Change:
    """Of these flags all count."""

    def change(fields: Fields, value: str | None) -> None:
        before = fields.get(option)
        fields[option] = [*(before if isinstance(before, list | tuple) else ()), *parts(value or "")]

    return change


def _json(option: str) -> Change:
    def change(fields: Fields, value: str | None) -> None:
        found = _decoded(value or "")
        before = fields.get(option)
        fields[option] = {**found, **before} if is_mapping(found) and is_mapping(before) else found

    return change


def _unless(option: str, change: Change) -> Change:
    """The reference puts these before what the option makes, which then wins."""

    def change_if_unset(fields: Fields, value: str | None) -> None:
        if fields.get(option) is None:
            change(fields, value)

    return change_if_unset


def _of_prompt(name: str, kinds: tuple[str, ...], read: Callable[[str | None], object]) -> Change:
    def change(fields: Fields, value: str | None) -> None:
        prompt = fields.get("system_prompt")
        parts = {"type": "custom", "prompt": prompt} if isinstance(prompt, str) else prompt
        if is_mapping(parts) and parts.get("type") in kinds:
            fields["system_prompt"] = {**parts, name: read(value)}

    return change


def _thinking_display(fields: Fields, value: str | None) -> None:
    given = fields.get("thinking")
    if given is None or is_mapping(given):
        fields["thinking"] = {"type": "adaptive", "display": value, **(given or {})}


def _schema(fields: Fields, value: str | None) -> None:
    fields["output_format"] = {"type": "json_schema", "schema": _decoded(value or "")}


def _servers(fields: Fields, value: str | None) -> None:
    before, config = fields.get("mcp_servers"), value or ""
    if not before or not is_mapping(before):
        fields["mcp_servers"] = config
        return
    try:
        if not config.lstrip().startswith("{"):
            config = Path(fields.get("cwd") or "", config).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"extra_args['mcp-config'] names a file that cannot be read: {error}") from error
    found = _decoded(config)
    more = found.get("mcpServers") if is_mapping(found) else None
    if not is_mapping(more):
        raise ValueError("extra_args['mcp-config'] must have `mcpServers`, a mapping of names to servers")
    fields["mcp_servers"] = {**before, **more}


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except ValueError:
        return text


_FLAGS: Final[dict[str, Change]] = {
    "add-dir": _more("add_dirs"),
    "agent": _text("agent"),
    "agents": _json("agents"),
    "allow-dangerously-skip-permissions": _fixed("allow_dangerously_skip_permissions"),
    "allowedTools": _more("allowed_tools", split_rules),
    "allowed-tools": _more("allowed_tools", split_rules),
    "append-subagent-system-prompt": _text("append_subagent_system_prompt"),
    "append-system-prompt": _text("append_system_prompt"),
    "betas": _more("betas", split_rules),
    "continue": _fixed("continue_conversation"),
    "dangerously-skip-permissions": _fixed("permission_mode", "bypassPermissions"),
    "debug": lambda fields, value: fields.update(debug=True if value is None else value),
    "debug-file": _text("debug_file"),
    "disallowedTools": _more("disallowed_tools", split_rules),
    "disallowed-tools": _more("disallowed_tools", split_rules),
    "effort": _unless("effort", _text("effort")),
    "exclude-dynamic-system-prompt-sections": _of_prompt(
        "exclude_dynamic_sections", ("preset",), lambda _: True
    ),
    "fallback-model": _text("fallback_model"),
    "fork-session": _fixed("fork_session"),
    "forward-subagent-text": _fixed("forward_subagent_text"),
    "include-hook-events": _fixed("include_hook_events"),
    "include-partial-messages": _fixed("include_partial_messages"),
    "json-schema": _unless("output_format", _schema),
    "managed-settings": _json("managed_settings"),
    "max-budget-usd": _number("max_budget_usd", float),
    "max-thinking-tokens": _unless("max_thinking_tokens", _number("max_thinking_tokens", int)),
    "max-turns": _number("max_turns", int),
    "mcp-config": _servers,
    "model": _text("model"),
    "name": _text("title"),
    "no-session-persistence": _fixed("persist_session", value=False),
    "permission-mode": _text("permission_mode"),
    "permission-prompt-tool": _text("permission_prompt_tool_name"),
    "permission-prompts": _text("permission_prompts"),
    "plan-mode-instructions": _text("plan_mode_instructions"),
    "plugin-dir": _more("plugins"),
    "project-config-root": _text("project_config_root"),
    "prompt-suggestions": _fixed("prompt_suggestions"),
    "replay-user-messages": _fixed("replay_user_messages"),
    "resume": _text("resume"),
    "resume-drops-turn": _text("resume_drops_turn"),
    "resume-session-at": _text("resume_session_at"),
    "session-id": _text("session_id"),
    "setting-sources": _names("setting_sources"),
    "settings": _text("settings"),
    "strict-mcp-config": _fixed("strict_mcp_config"),
    "system-prompt": _text("system_prompt"),
    "system-prompt-file": lambda fields, value: fields.update(system_prompt={"type": "file", "path": value}),
    "system-prompt-snapshot": _of_prompt("snapshot", ("preset", "custom"), lambda value: value == "on"),
    "task-budget": _number("task_budget", int),
    "thinking": _unless("thinking", lambda fields, value: fields.update(thinking={"type": value})),
    "thinking-display": _thinking_display,
    "tools": _more("tools", split_rules),
}
