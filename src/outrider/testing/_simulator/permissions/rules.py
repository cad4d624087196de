"""Owns permission rules, and what they and the mode say of a call: yes, no, or that somebody has to be asked.

A rule is about a tool as a whole, or about commands and files that are named exactly or by their beginning. A
shell command is judged by its whole text: what no rule names is asked about. Asks nobody.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from outrider.testing._simulator.world import Surroundings
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.mcp.servers import McpServers
    from outrider.testing._simulator.program.invocation import Invocation
    from outrider.testing._simulator.world import ToolCall, ToolSpec

__all__ = [
    "Allow",
    "Ask",
    "Behavior",
    "Company",
    "Deny",
    "EDITING",
    "Judge",
    "Judgement",
    "READING",
    "Rule",
    "RuleBook",
    "absolute_input",
    "as_written",
    "described",
    "path_of",
    "read_rule",
    "result_meta",
    "subjects",
]

Behavior: TypeAlias = Literal["allow", "deny", "ask"]

_BEHAVIORS: Final[tuple[Behavior, ...]] = ("allow", "deny", "ask")

READING: Final = frozenset({"Read", "Glob", "Grep"})
EDITING: Final = frozenset({"Edit", "Write", "NotebookEdit"})
_ALIASES: Final = {"Task": "Agent"}
_OPEN_ENDS: Final = (":*", " *", "/**", "**", "*")
_FILES: Final = {
    "userSettings": ("user", "settings.json"),
    "projectSettings": ("project", "settings.json"),
    "localSettings": ("local", "settings.local.json"),
}


class Rule(msgspec.Struct, frozen=True):
    """One rule: `Bash`, `Bash(git push:*)`, `mcp__files`."""

    tool: str
    content: str | None
    source: str
    """As the program names it: `cliArg`, `flagSettings`, `localSettings`, `session`, …"""

    @property
    def text(self) -> str:
        return self.tool if self.content is None else f"{self.tool}({self.content})"

    def covers_tool(self, name: str) -> bool:
        """Whether it is about the tool as a whole."""
        if self.content not in (None, "*") or (self.content == "*" and name in READING | EDITING):
            return False
        own, name = _ALIASES.get(self.tool, self.tool), _ALIASES.get(name, name)
        if own == name or ("*" in own and fnmatchcase(name, own)):
            return True
        return own.startswith("mcp__") and own.count("__") == 1 and name.startswith(f"{own}__")

    def covers(self, call: ToolCall, cwd: Path) -> bool:
        """Whether it is about what the call is for: a command, a file or a site."""
        content = (self.content or "").removeprefix("./").strip()
        kind = "Read" if call.name in READING else "Edit" if call.name in EDITING else call.name
        if not content or self.tool not in (call.name, kind):
            return False
        return any(_fits(content, text) for text in subjects(call, cwd))

    def is_exact(self, call: ToolCall) -> bool:
        """Whether it names just this command; what follows it may be open."""
        return (self.content or "").strip().removesuffix(":*") == str(call.input.get("command")).strip()


def _fits(pattern: str, text: str) -> bool:
    for ending in _OPEN_ENDS:
        if pattern.endswith(ending):
            start = pattern.removesuffix(ending)
            between = {":*": " ", " *": " ", "/**": "/"}.get(ending, "")
            return text == start or text.startswith(f"{start}{between}")
    return text == pattern


def subjects(call: ToolCall, cwd: Path) -> list[str]:
    """What the content of a rule is compared with."""
    if call.name == "Bash":
        return [str(call.input.get("command", "")).strip()]
    if call.name == "WebFetch":
        return [f"domain:{urlsplit(str(call.input.get('url', ''))).hostname}"]
    path = path_of(call, cwd)
    if path is None:
        return []
    inner = path.relative_to(cwd).as_posix() if path.is_relative_to(cwd) else ""
    return [f"/{path}", *([inner, f"/{inner}"] if inner else [])]


def path_of(call: ToolCall, cwd: Path) -> Path | None:
    """The file that a call is about; none if it is about none."""
    for name in ("file_path", "notebook_path", "path"):
        given = call.input.get(name)
        if call.name in READING | EDITING and isinstance(given, str):
            # Not by `Path`, which raises for links that lead in a circle and for users that are not there.
            return Path(os.path.realpath(os.path.join(cwd, os.path.expanduser(given))))  # noqa: PTH111, PTH118
    return cwd if call.name in ("Glob", "Grep") else None


def read_rule(text: str, source: str) -> Rule:
    """Read a rule as it is written in settings and on the command line."""
    name, bracket, rest = text.strip().partition("(")
    return Rule(name, rest.removesuffix(")") if bracket else None, source)


class RuleBook:
    """The rules of a run, and the folders that it may work in."""

    def __init__(self, invocation: Invocation, cwd: Path, config_dir: Path) -> None:
        self._cwd = cwd
        self._rules: list[tuple[Behavior, Rule]] = []
        self.folders: list[Path] = [cwd, *(_below(cwd, folder) for folder in invocation.add_dirs)]
        self.default_mode: str | None = None
        """Of the settings."""
        self._take("cliArg", {"allow": invocation.allowed_tools, "deny": invocation.disallowed_tools})
        self._take_settings("flagSettings", invocation.settings)
        wanted = invocation.setting_sources
        for source, (short, name) in _FILES.items():
            if wanted is None or short in wanted:
                folder = config_dir if short == "user" else cwd / ".claude"
                self._take_settings(source, _read_json(folder / name))

    def _take_settings(self, source: str, settings: JsonObject) -> None:
        permissions = settings.get("permissions")
        if not isinstance(permissions, dict):
            return
        given = cast("JsonObject", permissions)
        self._take(source, given)
        self.folders += [_below(self._cwd, folder) for folder in _texts(given.get("additionalDirectories"))]
        mode = given.get("defaultMode")
        self.default_mode = self.default_mode or (mode if isinstance(mode, str) else None)

    def _take(self, source: str, given: JsonObject) -> None:
        for behavior in _BEHAVIORS:
            self.add(behavior, [read_rule(text, source) for text in _texts(given.get(behavior))])

    def add(self, behavior: Behavior, rules: Iterable[Rule]) -> None:
        self._rules.extend((behavior, rule) for rule in rules)

    def remove(self, behavior: Behavior, rules: Iterable[Rule]) -> None:
        """Those that were added with the same source."""
        gone = {(behavior, rule) for rule in rules}
        self._rules = [entry for entry in self._rules if entry not in gone]

    def clear(self, behavior: Behavior, source: str) -> None:
        self._rules = [
            (kind, rule) for kind, rule in self._rules if kind != behavior or rule.source != source
        ]

    def add_folders(self, folders: Iterable[str]) -> None:
        self.folders += [_below(self._cwd, folder) for folder in folders]

    def remove_folders(self, folders: Iterable[str]) -> None:
        gone = {_below(self._cwd, folder) for folder in folders}
        self.folders = [folder for folder in self.folders if folder not in gone]

    def __iter__(self) -> Iterator[tuple[Behavior, Rule]]:
        return iter(self._rules)

    def for_tool(self, behavior: Behavior, name: str) -> Rule | None:
        """The rule about the tool as a whole, if there is one."""
        return next((rule for kind, rule in self if kind == behavior and rule.covers_tool(name)), None)

    def for_call(self, behavior: Behavior, call: ToolCall) -> Rule | None:
        """The rule about what the call is for, if there is one."""
        return next((rule for kind, rule in self if kind == behavior and rule.covers(call, self._cwd)), None)

    def holds(self, path: Path) -> bool:
        """Whether the file is in a folder that the run may work in."""
        return any(path.is_relative_to(folder) for folder in self.folders)


def _below(cwd: Path, folder: str) -> Path:
    return Path(cwd, folder).resolve()


def _texts(value: object) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [item for item in cast("Sequence[object]", value) if isinstance(item, str)]


def _read_json(path: Path) -> JsonObject:
    """A file that is not there or cannot be read counts for nothing, as in the program."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("JsonObject", found) if isinstance(found, dict) else {}


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
_HARMLESS: Final = frozenset(
    ["date", "echo", "false", "ls", "printf", "pwd", "sleep", "test", "true", "which"]
)
"""Commands that run unasked, if there is nothing else in the line."""
_OPERATORS: Final = frozenset(";&|<>$`\n")
_INTERACTIVE: Final = frozenset({"AskUserQuestion", "ExitPlanMode"})
_ASKED_FOR: Final = frozenset({"WebFetch", "WebSearch"})
_OUTSIDE: Final = "Path is outside allowed working directories"

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
        if call.name not in READING | EDITING or self._book.for_call("deny", call) is None:
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
        book, mode, name = self._book, self._run.permission_mode, call.name
        if book.for_tool("deny", name) is not None:
            return Deny(message=f"Permission to use {name} has been denied.", reason_type="rule")
        if (rule := book.for_call("deny", call)) is not None:
            return _denied(call, rule)
        if (rule := book.for_tool("ask", name) or book.for_call("ask", call)) is not None:
            return self._under_mode(call, Ask.by_rule(name, rule.source), mode)
        found = self._judge(call, mode)
        return self._under_mode(call, found, mode) if isinstance(found, Ask) else found

    def _judge(self, call: ToolCall, mode: str) -> Judgement:
        book, name = self._book, call.name
        if name in _INTERACTIVE:
            return Ask(message=_request(name), is_interactive=True, is_forced=True)
        path = path_of(call, self._run.cwd)
        if path is not None and self._is_own(name, path):
            return Allow(reason_type="other")
        if mode == "bypassPermissions" and self._policy(name) != "always_ask":
            return Allow(reason_type="mode")
        if path is not None and mode == "plan":
            return self._judge_file(name, path, mode)
        if name == "Bash":
            return self._judge_command(call)
        if book.for_tool("allow", name) is not None or book.for_call("allow", call) is not None:
            return Allow(reason_type="rule")
        if path is not None:
            return self._judge_file(name, path, mode)
        if name.startswith("mcp__"):
            return self._judge_server(name)
        if name in _ASKED_FOR:
            content = next(iter(subjects(call, self._run.cwd)), None)
            return Ask(message=_request(name), suggestions=(_rule_for(name, content),))
        return Allow()

    def _judge_command(self, call: ToolCall) -> Judgement:
        command = str(call.input.get("command", ""))
        rule = self._book.for_call("allow", call)
        if self._book.for_tool("allow", "Bash") or (rule is not None and rule.is_exact(call)):
            return Allow(reason_type="rule")
        # What is more than one command is asked about, whatever it begins with.
        is_plain = not _OPERATORS.intersection(command)
        if is_plain and (rule is not None or command.partition(" ")[0] in _HARMLESS):
            return Allow(reason_type="subcommandResults")
        suggestion = _rule_for("Bash", _suggested(command))
        return Ask(message=_APPROVAL, reason=_APPROVAL, reason_type="other", suggestions=(suggestion,))

    def _judge_file(self, name: str, path: Path, mode: str) -> Judgement:
        is_inside, reading = self._book.holds(path), name in READING
        if reading and (mode == "plan" or is_inside):
            return Allow(reason_type="mode")
        if reading:
            folder = path.parent if name == "Read" else path
            return Ask(
                message=_request_to("read from", path),
                reason=_OUTSIDE,
                reason_type="workingDir",
                suggestions=(_rule_for("Read", f"/{folder}/**", "session"),),
                is_policy=True if name == "Read" else None,
            )
        if mode == "plan":
            return Ask(message=f"Cannot write to {path} while in plan mode.", reason_type="mode")
        if mode == "acceptEdits" and is_inside:
            return Allow(reason_type="mode")
        modes = () if mode == "acceptEdits" else (ACCEPT_EDITS,)
        ask = Ask(message=_request_to("write to", path), suggestions=modes, is_policy=True)
        if is_inside:
            return ask
        folders = [str(path.parent)]
        more: JsonObject = {"type": "addDirectories", "directories": folders, "destination": "session"}
        return msgspec.structs.replace(
            ask, reason=_OUTSIDE, reason_type="workingDir", suggestions=(*modes, more)
        )

    def _policy(self, name: str) -> str | None:
        return self._run.mcp.policy(name) if name.startswith("mcp__") else None

    def _judge_server(self, name: str) -> Judgement:
        policy = self._policy(name)
        if policy == "always_allow":
            return Allow(reason_type="rule")
        ask = Ask(message=_request(name), suggestions=(_rule_for(name),), is_policy=True)
        if policy != "always_ask":
            return ask
        return msgspec.structs.replace(
            ask, reason_type="rule", rule_source="mcpServerPolicy", suggestions=None, is_forced=True
        )

    def _under_mode(self, call: ToolCall, ask: Ask, mode: str) -> Judgement:
        """What becomes of a question in modes that do not ask as others do."""
        name = call.name
        if mode == "bypassPermissions" and not ask.is_forced:
            return Allow(reason_type="mode")
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

    def _is_own(self, name: str, path: Path) -> bool:
        """Whether the program keeps the file for the model: its plan, or results that were too long."""
        config = self._run.config_dir.resolve()
        own = [config / "plans"] if name in EDITING else [config / "plans", config / "projects"]
        return any(folder in path.parents for folder in own)


def _denied(call: ToolCall, rule: Rule) -> Deny:
    if call.name == "WebFetch":
        return Deny(message=f"WebFetch denied access to {rule.content}.", reason_type="rule")
    is_exact = rule.is_exact(call) and not rule.text.endswith("*)")
    return Deny(
        message=f"Permission to use Bash with command {call.input.get('command')} has been denied.",
        reason_type="rule" if is_exact else "subcommandResults",
    )


def _suggested(command: str) -> str:
    """The content of a rule that would let this command pass, and others of its kind."""
    words = command.split()
    is_plain = len(words) > 1 and words[0].isalnum() and re.fullmatch(r"[a-z][a-z0-9-]*", words[1])
    return f"{words[0]} {words[1]} *" if is_plain else command


def absolute_input(call: ToolCall, cwd: Path) -> JsonObject:
    """The input as hooks and the host see it: with the whole path of a file."""
    name = "notebook_path" if call.name == "NotebookEdit" else "file_path"
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
    path = path_of(call, cwd)
    if path is None:
        return str(given.get("url") or given.get("query")) if call.name in _ASKED_FOR else None
    return str(path.relative_to(cwd)) if cwd in path.parents else str(path)


def _rule_for(tool: str, content: str | None = None, destination: str = "localSettings") -> JsonObject:
    rule: JsonObject = {"toolName": tool}
    if content is not None:
        rule["ruleContent"] = content
    return {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": destination}


def _request(name: str) -> str:
    return f"Claude requested permissions to use {name}, but you haven't granted it yet."


def _request_to(what: str, path: Path) -> str:
    return f"Claude requested permissions to {what} {path}, but you haven't granted it yet."
