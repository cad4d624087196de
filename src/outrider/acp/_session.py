"""One conversation of an editor with an agent: prompts, cancellation, modes and models.

Keeps the session of `outrider.session` open, and opens it again if the agent is lost.
"""

from __future__ import annotations

import logging
import warnings
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, Literal

import anyio
from acp import schema

from outrider.acp._editor import EditorTools
from outrider.acp._prompts import invalid
from outrider.acp._questions import Questions
from outrider.acp._rpc import AUTH_REQUIRED, INTERNAL, INVALID_REQUEST, RpcError
from outrider.acp._updates import Updates
from outrider.approvals import SessionParked
from outrider.errors import (
    ApiFailed,
    ConnectionLost,
    LimitReached,
    OptionsError,
    OutriderError,
    RequestFailed,
    TurnInterrupted,
)
from outrider.options import PermissionShadowedWarning
from outrider.session import Session, SessionState
from outrider.session._connection.observers import instrument_of
from outrider.wire import (
    CommandsChangedMessage,
    ElicitationCompleteMessage,
    ResultMessage,
    StatusMessage,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from anyio.abc import TaskGroup

    from outrider.acp._rpc import Rpc
    from outrider.acp._updates import Update
    from outrider.options import OptionFields, Options
    from outrider.session import Result, Turn
    from outrider.wire import ContentBlock, JsonObject

    ConfigOption: TypeAlias = schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean

log = logging.getLogger("outrider.acp")

_MODES: Final = {
    "default": ("Default", "Asks before the agent changes files or runs commands"),
    "acceptEdits": ("Accept edits", "Changes files without asking"),
    "plan": ("Plan", "Makes a plan, and changes nothing before it is approved"),
    "dontAsk": ("Don't ask", "Denies what is not allowed already"),
    "auto": ("Auto", "A classifier decides what needs a question"),
    "bypassPermissions": ("Bypass permissions", "Allows everything"),
}
"""Their names and what they do."""

_TRACE: Final = ("traceparent", "tracestate", "baggage")
"""What the protocol reserves for traces."""
_KEPT_RESULTS: Final = 16
_AUTH: Final = ("authentication_failed", "oauth_org_not_allowed")


class _Prompt:
    """A prompt that is being worked on."""

    def __init__(self) -> None:
        self.turn: Turn | None = None
        self.is_cancelled = False
        self.done = anyio.Event()


class AgentSession:
    """A conversation, by the id that the editor knows."""

    def __init__(
        self,
        rpc: Rpc,
        tasks: TaskGroup,
        session_id: str,
        options: Options,
        capabilities: schema.ClientCapabilities,
        *,
        editor_tools: bool,
    ) -> None:
        self.id = session_id
        self._rpc, self._tasks = rpc, tasks
        self._model = options.model or ""
        self._effort = options.effort or ""
        self.updates = Updates(self._update, options.cwd or "/")
        tools = EditorTools(rpc, session_id, self.updates, capabilities, options, is_wanted=editor_tools)
        questions = Questions(rpc, session_id, self.updates, capabilities, options, tools)
        self._options = _changed(
            options, {"include_partial_messages": True, **questions.fields(), **tools.fields()}
        )
        self._session: Session | None = None
        self._prompt: _Prompt | None = None
        self._followed: Session | None = None
        self._results: deque[ResultMessage] = deque(maxlen=_KEPT_RESULTS)
        """The last results that the editor was told of."""
        self._has_told = anyio.Event()
        self._is_closed = False

    async def _update(self, update: Update) -> None:
        await self._rpc.notify(
            "session/update", schema.SessionNotification(session_id=self.id, update=update)
        )

    # Beginning and end.

    async def open(self) -> None:
        """Start the agent."""
        session = Session(self._options)
        await session.connect()
        if self._is_closed:
            await session.close()
            raise RpcError(INVALID_REQUEST, f"the session {self.id} was closed")
        self._session = self._followed = session
        self._tasks.start_soon(self._follow, session)

    async def close(self) -> None:
        """Cancel what runs, and end the agent."""
        self._is_closed = True
        self.cancel()
        if self._session is not None:
            await self._session.close()

    @property
    def agent(self) -> Session:
        """The open session."""
        if self._session is None:
            raise RpcError(INVALID_REQUEST, f"the session {self.id} is not open yet")
        return self._session

    async def _reopen(self) -> Session:
        """The session as the agent left it, with a new agent."""
        session, info = self.agent, self.agent.info
        await session.close()
        fields: OptionFields = {
            "permission_mode": info.permission_mode or self._options.permission_mode,
            "model": None if self._model == "default" else self._model or None,
            "effort": None if self._effort == "default" else self._effort or None,
        }
        if info.session_id is not None:
            fields |= {"session_id": None, "fork_session": False, "resume": info.session_id}
        self._options = _changed(self._options, fields)
        await self.open()
        return self.agent

    async def _follow(self, session: Session) -> None:
        """Tell the editor all that the agent says, also between prompts."""
        try:
            async for message in session:
                await self.updates.show(message)
                match message:
                    case CommandsChangedMessage():
                        await self.updates.commands(session.info)
                    case StatusMessage(permission_mode=str()):
                        await self.tell_settings()
                    case ElicitationCompleteMessage():
                        done = schema.CompleteElicitationNotification(elicitation_id=message.elicitation_id)
                        await self._rpc.notify("elicitation/complete", done)
                    case ResultMessage():
                        self._results.append(message)
                        self._wake()
                    case _:
                        pass
        except OutriderError as error:
            log.info("the session %s has ended: %s", self.id, error)
        except Exception:
            # Others go on; a prompt to this one begins with a new agent.
            log.exception("the session %s cannot be followed", self.id)
            session.abandon()
        finally:
            if self._followed is session:
                self._followed = None
            self._wake()

    def _wake(self) -> None:
        self._has_told.set()
        self._has_told = anyio.Event()

    async def _wait_until_told(self, session: Session, result: ResultMessage | None) -> None:
        """The answer to a prompt comes after all that belongs to it."""
        while result is not None and self._followed is session:
            if any(each is result for each in self._results):
                return
            await self._has_told.wait()

    # Prompts.

    def prompt(self, blocks: list[ContentBlock], meta: JsonObject) -> Awaitable[schema.PromptResponse]:
        """Begin with a prompt; gives the work that leads to its answer. `meta` may name its trace."""
        before = self._prompt
        if before is not None and not before.is_cancelled:
            raise RpcError(
                INVALID_REQUEST, f"a prompt of the session {self.id} is still running: cancel it first"
            )
        prompt = self._prompt = _Prompt()
        return self._run(prompt, before, blocks, meta)

    def cancel(self) -> None:
        """End the prompt that runs, if there is one."""
        if self._prompt is not None:
            self._cancel(self._prompt)

    def _cancel(self, prompt: _Prompt) -> None:
        if not prompt.is_cancelled and prompt.turn is not None:
            self._tasks.start_soon(self._stop, prompt.turn)
        prompt.is_cancelled = True

    async def _stop(self, turn: Turn) -> None:
        try:
            await turn.cancel()
        except OutriderError as error:
            log.info("a turn of the session %s cannot be cancelled: %s", self.id, error)

    async def _run(
        self, prompt: _Prompt, before: _Prompt | None, blocks: list[ContentBlock], meta: JsonObject
    ) -> schema.PromptResponse:
        carrier = {name: value for name in _TRACE if isinstance(value := meta.get(name), str)}
        if carrier and (instrument := instrument_of(self._options)) is not None:
            instrument.resume(carrier)
        try:
            if before is not None:
                await before.done.wait()
            if prompt.is_cancelled:
                return schema.PromptResponse(stop_reason="cancelled")
            return await self._work(prompt, blocks)
        except OutriderError as error:
            if prompt.is_cancelled:
                return schema.PromptResponse(stop_reason="cancelled")
            raise failure_of(error) from error
        except anyio.get_cancelled_exc_class():
            self._cancel(prompt)
            raise
        finally:
            prompt.done.set()
            if self._prompt is prompt:
                self._prompt = None

    async def _work(self, prompt: _Prompt, blocks: list[ContentBlock]) -> schema.PromptResponse:
        session = self.agent
        if session.state is SessionState.CLOSED:
            session = await self._reopen()
        try:
            turn = await session.send(blocks)
        except SessionParked:
            # What was decided meanwhile comes first.
            session = await self._reopen()
            try:
                await self._finish(prompt, session, await session.continue_turn())
                turn = await session.send(blocks)
            except SessionParked:
                await self.updates.say("A call still waits for approval, so this was not sent.\n")
                return schema.PromptResponse(stop_reason="end_turn")
        except ConnectionLost:
            # It went away a moment ago.
            session = await self._reopen()
            turn = await session.send(blocks)
        result = await self._finish(prompt, session, turn)
        for each in result.pending:
            await self.updates.say(f"\nThis waits for approval: {each}\n")
        if prompt.is_cancelled or isinstance(result.error, TurnInterrupted):
            return schema.PromptResponse(stop_reason="cancelled", usage=_usage(result))
        return schema.PromptResponse(stop_reason=_stop_reason(result), usage=_usage(result))

    async def _finish(self, prompt: _Prompt, session: Session, turn: Turn) -> Result:
        prompt.turn = turn
        if prompt.is_cancelled:
            self._tasks.start_soon(self._stop, turn)
        result = await turn.result(check=False)
        await self._wait_until_told(session, result.message)
        await self.updates.end_calls()
        return result

    # Modes, models and effort.

    def modes(self) -> schema.SessionModeState:
        """The permission modes, and the one in force."""
        info = self.agent.info
        able = {"default", "acceptEdits", "plan", "dontAsk"}
        if any(each.supports_auto_mode for each in info.models):
            able.add("auto")
        if self._options.allow_dangerously_skip_permissions or info.permission_mode == "bypassPermissions":
            able.add("bypassPermissions")
        current = info.permission_mode or self._options.permission_mode or "default"
        found = [
            schema.SessionMode(id=id, name=name, description=does)
            for id, (name, does) in _MODES.items()
            if id in able
        ]
        if current not in able:
            found.append(schema.SessionMode(id=current, name=current))
        return schema.SessionModeState(current_mode_id=current, available_modes=found)

    def settings(self) -> list[ConfigOption]:
        """What the person may choose, as editors show it."""
        modes = self.modes()
        choices = [_choice(each.id, each.name, each.description) for each in modes.available_modes]
        found: list[ConfigOption] = [_select("mode", "Mode", "mode", modes.current_mode_id, choices)]
        models = self.agent.info.models
        if not models:
            return found
        current = next((each for each in models if self._model in (each.value, each.resolved_model)), None)
        choices = [_choice(each.value, each.display_name, each.description) for each in models]
        if current is None and self._model:
            choices.append(_choice(self._model, self._model))
        elif current is None:
            current = next((each for each in models if each.value == "default"), models[0])
        chosen = self._model if current is None else current.value
        found.append(_select("model", "Model", "model", chosen, choices))
        if current is not None and (levels := current.supported_effort_levels):
            effort = self._effort if self._effort in levels else "default"
            choices = [_choice(each, each.capitalize()) for each in ("default", *levels)]
            found.append(_select("effort", "Effort", "thought_level", effort, choices))
        return found

    async def set(self, name: str, value: str | bool) -> None:
        """Change a setting. Raises `RpcError` for one that there is not, or that the agent refuses."""
        setting = next((each for each in self.settings() if each.id == name), None)
        if not isinstance(setting, schema.SessionConfigOptionSelect):
            raise invalid(f"there is no option {name!r}")
        offered = [getattr(each, "value", None) for each in setting.options]
        if not isinstance(value, str) or value not in offered:
            raise invalid(
                f"the option {name!r} cannot be {value!r}: it can be {', '.join(map(str, offered))}"
            )
        try:
            match name:
                case "mode":
                    await self.agent.set_permission_mode(value)
                case "model":
                    await self.agent.set_model(None if value == "default" else value)
                    self._model = value
                case _:
                    await self.agent.apply_settings({"effortLevel": None if value == "default" else value})
                    self._effort = value
        except RequestFailed as error:
            raise invalid(f"the agent refuses {name} {value!r}: {error}") from error

    async def tell_settings(self) -> None:
        """Tell the editor of settings that the agent changed."""
        current = self.modes().current_mode_id
        await self._update(
            schema.CurrentModeUpdate(session_update="current_mode_update", current_mode_id=current)
        )
        await self._update(
            schema.ConfigOptionUpdate(session_update="config_option_update", config_options=self.settings())
        )


def _changed(options: Options, fields: OptionFields) -> Options:
    with warnings.catch_warnings():
        # The editor is not asked about what the options allow, and that is what they are for.
        warnings.simplefilter("ignore", PermissionShadowedWarning)
        return options.replace(**fields)


def _select(
    id: str,
    name: str,
    category: Literal["mode", "model", "thought_level"],
    current: str,
    choices: list[schema.SessionConfigSelectOption],
) -> schema.SessionConfigOptionSelect:
    return schema.SessionConfigOptionSelect(
        type="select", id=id, name=name, category=category, current_value=current, options=choices
    )


def _choice(value: str, name: str, description: str | None = None) -> schema.SessionConfigSelectOption:
    return schema.SessionConfigSelectOption(value=value, name=name or value, description=description or None)


def _stop_reason(result: Result) -> schema.StopReason:
    match result.error:
        case None:
            return "end_turn"
        case LimitReached(kind="max_turns"):
            return "max_turn_requests"
        # Why, the agent has said in a message.
        case ApiFailed(kind="max_output_tokens"):
            return "max_tokens"
        case ApiFailed(kind="refusal"):
            return "refusal"
        case error:
            raise failure_of(error)


def _usage(result: Result) -> schema.Usage:
    used = result.usage
    return schema.Usage(
        total_tokens=used.total_tokens,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_read_tokens=used.cache_read_tokens,
        cached_write_tokens=used.cache_creation_tokens,
    )


def failure_of(error: OutriderError) -> RpcError:
    """How an editor learns of a failure."""
    if isinstance(error, ApiFailed) and (error.status == 401 or error.kind in _AUTH):
        return RpcError(AUTH_REQUIRED, str(error))
    code = invalid("").code if isinstance(error, OptionsError) else INTERNAL
    return RpcError(code, str(error), {"error": type(error).__name__})
