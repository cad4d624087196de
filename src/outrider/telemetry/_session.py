"""Follows one session: its start, its turns, and the answers that this process gives to the agent.

What happens in a turn is in `_work`.
"""

from __future__ import annotations

import os
import weakref
from contextlib import contextmanager
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from opentelemetry import context as otel
from opentelemetry.trace import Link, get_current_span, set_span_in_context

from outrider.errors import ApiFailed
from outrider.handlers import (
    DialogHandled,
    ElicitationHandled,
    HookHandled,
    PermissionHandled,
    ToolHandled,
)
from outrider.session import Usage
from outrider.session._failures import failure_of
from outrider.session._result import output_error
from outrider.session._usage import less
from outrider.telemetry import _names as n
from outrider.telemetry._content import prompt_message, system_instructions
from outrider.telemetry._spans import (
    Attributes,
    Branch,
    Call,
    SpanFollower,
    add_event,
    current_span,
    describe,
    end_span,
    error_type,
    harmless,
    read_trace,
    start_span,
    write_trace,
)
from outrider.telemetry._work import Work
from outrider.wire import (
    ApiRetryMessage,
    AssistantMessage,
    CommandLifecycleMessage,
    CompactBoundaryMessage,
    InitMessage,
    ModelFallbackMessage,
    ModelRefusalFallbackMessage,
    RateLimitEvent,
    ResultMessage,
    StreamEvent,
    TaskNotificationMessage,
    TaskStartedMessage,
    TaskUpdatedMessage,
    UserMessage,
)
from outrider.wire.control import HookCallback, McpMessage
from outrider.wire.hooks import PreToolUseInput

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextvars import Context

    from opentelemetry.trace import Span, SpanContext

    from outrider.handlers import Handled
    from outrider.options import Options
    from outrider.session._connection.connection import Connection
    from outrider.session._connection.conversation import Conversation
    from outrider.session._streams.turn_state import TurnState
    from outrider.telemetry._telemetry import Telemetry
    from outrider.wire import JsonObject, Message
    from outrider.wire.control import Ask

    _Handle: TypeAlias = Callable[["SessionSpans", Any, Sequence[TurnState], int], None]

_AGENT: Final = "Claude Code"
_PARKED: Final = "tool_deferred"
"""Why a turn ended that waits for a decision."""
_TOOL_USE: Final = "claudecode/toolUseId"
_SLOW: Final = 0.01
"""Seconds from which on an answer is a span, and not an event."""
_MOST_PROMPTS: Final = 100
"""Prompts of one turn that are shown: an iterable of them may be endless."""
_STREAM: Final[set[type]] = {StreamEvent}
_PROVIDERS: Final = {
    "CLAUDE_CODE_USE_BEDROCK": "aws.bedrock",
    "CLAUDE_CODE_USE_VERTEX": "gcp.vertex_ai",
    "CLAUDE_CODE_USE_FOUNDRY": "azure.ai.inference",
}


class SessionSpans:
    """Follows a session. Holds neither it nor its options, whose functions may hold it."""

    def __init__(self, telemetry: Telemetry, conversation: Conversation) -> None:
        options = conversation.given
        self._telemetry = telemetry
        self._metrics = telemetry.metrics
        self._conversation = weakref.ref(conversation)
        self._work = Work(telemetry, conversation, _provider(options))
        self._work.session_id = options.session_id or (None if options.fork_session else options.resume)
        self._agent = telemetry.agent_name or options.agent or _AGENT
        self._version: str | None = None
        self._is_json = conversation.options.output_format is not None
        self._instructions = system_instructions(options) if telemetry.content else []
        self._start_facts: Attributes = {
            n.TRANSPORT: "process" if options.transport is None else type(options.transport).__name__,
            n.RUNNER: None if options.runner is None else type(options.runner).__name__,
            n.IS_RESUMED: bool(options.resume or options.continue_conversation),
        }
        self._start: SpanContext | None = None
        self._is_running = False
        self._turns: dict[TurnState, Branch] = {}
        self._own: Branch | None = None
        """A turn that no prompt began: the agent reports what it did in the background."""
        self._own_result: ResultMessage | None = None
        self._sent_in = otel.Context()
        """Where the last turn was sent, or the session opened."""
        self._last_turn: SpanContext | None = None
        self._unsettled = Usage()
        """What turns without a result have been given of what the next result will tell."""

    # The start.

    def prepare(self, options: Options) -> Options:
        variables = self._telemetry.agent_variables(options)
        return msgspec.structs.replace(options, env={**variables, **options.env}) if variables else options

    @contextmanager
    def starting(self) -> Generator[Callable[[Connection], None]]:
        began, error = time_ns(), None
        self._sent_in = otel.get_current()
        try:
            with current_span(self._telemetry.tracer, n.AGENT_START, self._start_facts) as follower:
                self._start = follower.span.get_span_context()
                yield partial(self._started, follower)
        except BaseException as failed:
            error = error_type(failed)
            raise
        finally:
            self._metrics.took(self._metrics.start_seconds, began, time_ns(), {}, error)

    @harmless
    def _started(self, follower: SpanFollower, connection: Connection) -> None:
        transport, self._version = connection.transport, connection.info.version
        argv = getattr(getattr(transport, "command", None), "argv", None)
        describe(
            follower.span,
            {
                n.PROCESS_ID: getattr(transport, "pid", None),
                # Arguments have content.
                n.PROCESS_COMMAND: os.path.basename(argv[0]) if argv else None,  # noqa: PTH119
                n.CLI_VERSION: self._version,
            },
        )
        if not connection.is_closed:
            self._is_running = True
            self._metrics.process_started(connection)

    # Turns.

    @harmless
    def turn_began(self, turn: TurnState, context: Context, continues: Sequence[str] = ()) -> None:
        conversation = self._conversation()
        if conversation is None or conversation.is_ready:
            # Else it begins with the session, and will outlive its start.
            self._sent_in = otel.get_current()
        links = [found for each in continues if (found := read_trace(each)) is not None]
        branch = self._turns[turn] = self._begin_turn(time_ns(), links=links)
        branch.is_continued = bool(links)
        context.run(otel.attach, set_span_in_context(branch.span, self._sent_in))

    def trace_of(self, tool_use_id: str) -> str:
        call = self._work.calls.get(tool_use_id)
        branch = None if call is None else call.branch
        while branch is not None and branch.parent is not None:
            branch = branch.parent
        return write_trace(get_current_span() if branch is None else branch.span)

    def _begin_turn(self, now: int, origin: str | None = None, links: Sequence[SpanContext] = ()) -> Branch:
        work = self._work
        facts: Attributes = {
            n.OPERATION: n.INVOKE_AGENT,
            n.AGENT_NAME: self._agent,
            n.REQUEST_MODEL: work.model,
            n.CONVERSATION: work.session_id,
            n.OUTPUT_TYPE: "json" if self._is_json else None,
            n.PROVIDER: work.provider if self._telemetry.names.has_provider else None,
            n.CLI_VERSION: self._version,
            n.ORIGIN: origin,
        }
        # One of the agent's own also to the turn that it follows from.
        linked = (self._start, None if origin is None else self._last_turn, *links)
        span = start_span(
            self._telemetry.tracer,
            f"{n.INVOKE_AGENT} {self._agent}",
            facts,
            parent=self._sent_in,
            at=now,
            links=[Link(context) for context in linked if context is not None],
        )
        if self._instructions:
            describe(span, work.content(span, n.SYSTEM_INSTRUCTIONS, self._instructions))
        self._last_turn = span.get_span_context()
        return Branch(span, self._agent, now)

    @harmless
    def prompt_sent(self, turn: TurnState, frame: JsonObject) -> None:
        branch = self._turns.get(turn)
        if branch is not None and not turn.uuids:
            describe(branch.span, {n.MESSAGE_UUID: str(frame.get("uuid"))})
        if branch is not None and self._telemetry.content and len(branch.said) < _MOST_PROMPTS:
            branch.said.append(prompt_message(frame))

    @harmless
    def turn_ended(self, turn: TurnState, usage: Usage | None) -> None:
        branch = self._turns.pop(turn, None)
        if branch is None:
            return
        result = turn.results[-1] if turn.results else None
        failure = turn.failure or self._failure_of(result, turn)
        queued = 0.0 if turn.front_at is None else turn.front_at - turn.sent_at
        facts: Attributes = {n.QUEUED_SECONDS: queued if queued >= _SLOW else None}
        if usage is not None:
            branch.usage = (branch.usage or Usage()) + less(usage, self._unsettled)
            self._unsettled = usage
        if isinstance(failure, ApiFailed):
            facts |= {n.ERROR_KIND: failure.kind, n.HTTP_STATUS: failure.status}
        error = "TurnFailed" if result is None and failure is None else error_type(failure)
        self._end_turn(branch, result, facts, error, failure)

    def _failure_of(self, result: ResultMessage | None, turn: TurnState) -> BaseException | None:
        """Why a turn with a result has failed, if it has."""
        if result is None:
            return None
        conversation, messages = self._conversation(), turn.received
        if conversation is None:
            return failure_of(result, messages)
        try:
            failure = failure_of(result, messages, options=conversation.options)
            if failure is None and conversation.shape is not None:
                failure = output_error(result, messages, conversation.shape)
        except Exception as raised:  # noqa: BLE001 - of validators of the user's; the turn ends nevertheless
            return raised
        return failure

    def _usage_facts(self, usage: Usage) -> Attributes:
        return {
            n.INPUT_TOKENS: usage.input_tokens + usage.cache_read_tokens + usage.cache_creation_tokens,
            n.OUTPUT_TOKENS: usage.output_tokens,
            n.CACHE_READ_TOKENS: usage.cache_read_tokens or None,
            self._telemetry.names.cache_write_tokens: usage.cache_creation_tokens or None,
            # On turns alone: who adds up spans counts it once.
            n.COST: usage.cost_usd,
        }

    def _end_turn(
        self,
        branch: Branch,
        result: ResultMessage | None,
        facts: Attributes,
        error: str | None,
        failure: BaseException | None = None,
    ) -> None:
        work, has_content = self._work, self._telemetry.content and branch.span.is_recording()
        if branch.usage is not None:
            facts |= self._usage_facts(branch.usage)
        facts |= {
            n.REQUEST_MODEL: work.model,
            n.CONVERSATION: work.session_id,
            n.CLI_VERSION: self._version,
        }
        if result is not None:
            facts |= {
                n.FINISH_REASONS: [result.stop_reason] if result.stop_reason else None,
                n.MODEL_CALLS: result.num_turns,
                n.TERMINAL_REASON: result.terminal_reason,
            }
        if branch.said:
            facts |= work.content(branch.span, n.INPUT_MESSAGES, branch.said)
        if has_content and result is not None and result.result:
            parts = [{"type": "text", "content": result.result}]
            facts |= work.content(branch.span, n.OUTPUT_MESSAGES, [{"role": "assistant", "parts": parts}])
        describe(branch.span, facts)
        said = None if failure is None or not has_content else self._telemetry.content.clean(str(failure))
        is_parked = result is not None and result.terminal_reason == _PARKED
        work.end_branch(branch, time_ns(), error, said, is_parked=is_parked)
        self._metrics.turn_ended(error or "success", branch.name)

    @harmless
    def used(self, usage: Usage, turns: Sequence[TurnState]) -> None:
        self._metrics.used(usage, self._work.model, self._work.provider)
        # One of the turns alone, though all have used it: who adds up spans counts it once.
        if (branch := self._open_turn(turns)) is not None:
            branch.usage = (branch.usage or Usage()) + less(usage, self._unsettled)
        self._unsettled = Usage()
        own, result = self._own, self._own_result
        if own is not None and result is not None:
            self._own = self._own_result = None
            # The result may be that of another turn, which this one has given way to.
            is_its = own is branch
            error = (result.subtype if result.is_error else None) if is_its else "no_result"
            self._end_turn(own, result if is_its else None, {}, error)

    @harmless
    def ended(self, error: BaseException | None, usage: Usage) -> None:
        self._metrics.used(usage, self._work.model, self._work.provider)
        for branch in [*self._turns.values(), *filter(None, (self._own,))]:
            self._end_turn(branch, None, {}, error_type(error))
        self._turns.clear()
        self._own = self._own_result = None
        self._work.end_all(error_type(error))
        if self._is_running:
            self._is_running = False
            self._metrics.process_ended()

    # Messages.

    @harmless
    def received(
        self,
        messages: Sequence[Message],
        kinds: set[type],
        figures: Sequence[StreamEvent],
        turns: Sequence[TurnState],
    ) -> None:
        if kinds == _STREAM:
            if not figures:
                return
            messages = figures
        now, wanted = time_ns(), set(map(id, figures))
        for message in messages:
            kind = type(message)
            if kind is StreamEvent and id(message) not in wanted:
                continue
            if (handle := _HANDLERS.get(kind)) is not None:
                self._take(handle, message, turns, now)

    @harmless
    def _take(self, handle: _Handle, message: Message, turns: Sequence[TurnState], now: int) -> None:
        # By itself, so that one that fails takes no other with it.
        handle(self, message, turns, now)

    def _open_turn(self, turns: Sequence[TurnState]) -> Branch | None:
        """The turn that a message belongs to, if it has not ended."""
        for turn in turns:
            if (branch := self._turns.get(turn)) is not None:
                return branch
        return self._own

    def _turn(self, turns: Sequence[TurnState], now: int) -> Branch:
        """The same; one of the agent's own if there is none: the model is at work."""
        branch = self._open_turn(turns)
        if branch is None:
            branch = self._own = self._begin_turn(now, "agent")
        return branch

    def _branch(
        self, message: AssistantMessage | StreamEvent, turns: Sequence[TurnState], now: int
    ) -> Branch | None:
        """What a message belongs to; None if that is a subagent that has ended."""
        id, work = message.parent_tool_use_id, self._work
        if id is None:
            return self._turn(turns, now)
        if (branch := work.agents.get(id)) is not None:
            return branch
        return None if work.is_ended(id) else work.begin_agent(id, self._turn(turns, now), now)

    def on_assistant(self, message: AssistantMessage, turns: Sequence[TurnState], now: int) -> None:
        if (branch := self._branch(message, turns, now)) is not None:
            self._work.take_assistant(message, branch, now)

    def on_stream_event(self, message: StreamEvent, turns: Sequence[TurnState], now: int) -> None:
        if (branch := self._branch(message, turns, now)) is not None:
            self._work.take_stream_event(message, branch, now)

    def on_user(self, message: UserMessage, turns: Sequence[TurnState], now: int) -> None:
        id = message.parent_tool_use_id
        branch = self._open_turn(turns) if id is None else self._work.agents.get(id)
        self._work.take_results(message, branch, now)

    def on_task_started(self, message: TaskStartedMessage, turns: Sequence[TurnState], now: int) -> None:
        if (branch := self._open_turn(turns)) is not None:
            self._work.take_task_started(message, branch, now)

    def on_task(
        self, message: TaskUpdatedMessage | TaskNotificationMessage, _turns: Sequence[TurnState], now: int
    ) -> None:
        self._work.take_task(message, now)

    def on_init(self, message: InitMessage, _turns: Sequence[TurnState], _now: int) -> None:
        self._work.session_id, self._work.model = message.session_id, message.model
        self._version = message.claude_code_version or self._version

    def on_result(self, message: ResultMessage, _turns: Sequence[TurnState], _now: int) -> None:
        # What a turn of its own has used is told next.
        self._own_result = None if self._own is None else message

    def on_lifecycle(self, message: CommandLifecycleMessage, turns: Sequence[TurnState], _now: int) -> None:
        for turn in turns:
            if message.state == "queued" and turn.front_at is None and turn in self._turns:
                add_event(self._turns[turn].span, n.PROMPT_QUEUED, {})

    def on_notice(self, message: Message, turns: Sequence[TurnState], _now: int) -> None:
        if (branch := self._open_turn(turns)) is not None:
            name, facts_of = _NOTICES[type(message)]
            add_event(branch.span, name, facts_of(message))

    # Requests of the agent.

    @harmless
    def answering(self, request: Ask) -> None:
        if isinstance(request, McpMessage):
            call = self._called_here(request)
        else:
            known_call = self._work.calls.get(getattr(request, "tool_use_id", None) or "")
            call = known_call or self._left_call(request)
        if call is not None:
            # It is never detached: this context ends with the answer.
            otel.attach(set_span_in_context(call.span))

    def _called_here(self, request: McpMessage) -> Call | None:
        match request.message:
            case {"method": "tools/call", "params": {"name": str(name), "_meta": {**meta}}}:
                id = str(meta.get(_TOOL_USE) or "")
            case _:
                return None
        if not id or self._work.is_ended(id):
            return None
        # If it is not known, it is of a subagent whose messages are not shown, or its message is yet to come.
        known_call = self._work.calls.get(id)
        return known_call or self._work.begin_call(id, f"mcp__{request.server_name}__{name}", time_ns())

    def _left_call(self, request: Ask) -> Call | None:
        """A call that a turn was parked with, and that runs now: the model does not make it again."""
        hook_input = request.input if isinstance(request, HookCallback) else None
        if not isinstance(hook_input, PreToolUseInput) or hook_input.agent_id is not None:
            return None
        span, id = get_current_span(), hook_input.tool_use_id
        branch = next((each for each in self._turns.values() if each.span is span), None)
        if branch is None or not branch.is_continued or self._work.is_ended(id):
            return None
        return self._work.begin_call(id, hook_input.tool_name, time_ns(), branch)

    @harmless
    def put(self, event: Handled) -> None:
        if isinstance(event, ToolHandled):
            self._put_tool(event)
            return
        name, label, facts = _described(event)
        facts |= {n.OUTCOME: event.outcome, n.SECONDS: event.seconds}
        # That of the tool that it is about, or of the turn.
        span = get_current_span()
        if event.outcome == "answered" and event.seconds < _SLOW:
            if span.is_recording():
                add_event(span, name, facts)
            return
        now = time_ns()
        span = start_span(self._telemetry.tracer, f"{name} {label}", facts, at=now - int(event.seconds * 1e9))
        self._record(span, event.error)
        error = None if event.outcome == "answered" else error_type(event.error) or event.outcome
        end_span(span, error, at=now)

    def _put_tool(self, event: ToolHandled) -> None:
        call = self._work.calls.get(event.tool_use_id or "")
        if call is None:
            return
        describe(call.span, {n.TOOL_SECONDS: event.seconds})
        self._record(call.span, event.error)
        if event.outcome != "answered":
            call.error = error_type(event.error) or event.outcome
        elif event.is_error:
            call.error = "tool_error"
        if not call.is_announced:
            self._work.end_call(call, time_ns(), None)

    def _record(self, span: Span, error: BaseException | None) -> None:
        if error is not None:
            facts: Attributes = {"exception.type": type(error).__qualname__}
            if self._telemetry.content and span.is_recording():
                facts["exception.message"] = self._telemetry.content.clean(str(error))
            add_event(span, "exception", facts)

    def close(self) -> None:
        """There is nothing to do: the session reports its end."""


def _provider(options: Options) -> str:
    for variable, provider in _PROVIDERS.items():
        if options.env.get(variable, os.environ.get(variable, "")).lower() in ("1", "true", "yes", "on"):
            return provider
    return "anthropic"


_NOTICES: Final[dict[type, tuple[str, Callable[[Any], Attributes]]]] = {
    ApiRetryMessage: (
        n.RETRY,
        lambda message: {
            n.RETRY_ATTEMPT: message.attempt,
            n.RETRY_DELAY: message.retry_delay_ms / 1000,
            n.HTTP_STATUS: message.error_status,
        },
    ),
    CompactBoundaryMessage: (
        n.COMPACTION,
        lambda message: {
            n.COMPACTION_TRIGGER: message.compact_metadata.get("trigger"),
            n.COMPACTION_BEFORE: message.compact_metadata.get("pre_tokens"),
            n.COMPACTION_AFTER: message.compact_metadata.get("post_tokens"),
        },
    ),
    RateLimitEvent: (
        n.RATE_LIMIT,
        lambda message: {
            n.STATUS: message.rate_limit_info.status,
            n.RATE_LIMIT_TYPE: message.rate_limit_info.rate_limit_type,
            n.RATE_LIMIT_USED: message.rate_limit_info.utilization,
        },
    ),
    **dict.fromkeys(
        (ModelFallbackMessage, ModelRefusalFallbackMessage),
        (
            n.MODEL_FALLBACK,
            lambda message: {
                n.REQUEST_MODEL: message.original_model,
                n.RESPONSE_MODEL: message.fallback_model,
            },
        ),
    ),
}
"""Messages that are events of their turn."""

_HANDLERS: Final[dict[type, _Handle]] = {
    AssistantMessage: SessionSpans.on_assistant,
    StreamEvent: SessionSpans.on_stream_event,
    UserMessage: SessionSpans.on_user,
    InitMessage: SessionSpans.on_init,
    ResultMessage: SessionSpans.on_result,
    CommandLifecycleMessage: SessionSpans.on_lifecycle,
    TaskStartedMessage: SessionSpans.on_task_started,
    TaskUpdatedMessage: SessionSpans.on_task,
    TaskNotificationMessage: SessionSpans.on_task,
    **dict.fromkeys(_NOTICES, SessionSpans.on_notice),
}
"""What is made of a message. Others say nothing that is told."""


def _described(event: Handled) -> tuple[str, str, Attributes]:
    """An answer as an event: its name, what it is about, and its attributes. Nothing of them is content."""
    match event:
        case HookHandled():
            facts = {n.HOOK_EVENT: event.event, n.HOOK_NAME: event.name}
            return n.HOOK, event.event, facts | ({n.DECISION: event.decision} if event.decision else {})
        case PermissionHandled():
            # Not the name of the conventions, by which backends would take it for a call of the tool.
            facts = {n.PERMISSION_TOOL: event.tool_name, n.DECISION: event.decision}
            if event.approval_id is not None:
                facts[n.APPROVAL_ID] = event.approval_id
            return n.PERMISSION, event.tool_name, facts
        case ElicitationHandled():
            facts = {n.MCP_SERVER: event.server, n.DECISION: event.action}
            return n.QUESTION, event.server, facts
        case _:
            kind = event.kind if isinstance(event, DialogHandled) else type(event).__name__
            return n.QUESTION, kind, {}
