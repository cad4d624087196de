"""Defines the answers of hook callbacks: the part all events share, the part of each event, and "later".

The inputs are in `_inputs`. Does not decide which events accept which answer: `outrider.handlers` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from outrider.wire._tolerant import convert_leniently, is_object
from outrider.wire._value import Json, JsonObject, Received, Value
from outrider.wire.permissions import PermissionResult, permission_result_from_wire

_HookDecision: TypeAlias = Literal["block", "approve", "allow"]
HookDecision: TypeAlias = _HookDecision | str
"""The common verdict: `allow` is sent as `approve`, which is what the agent knows it by."""

_HookPermissionDecision: TypeAlias = Literal["allow", "deny", "ask", "defer"]
HookPermissionDecision: TypeAlias = _HookPermissionDecision | str
"""The verdict on a tool call: `defer` ends the turn with the call left open."""

_ElicitationAction: TypeAlias = Literal["accept", "decline", "cancel"]
ElicitationAction: TypeAlias = _ElicitationAction | str
"""What becomes of a question of an MCP server."""

if TYPE_CHECKING:
    from typing import Self

    HookSpecificOutput: TypeAlias = "SpecificOutput | JsonObject"
    _PermissionDecision: TypeAlias = PermissionResult | JsonObject
else:
    # msgspec takes no union of objects with classes; what is read is typed by hand.
    HookSpecificOutput = _PermissionDecision = Any


class SpecificOutput(
    Value, rename="camel", tag_field="hookEventName", tag=lambda name: name.removesuffix("Output")
):
    """The part of an answer that only one event has; the event's name is filled in from the class."""

    def to_wire(self) -> JsonObject:
        return cast(JsonObject, msgspec.to_builtins(self))


class _ContextOutput(SpecificOutput):
    additional_context: str | None = None
    """Shown to the model."""


class PreToolUseOutput(SpecificOutput):
    """Lets a tool call through, stops it or changes it."""

    permission_decision: HookPermissionDecision | None = None
    permission_decision_reason: str | None = None
    """With `deny` shown to the model, with `ask` to the person who decides."""
    updated_input: JsonObject | None = None
    """Runs the tool with this input instead: the whole of it, not only what changes."""
    additional_context: str | None = None
    """Shown to the model."""


class PostToolUseOutput(_ContextOutput):
    """Adds to what a tool gave back, or replaces it."""

    classifier_context: str | None = None
    """Shown to the classifier of the auto mode; at most 2000 UTF-16 units."""
    updated_tool_output: Json = None
    """Replaces the result; it must have the shape of the tool's own result object."""
    updated_mcp_tool_output: Json = msgspec.field(default=None, name="updatedMCPToolOutput")
    """The same for tools of MCP servers."""


class PostToolUseFailureOutput(_ContextOutput):
    """Adds to the error of a tool."""


class PostToolBatchOutput(_ContextOutput):
    """Adds to the results of a batch of tools."""


class NotificationOutput(_ContextOutput):
    """Adds to a notification."""


class UserPromptSubmitOutput(_ContextOutput):
    """Adds to a prompt."""

    session_title: str | None = None
    suppress_original_prompt: bool | None = None
    """With a block: do not repeat the prompt to the user."""


class UserPromptExpansionOutput(_ContextOutput):
    """Adds to an expanded command."""

    suppress_original_prompt: bool | None = None
    """With a block: do not repeat the prompt to the user."""


class SessionStartOutput(_ContextOutput):
    """Prepares a session."""

    initial_user_message: str | None = None
    """Sent as if the user had."""
    session_title: str | None = None
    watch_paths: list[str] | None = None
    """Absolute paths whose changes raise `FileChanged`."""
    reload_skills: bool | None = None


class StopOutput(_ContextOutput):
    """Gives the model something more to think about."""


class SubagentStartOutput(_ContextOutput):
    """Adds to the context of a subagent."""


class SubagentStopOutput(_ContextOutput):
    """Gives a subagent something more to think about."""


class PreModelSwitchOutput(SpecificOutput):
    """Lets a change of the model through or stops it."""

    permission_decision: HookPermissionDecision | None = None
    permission_decision_reason: str | None = None


class PostModelSwitchOutput(_ContextOutput):
    """Tells the new model something."""


class PermissionRequestOutput(SpecificOutput):
    """Answers a permission request in place of the host."""

    decision: _PermissionDecision

    def to_wire(self) -> JsonObject:
        decision = self.decision if isinstance(self.decision, dict) else self.decision.to_wire()
        return {"hookEventName": "PermissionRequest", "decision": decision}


class PermissionDeniedOutput(SpecificOutput):
    """Says what is to follow a refusal."""

    retry: bool | None = None
    """Tell the model that it may try again."""


class SetupOutput(_ContextOutput):
    """Tells the model something before the session begins."""


class ElicitationOutput(SpecificOutput):
    """Answers a question of an MCP server in place of the host."""

    action: ElicitationAction | None = None
    content: JsonObject | None = None


class ElicitationResultOutput(SpecificOutput):
    """Changes the answer that an MCP server gets."""

    action: ElicitationAction | None = None
    content: JsonObject | None = None


class WorktreeCreateOutput(SpecificOutput):
    """Says where the worktree is that the hook has made."""

    worktree_path: str


class CwdChangedOutput(SpecificOutput):
    """Says what to watch in the new folder."""

    watch_paths: list[str] | None = None
    """Absolute paths whose changes raise `FileChanged`."""


class FileChangedOutput(SpecificOutput):
    """Says what to watch from now on."""

    watch_paths: list[str] | None = None
    """Absolute paths whose changes raise `FileChanged`."""


class MessageDisplayOutput(SpecificOutput):
    """Changes what is shown of a message; the model's own text stays."""

    display_content: str | None = None


class HookOutput(Received, rename="camel"):
    """What a callback answers. An empty one lets everything continue."""

    continue_: bool = msgspec.field(default=True, name="continue")
    """False ends the turn."""
    suppress_output: bool = False
    """Keep what the hook wrote out of the transcript."""
    stop_reason: str | None = None
    """Why the turn ends, with `continue_=False`."""
    decision: HookDecision | None = None
    system_message: str | None = None
    """Shown to the user, not to the model."""
    reason: str | None = None
    """The reason for the decision; with a block, the model sees it."""
    terminal_sequence: str | None = None
    """Written to the terminal that the agent runs in."""
    hook_specific_output: HookSpecificOutput | None = None
    """The event's own part: one of the `…Output` classes, or a dict that is sent as it is."""

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        """Read an answer; never raises. The event's own part is typed where that loses nothing of it."""
        encoded = encode_output(data)
        value = convert_leniently(cls, encoded)
        value.hook_specific_output = _specific_from_wire(encoded.get("hookSpecificOutput"))
        value._raw = data
        return value

    def to_wire(self) -> JsonObject:
        specific = self.hook_specific_output
        wire = encode_output(msgspec.to_builtins(msgspec.structs.replace(self, hook_specific_output=None)))
        if specific is not None:
            wire["hookSpecificOutput"] = (
                specific.to_wire() if isinstance(specific, SpecificOutput) else specific
            )
        return wire


class AsyncHookOutput(Received, rename="camel"):
    """The callback continues in the background and decides nothing; the agent does not wait for it."""

    async_timeout: int | None = None
    """Milliseconds that it may take."""

    def to_wire(self) -> JsonObject:
        return {"async": True, **super().to_wire()}


HookAnswer: TypeAlias = HookOutput | AsyncHookOutput
"""What a callback may answer."""

_PYTHON_SPELLINGS: Final = {"continue_": "continue", "async_": "async"}


def encode_output(output: JsonObject) -> JsonObject:
    """An answer that was given as a dict, in the agent's words.

    `continue_`, `async_` and the decision `allow` are translated; everything else is kept, known or not.
    """
    renamed = {wire: output[name] for name, wire in _PYTHON_SPELLINGS.items() if name in output}
    wire = renamed | {key: value for key, value in output.items() if key not in _PYTHON_SPELLINGS}
    return wire | {"decision": "approve"} if wire.get("decision") == "allow" else wire


def hook_output_from_wire(data: JsonObject) -> HookAnswer:
    """Read a callback's answer, in the agent's spelling or with `continue_` and `async_`; never raises."""
    kind = AsyncHookOutput if encode_output(data).get("async") is True else HookOutput
    return kind.from_wire(data)


_SPECIFIC_OUTPUTS: Final[dict[str, type[SpecificOutput]]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (*SpecificOutput.__subclasses__(), *_ContextOutput.__subclasses__())
    if kind is not _ContextOutput
}


def _specific_from_wire(data: object) -> SpecificOutput | JsonObject | None:
    """The event's own part as its class, or as it is where the class would lose something of it."""
    if not is_object(data):
        return None
    event = data.get("hookEventName")
    kind = _SPECIFIC_OUTPUTS.get(event) if isinstance(event, str) else None
    if kind is None:
        return data
    value = convert_leniently(kind, data)
    if isinstance(value, PermissionRequestOutput):
        decision: object = value.decision
        if not is_object(decision):
            return data
        value.decision = permission_result_from_wire({"message": "", **decision}) or decision
    try:
        return value if value.to_wire() == data else data
    except RecursionError:
        return data
