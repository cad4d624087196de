"""What happens in turns: calls of the model, calls of tools, and subagents, as messages tell of them.

Which turn a message belongs to is known in `_session`.
"""

from __future__ import annotations

import weakref
from time import time_ns
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from opentelemetry import context as otel
from opentelemetry.trace import SpanKind

from outrider.telemetry import _names as n
from outrider.telemetry._content import answer_message
from outrider.telemetry._spans import (
    Attributes,
    Branch,
    Call,
    Chat,
    add_event,
    describe,
    end_span,
    start_span,
)
from outrider.wire import (
    McpToolResultBlock,
    ServerToolResultBlock,
    TaskNotificationMessage,
    ToolResultBlock,
)
from outrider.wire._blocks import TOOL_CALLS
from outrider.wire.choices import TERMINAL_TASK_STATUSES

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from outrider.session._connection.conversation import Conversation
    from outrider.telemetry._telemetry import Telemetry
    from outrider.wire import (
        AssistantMessage,
        JsonObject,
        McpToolUseBlock,
        ServerToolUseBlock,
        StreamEvent,
        TaskStartedMessage,
        TaskUpdatedMessage,
        ToolUseBlock,
        UserMessage,
    )

    ToolCallBlock: TypeAlias = ToolUseBlock | ServerToolUseBlock | McpToolUseBlock
    ResultBlock: TypeAlias = ToolResultBlock | McpToolResultBlock | ServerToolResultBlock

_NO_MODEL: Final = "<synthetic>"
"""What Claude Code calls a message that it wrote itself."""
_REMEMBERED: Final = 10_000
"""Ids of what has ended; more are not told of once more."""
_WAITING_AGENTS: Final = 100
"""Calls that have ended, and whose subagents may begin later."""
_AGENT_TOOLS: Final = ("Agent", "Task")
_RESULTS: Final = (ToolResultBlock, McpToolResultBlock, ServerToolResultBlock)


class Work:
    """What is going on in one session."""

    def __init__(self, telemetry: Telemetry, conversation: Conversation, provider: str) -> None:
        self._telemetry = telemetry
        self._conversation = weakref.ref(conversation)
        self._metrics = telemetry.metrics
        self.provider: Final = provider
        self.model: str | None = conversation.given.model
        self.session_id: str | None = None
        self.calls: dict[str, Call] = {}
        """Calls of tools that have not ended, by id."""
        self.agents: dict[str, Branch] = {}
        """Subagents that have not ended, by the call that began each."""
        self._agent_calls: dict[str, Call] = {}
        """These calls, even if they have ended: a subagent in the background may begin later."""
        self._tasks: dict[str, str] = {}
        """The same by the ids of their tasks."""
        self._ended: dict[str, None] = {}
        """Ids of messages, calls and subagents that have ended, and may be told of once more."""

    def is_ended(self, id: str) -> bool:
        """Whether a message, a call or a subagent has ended."""
        return id in self._ended

    def _note_end(self, id: str) -> None:
        self._ended[id] = None
        if len(self._ended) > _REMEMBERED:
            del self._ended[next(iter(self._ended))]

    # The model.

    def take_assistant(self, message: AssistantMessage, branch: Branch, now: int) -> None:
        """A message of the model, or a part of one."""
        id = message.message_id or ""
        if id and message.model != _NO_MODEL and id not in self._ended:
            chat = branch.chat
            if chat is None or chat.id != id:
                chat = self._begin_chat(branch, id, message.model, message.usage)
            chat.last = now
            chat.finish = message.stop_reason or chat.finish
            if self._telemetry.content:
                chat.blocks += message.content
        for block in message.content:
            if isinstance(block, TOOL_CALLS):
                self._announce(block, branch, now)
            elif isinstance(block, _RESULTS):
                self._take_result(block, now)

    def take_stream_event(self, message: StreamEvent, branch: Branch, now: int) -> None:
        """The beginning or the end of a message of the model."""
        event = cast("JsonObject", message.event)
        if event.get("type") == "message_start":
            inner = cast("JsonObject", event.get("message") or {})
            chat = self._begin_chat(branch, str(inner.get("id")), str(inner.get("model")), inner.get("usage"))
            chat.last, chat.is_partial = now, True
            describe(chat.span, {n.FIRST_CHUNK: (now - chat.began) / 1e9})
            self._metrics.took(self._metrics.first_chunk_seconds, chat.began, now, chat.labels)
        elif branch.chat is not None:
            chat = branch.chat
            chat.last = now
            if event.get("type") == "message_stop":
                self._end_chat(branch)
                return
            delta = cast("JsonObject", event.get("delta") or {})
            usage = cast("JsonObject", event.get("usage") or {})
            chat.finish = cast("str | None", delta.get("stop_reason")) or chat.finish
            describe(chat.span, {n.OUTPUT_TOKENS: usage.get("output_tokens")})

    def _begin_chat(self, branch: Branch, id: str, model: str, usage: object) -> Chat:
        self._end_chat(branch)
        branch.inferences += 1
        # Not that of the session: a subagent may have another, and so may a message after a fallback.
        common = {n.OPERATION: n.CHAT, n.PROVIDER: self.provider, n.REQUEST_MODEL: model}
        facts: Attributes = {
            **common,
            n.RESPONSE_MODEL: model,
            n.RESPONSE_ID: id,
            n.CONVERSATION: self.session_id,
        }
        if isinstance(usage, dict):
            # Not what came out: these are the figures of the moment when the message began.
            counts = cast("dict[str, int | None]", usage)
            read = counts.get("cache_read_input_tokens") or 0
            written = counts.get("cache_creation_input_tokens") or 0
            facts[n.INPUT_TOKENS] = (counts.get("input_tokens") or 0) + read + written
            facts[n.CACHE_READ_TOKENS] = read or None
            facts[self._telemetry.names.cache_write_tokens] = written or None
        span = self._start(f"{n.CHAT} {model}", facts, branch.context, branch.ready, SpanKind.CLIENT)
        branch.chat = Chat(id, span, branch.ready, self._metrics.bounded(common))
        return branch.chat

    def _end_chat(self, branch: Branch, error: str | None = None) -> None:
        chat = branch.chat
        if chat is None:
            return
        branch.chat, branch.ready = None, max(branch.ready, chat.last)
        # One that came whole has not failed, whatever came after it.
        error = error if chat.is_partial and chat.finish is None else None
        self._note_end(chat.id)
        facts: Attributes = {n.FINISH_REASONS: [chat.finish] if chat.finish else None}
        if chat.blocks:
            facts |= self.content(chat.span, n.OUTPUT_MESSAGES, [answer_message(chat.blocks)])
        describe(chat.span, facts)
        end_span(chat.span, error, at=chat.last)
        self._metrics.took(self._metrics.chat_seconds, chat.began, chat.last, chat.labels, error)

    # Tools.

    def take_results(self, message: UserMessage, branch: Branch | None, now: int) -> None:
        """Results of tools, which go back to the model."""
        if isinstance(message.content, str):
            return
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                self._take_result(block, now)
                if branch is not None:
                    branch.ready = now

    def _announce(self, block: ToolCallBlock, branch: Branch, now: int) -> None:
        if block.id in self._ended:
            return
        call = self.calls.get(block.id)
        if call is None or not call.is_announced:
            branch.tool_calls += 1
        call = call or self.begin_call(block.id, block.name, now, branch)
        # It may have begun here first, before its message had come.
        call.is_announced, call.branch = True, branch
        if block.name in _AGENT_TOOLS:
            self._agent_calls[block.id] = call
        if self._telemetry.content:
            describe(call.span, self.content(call.span, n.TOOL_ARGUMENTS, block.input))

    def begin_call(self, id: str, name: str, now: int, branch: Branch | None = None) -> Call:
        """A call of a tool begins, under a branch or else under the current span."""
        where, server = self._place(name)
        facts: Attributes = {
            n.OPERATION: n.EXECUTE_TOOL,
            n.TOOL_NAME: name,
            n.TOOL_CALL: id,
            n.TOOL_TYPE: "function" if where == "host" else "extension",
            n.TOOL_WHERE: where,
            n.MCP_SERVER: server,
            n.CONVERSATION: self.session_id,
        }
        parent = otel.get_current() if branch is None else branch.context
        span = self._start(f"{n.EXECUTE_TOOL} {name}", facts, parent, now)
        labels = {n.OPERATION: n.EXECUTE_TOOL, n.TOOL_NAME: name, n.TOOL_WHERE: where}
        call = self.calls[id] = Call(id, span, branch, now, self._metrics.bounded(labels))
        return call

    def _place(self, name: str) -> tuple[str, str | None]:
        """Where a tool runs, and the server that it is of."""
        if not name.startswith("mcp__"):
            return "agent", None
        server = name.split("__")[1]
        conversation = self._conversation()
        own = () if conversation is None else conversation.handlers.servers.given
        return ("host" if server in own else "mcp"), server

    def _take_result(self, block: ResultBlock, now: int) -> None:
        call = self.calls.get(block.tool_use_id)
        if call is None:
            return
        if self._telemetry.content:
            describe(call.span, self.content(call.span, n.TOOL_RESULT, block.content))
        is_error = not isinstance(block, ServerToolResultBlock) and block.is_error
        self.end_call(call, now, "tool_error" if is_error else None)

    def end_call(self, call: Call, now: int, error: str | None) -> None:
        """End a call, with the error of this process if there was one, or else this one."""
        error = call.error or error
        del self.calls[call.id]
        self._note_end(call.id)
        agent = self.agents.get(call.id)
        if agent is None:
            self._wait_for_agent(call.id, is_coming=error is None)
        elif not agent.is_background:
            self._end_agent(call.id, now, error)
        end_span(call.span, error, at=now)
        self._metrics.took(self._metrics.tool_seconds, call.began, now, call.labels, error)

    # Subagents.

    def _wait_for_agent(self, id: str, *, is_coming: bool) -> None:
        """A call has ended before its subagent began, if it has one."""
        call = self._agent_calls.pop(id, None)
        if call is not None and is_coming:
            # As the last: those that have waited longest are forgotten.
            self._agent_calls[id] = call
            if len(self._agent_calls) > _WAITING_AGENTS + len(self.calls):
                del self._agent_calls[next(each for each in self._agent_calls if each not in self.calls)]

    def take_task_started(self, message: TaskStartedMessage, outer: Branch, now: int) -> None:
        """A subagent begins."""
        id = message.tool_use_id
        if id is None or message.task_type != "local_agent" or id in self._ended:
            return
        branch = self.agents.get(id) or self.begin_agent(id, outer, now, message.subagent_type)
        branch.is_background = bool(message.is_backgrounded)
        branch.task = message.task_id
        self._tasks[branch.task] = id
        describe(branch.span, {n.AGENT_ID: branch.task})

    def begin_agent(self, id: str, outer: Branch, now: int, name: str | None = None) -> Branch:
        """A subagent begins, called by `outer` if the call that began it is not known."""
        call, name = self._agent_calls.get(id), name or "subagent"
        facts: Attributes = {
            n.OPERATION: n.INVOKE_AGENT,
            n.AGENT_NAME: name,
            n.CONVERSATION: self.session_id,
            n.PROVIDER: self.provider if self._telemetry.names.has_provider else None,
        }
        parent = outer.context if call is None else call.context
        span = self._start(f"{n.INVOKE_AGENT} {name}", facts, parent, now)
        caller = outer if call is None or call.branch is None else call.branch
        branch = self.agents[id] = Branch(span, name, now, caller)
        return branch

    def take_task(self, message: TaskUpdatedMessage | TaskNotificationMessage, now: int) -> None:
        """How a subagent stands."""
        id = self._tasks.get(message.task_id)
        branch = None if id is None else self.agents.get(id)
        if id is None or branch is None:
            return
        if not isinstance(message, TaskNotificationMessage):
            branch.is_background = branch.is_background or bool(message.patch.get("is_backgrounded"))
            return
        if message.usage is not None:
            tokens, tools = message.usage.get("total_tokens"), message.usage.get("tool_uses")
            describe(branch.span, {n.AGENT_TOKENS: tokens, n.AGENT_TOOL_USES: tools})
        if message.status in TERMINAL_TASK_STATUSES:
            self._end_agent(id, now, None if message.status == "completed" else message.status)

    def _end_agent(self, id: str, now: int, error: str | None) -> None:
        branch = self.agents.pop(id)
        self._note_end(id)
        self._agent_calls.pop(id, None)
        self._tasks.pop(branch.task or "", None)
        self.end_branch(branch, now, error)

    # The end.

    def end_branch(
        self,
        branch: Branch,
        now: int,
        error: str | None,
        said: str | None = None,
        *,
        is_parked: bool = False,
    ) -> None:
        """End a turn or a subagent, with all that is open under it. `is_parked`: its calls wait for a
        decision, and another turn will make them."""
        self._end_chat(branch, error)
        for call in [each for each in self.calls.values() if each.branch is branch]:
            self.end_call(call, now, error or (None if is_parked else "no_result"))
        for id, inner in [*self.agents.items()]:
            if inner.parent is branch and not inner.is_background:
                self._end_agent(id, now, error)
        end_span(branch.span, error, at=now, said=said)
        labels = {n.OPERATION: n.INVOKE_AGENT, n.AGENT_NAME: branch.name}
        if self.model is not None and branch.parent is None:
            labels[n.REQUEST_MODEL] = self.model
        self._metrics.agent_ended(branch, now, self._metrics.bounded(labels), error)

    def end_all(self, error: str | None) -> None:
        """The session ends, and with it all that is open."""
        now = time_ns()
        for id in [*self.agents]:
            if id in self.agents:
                self._end_agent(id, now, error)
        for call in [*self.calls.values()]:
            self.end_call(call, now, error)

    def content(self, span: Span, name: str, value: object) -> Attributes:
        """Content as an attribute, if it is to be on spans; else it is put into an event."""
        content = self._telemetry.content
        if not span.is_recording():
            # To mask it takes far longer than all else here.
            return {}
        text = content.encode(value)
        if content.in_events:
            add_event(span, n.CONTENT_EVENT, {name: text})
        return {name: text} if content.on_spans else {}

    def _start(
        self,
        name: str,
        facts: Attributes,
        parent: otel.Context,
        at: int,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        return start_span(self._telemetry.tracer, name, facts, parent=parent, at=at, kind=kind)
