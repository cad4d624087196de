"""What is known of each hook event: what a hook can say, what a matcher looks at, and whether it comes.

All of it was seen with the agent itself; what its manual promises beyond that is not here.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from outrider.wire.choices import ASSISTANT_MESSAGE_ERRORS

Refusal: TypeAlias = Literal["permission", "decision", "block"]
"""How a refusal is spelled: `permissionDecision`, the `decision` of a permission request, or `block`."""

Fails: TypeAlias = Literal["open", "closed"]
"""What a hook that fails stands for: no answer, or a refusal."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook can do about an event."""

    refusal: Refusal | None = None
    """How it keeps the thing from happening; None if it cannot."""
    stops: bool = False
    """Whether it can end the turn. Some events take the words and go on all the same: those have False."""
    ends: bool = False
    """Whether a refusal ends the turn anyway. A prompt that was refused is gone; after a stop it is kept, and
    goes to the model with the next one."""
    context: bool = False
    """Whether it can tell the model something."""
    changes: str | None = None
    """The field of the input that it can change."""
    asks: bool = False
    defers: bool = False
    matcher: bool = True
    """Whether a matcher has anything to look at; without, it is ignored."""
    tool: bool = False
    """Whether the event is about one tool call."""
    words: tuple[str, ...] = ()
    """All that a matcher may name, if that is known, and not names of tools."""
    fails: Fails = "open"
    """What a hook that fails stands for, unless its user says otherwise."""
    can_close: bool = True
    """Whether a refusal holds anything back."""
    unseen: str = ""
    """When the event does not come, if there is such a case."""


_NEVER: Final = "The agent has never been seen to deliver it to a hook in this process"

_COMPACTIONS: Final = ("manual", "auto")

_PROMPT: Final = Event(refusal="block", stops=True, ends=True, context=True, matcher=False, fails="closed")
_GATE: Final = Event(refusal="block", matcher=False)
_STOP: Final = Event(refusal="block", stops=True, context=True)
_TOLD: Final = Event(context=True)
_SEEN: Final = Event()

EVENTS: Final[dict[str, Event]] = {
    "PreToolUse": Event(
        refusal="permission",
        stops=True,
        context=True,
        changes="tool_input",
        asks=True,
        defers=True,
        tool=True,
        fails="closed",
    ),
    "PostToolUse": Event(refusal="block", stops=True, context=True, changes="tool_response", tool=True),
    "PostToolUseFailure": Event(refusal="block", context=True, tool=True, can_close=False),
    "PostToolBatch": msgspec.structs.replace(_STOP, ends=True, matcher=False),
    "Notification": Event(
        context=True,
        unseen=f"{_NEVER}.",
        words=(
            *("permission_prompt", "idle_prompt", "auth_success", "elicitation_dialog", "agent_needs_input"),
            *("agent_completed", "elicitation_url_dialog", "worker_permission_prompt", "push_notification"),
            *("computer_use_enter", "computer_use_exit", "quota_auto_resume_fired"),
            *("quota_auto_resume_stale", "quota_auto_resume_disabled", "model_refusal_fallback"),
            *("auth_storage_failure", "plugin_notification", "elicitation_complete", "elicitation_response"),
        ),
    ),
    "UserPromptSubmit": _PROMPT,
    "UserPromptExpansion": msgspec.structs.replace(_PROMPT, matcher=True),
    "SessionStart": Event(
        context=True,
        words=("startup", "resume", "clear", "compact", "fork"),
        unseen="The agent delivers it only for the sources 'clear' and 'compact', not for the start of a"
        " session, nor when one is resumed or forked.",
    ),
    "SessionEnd": Event(
        words=("clear", "resume", "logout", "prompt_input_exit", "other", "bypass_permissions_disabled"),
        unseen="The agent delivers it only when the conversation is cleared or a signal ends the agent, not"
        " at the end of a session that is closed.",
    ),
    "Stop": msgspec.structs.replace(_STOP, matcher=False),
    "StopFailure": Event(words=ASSISTANT_MESSAGE_ERRORS),
    "SubagentStart": _TOLD,
    "SubagentStop": _STOP,
    "PreCompact": Event(refusal="block", words=_COMPACTIONS),
    "PostCompact": Event(words=_COMPACTIONS),
    "PreModelSwitch": Event(refusal="permission", asks=True, fails="closed"),
    "PostModelSwitch": _TOLD,
    "PermissionRequest": Event(
        refusal="decision", stops=True, changes="tool_input", tool=True, fails="closed"
    ),
    "PermissionDenied": Event(tool=True, unseen=f"{_NEVER}; it belongs to the permission mode 'auto'."),
    "Setup": Event(context=True, unseen=f"{_NEVER}.", words=("init", "maintenance")),
    "TeammateIdle": msgspec.structs.replace(_GATE, unseen=f"{_NEVER}; it belongs to teams of agents."),
    "TaskCreated": _GATE,
    "TaskCompleted": _GATE,
    "Elicitation": Event(refusal="block"),
    "ElicitationResult": Event(refusal="block"),
    "ConfigChange": Event(
        refusal="block",
        words=("user_settings", "project_settings", "local_settings", "policy_settings", "skills"),
    ),
    # Without a path from the hook the agent has no worktree: it fails closed by itself.
    "WorktreeCreate": msgspec.structs.replace(_GATE, fails="closed"),
    "WorktreeRemove": Event(matcher=False),
    "InstructionsLoaded": Event(
        words=("session_start", "nested_traversal", "path_glob_match", "include", "compact")
    ),
    "CwdChanged": Event(matcher=False, unseen=f"{_NEVER}, not even when a command changes the folder."),
    "FileChanged": _SEEN,
    "DirectoryAdded": _SEEN,
    "MessageDisplay": Event(matcher=False, changes="delta"),
}
"""Every event that has a class of its own."""

_UNKNOWN: Final = Event(refusal="block", stops=True, context=True)


def facts_of(event: str) -> Event:
    """What is known of an event. One that the agent has learnt since is taken at its word."""
    return EVENTS.get(event, _UNKNOWN)
