"""Defines `ClaudeSDKClient`, the reference SDK's conversation.

Each method calls one of `outrider.Session`, with the name and result that its users know.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Literal, Self, cast

# Also those of annotations: programs that put an object together from them read them when they run.
from outrider import transports
from outrider.compat._errors import CLIConnectionError, translating, writing_to
from outrider.compat._internal.query import Query
from outrider.compat._internal.transport import subprocess_cli
from outrider.compat._reading import MessageReader, opened
from outrider.compat._transport import Transport
from outrider.compat._types.messages import ContextUsageResponse, McpStatusResponse
from outrider.compat._types.options import ClaudeAgentOptions, PermissionMode
from outrider.compat.query import Prompts, message_of
from outrider.wire import Message, ResultMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.session import Session


class ClaudeSDKClient:
    """A conversation with an agent, which runs from `connect` to `disconnect`.

    async with ClaudeSDKClient(options=ClaudeAgentOptions(cwd="project")) as client:
        await client.query("What is this project about?")
        async for message in client.receive_response(): ...

    Messages can be received by several tasks: each gets all that comes while it receives. All methods but
    `connect` and `disconnect` raise `CLIConnectionError` while it is not connected.
    """

    def __init__(
        self,
        options: ClaudeAgentOptions | None = None,
        transport: Transport | transports.Transport | None = None,
    ) -> None:
        self.options = ClaudeAgentOptions() if options is None else options
        self._custom_transport = transport
        self._session: Session | None = None
        self._reader: MessageReader | None = None
        # Not used here: programs of the reference reach for them.
        self._transport: Transport | transports.Transport | None = None
        self._query: Query | None = None

    async def connect(self, prompt: str | AsyncIterable[dict[str, Any]] | None = None) -> None:
        """Start the agent, and send it a prompt if there is one. The messages of an iterable are sent as they
        come; more can be sent beside and after them. Connecting again ends the agent before."""
        first: Any = None
        if isinstance(prompt, str):
            first = message_of(prompt, "default")
        elif prompt is not None:
            first = Prompts(prompt)
        await self._end()
        # By its module: programs put another in its place.
        transport = self._custom_transport or subprocess_cli.SubprocessCLITransport(
            prompt=prompt or "", options=self.options
        )
        try:
            session = self._session = await opened(self.options, transport)
            self._reader = MessageReader(session)
            self._transport, self._query = transport, Query(session, self, transport)
            if first is not None:
                with translating():
                    await session.send(first, keep=False)
        except BaseException:
            # Of a subclass, too, which may have more to end.
            await self.disconnect()
            raise

    async def disconnect(self) -> None:
        """End the agent. What it said until then can still be received by those who do."""
        await self._end()

    async def _end(self) -> None:
        session, self._session, self._reader = self._session, None, None
        self._transport = self._query = None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, exc_type: object, exc_val: object, exc_tb: object) -> Literal[False]:
        await self.disconnect()
        return False

    # Talking.

    async def query(self, prompt: str | AsyncIterable[dict[str, Any]], session_id: str = "default") -> None:
        """Send a prompt, or the messages of an iterable, one after the other."""
        session = self._connected()
        if isinstance(prompt, str):
            with writing_to(session):
                await session.send(message_of(prompt, session_id), keep=False)
            return
        async for message in prompt:
            given: dict[str, Any] = {"session_id": session_id, **message}
            with writing_to(session):
                await session.send(given, keep=False)

    def receive_messages(self) -> AsyncIterator[Message]:
        """All that the agent says, from where the last receiver stopped until the agent ends."""
        return Received(self._next_reader)

    def receive_response(self) -> AsyncIterator[Message]:
        """What the agent says up to and with the next result."""
        # Not by itself: instrumentors and subclasses change it. A proxy of theirs passes for an instance.
        messages = self.receive_messages()
        return messages.until_result() if type(messages) is Received else _up_to_result(messages)

    def _next_reader(self) -> MessageReader:
        """A reader of its own for one receiver. Raises `CLIConnectionError`."""
        self._connected()
        # The next one begins where this one has come to by then.
        self._reader = cast("MessageReader", self._reader).fork()
        return self._reader

    # Asking.

    async def interrupt(self) -> None:
        """Stop the turn that runs."""
        await self._ask("interrupt")

    async def set_permission_mode(self, mode: PermissionMode) -> None:
        """What the agent may do without asking, from now on."""
        await self._ask("set_permission_mode", mode=mode)

    async def set_model(self, model: str | None = None) -> None:
        """The model from now on; None for the default."""
        await self._ask("set_model", model=model)

    async def rewind_files(self, user_message_id: str) -> None:
        """Put files back to what they were at a message; needs `enable_file_checkpointing`."""
        await self._ask("rewind_files", user_message_id=user_message_id)

    async def reconnect_mcp_server(self, server_name: str) -> None:
        """Connect to an MCP server once more."""
        await self._ask("mcp_reconnect", serverName=server_name)

    async def toggle_mcp_server(self, server_name: str, enabled: bool) -> None:
        """Turn an MCP server on or off."""
        await self._ask("mcp_toggle", serverName=server_name, enabled=enabled)

    async def stop_task(self, task_id: str) -> None:
        """Stop a task in the background."""
        await self._ask("stop_task", task_id=task_id)

    async def get_mcp_status(self) -> McpStatusResponse:
        """How the MCP servers stand."""
        return cast("McpStatusResponse", await self._ask("mcp_status"))

    async def get_context_usage(self) -> ContextUsageResponse:
        """How full the context window is, and with what."""
        return cast("ContextUsageResponse", await self._ask("get_context_usage"))

    async def get_server_info(self) -> dict[str, Any] | None:
        """What the agent said about itself at the start: its commands, output styles, models, …"""
        initialized = self._connected().info.initialized
        return None if initialized is None else initialized.raw

    async def _ask(self, subtype: str, **fields: object) -> dict[str, Any]:
        self._connected()
        query = cast("Any", self._query)
        return cast("dict[str, Any]", await query._send_control_request({"subtype": subtype, **fields}))

    def _connected(self) -> Session:
        if self._session is None:
            raise CLIConnectionError("Not connected. Call connect() first.")
        return self._session


class Received(AsyncIterator["Message"]):
    """What a client receives. Begins when it is first asked for a message."""

    def __init__(self, begin: Callable[[], MessageReader]) -> None:
        self._begin = begin
        self._until_result = False
        self._reader: MessageReader | None = None
        self._rest: Iterator[Message] = iter(())
        """Messages of the reader none of which ends it."""
        self._is_over = False

    def until_result(self) -> Self:
        """The same, which ends with the next result."""
        self._until_result = True
        return self

    async def __anext__(self) -> Message:
        # Nearly every call ends here.
        for message in self._rest:
            return message
        return await self._next()

    async def _next(self) -> Message:
        if self._is_over:
            raise StopAsyncIteration
        if self._reader is None:
            self._reader = self._begin()
        reader = self._reader
        while True:
            for message in reader.ready:
                if self._until_result and isinstance(message, ResultMessage):
                    await self.aclose()
                return message
            has_result = await reader.advance()
            if self._is_over:
                # It was closed meanwhile; what came is for the next one.
                raise StopAsyncIteration
            if not has_result or not self._until_result:
                self._rest = reader.ready

    async def aclose(self) -> None:
        """Stop receiving."""
        self._is_over = True
        self._rest = iter(())
        # Or what comes would be kept for it.
        self._reader = None


async def _up_to_result(messages: AsyncIterator[Message]) -> AsyncGenerator[Message]:
    try:
        async for message in messages:
            yield message
            if isinstance(message, ResultMessage):
                return
    finally:
        if isinstance(messages, AsyncGenerator):
            await messages.aclose()
