"""Owns what rules and mode say of a shell command: each of its parts is judged, and each file.

Asks nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from outrider.testing._simulator._commands import Part, Touch, parts_of, suggested_rule, unsafe_reason
from outrider.testing._simulator._judgements import Allow, Ask, Deny, Judgement
from outrider.testing._simulator._rules import Rule, RuleBook
from outrider.wire import JsonObject

__all__ = ["judge_command"]

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
