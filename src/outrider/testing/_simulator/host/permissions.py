"""Whether a tool call may run: hooks, rules, mode and the question to the host, in that order.

Rules count by the plain name of a tool, and for Bash by the text of the command or its beginning. A rule that
says more makes the tool one that is asked about.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio
import msgspec

from outrider.testing._simulator.frames import (
    Refused,
    ToolCall,
    as_list,
    as_object,
    covers_tool,
    present,
    wrong_input,
)
from outrider.testing._simulator.tools.mcp import shown_name
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from outrider.testing._simulator.host.hooks import Hooks, Verdict
    from outrider.testing._simulator.run import Run


MODES: Final = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")

_EDITS: Final = frozenset({"Edit", "NotebookEdit", "Write"})
_WEB: Final = frozenset({"WebFetch", "WebSearch"})
_QUESTIONS: Final = frozenset({"AskUserQuestion", "ExitPlanMode"})
_HARMLESS: Final = frozenset(
    ["date", "echo", "false", "ls", "printf", "pwd", "sleep", "test", "true", "which"]
)
"""Commands that run unasked, if there is nothing else in the line."""
_OPERATORS: Final = frozenset(";&|<>$`\n")
_MOST_UPDATES: Final = 4096

_APPROVAL: Final = "This command requires approval"
_CANCELLED: Final = "The user doesn't want to take this action right now. Stop, and wait for what they say."
_INVALID: Final = (
    "The canUseTool callback returned an invalid permission result. Expected {behavior: 'allow',"
    " updatedInput?: object} or {behavior: 'deny', message: string}."
)
_NOBODY: Final = (
    "Permission for this tool use was denied. It requires approval, and this session has no approval surface"
    " — nobody can answer a permission prompt here — so it was denied automatically, as all else that"
    " requires approval will be. What required approval: "
)
_NOT_PLANNING: Final = (
    "You are not in plan mode. Call EnterPlanMode first, or carry out the plan if it was approved."
)
_REJECTED: Final = (
    "The user doesn't want to proceed with this tool use. It was not carried out; wait for what they say."
)


class ModeRefused(ValueError):
    """The mode cannot be set. The text and the code are the program's."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a call runs, and what the frames say of it."""

    is_allowed: bool
    input: JsonObject = {}
    """What an allowed tool is given: perhaps changed by a hook or by the host."""
    message: str = ""
    """Why a call is denied, for the model."""
    detail: str = ""
    """`tool_use_result` of a denial."""
    meta: JsonObject | None = None
    """The entry of `tool_result_meta`; None if the program writes none."""
    interrupt: bool = False
    """The turn ends with it."""
    deferred: bool = False
    """A hook put the call off: the turn ends, and the call has no result."""
    stop_reason: str | None = None
    """Set when a hook wants the turn to end after the call."""
    notices: tuple[JsonObject, ...] = ()
    """Frames to write right before the tool's result."""
    reminders: tuple[str, ...] = ()
    """What the model is told about the hooks' answers with its next request."""


class _Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What rules and mode decide: allow, deny or ask."""

    behavior: str
    message: str = ""
    reason: str | None = None
    reason_type: str | None = None
    source: str = "config"
    is_forced: bool = False
    """Asked in every mode: because of a rule, a hook, or a tool that is a question."""
    fields: JsonObject = {}
    """Of `can_use_tool`, those that say why."""


_ask: Final = partial(_Judgement, behavior="ask")


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the host or a hook answered about a call."""

    is_allowed: bool
    message: str = ""
    by_hook: bool = False
    is_failure: bool = False
    """There is no valid answer."""
    interrupt: bool = False
    updated_input: JsonObject | None = None
    updated_permissions: tuple[JsonObject, ...] = ()


class _Rule(msgspec.Struct, frozen=True):
    behavior: str
    tool: str
    content: str | None
    source: str
    """As the program names it: `cliArg`, `flagSettings`, `session`, …"""

    @property
    def text(self) -> str:
        return self.tool if self.content is None else f"{self.tool}({self.content})"

    def covers(self, call: ToolCall) -> bool:
        """Whether it covers the whole call."""
        if self.content in (None, "*"):
            return covers_tool(self.tool, call.name)
        if call.name != "Bash" or self.tool != "Bash":
            return False
        command, content = str(call.input.get("command")).strip(), str(self.content)
        start = content.removesuffix(":*").removesuffix(" *")
        is_longer = command.startswith(f"{start} ") and not _OPERATORS.intersection(command)
        return command == start or (start != content and is_longer)


def _read_rule(behavior: str, text: str, source: str) -> _Rule:
    name, bracket, rest = text.strip().partition("(")
    return _Rule(behavior, name, rest.removesuffix(")") if bracket else None, source)


class Permissions:
    """The rules and the mode of one run, and the questions to its host."""

    def __init__(self, run: Run, hooks: Hooks) -> None:
        self._run, self._hooks = run, hooks
        self._rules: list[_Rule] = []
        self._folders: list[Path] = []
        """Where the run may work, beside its own folder."""
        self.mode_before_plan = "default"
        self.denials: list[JsonObject] = []
        """`permission_denials` of the next result, which empties it."""
        found = run.invocation
        given = as_object(found.settings.get("permissions"))
        mode = given.get("defaultMode")
        self.settings_mode: str | None = mode if isinstance(mode, str) else None
        """The mode that settings begin with, if the command line names none."""
        more = map(str, as_list(given.get("additionalDirectories")))
        self.apply([{"type": "addDirectories", "directories": [*found.add_dirs, *more]}])
        own: JsonObject = {"allow": list(found.allowed_tools), "deny": list(found.disallowed_tools)}
        self.add_rules(own, "cliArg")
        self.add_rules(given, "flagSettings")

    @property
    def has_surface(self) -> bool:
        """Whether the host, or a tool in its place, can be asked."""
        found = self._run.invocation
        return found.permission_prompt_tool is not None and found.permission_prompts != "none"

    # Deciding.

    async def decide(self, call: ToolCall) -> Decision:
        """Decide whether the call may run: hooks first, then rules and mode, then the host."""
        if (wrong := _refusal(call, self._run.permission_mode)) is not None:
            text = f"<tool_use_error>{wrong}</tool_use_error>"
            detail = wrong if wrong.startswith("InputValidationError") else f"Error: {wrong}"
            return Decision(is_allowed=False, message=text, detail=detail)
        given = self._shown(call)
        fields: JsonObject = {"tool_name": call.name, "tool_input": given, "tool_use_id": call.id}
        fields |= present(mcp_server=self._run.mcp.server_of(call.name))
        verdict = await self._hooks.fire("PreToolUse", fields, call=call)
        decision = await self._decide(call, given, verdict)
        return msgspec.structs.replace(
            decision, stop_reason=verdict.stop_reason, notices=verdict.notices, reminders=verdict.reminders
        )

    async def _decide(self, call: ToolCall, given: JsonObject, verdict: Verdict) -> Decision:
        if verdict.is_gone:
            meta = _meta(call.id, None, kind="cancelled")
            return Decision(is_allowed=False, message=_CANCELLED, detail=_CANCELLED, meta=meta)
        if verdict.failure is not None:
            return Decision(is_allowed=False, message=verdict.failure, detail=f"Error: {verdict.failure}")
        if verdict.decision == "defer":
            return Decision(is_allowed=False, deferred=True)
        if verdict.decision == "deny":
            text = f"PreToolUse:{call.name} hook error: {verdict.reason or 'Blocked by hook'}"
            return self._denied(call, given, text, "hook", "hook")
        if verdict.updated_input is not None:
            if (wrong := self._wrong(call.name, verdict.updated_input)) is not None:
                text = (
                    f"PreToolUse hook for {call.name} returned updatedInput that failed schema validation:"
                    f" {wrong}\nThe tool input from the model was valid; the hook's rewrite of it was not."
                )
                return self._denied(call, given, text, "hook", "hook")
            call = msgspec.structs.replace(call, input=verdict.updated_input)
            given = self._shown(call)
        found = self._judge(call)
        is_question = call.name in _QUESTIONS
        by_rule = found.behavior == "deny" and found.reason_type == "rule"
        if verdict.decision == "ask" and not by_rule and not is_question:
            fields: JsonObject = {
                "decision_reason_hook_event": "PreToolUse",
                "decision_reason_hook_source": "settings",
            }
            reason = verdict.reason or ""
            found = _ask(message=reason, reason=reason, reason_type="hook", is_forced=True, fields=fields)
        is_approved = verdict.decision == "allow" and (not is_question or verdict.updated_input is not None)
        # Rules are above hooks, the mode is not.
        if is_approved and not by_rule and (is_question or not found.is_forced):
            return _allowed(call, "hook", "hook")
        if found.behavior == "deny":
            if not is_approved:
                self._say_denied(call, found)
            return self._denied(call, given, found.message, "config", found.reason_type)
        if found.behavior == "allow":
            return _allowed(call, found.source, found.reason_type)
        return await self._ask(call, given, found)

    def _denied(
        self,
        call: ToolCall,
        given: JsonObject,
        message: str,
        source: str,
        reason_type: str | None = None,
        kind: str = "permission-rule",
    ) -> Decision:
        self._note_denial(call, given)
        meta = _meta(call.id, "reject", source, reason_type, kind)
        return Decision(is_allowed=False, message=message, detail=f"Error: {message}", meta=meta)

    def _note_denial(self, call: ToolCall, given: JsonObject) -> None:
        self.denials.append({"tool_name": call.name, "tool_use_id": call.id, "tool_input": given})

    def _say_denied(self, call: ToolCall, found: _Judgement) -> None:
        frame: JsonObject = {"type": "system", "subtype": "permission_denied", "tool_name": call.name}
        frame["tool_use_id"] = call.id
        frame |= present(decision_reason_type=found.reason_type, decision_reason=found.reason)
        self._run.say({**frame, "message": found.message})

    def _wrong(self, name: str, given: JsonObject) -> str | None:
        spec = next((spec for spec in self._run.offered() if spec.name == name), None)
        return None if spec is None else wrong_input(spec, given)

    # Rules and mode.

    def _judge(self, call: ToolCall) -> _Judgement:
        name, mode = call.name, self._run.permission_mode
        if (denied := self._covering("deny", call)) is not None:
            of = "" if denied.content in (None, "*") else f" with command {call.input.get('command')}"
            text = f"Permission to use {name}{of} has been denied."
            return _Judgement(behavior="deny", message=text, reason_type="rule")
        found = self._judge_unbarred(call, mode)
        if found.behavior != "ask" or mode != "dontAsk":
            return found
        text = (
            f"Permission to use {name} has been denied because Claude Code is running in don't ask mode. Go"
            " on with what needs no permission, and tell the user what you could not do."
        )
        return _Judgement(behavior="deny", message=text, reason_type="mode")

    def _covering(self, behavior: str, call: ToolCall) -> _Rule | None:
        rules = (rule for rule in self._rules if rule.behavior == behavior)
        return next((rule for rule in rules if rule.covers(call)), None)

    def _judge_unbarred(self, call: ToolCall, mode: str) -> _Judgement:
        name, path = call.name, self._shown(call).get("file_path")
        request = f"Claude requested permissions to use {name}, but you haven't granted it yet."
        for rule in self._rules:
            is_open = rule.content not in (None, "*") and rule.tool == name and name != "Bash"
            if rule.behavior != "allow" and (rule.covers(call) or is_open):
                fields: JsonObject = {
                    "server_policy_ask_only": False,
                    "matched_ask_rule": {"source": rule.source, "tool_name": rule.tool},
                }
                return _ask(message=request, is_forced=True, fields=fields)
        if name in _QUESTIONS:
            return _ask(message=request, is_forced=True)
        is_edit, is_server = name in _EDITS, name.startswith("mcp__")
        policy = self._run.mcp.policy(name) if is_server else None
        if mode == "bypassPermissions" and policy != "always_ask":
            return _Judgement(behavior="allow", reason_type="mode")
        if is_edit and mode == "plan":
            return _ask(message=f"Cannot write to {path} while in plan mode.", reason_type="mode")
        if (allowed := self._covering("allow", call)) is not None:
            source = "user_temporary" if allowed.source == "session" else "config"
            return _Judgement(behavior="allow", reason_type="rule", source=source)
        if is_edit and mode == "acceptEdits":
            return _Judgement(behavior="allow", reason_type="mode")
        if is_edit:
            change: JsonObject = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
            text = f"Claude requested permissions to write to {path}, but you haven't granted it yet."
            fields = {"permission_suggestions": [change], "server_policy_ask_only": True}
            return _ask(message=text, fields=fields)
        if name == "Bash":
            return _judge_command(str(call.input.get("command", "")))
        if policy == "always_allow":
            return _Judgement(behavior="allow", reason_type="rule")
        if policy == "always_ask":
            fields = {"decision_reason_rule_source": "mcpServerPolicy", "server_policy_ask_only": True}
            return _ask(message=request, reason_type="rule", is_forced=True, fields=fields)
        if is_server or name in _WEB:
            fields = {"permission_suggestions": [_suggest(name)]}
            return _ask(
                message=request, fields=fields | ({"server_policy_ask_only": True} if is_server else {})
            )
        return _Judgement(behavior="allow", reason_type="mode" if name == "Read" else None)

    # Asking.

    async def _ask(self, call: ToolCall, given: JsonObject, ask: _Judgement) -> Decision:
        try:
            answer = await self._first_answer(call, given, ask)
        except anyio.get_cancelled_exc_class():
            # The turn is interrupted meanwhile, which is a no.
            self._note_denial(call, given)
            raise
        if answer is None:
            return self._unanswered(call, given, ask)
        if not answer.is_allowed:
            return self._rejected(answer, call, given)
        self.apply(answer.updated_permissions)
        changed = answer.updated_input
        if changed is not None and (wrong := self._wrong(call.name, changed)) is not None:
            text = (
                f"The permission handler returned updatedInput for {call.name} that failed schema validation:"
                f" {wrong}\nThe input from the model was valid; what a canUseTool callback, a"
                " PermissionRequest hook or a permission-prompt tool makes of it has to be, too."
            )
            return Decision(
                is_allowed=False,
                message=f"<tool_use_error>{text}</tool_use_error>",
                detail=f"InputValidationError: permission handler updatedInput failed schema for {call.name}",
                meta=_meta(call.id, "reject", "permission_updated_input_invalid"),
            )
        if changed is not None:
            # What was not changed is as the model wrote it: a path, for one, is shown as a whole.
            allowed = {
                name: call.input[name] if name in call.input and value == given.get(name) else value
                for name, value in changed.items()
            }
            call = msgspec.structs.replace(call, input=allowed)
        return _allowed(call, *(("hook", "hook") if answer.by_hook else ("user_temporary", None)))

    def _rejected(self, answer: _Answer, call: ToolCall, given: JsonObject) -> Decision:
        if not answer.interrupt:
            source, kind = ("config", "other") if answer.is_failure else ("user_reject", None)
            source, kind = ("hook", "hook") if answer.by_hook else (source, kind)
            return self._denied(call, given, answer.message, source, kind)
        self._note_denial(call, given)
        return Decision(
            is_allowed=False,
            message=_REJECTED,
            detail="User rejected tool use",
            interrupt=True,
            meta=_meta(call.id, None, kind="user-rejected"),
        )

    def _unanswered(self, call: ToolCall, given: JsonObject, ask: _Judgement) -> Decision:
        if self._run.invocation.permission_prompts != "none":
            self._say_denied(call, ask)
            return self._denied(call, given, ask.message, "config", kind="user-rejected")
        reason = "no approval surface in this session; permission request denied automatically"
        found = _ask(message=_NOBODY + ask.message, reason=reason, reason_type="asyncAgent")
        self._say_denied(call, found)
        return self._denied(call, given, found.message, "config", found.reason_type)

    async def _first_answer(self, call: ToolCall, given: JsonObject, ask: _Judgement) -> _Answer | None:
        """The host's answer or that of a `PermissionRequest` hook, whichever is first; None: no one's."""
        if not self.has_surface:
            return await self._ask_hooks(call, given, ask)
        if not self._hooks.has("PermissionRequest"):
            return await self._ask_host(call, given, ask)
        answers: list[_Answer] = []
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
                    self.apply(answer.updated_permissions)
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

    async def _ask_hooks(self, call: ToolCall, given: JsonObject, ask: _Judgement) -> _Answer | None:
        suggestions = as_list(ask.fields.get("permission_suggestions"))
        if not self.has_surface:
            suggestions = [each for each in suggestions if as_object(each).get("destination") == "session"]
        fields: JsonObject = {
            "tool_name": call.name,
            "tool_input": given,
            "permission_suggestions": suggestions,
        }
        verdict = await self._hooks.fire("PermissionRequest", fields, call=call)
        for output in verdict.output:
            answer = _read_answer(as_object(output.get("hookSpecificOutput")).get("decision"))
            if answer is not None:
                return msgspec.structs.replace(answer, by_hook=True)
        return None

    async def _ask_host(self, call: ToolCall, given: JsonObject, ask: _Judgement) -> _Answer:
        try:
            answer = await self._put(call, given, ask)
        except Refused as refusal:
            problem = f"Error: {refusal}"
            if refusal.is_gone:
                problem = "AbortError: Tool permission stream closed before response received"
            text = f"Tool permission request failed: {problem}"
            return _Answer(is_allowed=False, is_failure=True, message=text)
        return _read_answer(answer) or _Answer(is_allowed=False, is_failure=True, message=_INVALID)

    async def _put(self, call: ToolCall, given: JsonObject, ask: _Judgement) -> object:
        tool = self._run.invocation.permission_prompt_tool
        if tool in (None, "stdio"):
            return await self._run.ask("can_use_tool", self._question(call, given, ask))
        arguments: JsonObject = {"tool_name": call.name, "input": given, "tool_use_id": call.id}
        try:
            result = await self._run.mcp.call_tool(str(tool), arguments)
            return json.loads("".join(str(block.get("text", "")) for block in result["content"]))
        except LookupError as error:
            raise Refused(str(error)) from None
        except ValueError:
            return None

    def _question(self, call: ToolCall, given: JsonObject, ask: _Judgement) -> JsonObject:
        """The fields of `can_use_tool`, in the program's order."""
        server = self._run.mcp.server_of(call.name)
        shown = call.name if server is None else shown_name(call.name.split("__", 2)[-1])
        made: JsonObject = {"tool_name": call.name, **present(mcp_server=server), "display_name": shown}
        made |= {"input": given, **present(description=self._about(call, given)), **ask.fields}
        made |= present(decision_reason=ask.reason, decision_reason_type=ask.reason_type)
        made["tool_use_id"] = call.id
        return made | present(
            agent_id=call.agent_id, requires_user_interaction=True if call.name in _QUESTIONS else None
        )

    def _about(self, call: ToolCall, given: JsonObject) -> str | None:
        """The line that tells a user what the call is about."""
        if call.name == "Bash":
            return str(given.get("description") or given.get("command", ""))
        if call.name in _WEB:
            return str(given.get("url") or given.get("query"))
        path = given.get("file_path")
        return str(path).removeprefix(f"{self._run.cwd}/") if path is not None else None

    def _shown(self, call: ToolCall) -> JsonObject:
        """The input as hooks and the host see it: with the whole path of a file."""
        given = call.input.get("file_path")
        if call.name not in _EDITS | {"Read"} or not isinstance(given, str) or not given:
            return call.input
        path = os.path.normpath(os.path.join(self._run.cwd, os.path.expanduser(given)))  # noqa: PTH111, PTH118
        return {**call.input, "file_path": path}

    # Changing.

    def set_mode(self, mode: str) -> JsonObject | None:
        """Change the mode of the run; returns the frame that tells the host, if it is another mode. Raises
        `ModeRefused` if it cannot be set."""
        if mode not in (*MODES, "manual"):
            raise ModeRefused(
                f"Cannot set permission mode: must be one of {', '.join(MODES)}", "invalid_mode"
            )
        mode, found = "default" if mode == "manual" else mode, self._run.invocation
        is_launched = found.permission_mode == mode or found.dangerously_skip_permissions
        if mode == "bypassPermissions" and not (is_launched or found.allow_dangerously_skip_permissions):
            text = (
                "Cannot set permission mode to bypassPermissions because the session was not launched with"
                " --dangerously-skip-permissions"
            )
            raise ModeRefused(text, "bypass_not_launched")
        before = self._run.permission_mode
        if mode == before:
            return None
        if mode == "plan":
            self.mode_before_plan = before
        self._run.permission_mode = mode
        return {"type": "system", "subtype": "status", "status": None, "permissionMode": mode}

    def change_mode(self, mode: str) -> None:
        """Change the mode and tell the host; one that cannot be set is complained of."""
        try:
            if (frame := self.set_mode(mode)) is not None:
                self._run.say(frame)
        except ModeRefused as refusal:
            self._run.complain(str(refusal))

    def add_rules(self, given: JsonObject, source: str) -> None:
        """Take the rules of an object with `allow`, `deny` and `ask`."""
        for behavior in ("allow", "deny", "ask"):
            self._rules += [_read_rule(behavior, str(text), source) for text in as_list(given.get(behavior))]

    def apply(self, updates: Sequence[JsonObject]) -> None:
        """Apply changes that came with an answer. They last for the run; no settings file is written."""
        for update in updates:
            source = str(update.get("destination", "session"))
            behavior = str(update.get("behavior", "allow"))
            folders = [
                Path(self._run.cwd, str(folder)).resolve() for folder in as_list(update.get("directories"))
            ]
            rules = [
                _Rule(behavior, str(rule.get("toolName")), rule.get("ruleContent"), source)
                for rule in map(as_object, as_list(update.get("rules")))
            ]
            match update.get("type"):
                case "setMode":
                    self.change_mode(str(update.get("mode")))
                case "addDirectories":
                    self._folders += folders
                case "removeDirectories":
                    self._folders = [folder for folder in self._folders if folder not in folders]
                case "removeRules":
                    self._rules = [rule for rule in self._rules if rule not in rules]
                case "replaceRules":
                    replaced = (behavior, source)
                    kept = [rule for rule in self._rules if (rule.behavior, rule.source) != replaced]
                    self._rules = kept + rules
                case "addRules":
                    self._rules += rules
                case _:
                    pass

    def listing(self) -> JsonObject:
        """The answer to `list_permission_rules`."""
        rules = [
            {"behavior": rule.behavior, "source": rule.source, "rule": rule.text, "editability": "session"}
            for rule in self._rules
        ]
        state: JsonObject = {
            "rules": rules,
            "workspaceDirectories": [str(folder) for folder in self._folders],
            "originalCwd": str(self._run.cwd),
            "managedOnly": False,
        }
        return {"state": state}


def _allowed(call: ToolCall, source: str, reason_type: str | None) -> Decision:
    return Decision(is_allowed=True, input=call.input, meta=_meta(call.id, "accept", source, reason_type))


def _judge_command(command: str) -> _Judgement:
    if not _OPERATORS.intersection(command) and command.partition(" ")[0] in _HARMLESS:
        return _Judgement(behavior="allow", reason_type="subcommandResults")
    fields: JsonObject = {"permission_suggestions": [_suggest("Bash", command)]}
    return _ask(message=_APPROVAL, reason=_APPROVAL, reason_type="other", fields=fields)


def _suggest(tool: str, content: str | None = None) -> JsonObject:
    rule: JsonObject = {"toolName": tool} if content is None else {"toolName": tool, "ruleContent": content}
    return {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "localSettings"}


def _meta(
    id: str, decision: str | None, source: str = "", reason_type: str | None = None, kind: str | None = None
) -> JsonObject:
    """The entry of `tool_result_meta` for a call. Without a decision, no one came to one."""
    made: JsonObject = {"id": id} if kind is None else {"id": id, "non_execution_kind": kind}
    if decision is not None:
        named: JsonObject = {"decision": decision, "source": source}
        made["permission_decision"] = named | present(reason_type=reason_type)
    return made


def _read_answer(answer: object) -> _Answer | None:
    """Read an answer to a permission question; None if it is not one."""
    given = as_object(answer)
    updates, changed, message = (
        given.get(name) for name in ("updatedPermissions", "updatedInput", "message")
    )
    if not isinstance(updates, list | None) or not isinstance(changed, dict | None):
        return None
    entries = cast("list[JsonObject]", updates or [])
    if len(entries) > _MOST_UPDATES:
        return None
    if given.get("behavior") == "allow":
        own = cast("JsonObject | None", changed) or None
        return _Answer(is_allowed=True, updated_input=own, updated_permissions=tuple(entries))
    if given.get("behavior") != "deny" or not isinstance(message, str):
        return None
    return _Answer(is_allowed=False, message=message, interrupt=given.get("interrupt") is True)


def _refusal(call: ToolCall, mode: str) -> str | None:
    """Why a question or a plan is refused without asking."""
    if call.name == "ExitPlanMode" and mode != "plan":
        return _NOT_PLANNING
    if call.name != "AskUserQuestion":
        return None
    questions = as_list(call.input.get("questions"))
    if not questions:
        return "InputValidationError: `questions` has to hold at least one question"
    if any(len(as_list(as_object(question).get("options"))) < 2 for question in questions):
        return (
            "InputValidationError: This call included a question with fewer than 2 options, so it was"
            " rejected and the person never saw it."
        )
    return None
