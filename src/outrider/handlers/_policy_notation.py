"""Names of tools in policies, also in the notation of the agent's own rules: `Bash(git *)`, `Read(src/**)`.

Knows which of the agent's tools have a command, a path or an address, and under which names. Does not know
what becomes of a rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from outrider.errors import OptionsError
from outrider.options._readers import near
from outrider.options._tool_names import known_tools
from outrider.wire.tools import TOOL_ALIASES

if TYPE_CHECKING:
    from outrider.handlers._policy_rule import Verdict

SHELLS: Final = frozenset(("Bash", "PowerShell", "Monitor"))
"""Tools that run a shell command, which is their `command`."""

PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "Edit": ("file_path",),
    "EnterWorktree": ("path",),
    "Glob": ("path",),
    "Grep": ("path",),
    "LS": ("path",),
    "LSP": ("filePath",),
    "MultiEdit": ("file_path",),
    "NotebookEdit": ("notebook_path",),
    "NotebookRead": ("notebook_path",),
    "Read": ("file_path",),
    "Workflow": ("scriptPath",),
    "Write": ("file_path",),
}
"""Which arguments of a tool are paths."""

SEARCHES: Final = frozenset(("Glob", "Grep", "LS"))
"""Tools that look at all there is in a folder, the working folder if they are given none."""

OPTIONAL_PATHS: Final = SEARCHES | {"EnterWorktree", "Workflow"}
"""Tools whose path may be left out."""

ADDRESSES: Final = frozenset(("Monitor", "WebFetch", "WebSearch"))
"""Tools that reach for an address on the web."""

# What the agent takes a rule for one of these to mean: all that read, all that write.
_READING: Final = ("Read", "Grep", "Glob", "LS", "NotebookRead")
_WRITING: Final = ("Edit", "Write", "NotebookEdit", "MultiEdit")
_ONE_ARGUMENT: Final[Mapping[str, str]] = {"Agent": "subagent_type", "Skill": "skill"}
_NOTATION: Final = re.compile(r"(?P<tool>[^()]+)\((?P<content>.*)\)\Z", re.DOTALL)
_ALL: Final = re.compile(r"\**\Z")
_SERVER: Final = re.compile(r"mcp__(?:(?!__).)+\Z")


class Noted(NamedTuple):
    """What the name of a tool in a rule says."""

    text: str
    tools: tuple[str, ...]
    conditions: Mapping[str, object]


def todays_name(tool: str) -> str:
    """A tool's name, for an older one that the agent still answers to."""
    return TOOL_ALIASES.get(tool, tool)


def read_tool(place: str, text: str) -> Noted:
    """What a tool, or a rule in the agent's notation, stands for. Raises `OptionsError` if for nothing."""
    if "(" not in text and ")" not in text:
        return Noted(text, (f"{text}__*",) if _SERVER.match(text) else (text,), {})
    found = _NOTATION.match(text)
    if found is None:
        hint = "Write a tool's name, or `Tool(what)`."
        raise OptionsError(f"{place} is no rule: {text!r}", hint=hint)
    tool, content = found["tool"], found["content"]
    if _ALL.match(content):
        return read_tool(place, tool)
    return _with_content(place, text, tool, content)


def _with_content(place: str, text: str, tool: str, content: str) -> Noted:
    name = todays_name(tool)
    if name in SHELLS:
        return Noted(text, (tool,), {"command": _command(content)})
    if name in PATHS:
        tools = _READING if name in _READING else _WRITING if name in _WRITING else (tool,)
        return Noted(text, tools, {"path": _path(content)})
    if name == "WebFetch" and content.startswith("domain:"):
        return Noted(text, (tool,), {"domain": content.removeprefix("domain:")})
    if name in _ONE_ARGUMENT:
        return Noted(text, (tool,), {"arguments": {_ONE_ARGUMENT[name]: content}})
    meant = None if name in known_tools() else near(tool, sorted(known_tools()))
    raise OptionsError(
        f"{place}: it is not known what {content!r} means for {tool}",
        hint=f"Did you mean {meant!r}?"
        if meant
        else f"Name the tool alone, and say what is meant as `arguments`: {{'argument': {content!r}}}.",
    )


def _command(content: str) -> str:
    """`git:*` is the older way to write `git *`."""
    return f"{content[:-2]} *" if content.endswith(":*") else content


def _path(content: str) -> str:
    """Two slashes begin at the root; one begins at the folder that the agent's settings are for."""
    if content.startswith("//"):
        return content[1:]
    return content.lstrip("/") if content.startswith("/") else content.removeprefix("./")


def pathless(tool: str, condition: str, decision: Verdict) -> tuple[str, str] | None:
    """Why a condition can never hold for a tool, and what to do about it; None if it can."""
    name = todays_name(tool)
    if name not in known_tools() and not name.startswith("mcp__"):
        return None
    if condition == "path" and decision == "allow" and name in SHELLS:
        return (
            "the text of a shell command does not tell which files it uses",
            "Allow it by `command`, or leave it to a sandbox.",
        )
    if condition in ("domain", "url") and decision == "allow" and name in SHELLS - {"Monitor"}:
        return (
            "the text of a shell command does not tell which addresses it uses",
            "Allow it by `command`, or leave it to a sandbox.",
        )
    known: frozenset[str] = {
        "command": SHELLS,
        "path": SHELLS.union(PATHS),
        "domain": SHELLS | ADDRESSES,
        "url": SHELLS | ADDRESSES - {"WebSearch"},
    }[condition]
    if name in known:
        return None
    hint = "Say which of its `arguments` is meant." if name.startswith("mcp__") else "Leave one of them out."
    return f"it has none; {', '.join(sorted(known))} have", hint
