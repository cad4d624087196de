"""Asks the person at the editor: for permissions, choices, approval of plans, and the forms of MCP servers.

No answer, an invalid one, or an editor that has gone is a denial.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from uuid import uuid4

import anyio
import msgspec
from acp import schema
from pydantic import BaseModel, ValidationError

from outrider.acp._editor import own_name
from outrider.acp._rpc import RpcError
from outrider.errors import Denied, OptionsError
from outrider.handlers import (
    Answer,
    PermissionRequest,
    Policy,
    Rule,
    allow,
    call,
    cancel,
    decline,
    deny,
)
from outrider.wire.permissions import PermissionUpdate

if TYPE_CHECKING:
    from outrider.acp._editor import EditorTools
    from outrider.acp._rpc import Rpc
    from outrider.acp._updates import Updates
    from outrider.handlers import ElicitationRequest, Plan, Question
    from outrider.options import OptionFields, Options
    from outrider.wire import JsonObject
    from outrider.wire.control import ElicitationResult

log = logging.getLogger("outrider.acp")

_ANNOUNCED_SECONDS: Final = 1.0
"""How long a question waits until the call that it is about was told of. It comes with the question."""
_DENIED: Final = "The user does not allow this."
_GONE: Final = "The user was asked, and gave no answer, so it is not allowed."
_OWN_WORDS: Final = "Other answer"


class _Option(NamedTuple):
    id: str
    name: str
    kind: schema.PermissionOptionKind


_ALLOW: Final = _Option("allow_once", "Allow", "allow_once")
_REJECT: Final = _Option("reject_once", "Reject", "reject_once")


class Questions:
    """What one session asks."""

    def __init__(
        self,
        rpc: Rpc,
        session_id: str,
        updates: Updates,
        capabilities: schema.ClientCapabilities,
        options: Options,
        tools: EditorTools,
    ) -> None:
        self._rpc, self._session_id, self._updates = rpc, session_id, updates
        self._elicitation = capabilities.elicitation or schema.ElicitationCapabilities()
        self._options, self._tools = options, tools
        self._cwd = options.cwd or "/"
        self._given = options.permission
        if isinstance(self._given, Policy) and self._given.otherwise is None:
            self._given = msgspec.structs.replace(self._given, otherwise=self._by_rules)
        self._always: list[Rule] = []
        """What the person decided for the rest of the session, the latest last."""

    def fields(self) -> OptionFields:
        """The options that bring questions here. What the options decide themselves stays with them."""
        fields: OptionFields = {}
        options = self._options
        if options.on_elicitation is None:
            fields["on_elicitation"] = self.fill_in
        asks_elsewhere = options.permission_prompt_tool_name or options.permission_prompts == "none"
        if asks_elsewhere or options.approvals is not None:
            return fields
        # Of a policy as it is, the session checks the names of tools.
        is_plain = isinstance(self._given, Policy) and not self._tools.names
        fields["permission"] = self._given if is_plain else self.permit
        if options.on_question is None:
            fields["on_question"] = self.choose
        if options.on_plan is None:
            fields["on_plan"] = self.approve
        return fields

    # Permissions.

    async def permit(self, request: PermissionRequest) -> object:
        """Decide about a call: by the options, by what the person always allows or rejects, by asking."""
        if (name := own_name(request.tool_name)) != request.tool_name:
            ask = msgspec.structs.replace(request.ask, tool_name=name)
            request = PermissionRequest(ask, request._origin)  # pyright: ignore[reportPrivateUsage]
            if (decided := self._tools.decide(request)) is not None:
                return decided
        if self._given is not None:
            answer = await call(self._given, request, context=request)
            if not (isinstance(answer, Answer) and answer.verdict == "ask"):
                return answer
        return await self._by_rules(request)

    async def _by_rules(self, request: PermissionRequest) -> object:
        asker: Callable[[PermissionRequest], Awaitable[object]] = self._ask
        for rule in self._always:
            asker = Policy((rule,), otherwise=asker)
        return await asker(request)

    async def _ask(self, request: PermissionRequest) -> Answer:
        rules, named = _rules(request, self._cwd)
        options = [_ALLOW, _REJECT]
        if rules:
            options.append(_Option("reject_always", f"Always reject {named}", "reject_always"))
            if not request.suppress_always_allow_rule:
                options.insert(1, _Option("allow_always", f"Always allow {named}", "allow_always"))
        chosen = await self._select(request, options)
        if chosen in ("allow_always", "reject_always"):
            verdict = "allow" if chosen == "allow_always" else "deny"
            self._always += [msgspec.structs.replace(rule, decision=verdict) for rule in rules]
        if chosen in ("allow_once", "allow_always"):
            await self._updates.progress(request.tool_use_id or "", "in_progress")
            # Claude Code knows more about commands. Where the options decide, it has to ask again.
            is_told = chosen == "allow_always" and self._given is None and not self._tools.names
            return allow(updates=_for_this_session(request) if is_told else ())
        return deny(_GONE, interrupt=True) if chosen is None else deny(_DENIED)

    async def approve(self, plan: Plan) -> Answer:
        """Ask whether to carry out a plan, and how."""
        options = [
            _Option("acceptEdits", "Yes, and accept all edits", "allow_always"),
            _Option("default", "Yes, and ask about edits", "allow_once"),
            _Option("plan", "No, keep planning", "reject_once"),
        ]
        chosen = await self._select(plan, options)
        if chosen in ("acceptEdits", "default"):
            return allow(updates=[PermissionUpdate(type="setMode", mode=chosen, destination="session")])
        return deny(_GONE, interrupt=True) if chosen is None else deny("The user wants another plan.")

    async def choose(self, question: Question) -> str | list[str] | None:
        """Ask a question of the agent's: in a form where the editor has them, else by buttons."""
        if self._elicitation.form is not None:
            return await self._choose_in_form(question)
        chosen: list[str] = []
        while left := [each for each in question.labels if each not in chosen]:
            options = [_Option(f"choice-{number}", label, "allow_once") for number, label in enumerate(left)]
            done = "Done" if chosen else "No answer"
            answer = await self._select(
                question, [*options, _Option("done", done, "reject_once")], question.text
            )
            if answer is None or answer == "done":
                break
            chosen.append(left[int(answer.removeprefix("choice-"))])
            if not question.multi_select:
                break
        return chosen if question.multi_select else next(iter(chosen), None)

    async def _choose_in_form(self, question: Question) -> str | list[str] | None:
        offered = [
            schema.EnumOption(const=each.label, title=each.label, description=each.description or None)
            for each in question.options
        ]
        choice: schema.ElicitationStringPropertySchema | schema.ElicitationMultiSelectPropertySchema
        if question.multi_select:
            items = schema.TitledMultiSelectItems(any_of=offered)
            choice = schema.ElicitationMultiSelectPropertySchema(
                type="array", title=question.header, items=items
            )
        else:
            choice = schema.ElicitationStringPropertySchema(
                type="string", title=question.header, one_of=offered
            )
        other = schema.ElicitationStringPropertySchema(type="string", title=_OWN_WORDS)
        form = schema.CreateFormSessionElicitationRequest(
            mode="form",
            session_id=self._session_id,
            tool_call_id=question.tool_use_id,
            message=question.text,
            requested_schema=schema.ElicitationSchema(
                type="object", properties={"answer": choice, "other": other} if offered else {"other": other}
            ),
        )
        content = await self._fill_in(form)
        if content is None:
            return None
        given: object = content.get("answer")
        chosen = [
            str(each)
            for each in (cast("list[object]", given) if isinstance(given, list) else [given])
            if each
        ]
        if own := str(content.get("other") or "").strip():
            chosen = [*chosen, own] if question.multi_select else [own]
        return chosen if question.multi_select else next(iter(chosen), None)

    async def _select(
        self, request: PermissionRequest | Question, options: Sequence[_Option], title: str | None = None
    ) -> str | None:
        """Have the person choose; gives the id of the option, None if nothing was chosen."""
        ask = request.ask
        with anyio.move_on_after(_ANNOUNCED_SECONDS):
            await self._updates.wait_for(ask.tool_use_id)
        await self._updates.announce(ask.tool_use_id, ask.tool_name, ask.input, status="pending")
        call = self._updates.call(ask.tool_use_id, ask.tool_name, ask.input)
        asked = schema.RequestPermissionRequest(
            session_id=self._session_id,
            tool_call=schema.ToolCallUpdate(
                tool_call_id=ask.tool_use_id,
                title=title or call.title,
                kind=call.kind,
                status="pending",
                content=call.preview() or None,
                locations=call.locations(),
                raw_input=ask.input,
            ),
            options=[
                schema.PermissionOption(option_id=each.id, name=each.name, kind=each.kind) for each in options
            ],
        )
        try:
            answer = await self._rpc.request(
                "session/request_permission", asked, schema.RequestPermissionResponse
            )
        except RpcError as error:
            log.warning("the editor did not answer about %s: %s", ask.tool_name, error)
            return None
        chosen = answer.outcome
        if not isinstance(chosen, schema.AllowedOutcome) or chosen.option_id not in {
            each.id for each in options
        }:
            return None
        return chosen.option_id

    # Forms.

    async def fill_in(self, request: ElicitationRequest) -> JsonObject | bool | ElicitationResult:
        """Have the person fill in the form of an MCP server, or open its page; declined where the editor has
        neither."""
        if (self._elicitation.form if request.mode == "form" else self._elicitation.url) is None:
            log.warning("the editor has no way to answer %s: declined", request)
            return decline()
        message = f"{request.display_name or request.server}: {request.message}"
        common = {"message": message, "mode": request.mode, "sessionId": self._session_id}
        try:
            if request.mode == "form":
                form = common | {"requestedSchema": request.schema or {"type": "object"}}
                filled = await self._fill_in(schema.CreateFormSessionElicitationRequest.model_validate(form))
                return cancel() if filled is None else filled
            page = common | {"elicitationId": request.id or uuid4().hex, "url": request.url}
            opened = await self._fill_in(schema.CreateUrlSessionElicitationRequest.model_validate(page))
        except ValidationError as error:
            log.warning("a form cannot be shown by editors, so it is declined: %s", error)
            return decline()
        return cancel() if opened is None else True

    async def _fill_in(
        self, form: schema.CreateFormSessionElicitationRequest | schema.CreateUrlSessionElicitationRequest
    ) -> JsonObject | None:
        """What was filled in; None if nothing was. A person who declines raises `Denied`."""
        try:
            answer = await self._rpc.request("elicitation/create", form, _Filled)
        except RpcError as error:
            log.warning("the editor did not answer a question: %s", error)
            return None
        if answer.action == "decline":
            raise Denied("The user declined to answer.")
        return (answer.content or {}) if answer.action == "accept" else None


class _Filled(BaseModel):
    """Any answer to a form: actions of later versions do not accept."""

    action: str
    content: dict[str, object] | None = None


def _for_this_session(request: PermissionRequest) -> list[PermissionUpdate]:
    rules = [update for update in request.suggestions if update.type == "addRules"]
    return [msgspec.structs.replace(each, destination="session") for each in rules]


_WRITING: Final = ("Edit", "Write", "MultiEdit", "NotebookEdit")


def _rules(request: PermissionRequest, cwd: str) -> tuple[list[Rule], str]:
    """Rules for this call and others like it, and what to call them. None where there is no narrow one."""
    suggested = [
        f"{rule.tool_name}({rule.rule_content})" if rule.rule_content else rule.tool_name
        for update in request.suggestions
        if update.type == "addRules" and update.behavior in (None, "allow")
        for rule in update.rules or ()
    ]
    name, path, command = (
        request.tool_name,
        request.tool_input.get("file_path"),
        request.tool_input.get("command"),
    )
    try:
        if suggested and all(own_name(each) == each for each in suggested):
            return [Rule("allow", each) for each in suggested], ", ".join(suggested)
        if name in _WRITING and isinstance(path, str):
            file = Path(cwd, path)
            is_here = file.is_relative_to(cwd) and ".." not in file.parts
            where = str(Path(cwd, "**") if is_here else file)
            return [
                Rule("allow", _WRITING, path=where)
            ], "edits in this folder" if is_here else f"edits of {file}"
        if name == "Bash" and isinstance(command, str):
            rule = f"Bash({command})"
            return ([], "") if set("*?[:") & set(command) else ([Rule("allow", rule)], rule)
        if name.startswith("mcp__"):
            return [Rule("allow", name)], name
    except OptionsError as error:
        log.info("no rule for calls like %s: %s", name, error)
    return [], ""
