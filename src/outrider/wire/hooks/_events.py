"""Lists the hook events, describes how callbacks are registered, and reads the input of any event.

The inputs are in `_inputs`, the answers in `_outputs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

from msgspec import UNSET, UnsetType

from outrider.wire._tolerant import convert_leniently
from outrider.wire._value import JsonObject, Value
from outrider.wire.hooks import _inputs
from outrider.wire.hooks._inputs import HookInput

if TYPE_CHECKING:
    from typing import Self

HookEvent: TypeAlias = Literal[
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Notification",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "PreModelSwitch",
    "PostModelSwitch",
    "PermissionRequest",
    "PermissionDenied",
    "Setup",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "Elicitation",
    "ElicitationResult",
    "ConfigChange",
    "WorktreeCreate",
    "WorktreeRemove",
    "InstructionsLoaded",
    "CwdChanged",
    "FileChanged",
    "DirectoryAdded",
    "MessageDisplay",
]
"""The events that have a class here; the agent may know more."""
HOOK_EVENTS: Final[tuple[HookEvent, ...]] = get_args(HookEvent)


class HookRegistration(Value, rename="camel"):
    """Registers callbacks for an event, as an item of the list under its name in `initialize`."""

    hook_callback_ids: list[str]
    matcher: str | UnsetType | None = UNSET
    """Which tools or causes: a name or a pattern, such as `Write|Edit`. None or unset: all."""
    timeout: float | None = None
    """Seconds until the agent gives a callback up."""
    on_failure: str | None = None
    """What a callback that fails or times out means: `continue` or `block`."""


class UnknownHookInput(HookInput, kw_only=True):
    """An event that has no class of its own."""

    event: str
    """Its name; empty where it has none, or none that is text."""
    fields: JsonObject
    """All that the event tells beyond the common fields."""

    @classmethod
    def from_wire(cls, data: JsonObject) -> Self:
        """Read the input of any event; never raises."""
        common = convert_leniently(HookInput, data)
        values = {name: getattr(common, name) for name in HookInput.__struct_fields__}
        fields = {key: item for key, item in data.items() if key not in HookInput.__struct_encode_fields__}
        event = fields.get("hook_event_name")
        if isinstance(event, str):
            del fields["hook_event_name"]
        value = cls(**values, event=event if isinstance(event, str) else "", fields=fields)
        value._raw = data
        return value

    @property
    def hook_event_name(self) -> str:
        """The name of the event."""
        return self.event

    def to_wire(self) -> JsonObject:
        """The input as sent."""
        common = {key: value for key, value in super().to_wire().items() if key not in ("event", "fields")}
        return common | {"hook_event_name": self.event} | self.fields


HOOK_INPUTS: Final[dict[str, type[HookInput]]] = {
    event: cast(type[HookInput], getattr(_inputs, f"{event}Input")) for event in HOOK_EVENTS
}
"""The class of each event's input."""


def hook_input_from_wire(data: JsonObject) -> HookInput:
    """Read what the agent tells a hook; never raises.

    An event with no class gives an `UnknownHookInput`. What is missing or mistyped takes its default or an
    empty value; `raw` has it all.
    """
    event: object = data.get("hook_event_name")
    kind = HOOK_INPUTS.get(event, UnknownHookInput) if isinstance(event, str) else UnknownHookInput
    return kind.from_wire(data)
