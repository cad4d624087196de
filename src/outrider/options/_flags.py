"""Which flags of the program `extra_args` may not set, because an option or Outrider itself decides on them.

The last of two equal flags wins, so one that got through could undo what another option forbids.
"""

from __future__ import annotations

import re
from typing import Final

from outrider.errors import OptionsError

_OWNERS: Final[dict[str, str]] = {
    "add_dirs": "add-dir",
    "agent": "agent",
    "agents": "agents",
    "allow_dangerously_skip_permissions": "allow-dangerously-skip-permissions",
    "allowed_tools": "allowedTools allowed-tools",
    "append_subagent_system_prompt": "append-subagent-system-prompt append-subagent-system-prompt-file",
    "append_system_prompt": "append-system-prompt append-system-prompt-file",
    "betas": "betas",
    "continue_conversation": "continue",
    "debug": "debug",
    "debug_file": "debug-file",
    "disallowed_tools": "disallowedTools disallowed-tools",
    "effort": "effort",
    "fallback_model": "fallback-model",
    "fork_session": "fork-session",
    "forward_subagent_text": "forward-subagent-text",
    "include_hook_events": "include-hook-events",
    "include_partial_messages": "include-partial-messages",
    "managed_settings": "managed-settings managed-settings-in-initialize",
    "max_budget_usd": "max-budget-usd",
    "max_thinking_tokens": "max-thinking-tokens",
    "max_turns": "max-turns",
    "mcp_servers": "mcp-config",
    "model": "model",
    "output_format": "json-schema",
    "permission": "permission-prompt-tool",
    "permission_mode": "permission-mode dangerously-skip-permissions enable-auto-mode "
    "inherit-permission-mode",
    "permission_prompts": "permission-prompts",
    "persist_session": "no-session-persistence",
    "plan_mode_instructions": "plan-mode-instructions",
    "plugin_delivery": "await-initialize",
    "plugins": "plugin-dir plugin-dir-no-mcp",
    "project_config_root": "project-config-root",
    "prompt_suggestions": "prompt-suggestions",
    "replay_user_messages": "replay-user-messages",
    "resume": "resume",
    "resume_drops_turn": "resume-drops-turn",
    "resume_session_at": "resume-session-at",
    "session_id": "session-id",
    "session_store": "session-mirror",
    "setting_sources": "setting-sources",
    "settings": "settings",
    "strict_mcp_config": "strict-mcp-config",
    "system_prompt": "system-prompt system-prompt-file system-prompt-snapshot "
    "exclude-dynamic-system-prompt-sections",
    "task_budget": "task-budget",
    "thinking": "thinking thinking-display",
    "title": "name",
    "tools": "tools",
}

OWNERS: Final[dict[str, str]] = {flag: option for option, flags in _OWNERS.items() for flag in flags.split()}
"""The option that stands for each flag."""

# How Outrider talks to the program; what would end the program; what would take it away from this process.
_OURS: Final = """
    output-format input-format verbose print
    help version init-only rewind-files
    attach-serve await-claim background bg cloud desktop environment from-pr interactive pool rc remote
    remote-control sdk-url teleport tmux
"""

OURS: Final = frozenset(_OURS.split())
"""Flags that nobody may set."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]+\Z")


def is_free_flag(place: str, name: str) -> None:
    """Raise for the name of a flag that cannot be one, or that is not free."""
    if name.startswith("-"):
        raise OptionsError(f"{place} cannot be {name!r}", hint=f"Leave out the dashes: {name.lstrip('-')!r}.")
    if not _NAME.match(name):
        raise OptionsError(
            f"{place} cannot be {name!r}",
            hint="Give the long name of a flag, without its dashes, and its value as the value: "
            '{"flag": "value"}, or {"flag": None} for one without.',
        )
    flag = name.replace("_", "-")
    if option := OWNERS.get(flag):
        raise OptionsError(f"{place} cannot be {name!r}: `{option}` decides on it", hint=f"Set `{option}`.")
    if flag in OURS:
        why = "with it, Outrider could not talk to the program"
        raise OptionsError(f"{place} cannot be {name!r}: {why}", hint="Leave it out.")
