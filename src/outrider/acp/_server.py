"""Answers an editor: what can be done here, which sessions are kept, and which of them are open."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from uuid import UUID, uuid4

import anyio
from acp import PROTOCOL_VERSION, schema
from pydantic import BaseModel

from outrider._version import __version__
from outrider.acp._prompts import invalid, read_folder, read_prompt, read_servers
from outrider.acp._rpc import INVALID_REQUEST, NOT_FOUND, Rpc, RpcError, Then, stdio
from outrider.acp._session import AgentSession, failure_of
from outrider.errors import OptionsError, OutriderError, SessionNotFound
from outrider.handlers import call
from outrider.launch import make_environment
from outrider.options import Options
from outrider.transcripts import Sessions, config_folder

if TYPE_CHECKING:
    from anyio.abc import ByteStream, TaskGroup

    from outrider.acp._prompts import Server as McpServer
    from outrider.acp._rpc import Answer, Answered, Method
    from outrider.options import OptionFields
    from outrider.wire import JsonObject

Source: TypeAlias = (
    Options | Callable[[], Options | Awaitable[Options]] | Callable[[str], Options | Awaitable[Options]]
)
"""The options of sessions: a value, or a function that makes them, async or not. It may take the folder of
the session."""

P = TypeVar("P", bound=BaseModel)

_PAGE: Final = 50
"""So many sessions are listed at once."""

_CURSOR: Final = re.compile(r"[1-9][0-9]{0,8}")

_ALWAYS_OTHERS: Final = ("continue_conversation", "resume", "fork_session", "session_id", "resume_session_at")
"""Options that name a session: the editor does that."""


async def serve(options: Source, *, editor_tools: bool = False, stream: ByteStream | None = None) -> None:
    """Serve the Agent Client Protocol until the editor closes its side.

        options = outrider.Options(tools=[search], permission=policy)
        anyio.run(outrider.acp.serve, options)

    Each session of the editor is a session with these options, in the folder that the editor names. All
    agents are ended before this returns.

    With `editor_tools`, files are read and written, and commands run, through the editor where it can do
    that; see the guide for what this changes. The editor is at stdin and stdout, and what this process prints
    goes to stderr meanwhile; `stream` is any other connection to it, which is closed at the end.

    Raises `OptionsError` for options that cannot be served.
    """
    if isinstance(options, Options):
        _check(options)
    elif not callable(options):
        raise OptionsError(
            f"there are no options in a value of the type {type(options).__name__}",
            hint="Give an `Options`, or a function that returns one.",
        )
    with nullcontext(stream) if stream is not None else stdio() as connection:
        async with connection:
            await _Server(connection, options, editor_tools=editor_tools).run()


class _Server:
    def __init__(self, stream: ByteStream, source: Source, *, editor_tools: bool) -> None:
        self._source = source
        self._editor_tools = editor_tools
        self._sessions: dict[str, AgentSession] = {}
        self._opening: set[str] = set()
        self._capabilities: schema.ClientCapabilities | None = None
        self._tasks: TaskGroup
        methods: dict[str, Method] = {
            "initialize": _taking(schema.InitializeRequest, self._initialize),
            "session/new": self._later(schema.NewSessionRequest, self._new),
            "session/load": self._later(schema.LoadSessionRequest, self._load),
            "session/resume": self._later(schema.ResumeSessionRequest, self._resume),
            "session/fork": self._later(schema.ForkSessionRequest, self._fork),
            "session/list": self._later(schema.ListSessionsRequest, self._list),
            "session/close": self._later(schema.CloseSessionRequest, self._close),
            "session/delete": self._later(schema.DeleteSessionRequest, self._delete),
            "session/prompt": _taking(schema.PromptRequest, self._prompt),
            "session/cancel": _taking(schema.CancelNotification, self._cancel),
            "session/set_mode": self._later(schema.SetSessionModeRequest, self._set_mode),
            "session/set_config_option": self._set_option,
        }
        self._rpc = Rpc(stream, methods)

    async def run(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            try:
                await self._rpc.serve()
            finally:
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as closing:
                        for session in self._sessions.values():
                            closing.start_soon(session.close)
                self._tasks.cancel_scope.cancel()

    def _later(self, form: type[P], work: Callable[[P], Awaitable[Answered]]) -> Method:
        """A method that takes time. Errors of Outrider are answers."""

        async def run(params: P) -> Answered:
            try:
                return await work(params)
            except SessionNotFound as error:
                raise RpcError(NOT_FOUND, str(error)) from error
            except OutriderError as error:
                raise failure_of(error) from error

        def begin(params: JsonObject) -> Awaitable[Answered]:
            if self._capabilities is None:
                raise RpcError(INVALID_REQUEST, "the first request has to be `initialize`")
            return run(form.model_validate(params))

        return begin

    def _initialize(self, params: schema.InitializeRequest) -> schema.InitializeResponse:
        self._capabilities = params.client_capabilities or schema.ClientCapabilities()
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="outrider", title="Outrider", version=__version__),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=True, acp=False),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    delete=schema.SessionDeleteCapabilities(),
                    additional_directories=schema.SessionAdditionalDirectoriesCapabilities(),
                    fork=schema.SessionForkCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    # Options.

    async def _options(self, cwd: str) -> Options:
        source = self._source
        if isinstance(source, Options):
            return source
        takes_folder = bool(inspect.signature(source).parameters)
        made = await call(source, *([cwd] if takes_folder else []))
        if not isinstance(made, Options):
            raise OptionsError(
                f"the function for the options returned a value of the type {type(made).__name__}",
                hint="Return an `Options`.",
            )
        _check(made)
        return made

    async def _options_for(
        self, cwd: str, more: list[str] | None, servers: list[McpServer] | None
    ) -> Options:
        read_folder("cwd", cwd)
        for folder in more or ():
            read_folder("additionalDirectories", folder)
        of_editor = read_servers(servers)
        options = await self._options(cwd)
        fields: OptionFields = {"cwd": cwd, "add_dirs": [*options.add_dirs, *(more or ())]}
        if of_editor:
            # A server of the options counts more than one of the editor with its name.
            fields["mcp_servers"] = {**of_editor, **_servers_of(options)}
        return options.replace(**fields)

    async def _kept(self, cwd: str | None) -> Sessions:
        options = await self._options(cwd or os.getcwd())  # noqa: PTH109 - as text
        if options.session_store is not None:
            return Sessions(options.session_store)
        if (folder := options.isolation.config_dir) is not None:
            return Sessions(config=folder)
        if options.runner is not None or options.isolation.is_hermetic:
            raise OptionsError(
                "the sessions of this agent are not kept on this machine",
                hint="Give a `session_store`, which keeps them wherever it runs.",
            )
        return Sessions(config=config_folder(make_environment(options)))

    # Sessions.

    async def _open(
        self, session_id: str, options: Options, *, replay: Sessions | None = None
    ) -> AgentSession:
        if session_id in self._opening:
            raise RpcError(INVALID_REQUEST, f"the session {session_id} is being opened already")
        self._opening.add(session_id)
        try:
            if (before := self._sessions.pop(session_id, None)) is not None:
                await before.close()
            capabilities = self._capabilities or schema.ClientCapabilities()
            session = AgentSession(
                self._rpc, self._tasks, session_id, options, capabilities, editor_tools=self._editor_tools
            )
            if replay is not None:
                async with replay:
                    entries = await replay.read(session_id, history="full")
                await session.updates.replay(entries)
            # From here on it is closed with the server, even while it opens.
            self._sessions[session_id] = session
            try:
                await session.open()
            except BaseException:
                self._sessions.pop(session_id, None)
                raise
            return session
        finally:
            self._opening.discard(session_id)

    async def _new(self, params: schema.NewSessionRequest) -> Answered:
        options = await self._options_for(params.cwd, params.additional_directories, params.mcp_servers)
        session_id = str(uuid4())
        session = await self._open(session_id, options.replace(session_id=session_id))
        return _begun(session, partial(schema.NewSessionResponse, session_id=session_id))

    async def _load(self, params: schema.LoadSessionRequest) -> Answered:
        session_id = _checked_id(params.session_id)
        options = await self._options_for(params.cwd, params.additional_directories, params.mcp_servers)
        kept = await self._kept(params.cwd)
        session = await self._open(session_id, options.replace(resume=session_id), replay=kept)
        return _begun(session, schema.LoadSessionResponse)

    async def _resume(self, params: schema.ResumeSessionRequest) -> Answered:
        session_id = _checked_id(params.session_id)
        options = await self._options_for(params.cwd, params.additional_directories, params.mcp_servers)
        session = await self._open(session_id, options.replace(resume=session_id))
        return _begun(session, schema.ResumeSessionResponse)

    async def _fork(self, params: schema.ForkSessionRequest) -> Answered:
        source = _checked_id(params.session_id)
        options = await self._options_for(params.cwd, params.additional_directories, params.mcp_servers)
        session_id = str(uuid4())
        session = await self._open(
            session_id, options.replace(resume=source, fork_session=True, session_id=session_id)
        )
        return _begun(session, partial(schema.ForkSessionResponse, session_id=session_id))

    async def _list(self, params: schema.ListSessionsRequest) -> schema.ListSessionsResponse:
        offset = int(params.cursor) if params.cursor and _CURSOR.fullmatch(params.cursor) else 0
        if params.cwd is not None and not Path(params.cwd).is_absolute():
            raise invalid(f"`cwd` is {params.cwd!r}, and has to be an absolute path")
        if params.cursor and not offset:
            raise invalid(f"`cursor` is {params.cursor!r}, which no list has given")
        async with await self._kept(params.cwd) as kept:
            found = await kept.list(project=params.cwd, limit=_PAGE + 1, offset=offset)
        listed = [
            schema.SessionInfo(
                session_id=each.id,
                cwd=folder,
                title=each.title or None,
                updated_at=each.last_modified.isoformat(),
            )
            for each in found[:_PAGE]
            if (folder := each.cwd or params.cwd)
        ]
        more = str(offset + _PAGE) if len(found) > _PAGE else None
        return schema.ListSessionsResponse(sessions=listed, next_cursor=more)

    async def _close(self, params: schema.CloseSessionRequest) -> schema.CloseSessionResponse:
        session = self._found(params.session_id)
        del self._sessions[session.id]
        await session.close()
        return schema.CloseSessionResponse()

    async def _delete(self, params: schema.DeleteSessionRequest) -> schema.DeleteSessionResponse:
        session_id = _checked_id(params.session_id)
        if (session := self._sessions.pop(session_id, None)) is not None:
            await session.close()
        async with await self._kept(None) as kept:
            try:
                await kept.delete(session_id)
            except SessionNotFound:
                # Gone is gone, says the protocol.
                pass
        return schema.DeleteSessionResponse()

    # In a session.

    def _found(self, session_id: str) -> AgentSession:
        if (session := self._sessions.get(session_id)) is None:
            text = f"there is no open session {session_id!r}: make one with session/new or session/load"
            raise RpcError(NOT_FOUND, text)
        return session

    def _prompt(self, params: schema.PromptRequest) -> Awaitable[Answered]:
        session = self._found(params.session_id)
        return session.prompt(read_prompt(params.prompt), params.field_meta or {})

    def _cancel(self, params: schema.CancelNotification) -> None:
        self._found(params.session_id).cancel()

    async def _set_mode(self, params: schema.SetSessionModeRequest) -> schema.SetSessionModeResponse:
        await self._found(params.session_id).set("mode", params.mode_id)
        return schema.SetSessionModeResponse()

    def _set_option(self, params: JsonObject) -> Answer:
        # A switch names its type; there is none yet, and `_set` says so.
        if params.get("type") == "boolean":
            return self._later(schema.SetSessionConfigOptionBooleanRequest, self._set)(params)
        return self._later(schema.SetSessionConfigOptionSelectRequest, self._set)(params)

    async def _set(
        self, params: schema.SetSessionConfigOptionBooleanRequest | schema.SetSessionConfigOptionSelectRequest
    ) -> schema.SetSessionConfigOptionResponse:
        session = self._found(params.session_id)
        await session.set(params.config_id, params.value)
        return schema.SetSessionConfigOptionResponse(config_options=session.settings())


def _taking(form: type[P], method: Callable[[P], Answered | Awaitable[Answered]]) -> Method:
    return lambda params: method(form.model_validate(params))


def _begun(session: AgentSession, answer: Callable[..., BaseModel]) -> Then:
    made = answer(modes=session.modes(), config_options=session.settings())
    return Then(made, partial(session.updates.commands, session.agent.info))


def _checked_id(session_id: str) -> str:
    try:
        return str(UUID(session_id))
    except ValueError:
        raise RpcError(NOT_FOUND, f"there is no session {session_id!r}: ids are UUIDs") from None


def _check(options: Options) -> None:
    for name in _ALWAYS_OTHERS:
        if getattr(options, name):
            raise OptionsError(
                f"`{name}` is set, and the editor says which session it wants", hint="Leave it out."
            )


def _servers_of(options: Options) -> dict[str, object]:
    servers = options.mcp_servers
    if not isinstance(servers, str):
        return dict(servers)
    try:
        found = json.loads(Path(servers).read_text(encoding="utf-8"))["mcpServers"]
        return dict(found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OptionsError(
            f"`mcp_servers` is {servers!r}, which cannot be read: {error}",
            hint="Give the path of a JSON file that has `mcpServers`.",
        ) from error
