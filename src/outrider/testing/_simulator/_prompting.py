"""Owns the question whether a call may run: to the host, to a tool in its place, and to hooks meanwhile.

What the answer comes to is for `_permissions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

import anyio
import msgspec

from outrider.testing._simulator._judging import described
from outrider.testing._simulator._mcp_server import shown_name
from outrider.testing._simulator._world import Refused
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from outrider.testing._simulator._hooks import Hooks
    from outrider.testing._simulator._judgements import Ask
    from outrider.testing._simulator._judging import Company
    from outrider.testing._simulator._world import ToolCall

__all__ = ["Answer", "Prompting"]

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
