"""Owns what rules and mode say of a call, before anybody is asked: yes, no, or that somebody has to be.

Asks nobody. Shell commands are judged in `_judging_shell`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias
from urllib.parse import urlsplit

import msgspec

from outrider.testing._simulator.permissions.rules import EDITING, READING, Rule, RuleBook
from outrider.testing._simulator.tools.commands import Part, Touch, parts_of, suggested_rule, unsafe_reason
from outrider.testing._simulator.world import Surroundings
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.mcp.servers import McpServers
    from outrider.testing._simulator.world import ToolCall, ToolSpec

__all__ = [
    "Allow",
    "Ask",
    "Company",
    "Deny",
    "Judge",
    "Judgement",
    "absolute_input",
    "as_written",
    "described",
    "judge_command",
    "result_meta",
]


class Allow(msgspec.Struct, frozen=True, kw_only=True):
    """The call may run."""

    reason_type: str | None = None


class Deny(msgspec.Struct, frozen=True, kw_only=True):
    """The call does not run, and nobody is asked."""

    message: str
    reason_type: str | None = None
    reason: str | None = None
    reason_code: str | None = None
    kind: str | None = "permission-rule"
    """`non_execution_kind` of the result."""
    detail: str = ""
    """`tool_use_result`; empty: the message, as an error."""
    is_silent: bool = False
    """No frame tells of it."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody has to say whether the call may run."""

    message: str
    """For the model, if there is nobody to ask."""
    reason: str | None = None
    reason_type: str | None = None
    rule_source: str | None = None
    suggestions: tuple[JsonObject, ...] | None = None
    """Unset: the program makes none; empty: it says that there are none."""
    blocked_path: str | None = None
    is_policy: bool | None = None
    """`server_policy_ask_only`."""
    is_approvable: bool = False
    is_interactive: bool = False
    """The tool is a question to the user itself."""
    is_forced: bool = False
    """Asked in every mode: by a rule, by a hook, or because the tool is a question."""
    hook_event: str | None = None

    @classmethod
    def by_rule(cls, name: str, source: str) -> Self:
        """A rule wants it."""
        return cls(
            message=f"Claude requested permissions to use {name}, but you haven't granted it yet.",
            reason_type="rule",
            rule_source=source,
            is_policy=False,
            is_forced=True,
        )

    @classmethod
    def by_hook(cls, event: str, reason: str) -> Self:
        """A hook wants it."""
        return cls(message=reason, reason=reason, reason_type="hook", hook_event=event, is_forced=True)

    def fields(self) -> JsonObject:
        """Those of `can_use_tool` that tell why it is asked."""
        made: JsonObject = {}
        if self.suggestions is not None:
            made["permission_suggestions"] = list(self.suggestions)
        if self.blocked_path is not None:
            made["blocked_path"] = self.blocked_path
        if self.reason is not None:
            made["decision_reason"] = self.reason
        if self.reason_type is not None:
            made["decision_reason_type"] = self.reason_type
        if self.hook_event is not None:
            made["decision_reason_hook_event"] = self.hook_event
            made["decision_reason_hook_source"] = "settings"
        if self.rule_source is not None:
            made["decision_reason_rule_source"] = self.rule_source
        if self.is_policy is not None:
            made["server_policy_ask_only"] = self.is_policy
        if self.is_approvable:
            made["classifier_approvable"] = True
        return made


Judgement: TypeAlias = Allow | Deny | Ask


def result_meta(
    call_id: str,
    decision: str | None,
    source: str = "",
    *,
    reason_type: str | None = None,
    kind: str | None = None,
) -> JsonObject:
    """The entry of `tool_result_meta` for a call. Without a decision, nobody came to one."""
    made: JsonObject = {"id": call_id}
    if kind is not None:
        made["non_execution_kind"] = kind
    if decision is not None:
        made["permission_decision"] = {"decision": decision, "source": source}
        if reason_type is not None:
            made["permission_decision"]["reason_type"] = reason_type
    return made


_APPROVAL: Final = "This command requires approval"


def judge_command(command: str, book: RuleBook, cwd: Path, mode: str) -> Judgement:
    """What rules and mode say of the command."""
    parts = parts_of(command, cwd)
    texts = [part.text for part in parts]
    denied = _denied(command, texts, parts, book)
    if denied is not None:
        return denied
    if (rule := _first(book.of("ask"), [command, *texts])) is not None or (
        rule := book.for_tool("ask", "Bash")
    ) is not None:
        return Ask.by_rule("Bash", rule.source)
    if mode == "bypassPermissions":
        return Allow(reason_type="mode")
    if book.for_tool("allow", "Bash") or any(rule.is_exact(command) for rule in book.of("allow")):
        return Allow(reason_type="rule")
    if (reason := unsafe_reason(command)) is not None:
        return Ask(message=reason, reason=reason, reason_type="other", suggestions=())
    return _judge_parts(command, parts, book, mode)


def _denied(command: str, texts: Sequence[str], parts: Sequence[Part], book: RuleBook) -> Deny | None:
    rules = book.of("deny")
    message = f"Permission to use Bash with command {command} has been denied."
    if any(rule.is_exact(command) and not rule.text.endswith("*)") for rule in rules):
        return Deny(message=message, reason_type="rule")
    touches = [touch for part in parts for touch in part.touches]
    barred = any(book.for_path("deny", _tool_of(touch), touch.path) for touch in touches)
    if barred or _first(rules, texts) is not None:
        return Deny(message=message, reason_type="subcommandResults")
    return None


def _judge_parts(command: str, parts: Sequence[Part], book: RuleBook, mode: str) -> Judgement:
    wanting = [
        (part, touch)
        for part in parts
        if (touch := _touch_to_ask(part, book, mode)) is not None or not _may_run(part, book, mode)
    ]
    if not wanting:
        return Allow(reason_type="subcommandResults")
    if len(wanting) == 1 and wanting[0][1] is not None:
        return _ask_for_path(command, wanting[0][1], book, mode)
    if len(parts) == 1:
        suggestion = _rules_for([suggested_rule(command)])
        return Ask(message=_APPROVAL, reason=_APPROVAL, reason_type="other", suggestions=(suggestion,))
    texts = [part.text for part, _ in wanting]
    writes = any(touch.kind == "write" for part, _ in wanting for touch in part.touches)
    return Ask(
        message="This Bash command contains multiple operations. The following "
        f"{'part requires' if len(texts) == 1 else 'parts require'} approval: {', '.join(texts)}",
        reason_type="subcommandResults",
        suggestions=None if writes else (_rules_for([suggested_rule(text) for text in texts]),),
    )


def _may_run(part: Part, book: RuleBook, mode: str) -> bool:
    if part.is_known or book.for_command("allow", part.text) is not None:
        return True
    changes = [touch for touch in part.touches if touch.kind == "change"]
    return mode == "acceptEdits" and bool(changes)


def _touch_to_ask(part: Part, book: RuleBook, mode: str) -> Touch | None:
    """The first file of the part that somebody has to allow."""
    is_allowed = book.for_command("allow", part.text) is not None
    for touch in part.touches:
        if book.for_path("allow", _tool_of(touch), touch.path) is not None:
            continue
        if touch.kind == "read":
            if not book.holds(touch.path) and not is_allowed:
                return touch
        elif touch.kind == "change" and is_allowed:
            continue
        elif mode != "acceptEdits" or not book.holds(touch.path):
            return touch
    return None


def _ask_for_path(command: str, touch: Touch, book: RuleBook, mode: str) -> Ask:
    folders = ", ".join(f"'{folder}'" for folder in book.folders)
    rules = _rules_for([suggested_rule(command)])
    if touch.kind == "read":
        folder = touch.path if touch.by in ("cd", "ls", "find") else touch.path.parent
        reading: JsonObject = {
            "type": "addRules",
            "rules": [{"toolName": "Read", "ruleContent": f"/{folder}/**"}],
            "behavior": "allow",
            "destination": "session",
        }
        message = (
            f"{touch.by} in '{touch.path}' was blocked. For security, Claude Code may only read from the"
            f" allowed working directories for this session: {folders}."
        )
        return Ask(message=message, suggestions=(rules, reading), blocked_path=str(touch.path))
    what = f"{touch.by} in" if touch.by else "Output redirection to"
    where = (
        f"inside the working directories for this session ({folders}), where a shell command may not change"
        " files unasked."
        if book.holds(touch.path)
        else f"outside the working directories for this session ({folders})."
    )
    more: list[JsonObject] = [
        {"type": "addDirectories", "directories": [str(touch.path.parent)], "destination": "session"}
    ]
    if touch.kind == "change" and mode != "acceptEdits":
        more.append({"type": "setMode", "mode": "acceptEdits", "destination": "session"})
    return Ask(
        message=f"{what} '{touch.path}' needs approval. The path is {where}",
        suggestions=(rules, *more),
        blocked_path=str(touch.path),
    )


def _rules_for(contents: Sequence[str]) -> JsonObject:
    return {
        "type": "addRules",
        "rules": [{"toolName": "Bash", "ruleContent": content} for content in contents],
        "behavior": "allow",
        "destination": "localSettings",
    }


def _first(rules: Sequence[Rule], texts: Sequence[str]) -> Rule | None:
    return next((rule for rule in rules for text in texts if rule.covers_command(text)), None)


def _tool_of(touch: Touch) -> str:
    return "Read" if touch.kind == "read" else "Edit"


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
