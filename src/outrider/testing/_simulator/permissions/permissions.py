"""Owns whether a call of a tool may run: hooks, rules, mode and the question to the host, in that order.

Rules and modes are judged in `rules`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

import anyio
import msgspec

from outrider.testing._simulator.mcp.server import shown_name
from outrider.testing._simulator.permissions.questions import refusal
from outrider.testing._simulator.permissions.rules import (
    Allow,
    Ask,
    Behavior,
    Deny,
    Judge,
    Judgement,
    Rule,
    RuleBook,
    absolute_input,
    as_written,
    described,
    result_meta,
)
from outrider.testing._simulator.world import Refused, wrong_input
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from outrider.testing._simulator.host.hooks import Hooks, Verdict
    from outrider.testing._simulator.permissions.rules import Company
    from outrider.testing._simulator.world import ToolCall

__all__ = ["Allowed", "Answer", "Denied", "MODES", "ModeRefused", "Permissions", "Prompting"]


class ModeRefused(ValueError):
    """The mode cannot be had. The text is the program's."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """The call may run."""

    input: JsonObject
    """What the tool is given: perhaps changed by a hook or by the host."""
    source: str
    """Who said so, for `tool_result_meta`."""
    meta: JsonObject | None = None
    """The entry of `tool_result_meta` for the call; none if the program writes none."""
    stop_reason: str | None = None
    """Set when a hook wants the turn to end after the call."""
    additional_context: tuple[str, ...] = ()
    notices: tuple[JsonObject, ...] = ()
    """Frames to be written right before the tool's result."""
    reminders: tuple[str, ...] = ()
    """What the model is told of the hooks' answers with its next request."""


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """The call does not run."""

    message: str
    """For the model, as the text of the tool's result."""
    source: str
    interrupt: bool = False
    """The turn ends with it."""
    was_asked: bool = False
    """The host was asked."""
    deferred: bool = False
    """A hook put the call off: the turn ends, and the call has no result."""
    meta: JsonObject | None = None
    """The entry of `tool_result_meta` for the call; none if the program writes none."""
    stop_reason: str | None = None
    """Set when a hook wants the turn to end after the call."""
    detail: str = ""
    """`tool_use_result` of the frame."""
    additional_context: tuple[str, ...] = ()
    notices: tuple[JsonObject, ...] = ()
    """Frames to be written right before the tool's result."""
    reminders: tuple[str, ...] = ()
    """What the model is told of the hooks' answers with its next request."""


_INVALID: Final = (
    "The canUseTool callback returned an invalid permission result. Expected {behavior: 'allow',"
    " updatedInput?: object} or {behavior: 'deny', message: string}."
)
_MOST_UPDATES: Final = 4096


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of a call."""

    is_allowed: bool
    message: str = ""
    by_hook: bool = False
    is_failure: bool = False
    """There is no answer: it could not be asked, or it was not valid."""
    interrupt: bool = False
    updated_input: JsonObject | None = None
    updated_permissions: tuple[JsonObject, ...] = ()


class Prompting:
    """Asks for one run."""

    def __init__(self, run: Company, hooks: Hooks, apply: Callable[[Sequence[JsonObject]], None]) -> None:
        self._run, self._hooks, self._apply = run, hooks, apply

    @property
    def has_surface(self) -> bool:
        """Whether there is anybody to ask."""
        found = self._run.invocation
        return found.permission_prompt_tool is not None and found.permission_prompts != "none"

    async def ask(self, call: ToolCall, given: JsonObject, ask: Ask) -> Answer | None:
        """The first answer, the host's or that of a `PermissionRequest` hook; none if there is nobody."""
        if not self.has_surface:
            return await self._ask_hooks(call, given, ask)
        if not self._hooks.has("PermissionRequest"):
            return await self._ask_host(call, given, ask)
        return await self._race(call, given, ask)

    async def _race(self, call: ToolCall, given: JsonObject, ask: Ask) -> Answer | None:
        answers: list[Answer] = []
        decided = anyio.Event()
        # A hook is not withdrawn because the host was faster, but with the turn it is.
        hook_scope = anyio.CancelScope()

        async def host(*, task_status: TaskStatus[None]) -> None:
            task_status.started()
            answers.append(await self._ask_host(call, given, ask))
            decided.set()

        async def hook() -> None:
            with hook_scope:
                answer = await self._ask_hooks(call, given, ask)
                if answer is not None and not decided.is_set():
                    # Before the question to the host is withdrawn.
                    self._apply(answer.updated_permissions)
                    answers.append(msgspec.structs.replace(answer, updated_permissions=()))
                    decided.set()

        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(host)
                self._run.tasks.start_soon(hook, name="simulated PermissionRequest")
                await decided.wait()
                tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            hook_scope.cancel()
            raise
        return answers[0]

    async def _ask_hooks(self, call: ToolCall, given: JsonObject, ask: Ask) -> Answer | None:
        suggestions = list(ask.suggestions or ())
        if not self.has_surface:
            suggestions = [entry for entry in suggestions if entry.get("destination") == "session"]
        fields: JsonObject = {
            "tool_name": call.name,
            "tool_input": given,
            "permission_suggestions": suggestions,
        }
        verdict = await self._hooks.fire("PermissionRequest", fields, call=call)
        for output in verdict.output:
            specific = output.get("hookSpecificOutput")
            decision = cast("JsonObject", specific).get("decision") if isinstance(specific, dict) else None
            answer = _read(decision)
            if answer is not None:
                return msgspec.structs.replace(answer, by_hook=True)
        return None

    async def _ask_host(self, call: ToolCall, given: JsonObject, ask: Ask) -> Answer:
        try:
            answer = await self._put(call, given, ask)
        except Refused as refusal:
            problem = "Error: " + str(refusal)
            if getattr(refusal, "is_gone", False):
                problem = "AbortError: Tool permission stream closed before response received"
            return Answer(
                is_allowed=False, is_failure=True, message=f"Tool permission request failed: {problem}"
            )
        return _read(answer) or Answer(is_allowed=False, is_failure=True, message=_INVALID)

    async def _put(self, call: ToolCall, given: JsonObject, ask: Ask) -> object:
        tool = self._run.invocation.permission_prompt_tool
        if tool is None or tool == "stdio":
            return await self._run.ask("can_use_tool", self._question(call, given, ask))
        arguments: JsonObject = {"tool_name": call.name, "input": given, "tool_use_id": call.id}
        try:
            result = await self._run.mcp.call_tool(tool, arguments)
            return json.loads("".join(str(block.get("text", "")) for block in result["content"]))
        except LookupError as error:
            raise Refused(str(error)) from None
        except ValueError:
            return None

    def _question(self, call: ToolCall, given: JsonObject, ask: Ask) -> JsonObject:
        """The fields of `can_use_tool`, in the program's order."""
        made: JsonObject = {"tool_name": call.name}
        server = self._run.mcp.server_of(call.name)
        shown = call.name
        if server is not None:
            made["mcp_server"] = server
            shown = shown_name(call.name.split("__", 2)[-1])
        made |= {"display_name": shown, "input": given}
        about = described(call, self._run.cwd)
        if about is not None:
            made["description"] = about
        made |= {**ask.fields(), "tool_use_id": call.id}
        if call.agent_id is not None:
            made["agent_id"] = call.agent_id
        if ask.is_interactive:
            made["requires_user_interaction"] = True
        return made


def _read(answer: object) -> Answer | None:
    """Read an answer; none if it is not one."""
    if not isinstance(answer, dict):
        return None
    given = cast("JsonObject", answer)
    updates = given.get("updatedPermissions")
    changed = given.get("updatedInput")
    if not isinstance(updates, list | None) or not isinstance(changed, dict | None):
        return None
    entries = cast("list[JsonObject]", updates or [])
    if len(entries) > _MOST_UPDATES:
        return None
    if given.get("behavior") == "allow":
        return Answer(
            is_allowed=True,
            updated_input=cast("JsonObject | None", changed) or None,
            updated_permissions=tuple(entries),
        )
    message = given.get("message")
    if given.get("behavior") != "deny" or not isinstance(message, str):
        return None
    return Answer(is_allowed=False, message=message, interrupt=given.get("interrupt") is True)


MODES: Final = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")

_REJECTED: Final = (
    "The user doesn't want to proceed with this tool use. It was not carried out; wait for what they say."
)
_CANCELLED: Final = "The user doesn't want to take this action right now. Stop, and wait for what they say."
_NO_CHECK: Final = (
    "Auto mode can't check actions in this session, so every action that needs the check is refused. To run"
    " these actions, use another permission mode."
)
_NOBODY: Final = (
    "Permission for this tool use was denied. It requires approval, and this session has no approval surface"
    " — nobody can answer a permission prompt here — so it was denied automatically, as all else that"
    " requires approval will be. What required approval: "
)
_NOBODY_REASON: Final = "no approval surface in this session; permission request denied automatically"


class Permissions:
    """The permission rules and the mode of one run."""

    def __init__(self, run: Company, hooks: Hooks) -> None:
        self._run, self._hooks = run, hooks
        self._book = RuleBook(run.invocation, run.cwd, run.config_dir)
        self._judge = Judge(run, self._book)
        self._prompting = Prompting(run, hooks, self.apply)
        self._has_warned = False
        self._mode_before_plan = "default"
        self.denials: list[JsonObject] = []
        """`permission_denials` of the next result. The core empties it when it has written one."""

    @property
    def has_surface(self) -> bool:
        """Whether the host, or a tool that stands for it, can be asked."""
        return self._prompting.has_surface

    @property
    def settings_mode(self) -> str | None:
        """The mode that settings begin with, if the command line names none."""
        return self._book.default_mode

    @property
    def mode_before_plan(self) -> str:
        """The mode that a plan, once it is approved, goes back to."""
        return self._mode_before_plan

    async def decide(self, call: ToolCall) -> Allowed | Denied:
        """Say whether the call may run: the hooks first, then rules and mode, then the host."""
        if (wrong := refusal(call, self._run.permission_mode)) is not None:
            text = f"<tool_use_error>{wrong}</tool_use_error>"
            is_input = wrong.startswith("InputValidationError")
            return Denied(message=text, source="config", detail=wrong if is_input else f"Error: {wrong}")
        given = absolute_input(call, self._run.cwd)
        if (barred := self._judge.barred(call)) is not None:
            return self._deny(call, given, barred)
        fields: JsonObject = {"tool_name": call.name, "tool_input": given, "tool_use_id": call.id}
        verdict = await self._hooks.fire("PreToolUse", fields, call=call)
        decision = await self._decide(call, given, verdict)
        return msgspec.structs.replace(
            decision,
            stop_reason=verdict.stop_reason,
            additional_context=verdict.additional_context,
            notices=verdict.notices,
            reminders=verdict.reminders,
        )

    async def _decide(self, call: ToolCall, given: JsonObject, verdict: Verdict) -> Allowed | Denied:
        refused = self._by_hook(call, given, verdict)
        if refused is not None:
            return refused
        if verdict.updated_input is not None:
            wrong = self._wrong(call.name, verdict.updated_input)
            if wrong is not None:
                text = (
                    f"PreToolUse hook for {call.name} returned updatedInput that failed schema validation:"
                    f" {wrong}\nThe tool input from the model was valid; the hook's rewrite of it was not."
                )
                return self._deny_by_hook(call, given, text)
            call = msgspec.structs.replace(call, input=verdict.updated_input)
            given = absolute_input(call, self._run.cwd)
        judgement = self._judged(call, verdict)
        if isinstance(judgement, Deny):
            # The program does not tell of a rule that overrules a hook.
            is_silent = judgement.is_silent or verdict.decision == "allow"
            return self._deny(call, given, msgspec.structs.replace(judgement, is_silent=is_silent))
        if verdict.decision == "allow" and not (isinstance(judgement, Ask) and judgement.is_forced):
            return Allowed(
                input=call.input,
                source="hook",
                meta=result_meta(call.id, "accept", "hook", reason_type="hook"),
            )
        if isinstance(judgement, Allow):
            meta = result_meta(call.id, "accept", "config", reason_type=judgement.reason_type)
            return Allowed(input=call.input, source="config", meta=meta)
        return await self._ask(call, given, judgement)

    def _judged(self, call: ToolCall, verdict: Verdict) -> Judgement:
        judgement = self._judge.judge(call)
        if isinstance(judgement, Ask) and judgement.is_interactive:
            # A hook may answer in the place of the user.
            if verdict.decision == "allow" and verdict.updated_input is not None:
                return Allow()
            return judgement
        # Rules are above hooks, the mode is not.
        if isinstance(judgement, Deny) and judgement.reason_type not in ("mode", "classifier"):
            return judgement
        if verdict.decision == "ask":
            return Ask.by_hook("PreToolUse", verdict.reason or "")
        return Allow() if verdict.decision == "allow" and isinstance(judgement, Deny) else judgement

    def _by_hook(self, call: ToolCall, given: JsonObject, verdict: Verdict) -> Denied | None:
        if verdict.is_gone:
            meta = result_meta(call.id, None, kind="cancelled")
            return Denied(message=_CANCELLED, source="hook", detail=_CANCELLED, meta=meta)
        if verdict.failure is not None:
            return Denied(message=verdict.failure, source="hook", detail=f"Error: {verdict.failure}")
        if verdict.decision == "defer":
            return Denied(message="", source="hook", deferred=True)
        if verdict.decision == "deny":
            text = f"PreToolUse:{call.name} hook error: {verdict.reason or 'Blocked by hook'}"
            return self._deny_by_hook(call, given, text)
        return None

    def _deny_by_hook(self, call: ToolCall, given: JsonObject, text: str) -> Denied:
        self._note_denial(call, given)
        return Denied(
            message=text,
            source="hook",
            detail=f"Error: {text}",
            meta=result_meta(call.id, "reject", "hook", reason_type="hook", kind="permission-rule"),
        )

    def _deny(self, call: ToolCall, given: JsonObject, deny: Deny) -> Denied:
        """Refuse a call with nobody asked, and tell the host."""
        self._note_denial(call, given)
        if deny.kind == "automode-unavailable" and not self._has_warned:
            self._has_warned = True
            self._run.say(
                {
                    "type": "system",
                    "subtype": "informational",
                    "content": _NO_CHECK,
                    "isMeta": False,
                    "level": "warning",
                    "tag": "auto_mode_no_server_check",
                }
            )
        if not deny.is_silent:
            self._tell(call, deny.message, deny.reason_type, deny.reason, deny.reason_code)
        return Denied(
            message=deny.message,
            source="config",
            detail=deny.detail or f"Error: {deny.message}",
            meta=result_meta(call.id, "reject", "config", reason_type=deny.reason_type, kind=deny.kind),
        )

    def _tell(
        self, call: ToolCall, message: str, kind: str | None, reason: str | None, code: str | None = None
    ) -> None:
        told: JsonObject = {
            "type": "system",
            "subtype": "permission_denied",
            "tool_name": call.name,
            "tool_use_id": call.id,
        }
        more = {"decision_reason_type": kind, "decision_reason_code": code, "decision_reason": reason}
        told |= {name: value for name, value in more.items() if value is not None}
        self._run.say({**told, "message": message})

    async def _ask(self, call: ToolCall, given: JsonObject, ask: Ask) -> Allowed | Denied:
        try:
            answer = await self._prompting.ask(call, given, ask)
        except anyio.get_cancelled_exc_class():
            # The turn is interrupted meanwhile, which is a no.
            self._note_denial(call, given)
            raise
        if answer is None:
            return self._nobody(call, given, ask)
        if not answer.is_allowed:
            return self._denied_by(answer, call, given)
        if answer.updated_permissions:
            self.apply(answer.updated_permissions)
        changed = answer.updated_input
        wrong = None if changed is None else self._wrong(call.name, changed)
        if wrong is not None:
            text = (
                f"The permission handler returned updatedInput for {call.name} that failed schema validation:"
                f" {wrong}\nThe input from the model was valid; what a canUseTool callback, a"
                " PermissionRequest hook or a permission-prompt tool makes of it has to be, too."
            )
            return Denied(
                message=f"<tool_use_error>{text}</tool_use_error>",
                source="permission_updated_input_invalid",
                detail=f"InputValidationError: permission handler updatedInput failed schema for {call.name}",
                meta=result_meta(call.id, "reject", "permission_updated_input_invalid"),
                was_asked=True,
            )
        source, kind = ("hook", "hook") if answer.by_hook else ("user_temporary", None)
        meta = result_meta(call.id, "accept", source, reason_type=kind)
        allowed = call.input if changed is None else as_written(changed, given, call)
        return Allowed(input=allowed, source=source, meta=meta)

    def _denied_by(self, answer: Answer, call: ToolCall, given: JsonObject) -> Denied:
        self._note_denial(call, given)
        if answer.interrupt:
            return Denied(
                message=_REJECTED,
                source="hook" if answer.by_hook else "user_reject",
                interrupt=True,
                was_asked=True,
                detail="User rejected tool use",
                meta=result_meta(call.id, None, kind="user-rejected"),
            )
        source, kind = "user_reject", None
        if answer.by_hook:
            source, kind = "hook", "hook"
        elif answer.is_failure:
            source, kind = "config", "other"
        return Denied(
            message=answer.message,
            source=source,
            was_asked=True,
            detail=f"Error: {answer.message}",
            meta=result_meta(call.id, "reject", source, reason_type=kind, kind="permission-rule"),
        )

    def _nobody(self, call: ToolCall, given: JsonObject, ask: Ask) -> Denied:
        if self._run.invocation.permission_prompts == "none":
            message = _NOBODY + ask.message
            deny = Deny(message=message, reason=_NOBODY_REASON, reason_type="asyncAgent")
            return self._deny(call, given, deny)
        self._note_denial(call, given)
        self._tell(call, ask.message, ask.reason_type, ask.reason)
        return Denied(
            message=ask.message,
            source="config",
            detail=f"Error: {ask.message}",
            meta=result_meta(call.id, "reject", "config", kind="user-rejected"),
        )

    def _note_denial(self, call: ToolCall, given: JsonObject) -> None:
        self.denials.append({"tool_name": call.name, "tool_use_id": call.id, "tool_input": given})

    def _wrong(self, name: str, given: JsonObject) -> str | None:
        """What the input lacks, in the program's words."""
        spec = next((spec for spec in self._run.offered() if spec.name == name), None)
        return None if spec is None else wrong_input(spec, given)

    def check_mode(self, mode: object) -> str:
        """The mode, if it can be had. Raises `ModeRefused`."""
        if mode == "manual":
            return "default"
        if not isinstance(mode, str) or mode not in MODES:
            text = f"Cannot set permission mode: must be one of {', '.join(MODES)}"
            raise ModeRefused(text, "invalid_mode")
        found = self._run.invocation
        launched = found.permission_mode == mode or found.dangerously_skip_permissions
        if mode == "bypassPermissions" and not (launched or found.allow_dangerously_skip_permissions):
            text = (
                "Cannot set permission mode to bypassPermissions because the session was not launched with"
                " --dangerously-skip-permissions"
            )
            raise ModeRefused(text, "bypass_not_launched")
        return mode

    def set_mode(self, mode: str) -> None:
        """Change the mode of the run, and tell the host.

        Raises `ModeRefused`, a `ValueError` with the program's text and code, if it cannot be had.
        """
        mode = self.check_mode(mode)
        before = self._run.permission_mode
        if mode == before:
            return
        if mode == "plan":
            self._mode_before_plan = before
        self._run.permission_mode = mode
        self._run.say({"type": "system", "subtype": "status", "status": None, "permissionMode": mode})

    def apply(self, updates: Sequence[JsonObject]) -> None:
        """Take up changes of the permissions: those that the host gave with an answer. They last for the run;
        settings files are not written."""
        for update in updates:
            source = str(update.get("destination", "session"))
            match update.get("type"):
                case "setMode":
                    try:
                        self.set_mode(str(update.get("mode")))
                    except ModeRefused as refusal:
                        self._run.complain(str(refusal))
                case "addDirectories":
                    self._book.add_folders(_texts(update, "directories"))
                case "removeDirectories":
                    self._book.remove_folders(_texts(update, "directories"))
                case "addRules" | "replaceRules" | "removeRules" as kind:
                    behavior = cast("Behavior", update.get("behavior", "allow"))
                    rules = [
                        Rule(str(rule.get("toolName")), rule.get("ruleContent"), source)
                        for rule in cast("list[JsonObject]", update.get("rules") or [])
                    ]
                    if kind == "removeRules":
                        self._book.remove(behavior, rules)
                        continue
                    if kind == "replaceRules":
                        self._book.clear(behavior, source)
                    self._book.add(behavior, rules)
                case _:
                    pass

    def listing(self) -> JsonObject:
        """The answer to `list_permission_rules`."""
        rules: list[JsonObject] = [
            {
                "behavior": behavior,
                "source": rule.source,
                "rule": rule.text,
                "editability": _editability(rule),
            }
            for behavior, rule in self._book
        ]
        own = [str(folder) for folder in self._book.folders if folder != self._run.cwd]
        state: JsonObject = {
            "rules": rules,
            "workspaceDirectories": own,
            "originalCwd": str(self._run.cwd),
            "managedOnly": False,
        }
        return {"state": state}


def _editability(rule: Rule) -> str:
    return "persistent" if rule.source.endswith("Settings") and rule.source != "flagSettings" else "session"


def _texts(update: JsonObject, name: str) -> list[str]:
    return [str(text) for text in cast("list[object]", update.get(name) or [])]
