"""Flags of the program, as users put them into `extra_args`, and the values that cases of options share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

UUID = "22222222-2222-4222-8222-222222222222"
OTHER = "33333333-3333-4333-8333-333333333333"
SCHEMA = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
STDIO = {"command": "tracker", "args": ["--port", "1"], "env": {"TOKEN": "t"}}
PRESET = {"type": "preset", "preset": "claude_code"}


def extra_args(folder: Path) -> dict[str, dict[str, Any]]:
    """Options with flags, by what is special about them."""
    more = {"type": "custom", "prompt": "Mine"}
    return {
        "free": {"extra_args": {"bare": None, "autocompact": "auto", "plugin-url": "-dash"}},
        "empty value": {"extra_args": {"autocompact": ""}},
        "debug": {"extra_args": {"debug-to-stderr": None}},
        "debug with a filter": {"extra_args": {"debug": "hooks"}},
        "replay": {"extra_args": {"replay-user-messages": None}},
        "there already": {"extra_args": {"verbose": None, "print": None}},
        "texts": {"extra_args": {"model": "opus", "agent": "a", "permission-mode": "plan", "resume": UUID}},
        "numbers": {"extra_args": {"max-turns": "3", "max-budget-usd": "1.5", "max-thinking-tokens": "100"}},
        "lists": {"extra_args": {"allowedTools": "Read,Bash(ls)", "betas": "b", "add-dir": str(folder)}},
        "switches": {"extra_args": {"continue": None, "strict-mcp-config": None, "fork-session": None}},
        "beside options": {
            "extra_args": {"model": "opus", "allowedTools": "Read", "add-dir": "b", "effort": "low"},
            "model": "haiku",
            "allowed_tools": ["Write"],
            "add_dirs": ["a"],
            "effort": "high",
        },
        "appended prompt": {"extra_args": {"append-system-prompt": "more"}},
        "appended to a prompt": {"extra_args": {"append-system-prompt": "more"}, "system_prompt": more},
        "appended to a preset": {
            "extra_args": {"append-system-prompt": "more"},
            "system_prompt": {**PRESET, "append": "x"},
        },
        "prompt": {"extra_args": {"system-prompt": "theirs"}, "system_prompt": "mine"},
        "prompt file": {"extra_args": {"system-prompt-file": str(folder / "prompt.txt")}},
        "servers": {"extra_args": {"mcp-config": str(folder / "mcp.json")}, "mcp_servers": {"a": STDIO}},
        "settings": {"extra_args": {"settings": '{"a": 1}'}},
        "sources": {"extra_args": {"setting-sources": "user,project"}},
        "no sources": {"extra_args": {"setting-sources": ""}},
        "agents": {"extra_args": {"agents": '{"a": {"description": "A", "prompt": "A"}}'}},
        "schema": {"extra_args": {"json-schema": json.dumps(SCHEMA)}},
        "thinking": {"extra_args": {"thinking": "adaptive", "thinking-display": "summarized"}},
        "budget": {"extra_args": {"task-budget": "50"}},
        "name": {"extra_args": {"name": "My session", "no-session-persistence": None}},
        "sections": {"extra_args": {"exclude-dynamic-system-prompt-sections": None}, "system_prompt": PRESET},
        "snapshot": {"extra_args": {"system-prompt-snapshot": "on"}},
        "suggestions": {"extra_args": {"prompt-suggestions": None, "forward-subagent-text": None}},
        "prompts": {"extra_args": {"permission-prompts": "none"}},
        "drops": {
            "extra_args": {"resume-drops-turn": OTHER},
            "resume": UUID,
            "resume_session_at": OTHER,
        },
        "skips permissions": {
            "extra_args": {"allow-dangerously-skip-permissions": None},
            "env": {"IS_SANDBOX": "1"},
        },
        "bypass": {"extra_args": {"dangerously-skip-permissions": None}, "env": {"IS_SANDBOX": "1"}},
        "one letter": {"extra_args": {"d": None}},
        "no number": {"extra_args": {"max-turns": "many"}},
    }
