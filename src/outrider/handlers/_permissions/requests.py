"""Answers permission requests with the user's callback, and denies everything it does not clearly allow.

A policy is a callback too. `decisions` reads what a callback returns; `questions` handles questions and
plans.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, Final, cast

from outrider.errors import Denied
from outrider.handlers._calls import Attempt, CallContext, CallTimedOut, attempt, name_of, outcome_of
from outrider.handlers._permissions.decisions import NO_REASON, Decision, NotADecision, denied, read_decision
from outrider.handlers._router import PermissionHandled
from outrider.handlers._tool_names import resolved_updates
from outrider.redaction import preview_value
from outrider.wire import Value
from outrider.wire.tools import typed_input

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.handlers._router import Observe, Origin
    from outrider.options._tool_names import ToolNames
    from outrider.wire import Json, JsonObject
    from outrider.wire.choices import DecisionReasonType
    from outrider.wire.control import CanUseTool, ComputerFolder, MatchedAskRule
    from outrider.wire.hooks import McpServerSource
    from outrider.wire.permissions import PermissionUpdate

log = logging.getLogger("outrider.session")

_UNTOUCHED: Final = object()


class PermissionRequest(CallContext):
    """The agent wants to use a tool: all that it says about that, and for whom it asks.

    `input` and `tool` are copies. To run the tool with another input, return `allow(input=…)`: a call that is
    allowed after they were changed in place is denied, because it is not clear what was meant.
    """

    def __init__(self, ask: CanUseTool, origin: Origin) -> None:
        super().__init__(origin, ask.tool_use_id)
        self.ask: Final = ask
        """The request as the wire has it; not to be changed."""
        self.tool_name: Final[str] = ask.tool_name
        self.input: Final[JsonObject] = copied(ask.input)
        """What the tool would be called with."""
        self.suggestions: Final[tuple[PermissionUpdate, ...]] = tuple(ask.permission_suggestions or ())
        """Changes that would make the question unnecessary next time, for `allow(updates=…)`."""
        self.blocked_path: Final[str | None] = ask.blocked_path
        """The path that made the agent ask."""
        self.decision_reason: Final[str | None] = ask.decision_reason
        """Why the agent asks, in words."""
        self.decision_reason_type: Final[DecisionReasonType | None] = ask.decision_reason_type
        self.decision_reason_code: Final[str | None] = ask.decision_reason_code
        self.decision_reason_hook_event: Final[str | None] = ask.decision_reason_hook_event
        """Where a hook wanted the question: its event."""
        self.decision_reason_hook_source: Final[str | None] = ask.decision_reason_hook_source
        """Where a hook wanted the question: which settings it is from."""
        self.decision_reason_rule_source: Final[str | None] = ask.decision_reason_rule_source
        """Where a rule wanted the question: which settings it is from."""
        self.matched_ask_rule: Final[MatchedAskRule | None] = ask.matched_ask_rule
        """The rule of the agent's settings because of which it asks."""
        self.classifier_approvable: Final[bool | None] = ask.classifier_approvable
        """A classifier may decide in place of a person."""
        self.suppress_always_allow_rule: Final[bool | None] = ask.suppress_always_allow_rule
        """Do not offer to allow the like for good."""
        self.default_to_no: Final[bool | None] = ask.default_to_no
        """Offer the refusal first."""
        self.requires_user_interaction: Final[bool | None] = ask.requires_user_interaction
        """Only a person can answer: the tool is a question in itself."""
        self.server_policy_ask_only: Final[bool | None] = ask.server_policy_ask_only
        self.title: Final[str | None] = ask.title
        self.display_name: Final[str | None] = ask.display_name
        """The tool's name for people."""
        self.description: Final[str | None] = ask.description
        """What the call does, for people."""
        self.agent_id: Final[str | None] = ask.agent_id
        """The subagent that wants to use the tool; None for the main one."""
        self.mcp_server: Final[McpServerSource | None] = ask.mcp_server
        """Of a tool that an MCP server offers."""
        self.computer_folder: Final[ComputerFolder | None] = ask.computer_folder
        self.plugin: Final[Json] = ask.plugin
        self.server_prompt: Final[Json] = ask.server_prompt
        self._tool: object = _UNTOUCHED

    @property
    def tool(self) -> Value | None:
        """The input as a typed value of `outrider.wire.tools` for a built-in tool: `BashInput(command="ls")`.
        None for all others, and where it does not have the form that is known."""
        if self._tool is _UNTOUCHED:
            self._tool = self._typed()
        return cast("Value | None", self._tool)

    @property
    def plan(self) -> str | None:
        """The plan to approve, for `ExitPlanMode`: empty where the agent wrote none. None for other tools."""
        if self.tool_name != "ExitPlanMode":
            return None
        plan: object = self.input.get("plan")
        return plan if isinstance(plan, str) else ""

    @property
    def is_changed(self) -> bool:
        """Whether somebody has changed `input` or `tool` in place."""
        return self.input != self.ask.input or (self._tool is not _UNTOUCHED and self._tool != self._typed())

    def _typed(self) -> Value | None:
        value = typed_input(self.tool_name, self.ask.input)
        return value if isinstance(value, Value) else None

    def __repr__(self) -> str:
        agent = f" by {self.agent_id}" if self.agent_id else ""
        return f"<{type(self).__name__} {self.tool_name} {preview_value(self.input)}{agent}>"


class Permissions:
    """Decides what one session's agent asks for. Never allows anything that nobody allowed.

    `permission` gets a `PermissionRequest` and returns `allow(…)`, `deny("why")`, True, False, a
    `PermissionResult` or the same as a dict, or raises `Denied`. Anything else, an error, a timeout or no
    callback at all is a denial: the model is told what kind of failure it was, the log has the rest.
    """

    def __init__(
        self,
        permission: Callable[..., object] | None,
        on_question: Callable[..., object] | None,
        on_plan: Callable[..., object] | None,
        observe: Observe,
        names: Callable[[], ToolNames],
        timeout: float | None = None,
    ) -> None:
        """`names` gives those of the session's tools. `timeout`: how many seconds a callback may take for one
        decision. None: as long as it likes."""
        self._permission = permission
        self._on_question = on_question
        self._on_plan = on_plan
        self._observe = observe
        self._names = names
        self._timeout = timeout
        self._is_closed = False

    def close(self) -> None:
        """The session ends: from now on all is denied, also what is being decided."""
        self._is_closed = True

    async def answer(self, ask: CanUseTool, origin: Origin) -> JsonObject:
        """The decision, as sent. Raises nothing but cancellation and what ends programs."""
        began = perf_counter()
        try:
            decision = await self._decide(ask, origin)
        except Exception as error:  # noqa: BLE001 - a mistake of ours allows nothing either
            decision = denied_by_failure(Attempt(outcome="failed", error=error), "Outrider", ask.tool_name)
        except BaseException as error:
            undecided = denied("", "it was not decided", outcome=outcome_of(error), error=error)
            self._report(ask, began, undecided)
            raise
        self._report(ask, began, decision)
        return decision.wire

    async def _decide(self, ask: CanUseTool, origin: Origin) -> Decision:
        decision = _closed() if self._is_closed else await self._decided(ask, origin)
        if updates := decision.wire.get("updatedPermissions"):
            suggested = ask.permission_suggestions or ()
            decision.wire["updatedPermissions"] = resolved_updates(updates, suggested, self._names())
        # It may have been closed meanwhile.
        return _closed() if self._is_closed else decision

    async def _decided(self, ask: CanUseTool, origin: Origin) -> Decision:
        if ask.tool_name == "AskUserQuestion" and self._on_question is not None:
            from outrider.handlers._permissions.questions import ask_questions

            return await ask_questions(self._on_question, ask, origin, self._timeout)
        if ask.tool_name == "ExitPlanMode" and self._on_plan is not None:
            from outrider.handlers._permissions.questions import Plan, read_approval

            return await decided_by(self._on_plan, Plan(ask, origin), self._timeout, read_approval)
        if self._permission is not None:
            return await decided_by(self._permission, PermissionRequest(ask, origin), self._timeout)
        return denied("Nobody can be asked for permission here.", "there is no permission callback")

    def _report(self, ask: CanUseTool, began: float, decision: Decision) -> None:
        self._observe(
            PermissionHandled(
                seconds=perf_counter() - began,
                outcome=decision.outcome,
                error=decision.error,
                tool_use_id=ask.tool_use_id,
                tool_name=ask.tool_name,
                input=ask.input,
                decision="allow" if decision.is_allowed else "deny",
                reason=decision.reason,
            )
        )


async def decided_by(
    callback: Callable[..., object],
    request: PermissionRequest,
    timeout: float | None,
    read: Callable[..., Decision] = read_decision,
) -> Decision:
    """What a callback decides about a request; a denial if it fails in any way."""
    who = name_of(callback)
    tried = await attempt(callback, request, timeout)
    if tried.outcome != "answered":
        return denied_by_failure(tried, who, request.tool_name)
    try:
        decision = read(tried.value, request.ask.input, request.ask.tool_use_id, who)
        if decision.is_allowed and request.is_changed and decision.wire["updatedInput"] is request.ask.input:
            raise NotADecision("it changed the request in place: return allow(input=…) to change the input")
    except NotADecision as error:
        return denied_for_nonsense(error, who, request.tool_name)
    except Exception as error:  # noqa: BLE001 - of an object of the user's that was looked at
        return denied_by_failure(Attempt(outcome="failed", error=error), who, request.tool_name)
    return decision


def denied_by_failure(tried: Attempt, who: str, tool_name: str) -> Decision:
    """The denial for a callback that raised or took too long. `Denied` is its way to say no."""
    error = tried.error
    if isinstance(error, Denied):
        said = str(error.reason or "").strip() or NO_REASON
        return denied(said, f"{who} denied it: {said}", interrupt=bool(error.interrupt))
    if isinstance(error, CallTimedOut) and tried.outcome == "timed_out":
        log.error("%s did not decide about %s within %g s: denied", who, tool_name, error.seconds)
        message = f"Nobody decided about this within {error.seconds:g} s, so it is not allowed."
        return denied(message, f"{who} gave {error}", outcome="timed_out", error=error)
    log.error("%s failed to decide about %s: denied", who, tool_name, exc_info=error)
    kind = type(error).__name__
    return denied(
        f"The host failed to decide about this ({kind}), so it is not allowed.",
        f"{who} raised {kind}",
        outcome="failed",
        error=error,
    )


def denied_for_nonsense(error: NotADecision, who: str, tool_name: str) -> Decision:
    """The denial for an answer that is none."""
    log.error("%s did not decide about %s: denied, because %s", who, tool_name, error)
    return denied(
        "The host gave no valid decision about this, so it is not allowed.",
        f"{who} gave no valid decision: {error}",
        outcome="failed",
        error=error,
    )


def _closed() -> Decision:
    return denied("The session is being closed, so nothing more is allowed.", "the session is closed")


def copied(value: JsonObject) -> JsonObject:
    """A copy of a JSON object that shares nothing that can be changed."""
    return {key: _copied(item) for key, item in value.items()}


def _copied(value: object) -> object:
    if isinstance(value, dict):
        return copied(cast("JsonObject", value))
    if isinstance(value, list):
        return [_copied(item) for item in cast("list[object]", value)]
    return value
