"""Write the tables in docs/messages.md, from the classes of `outrider.messages`."""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from outrider import messages
from outrider.wire._system import SYSTEM_SUBTYPES
from tests.cases import names_of

PAGE: Final = Path(__file__).parents[1] / "docs" / "messages.md"
START, END = "<!-- tables -->\n", "<!-- end of tables -->\n"

WHEN: Final[dict[str, dict[str, str]]] = {
    "Messages of every turn": {
        "InitMessage": "first in every turn",
        "AssistantMessage": "for each block of an answer, as soon as it is complete",
        "UserMessage": "for each tool result; for your own prompts with `replay_user_messages`",
        "ResultMessage": "last; one for each turn of Claude Code, which may answer several prompts",
    },
    "While the model writes": {
        "StreamEvent": "for each piece of an answer, with `include_partial_messages`",
        "StatusMessage": "when a call of the API starts, with `include_partial_messages`; when compaction "
        "starts and ends; when the permission mode has changed",
        "ThinkingTokensMessage": "while the model thinks",
        "ApiRetryMessage": "before each retry of a failed call of the API",
        "ModelFallbackMessage": "when the model is overloaded or missing, and `fallback_model` names another",
        "ModelRefusalFallbackMessage": "when the model declines, and another one is asked",
        "ModelRefusalNoFallbackMessage": "when the model declines, and no other one is left",
        "RateLimitEvent": "when a limit of the account is near, reached or lifted",
    },
    "While tools run": {
        "ToolProgressMessage": "every 30 seconds while a tool or a hook before it runs",
        "ToolUseSummaryMessage": "after a group of tool calls, if Claude Code sums them up",
        "PermissionDeniedMessage": "when a call is denied by a rule or a mode, so that nobody was asked",
        "HookStartedMessage": "when a hook of the settings starts, with `include_hook_events`",
        "HookProgressMessage": "while it runs, with `include_hook_events`",
        "HookResponseMessage": "when it has ended, with `include_hook_events`",
        "ElicitationCompleteMessage": "when the user has done what an MCP server asked for in a browser",
        "FilesPersistedMessage": "when files were stored for the session",
    },
    "Subagents and background tasks": {
        "TaskStartedMessage": "when a subagent, a workflow or a background shell starts; for another shell, "
        "after about 3 seconds",
        "TaskProgressMessage": "while it runs",
        "TaskUpdatedMessage": "when something about it has changed, such as its status",
        "TaskNotificationMessage": "when it has ended",
        "TaskSummaryMessage": "while it runs, if Claude Code sums it up",
        "BackgroundTasksChangedMessage": "whenever a task starts or ends in the background",
    },
    "The session": {
        "SessionStateChangedMessage": "when the session starts to work, waits for you, or is idle",
        "CommandLifecycleMessage": "when a prompt is queued, started, completed or cancelled",
        "SessionTitleChangedMessage": "when the session gets a title",
        "CommandsChangedMessage": "when slash commands come or go, such as those of an MCP server",
        "CompactBoundaryMessage": "after the conversation was compacted",
        "AutocompactStateMessage": "when automatic compaction gets nearer",
        "ConversationResetMessage": "after `/clear`",
        "ActiveGoalMessage": "when a goal is set, advanced or dropped",
        "MemoryRecallMessage": "when Claude Code has given memories to the model",
        "PromptSuggestionMessage": "after a turn, with `prompt_suggestions`",
        "PostTurnSummaryMessage": "after a turn, if Claude Code sums it up",
        "SessionMetadataMessage": "when facts about the session have changed",
        "AttachmentMessage": "in a resumed session, for what happened beside the conversation",
        "PluginInstallMessage": "while a plugin is installed",
        "AuthStatusMessage": "while somebody signs in",
        "UiInvalidateMessage": "for programs that draw the screen of Claude Code",
        "WorkerShuttingDownMessage": "when the machine of Claude Code is about to stop",
    },
    "Notices": {
        "InformationalMessage": "when a hook has a message for the user, a prompt is blocked, or a callback "
        "fails",
        "NotificationMessage": "when Claude Code would show a short notice in its terminal",
        "LocalCommandOutputMessage": "when a slash command has printed something",
        "ControlRequestProgressMessage": "while a slow [control request](control.md) is running",
    },
    "What went wrong": {
        "MirrorErrorMessage": "when a [store](stores.md) is slow or down",
        "SessionWritesLostMessage": "when the disk is full",
        "MalformedLine": "when Claude Code writes something that is not a message",
        "OversizedMessage": "when a message is larger than `max_buffer_size`",
    },
    "What this version does not know": {
        "UnknownMessage": "for a type that Outrider has no class for, or that is damaged",
        "UnknownSystemMessage": "for a system message that Outrider has no class for",
    },
    "Base classes": {
        "SystemMessage": "never by itself: it is the base of what Claude Code reports about itself",
        "HookEventMessage": "never by itself: it is the base of the three messages about hooks",
    },
}
"""When each message comes, by group."""

DETAILED: Final = ("AssistantMessage", "UserMessage", "ResultMessage", "InitMessage", "StreamEvent")
"""Messages that most programs read: each field is described."""


class Field(NamedTuple):
    """A field of a message, as its class declares it."""

    name: str
    type: str
    text: str


def fields(kind: type) -> list[Field]:
    """The fields of a message, those of its own class first."""
    found: dict[str, Field] = {}
    for base in kind.__mro__:
        if issubclass(base, msgspec.Struct) and base.__module__.startswith("outrider.wire"):
            found |= {field.name: field for field in declared(base) if field.name not in found}
    return [field for field in found.values() if field.name in getattr(kind, "__struct_fields__", ())]


def declared(kind: type) -> Iterator[Field]:
    body = classes(kind.__module__)[kind.__name__].body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = " ".join(str(after.value.value).split())
            yield Field(node.target.id, ast.unparse(node.annotation), text)


@cache
def classes(module: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def properties(kind: type) -> Iterator[Field]:
    """What a class makes of its fields."""
    body = classes(kind.__module__)[kind.__name__].body
    returned = {
        node.name: node.returns for node in body if isinstance(node, ast.FunctionDef) and node.returns
    }
    for name, value in vars(kind).items():
        if isinstance(value, property) and name in returned and value.__doc__:
            yield Field(name, ast.unparse(returned[name]).strip("'"), " ".join(value.__doc__.split()))


def kinds() -> dict[str, type]:
    """Every class of a message, by name."""
    found = {name: getattr(messages, name) for name in names_of(messages)}
    return {
        name: kind
        for name, kind in found.items()
        if inspect.isclass(kind) and (hasattr(kind, "type") and not name.endswith("Block"))
    }


def wire_name(kind: type) -> str:
    subtypes = [name for name, known in SYSTEM_SUBTYPES.items() if known is kind]
    if subtypes:
        return f"`system`, `{subtypes[0]}`"
    name = getattr(kind, "type", None)
    return f"`{name}`" if isinstance(name, str) else "any"


def summary(kind: type) -> str:
    return " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split())


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def tables() -> str:
    known = kinds()
    missing = set(known) ^ {name for group in WHEN.values() for name in group}
    assert not missing, f"`WHEN` and `outrider.messages` differ: {sorted(missing)}"
    parts: list[str] = []
    for heading, group in WHEN.items():
        parts.append(
            f"## {heading}\n\n| class and wire name | what it is, when it comes, fields |\n|---|---|\n"
        )
        for name, when in group.items():
            kind = known[name]
            listed = ", ".join(f"`{field.name}`" for field in fields(kind) if field.name not in COMMON)
            anchor = f"[below](#fields-of-{name.lower()})" if name in DETAILED else listed
            text = f"{summary(kind)}<br>*Comes* {when}." + (f"<br>*Fields:* {anchor}" if anchor else "")
            parts.append(f"| `{name}`<br>{wire_name(kind)} | {cell(text)} |\n")
        parts.append("\n")
    for name in DETAILED:
        kind = known[name]
        parts.append(f"## Fields of {name}\n\n| field | type | |\n|---|---|---|\n")
        described = [field for field in fields(kind) if field.text or "None" not in field.type]
        rows = (*described, *properties(kind))
        parts += [f"| `{row.name}` | `{cell(row.type)}` | {cell(row.text)} |\n" for row in rows]
        rest = ", ".join(f"`{field.name}`" for field in fields(kind) if field not in described)
        parts.append(f"\nAlso, if Claude Code sends them: {rest}.\n\n" if rest else "\n")
    parts.append("## Content blocks\n\n| class and wire name | what it is, fields |\n|---|---|\n")
    for name in names_of(messages):
        kind = getattr(messages, name)
        if name.endswith("Block") and name != "ContentBlock":
            listed = ", ".join(f"`{field.name}`" for field in fields(kind))
            parts.append(f"| `{name}`<br>{wire_name(kind)} | {cell(summary(kind))}<br>*Fields:* {listed} |\n")
    parts.append("\n")
    return "".join(parts)


COMMON: Final = {"uuid", "session_id", "subtype", "data"}
"""Fields that most messages have."""


def page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{tables()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
