"""Owns what rules and mode say of a call, before anybody is asked: yes, no, or that somebody has to be.

Asks nobody. Shell commands are judged in `_judging_shell`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec

from outrider.testing._simulator._judgements import Allow, Ask, Deny, Judgement
from outrider.testing._simulator._judging_shell import judge_command
from outrider.testing._simulator._rules import EDITING, READING, RuleBook
from outrider.testing._simulator._world import Surroundings
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator._mcp import McpServers
    from outrider.testing._simulator._world import ToolCall, ToolSpec

__all__ = ["Company", "Judge", "absolute_input", "as_written", "described"]

_INTERACTIVE: Final = frozenset({"AskUserQuestion", "ExitPlanMode"})
_ASKED_FOR: Final = frozenset({"WebFetch", "WebSearch"})
_PATHS: Final = {"NotebookEdit": "notebook_path", "Glob": "path", "Grep": "path"}
_SENSITIVE_FOLDERS: Final = frozenset({".git", ".vscode", ".idea", ".husky", ".claude"})
_SENSITIVE_FILES: Final = frozenset(
    {".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile", ".gitconfig", ".mcp.json", ".claude.json"}
)
_OUTSIDE: Final = "Path is outside allowed working directories"

Suggestions: TypeAlias = tuple[JsonObject, ...]

ACCEPT_EDITS: Final[JsonObject] = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}


class Company(Surroundings, Protocol):
    """A run, with the parts that permissions have to look at."""

    mcp: McpServers

    def offered(self) -> list[ToolSpec]:
        """The tools that the model is told of."""
        ...


class Judge:
    """Judges calls by the rules and the mode of a run."""

    def __init__(self, run: Company, book: RuleBook) -> None:
        self._run, self._book = run, book

    def barred(self, call: ToolCall) -> Deny | None:
        """Whether a file is barred by a rule: the program refuses that before the hooks hear of the call."""
        path = self._path(call)
        if path is None or self._book.for_path("deny", call.name, path) is None:
            return None
        return Deny(
            message="<tool_use_error>File is in a directory that is denied by your permission settings."
            "</tool_use_error>",
            reason_type="rule",
            kind=None,
            detail="Error: File is in a directory that is denied by your permission settings.",
            is_silent=True,
        )

    def judge(self, call: ToolCall) -> Judgement:
        """What rules and mode say."""
        book, mode = self._book, self._run.permission_mode
        if book.for_tool("deny", call.name) is not None:
            return Deny(message=f"Permission to use {call.name} has been denied.", reason_type="rule")
        found = self._judge(call, mode)
        if not isinstance(found, Ask) or (mode == "bypassPermissions" and not found.is_forced):
            return Allow(reason_type="mode") if isinstance(found, Ask) else found
        return self._under_mode(call, found, mode)

    def _judge(self, call: ToolCall, mode: str) -> Judgement:
        book, name = self._book, call.name
        if name == "Bash":
            command = str(call.input.get("command", ""))
            return judge_command(command, book, self._run.cwd, mode)
        if (rule := book.for_tool("ask", name)) is not None:
            return Ask.by_rule(name, rule.source)
        path = self._path(call)
        if path is not None:
            return self._judge_file(name, path, mode)
        if name in _INTERACTIVE:
            return Ask(message=_request(name), is_interactive=True, is_forced=True)
        of_url = self._judge_url(str(call.input.get("url", ""))) if name == "WebFetch" else None
        if isinstance(of_url, Deny):
            return of_url
        if mode == "bypassPermissions" and not (isinstance(of_url, Ask) and of_url.is_forced):
            return Allow(reason_type="mode")
        if book.for_tool("allow", name) is not None:
            return Allow(reason_type="rule")
        if name.startswith("mcp__"):
            return self._judge_server(name)
        if of_url is not None:
            return of_url
        if name in _ASKED_FOR:
            return Ask(message=_request(name), suggestions=(_rule_for(name),))
        return Allow()

    def _judge_file(self, name: str, path: Path, mode: str) -> Judgement:
        book = self._book
        if (rule := book.for_path("ask", name, path)) is not None:
            return Ask.by_rule(name, rule.source)
        if self._is_own(name, path):
            return Allow(reason_type="other")
        reading = name in READING
        if mode == "bypassPermissions" or (mode == "plan" and reading):
            return Allow(reason_type="mode")
        modes = () if mode == "acceptEdits" or reading else (ACCEPT_EDITS,)
        if not reading and _is_sensitive(path, self._run.cwd):
            reason = f"Claude requested permissions to edit {path} which is a sensitive file."
            return Ask(
                message=reason,
                reason=reason,
                reason_type="safetyCheck",
                suggestions=modes,
                is_approvable=True,
            )
        if mode == "plan":
            return Ask(message=f"Cannot write to {path} while in plan mode.", reason_type="mode")
        if book.for_path("allow", name, path) is not None or book.for_tool("allow", name) is not None:
            return Allow(reason_type="rule")
        if reading:
            if book.holds(path):
                return Allow(reason_type="mode")
            folder = path if name in _PATHS else path.parent
            rule_for_folder = _rule_for("Read", f"/{folder}/**", "session")
            return Ask(
                message=_request_to("read from", path),
                reason=_OUTSIDE,
                reason_type="workingDir",
                suggestions=(rule_for_folder,),
                is_policy=True if name == "Read" else None,
            )
        if not book.holds(path):
            more: JsonObject = {
                "type": "addDirectories",
                "directories": [str(path.parent)],
                "destination": "session",
            }
            return Ask(
                message=_request_to("write to", path),
                reason=_OUTSIDE,
                reason_type="workingDir",
                suggestions=(*modes, more),
                is_policy=True,
            )
        if mode == "acceptEdits":
            return Allow(reason_type="mode")
        return Ask(message=_request_to("write to", path), suggestions=modes, is_policy=True)

    def _judge_server(self, name: str) -> Judgement:
        policy = self._run.mcp.policy(name)
        if policy == "always_allow":
            return Allow(reason_type="rule")
        ask = Ask(message=_request(name), suggestions=(_rule_for(name),), is_policy=True)
        if policy != "always_ask":
            return ask
        return msgspec.structs.replace(
            ask, reason_type="rule", rule_source="mcpServerPolicy", suggestions=None, is_forced=True
        )

    def _judge_url(self, url: str) -> Judgement:
        book = self._book
        domain = f"domain:{urlsplit(url).hostname or ''}"
        if book.for_url("deny", url) is not None:
            return Deny(message=f"WebFetch denied access to {domain}.", reason_type="rule")
        if (rule := book.for_url("ask", url)) is not None:
            return Ask.by_rule("WebFetch", rule.source)
        if book.for_url("allow", url) is not None:
            return Allow(reason_type="rule")
        return Ask(message=_request("WebFetch"), suggestions=(_rule_for("WebFetch", domain),))

    def _under_mode(self, call: ToolCall, ask: Ask, mode: str) -> Judgement:
        """What becomes of a question in modes that do not ask as others do."""
        name = call.name
        if mode == "dontAsk":
            return Deny(
                message=f"Permission to use {name} has been denied because Claude Code is running in don't"
                " ask mode. Do not try to get around this; go on with what needs no permission, and tell the"
                " user what you could not do.",
                reason_type="mode",
            )
        if mode not in ("plan", "auto") or ask.is_forced or ask.reason_type == "mode":
            return ask
        if mode == "plan" and name.startswith("mcp__") and not self._run.mcp.is_read_only(name):
            return Ask(message=ask.message, reason_type="mode")
        return Deny(
            message=f"Auto mode is unavailable: its safety check does not run for this session, so {name} was"
            " not run. Go on with what needs no check, and tell the user what is blocked.",
            reason="Classifier unavailable",
            reason_type="classifier",
            reason_code="auto_mode_no_check_in_session",
            kind="automode-unavailable",
        )

    def _path(self, call: ToolCall) -> Path | None:
        if call.name not in READING | EDITING:
            return None
        given = call.input.get(_PATHS.get(call.name, "file_path"), "" if call.name in _PATHS else None)
        return _resolved(given, self._run.cwd) if isinstance(given, str) else None

    def _is_own(self, name: str, path: Path) -> bool:
        """Whether the program keeps the file for the model: its plan, or results that were too long."""
        config = self._run.config_dir.resolve()
        own = [config / "plans"] if name in EDITING else [config / "plans", config / "projects"]
        return any(folder in path.parents for folder in own)


def _resolved(given: str, cwd: Path) -> Path:
    # Not by `Path`, which raises for links that lead in a circle and for users that are not there.
    return Path(os.path.realpath(os.path.join(cwd, os.path.expanduser(given))))  # noqa: PTH111, PTH118


def absolute_input(call: ToolCall, cwd: Path) -> JsonObject:
    """The input as hooks and the host see it: with the whole path of a file."""
    name = _PATHS.get(call.name, "file_path")
    given = call.input.get(name)
    if call.name not in READING | EDITING or not isinstance(given, str) or not given:
        return call.input
    return {**call.input, name: os.path.normpath(os.path.join(cwd, os.path.expanduser(given)))}  # noqa: PTH111, PTH118


def as_written(changed: JsonObject, shown: JsonObject, call: ToolCall) -> JsonObject:
    """What the host or a hook made of the input that was shown to it; the rest is as the model wrote it."""
    return {
        name: call.input[name] if name in call.input and value == shown.get(name) else value
        for name, value in changed.items()
    }


def described(call: ToolCall, cwd: Path) -> str | None:
    """The line that tells a user what the call is about."""
    given = call.input
    if call.name == "Bash":
        return str(given.get("description") or given.get("command", ""))
    for name in ("file_path", "notebook_path"):
        if isinstance(path := given.get(name), str):
            whole = _resolved(path, cwd)
            return str(whole.relative_to(cwd)) if cwd in whole.parents else str(whole)
    for tool, name in (("WebFetch", "url"), ("WebSearch", "query"), ("Glob", "pattern"), ("Grep", "pattern")):
        if call.name == tool:
            return str(given.get(name, ""))
    return None


def _is_sensitive(path: Path, cwd: Path) -> bool:
    inner = path.relative_to(cwd).parts if cwd in path.parents else path.parts
    return path.name in _SENSITIVE_FILES or bool(_SENSITIVE_FOLDERS.intersection(inner[:-1]))


def _rule_for(tool: str, content: str | None = None, destination: str = "localSettings") -> JsonObject:
    rule: JsonObject = {"toolName": tool}
    if content is not None:
        rule["ruleContent"] = content
    return {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": destination}


def _request(name: str) -> str:
    return f"Claude requested permissions to use {name}, but you haven't granted it yet."


def _request_to(what: str, path: Path) -> str:
    return f"Claude requested permissions to {what} {path}, but you haven't granted it yet."
