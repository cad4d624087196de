"""Tells an editor what an agent says and does, message by message, and what was said in a kept session.

Does not ask the editor anything: `_questions` does.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio
from acp import schema

from outrider.acp._tool_calls import ToolCall, text_block
from outrider.options._validators import is_list
from outrider.transcripts._export.turns import FROM_PROGRAM
from outrider.wire import (
    AssistantMessage,
    CompactBoundaryMessage,
    DocumentBlock,
    ImageBlock,
    LocalCommandOutputMessage,
    ResultMessage,
    SessionTitleChangedMessage,
    StreamEvent,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from outrider.wire._tolerant import is_object

if TYPE_CHECKING:
    from typing import TypeAlias

    from outrider.session import SessionInfo
    from outrider.transcripts import TranscriptEntry
    from outrider.wire import ContentBlock, JsonObject, Message

    Update: TypeAlias = (
        schema.UserMessageChunk
        | schema.AgentMessageChunk
        | schema.AgentThoughtChunk
        | schema.ToolCallStart
        | schema.ToolCallProgress
        | schema.AgentPlanUpdate
        | schema.AvailableCommandsUpdate
        | schema.CurrentModeUpdate
        | schema.ConfigOptionUpdate
        | schema.SessionInfoUpdate
        | schema.UsageUpdate
    )
    Content: TypeAlias = schema.TextContentBlock | schema.ImageContentBlock | schema.ResourceContentBlock

log = logging.getLogger("outrider.acp")

_PLAN_TOOLS: Final = frozenset(("TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet"))
"""What they do is shown as the plan, not as tool calls."""
_STATES: Final[Mapping[str, schema.PlanEntryStatus]] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
}


class Updates:
    """What one session tells the editor."""

    def __init__(self, send: Callable[[Update], Awaitable[None]], cwd: str) -> None:
        self._send = send
        self._cwd = cwd
        self._calls: dict[str, ToolCall] = {}
        """The calls that have not ended, by their ids."""
        self._announced: dict[str, anyio.Event] = {}
        self._tasks: dict[str, schema.PlanEntry] = {}
        """The agent's list of tasks, by their ids."""
        self._is_streamed = False
        """Whether the text of the next whole message has come in pieces."""
        self._message: str | None = None
        """The id of the message that the agent speaks in."""
        self._context: Mapping[str, int] = {}
        """Tokens in the context window, by kind."""
        self._cost = self._earlier_cost = 0.0
        """What the agent says that the session has cost, and what it no longer says."""

    async def show(self, message: Message) -> None:
        """Tell what a message says to its reader. What cannot be told is logged: the next one can be."""
        try:
            await self._show(message)
        except Exception:
            log.exception("a message of the agent cannot be shown: %s", type(message).__name__)

    async def _show(self, message: Message) -> None:
        match message:
            case StreamEvent(parent_tool_use_id=None):
                await self._piece(message)
            case AssistantMessage():
                await self._answer(message)
            case UserMessage():
                await self._results(message)
            case ResultMessage():
                await self._usage(message)
            case CompactBoundaryMessage():
                if tokens := message.compact_metadata.get("post_tokens"):
                    self._context = {"": tokens}
            case SessionTitleChangedMessage():
                await self._send(_titled(message.title))
            case LocalCommandOutputMessage():
                await self.say(message.content, message.uuid)
            case _:
                pass

    # Words.

    async def say(self, text: str, message_id: str | None = None) -> None:
        """Words of the agent, in this message or, without an id, in one of their own."""
        if text:
            await self._send(
                schema.AgentMessageChunk(
                    session_update="agent_message_chunk", content=text_block(text), message_id=message_id
                )
            )

    async def _think(self, text: str) -> None:
        # Not with the id of the message: a reply with the same one would be taken for more of the thought.
        id = None if self._message is None else f"{self._message}-thought"
        await self._send(
            schema.AgentThoughtChunk(
                session_update="agent_thought_chunk", content=text_block(text), message_id=id
            )
        )

    async def _piece(self, message: StreamEvent) -> None:
        if text := message.text:
            self._is_streamed = True
            await self.say(text, self._message)
        elif thinking := message.thinking:
            self._is_streamed = True
            await self._think(thinking)
        elif message.event.get("type") == "message_start":
            # What an attempt that failed has streamed is not what comes now.
            self._is_streamed = False
            started = message.event.get("message")
            self._message = str(started["id"]) if is_object(started) and started.get("id") else None
        elif message.event.get("type") == "message_delta":
            self._count(message.event.get("usage"), self._context)

    def _count(self, usage: object, before: Mapping[str, int]) -> None:
        given = usage if is_object(usage) else {}
        counts = {key: count for key in _COUNTED if isinstance(count := given.get(key), int)}
        if counts:
            self._context = {**before, **counts}

    async def _answer(self, message: AssistantMessage) -> None:
        is_main = message.parent_tool_use_id is None
        is_new = is_main and not self._is_streamed
        if is_main:
            self._message = message.message_id or self._message
            self._count(message.usage, {})
            if any(isinstance(each, TextBlock | ThinkingBlock) for each in message.content):
                # The pieces of one block come before it, and those of the next after it.
                self._is_streamed = False
        for block in message.content:
            if is_new:
                await self._block(block)
            if isinstance(block, ToolUseBlock):
                await self.announce(block.id, block.name, block.input, parent=message.parent_tool_use_id)

    async def _block(self, block: ContentBlock) -> None:
        if isinstance(block, TextBlock):
            await self.say(block.text, self._message)
        elif isinstance(block, ThinkingBlock) and block.thinking:
            await self._think(block.thinking)

    # Tool calls.

    def call(self, id: str, name: str, input: JsonObject) -> ToolCall:
        """The call with this id, or a new one."""
        return self._calls.get(id) or ToolCall(id, name, input, self._cwd)

    async def announce(
        self,
        id: str,
        name: str,
        input: JsonObject,
        *,
        status: schema.ToolCallStatus = "in_progress",
        parent: str | None = None,
    ) -> None:
        """Tell of a call, once."""
        if id in self._calls:
            return
        call = self._calls[id] = ToolCall(id, name, input, self._cwd, is_main=parent is None)
        if call.name == "TodoWrite" and call.is_main:
            await self._todos(input)
        elif not _is_plan(call):
            await self._send(
                schema.ToolCallStart(
                    session_update="tool_call",
                    tool_call_id=id,
                    title=call.title,
                    kind=call.kind,
                    status=status,
                    content=call.preview() or None,
                    locations=call.locations(),
                    raw_input=input,
                    field_meta={"outrider": {"parentToolCallId": parent}} if parent else None,
                )
            )
        self._announced.setdefault(id, anyio.Event()).set()

    async def wait_for(self, id: str) -> None:
        """Wait until a call was told of."""
        if id not in self._calls:
            await self._announced.setdefault(id, anyio.Event()).wait()

    async def progress(
        self, id: str, status: schema.ToolCallStatus | None = None, *, terminal: str | None = None
    ) -> None:
        """Tell how far a call is, and in which terminal it runs."""
        if (call := self._calls.get(id)) is None:
            return
        content = None
        if terminal is not None:
            call.terminal = terminal
            content = [schema.TerminalToolCallContent(type="terminal", terminal_id=terminal)]
        await self._tell_of(call, status, content=content)

    async def _tell_of(self, call: ToolCall, status: schema.ToolCallStatus | None, **more: object) -> None:
        if not _is_plan(call):
            fields: dict[str, Any] = {"tool_call_id": call.id, "status": status, **more}
            await self._send(schema.ToolCallProgress(session_update="tool_call_update", **fields))

    async def _results(self, message: UserMessage) -> None:
        for block in message.content if isinstance(message.content, list) else ():
            if isinstance(block, ToolResultBlock):
                await self._result(block, message.tool_use_result)

    async def _result(self, block: ToolResultBlock, output: object) -> None:
        call = self._calls.pop(block.tool_use_id, None)
        self._announced.pop(block.tool_use_id, None)
        if call is None:
            return
        if _is_plan(call):
            await self._task(call, output)
            return
        line = call.first_line(output)
        await self._tell_of(
            call,
            "failed" if block.is_error else "completed",
            content=call.result(block, output),
            locations=None if line is None else call.locations(line),
            raw_output=output if output is not None else block.content,
        )

    async def end_calls(self) -> None:
        """The turn is over: a call without a result failed. Subagents may work on in the background."""
        for id, call in tuple(self._calls.items()):
            if call.is_main:
                del self._calls[id]
                self._announced.pop(id, None)
                await self._tell_of(call, "failed")

    # The plan.

    async def _todos(self, input: JsonObject) -> None:
        todos: object = input.get("todos")
        found = [_entry(each, "content") for each in (todos if is_list(todos) else ())]
        await self._plan([each for each in found if each is not None])

    async def _task(self, call: ToolCall, output: object) -> None:
        """Follow the agent's list of tasks, which it changes one by one."""
        told = output if is_object(output) else {}
        id = str(call.input.get("taskId"))
        task: object = told.get("task")
        if call.name == "TaskCreate" and is_object(task) and (made := _entry(task, "subject")):
            self._tasks[str(task.get("id"))] = made
        elif call.name == "TaskUpdate" and told.get("success") is True and id in self._tasks:
            changed = {"subject": self._tasks[id].content, "status": self._tasks[id].status} | call.input
            if changed["status"] == "deleted":
                del self._tasks[id]
            elif made := _entry(changed, "subject"):
                self._tasks[id] = made
        else:
            return
        await self._plan(list(self._tasks.values()))

    async def _plan(self, entries: list[schema.PlanEntry]) -> None:
        await self._send(schema.AgentPlanUpdate(session_update="plan", entries=entries))

    # The session.

    async def _usage(self, message: ResultMessage) -> None:
        models = [each for each in (message.model_usage or {}).values() if is_object(each)]
        size = max((each["contextWindow"] for each in models if "contextWindow" in each), default=0)
        cost = self._cost if message.total_cost_usd is None else message.total_cost_usd
        if cost < self._cost:
            # It counts from 0 after `/clear`, and so does an agent that took the place of a lost one.
            self._earlier_cost += self._cost
        self._cost = cost
        if size:
            total = schema.Cost(amount=self._earlier_cost + cost, currency="USD")
            used = sum(self._context.values())
            await self._send(
                schema.UsageUpdate(session_update="usage_update", used=used, size=size, cost=total)
            )

    async def commands(self, info: SessionInfo) -> None:
        """Tell which slash commands there are."""
        found = [
            schema.AvailableCommand(
                name=each.name,
                description=each.description,
                input=_hint(each.argument_hint) if each.argument_hint else None,
            )
            for each in info.commands
            if each.name
        ]
        await self._send(
            schema.AvailableCommandsUpdate(
                session_update="available_commands_update", available_commands=found
            )
        )

    async def replay(self, entries: Iterable[TranscriptEntry]) -> None:
        """Tell a kept conversation, as it was."""
        for entry in entries:
            message = entry.message
            if message is None or entry.is_meta or entry.is_sidechain or entry.is_compact_summary:
                continue
            if isinstance(message, UserMessage):
                for content in _prompt(message):
                    await self._send(
                        schema.UserMessageChunk(
                            session_update="user_message_chunk", content=content, message_id=entry.uuid
                        )
                    )
            await self.show(message)
        await self.end_calls()


_COUNTED: Final = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _is_plan(call: ToolCall) -> bool:
    # The list of a subagent is not that of the agent.
    return call.name in _PLAN_TOOLS and (call.is_main or call.name != "TodoWrite")


def _prompt(message: UserMessage) -> Iterator[Content]:
    """What the person wrote, in the form in which editors send it."""
    given = message.content
    for block in [TextBlock(given)] if isinstance(given, str) else given:
        if isinstance(block, TextBlock) and not block.text.startswith(FROM_PROGRAM):
            yield text_block(block.text)
        elif isinstance(block, ImageBlock):
            data, kind = block.source.get("data"), block.source.get("media_type")
            if isinstance(data, str) and isinstance(kind, str):
                yield schema.ImageContentBlock(type="image", data=data, mime_type=kind)
        elif isinstance(block, DocumentBlock) and block.title:
            yield schema.ResourceContentBlock(
                type="resource_link", name=block.title, uri=block.context or block.title
            )


def _entry(task: object, words: str) -> schema.PlanEntry | None:
    if not is_object(task) or not isinstance(content := task.get(words), str):
        return None
    status = _STATES.get(str(task.get("status")), "pending")
    return schema.PlanEntry(content=content, priority="medium", status=status)


def _hint(text: str) -> schema.AvailableCommandInput:
    return schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint=text))


def _titled(title: str) -> schema.SessionInfoUpdate:
    return schema.SessionInfoUpdate(session_update="session_info_update", title=title)
