"""Translates the values of `ClaudeAgentOptions` into those of Outrider's options, one kind at a time.

Drops what the reference silently drops. Invalid values are passed on, and rejected by name where options are
made. Options that depend on each other are in `_options`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from outrider.compat.types import AgentDefinition
from outrider.options._checks import split_rules

if TYPE_CHECKING:
    from outrider.compat.types import ClaudeAgentOptions

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


def is_mapping(given: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(given, Mapping)


def rules(given: object) -> object:
    """Rules for tools. The program takes each apart at commas and blanks."""
    texts = _texts(given)
    return given if texts is None else split_rules(",".join(texts))


def tools(given: object) -> object:
    """The names of tools; any mapping stands for the preset."""
    if is_mapping(given):
        return "default"
    texts = _texts(given)
    return given if texts is None else [name for text in texts for name in text.replace(",", " ").split()]


def fallback_models(given: object, model: object) -> object:
    """The models to fall back to: the same one again is none."""
    if not isinstance(given, str):
        return given
    names = dict.fromkeys(name.strip() for name in given.split(","))
    return [name for name in names if name and name != model] or None


def prompt(given: object) -> object:
    """What the system prompt is, without what is added to it."""
    if given is None:
        return ""
    if not is_mapping(given):
        return given
    known = _known(given, _OF_PROMPT)
    return {name: item for name, item in known.items() if name not in _SWITCHES or isinstance(item, bool)}


def appended_prompt(given: object) -> object:
    """What is added to the agent's own system prompt."""
    return _of(given, "append") or None if _of(given, "type") == "preset" else None


def thinking(given: object) -> object:
    """How the model thinks; None for a budget of nothing, which `thinking_tokens` has."""
    if not is_mapping(given) or thinking_tokens(given, None) == 0:
        return None if is_mapping(given) else given
    return _known(given, _OF_THINKING)


def thinking_tokens(given: object, otherwise: object) -> object:
    """How many tokens it may think with."""
    is_nothing = _of(given, "type") == "enabled" and _of(given, "budget_tokens") == 0
    return 0 if is_nothing else otherwise


def servers(given: object) -> object:
    """MCP servers; those of this process as what answers for them."""
    if not is_mapping(given):
        return given or {}
    return {name: _of(server, "instance") if _is_own(server) else server for name, server in given.items()}


def _is_own(server: object) -> bool:
    return _of(server, "type") == "sdk" and _of(server, "instance") is not None


def agents(given: object) -> object:
    """Subagents, without what is unset."""
    if not is_mapping(given):
        return given or {}
    return {name: _agent(agent) for name, agent in given.items()}


def _agent(given: object) -> object:
    fields = dataclasses.asdict(given) if isinstance(given, AgentDefinition) else given
    if not is_mapping(fields):
        return fields
    return {name: value for name, value in fields.items() if value is not None}


def plugins(given: object) -> object:
    """Plugins. Raises `ValueError` for one that is not in a folder."""
    if not isinstance(given, list | tuple):
        return given
    every = cast("list[object]", given)
    for plugin in every:
        if is_mapping(plugin) and plugin.get("type") != "local":
            raise ValueError(f"Unsupported plugin type: {plugin.get('type')}")
    return every


def output_format(given: object) -> object:
    """The form of the answer. Another than a schema means nothing."""
    if not is_mapping(given):
        return given
    schema = _of(given, "schema") if _of(given, "type") == "json_schema" else None
    return None if schema is None else {"type": "json_schema", "schema": schema}


def sandbox(given: object) -> object:
    """The sandbox. Outrider would not run commands at all where there is none; the reference runs them."""
    if not is_mapping(given) or not _of(given, "enabled"):
        return given
    return {"failIfUnavailable": False, **given}


def variables(options: ClaudeAgentOptions) -> object:
    """The variables that are set. These come before options in Outrider, and after them in the reference."""
    given: object = options.env
    if not is_mapping(given):
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
    return given.get(name) if is_mapping(given) else None


def _known(given: Mapping[Any, Any], names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """A mapping of a known type, without the keys that its type does not have."""
    known = names.get(str(given.get("type")))
    return {name: item for name, item in given.items() if known is None or name in known}
