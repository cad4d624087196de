"""Answers, at the driver, what one attempt elsewhere asks for: its callbacks, hooks, tools, gate and ledger.

Does not know how questions travel.
"""

from __future__ import annotations

import logging
import pickle
from contextlib import suppress
from contextvars import copy_context
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import anyio

from outrider._folders import make_private
from outrider.errors import OutriderError, UsageError
from outrider.handlers import (
    Answer,
    CallContext,
    DialogRequest,
    ElicitationRequest,
    Handlers,
    HookContext,
    PermissionRequest,
    Plan,
    Policy,
    Question,
    call,
)
from outrider.handlers._hooks.dispatch import as_hook
from outrider.transports._trace.writer import new_trace_path
from outrider.wire.control import McpMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from anyio.abc import TaskGroup

    from outrider.fleet._budget.ledger import LedgerEntry
    from outrider.fleet._engine import Shared, Tell
    from outrider.options import Options
    from outrider.options._tool_names import ToolNames
    from outrider.session import Session, Turn
    from outrider.wire import JsonObject
    from outrider.wire.control import CanUseTool, Elicitation, RequestUserDialog
    from outrider.wire.hooks import HookInput

__all__ = ["Visit", "keep_traces"]

log = logging.getLogger("outrider.fleet")


class _FarOrigin:
    """The session of an attempt elsewhere: it asks, but it is not here."""

    @property
    def session(self) -> Session:
        _refuse()

    @property
    def turn(self) -> Turn | None:
        _refuse()

    @property
    def tool_names(self) -> ToolNames:
        _refuse()


def _refuse() -> NoReturn:
    raise UsageError(
        "the session runs on another machine, and only its questions come here",
        hint="Use what is in the request itself.",
    )


_ORIGIN: Final = _FarOrigin()


class _FarLink:
    """The way from a server here to the agent of the attempt."""

    def __init__(self, server: str, send: Callable[[bytes], None]) -> None:
        self._server = server
        self._send = send

    def post(self, message: JsonObject) -> None:
        self._send(pickle.dumps((self._server, message)))


class Visit:
    """One attempt that is made elsewhere, as the driver sees it."""

    def __init__(self, options: Options, shared: Shared, tell: Tell, send: Callable[[bytes], None]) -> None:
        """`send` takes a message for the agent there. Raises `OptionsError` for what is no handler."""
        self.tell: Final = tell
        self.worker = ""
        """Where it is made, as far as that is known."""
        self.has_ended = anyio.Event()
        """Set when all that the worker had to say was heard."""
        self._options = options
        self._shared = shared
        self._context = copy_context()
        self._tasks: TaskGroup | None = None
        self._calls: dict[str, anyio.CancelScope] = {}
        # Hooks are called one by one: the worker keeps their order.
        self._handlers = Handlers(options.replace(hooks={}), lambda _: None)
        self._send = send
        self._by_kind: dict[str, Callable[..., Awaitable[object]]] = {
            "permission": self._permission,
            "on_plan": self._on_plan,
            "on_question": self._on_question,
            "on_elicitation": self._on_elicitation,
            "on_user_dialog": self._on_user_dialog,
            "hook": self._hook,
            "server": self._server,
            "gate": self._gate,
            "ledger": self._ledger,
        }

    def begin(self, tasks: TaskGroup) -> None:
        """From now on answer questions, in tasks of this group."""
        self._tasks = tasks
        for name in self._handlers.servers.given:
            endpoint = self._handlers.servers.open(name, _FarLink(name, self._send))
            self._begin(endpoint.run)

    def take(self, id: str, body: bytes, reply: Callable[[str, bytes], None]) -> None:
        """Begin to answer a call; `reply` gets its id and the answer."""
        self._begin(self._answer, id, body, reply)

    def _begin(self, function: Callable[..., Coroutine[object, object, None]], *arguments: object) -> None:
        """Start a task in the context of whoever makes the attempt."""
        if (tasks := self._tasks) is not None:

            def begin() -> None:
                tasks.start_soon(function, *arguments)

            self._context.copy().run(begin)

    def withdraw(self, id: str) -> None:
        """Nobody waits for the answer any more."""
        if (scope := self._calls.get(id)) is not None:
            scope.cancel()

    async def _answer(self, id: str, body: bytes, reply: Callable[[str, bytes], None]) -> None:
        error: Exception | None = None
        value: object = None
        with anyio.CancelScope() as scope:
            self._calls[id] = scope
            try:
                kind, question = cast("tuple[str, Sequence[object]]", pickle.loads(body))
                value = await self._by_kind[kind](*question)
            except Exception as failed:  # noqa: BLE001 - the worker raises it there
                error = failed
            finally:
                del self._calls[id]
        if not scope.cancelled_caught:
            reply(id, _packed(error, value))

    # One for each kind.

    async def _permission(self, ask: CanUseTool) -> object:
        permission = self._options.permission
        if isinstance(permission, Policy):
            # The rules were gone through there.
            permission = permission.otherwise
        return await _decided(permission, PermissionRequest(ask, _ORIGIN))

    async def _on_plan(self, ask: CanUseTool) -> object:
        return await _decided(self._options.on_plan, Plan(ask, _ORIGIN))

    async def _on_question(self, ask: CanUseTool, index: int, answers: Mapping[str, str]) -> object:
        asked = ask.input["questions"]
        question = Question(asked[index], ask, _ORIGIN, index=index, total=len(asked), answers=answers)
        return await _called(self._options.on_question, question)

    async def _on_elicitation(self, ask: Elicitation) -> object:
        return await _called(self._options.on_elicitation, ElicitationRequest(ask, _ORIGIN))

    async def _on_user_dialog(self, ask: RequestUserDialog) -> object:
        return await _called(self._options.on_user_dialog, DialogRequest(ask, _ORIGIN))

    async def _hook(self, event: str, place: int, told: HookInput, tool_use_id: str | None) -> object:
        from outrider.handlers._hooks.hook import runner_of

        hook = as_hook(event, self._options.hooks[event][place])
        context = HookContext(_ORIGIN, tool_use_id)
        return await call(runner_of(hook), told, context, context=context)

    async def _server(self, name: str, message: JsonObject) -> object:
        ask = McpMessage(server_name=name, message=message)
        reply = (await self._handlers.servers.answer(ask, _ORIGIN))["mcp_response"]
        # What gets no reply is answered with an empty result, which the other side makes itself.
        return reply if "id" in message else None

    async def _gate(self, method: str, *arguments: object) -> None:
        if (gate := self._shared.gate) is not None:
            await getattr(gate, method)(*arguments)

    async def _ledger(self, entry: LedgerEntry) -> None:
        if (ledger := self._shared.ledger) is not None:
            await ledger.add(entry)


async def _called(function: object, context: CallContext) -> object:
    return await call(cast("Callable[..., object]", function), context, context=context)


async def _decided(function: object, request: PermissionRequest) -> object:
    value = await _called(function, request)
    if request.is_changed and not (isinstance(value, Answer) and (value.changes or value.input is not None)):
        # The worker has another copy, and would allow what was asked.
        raise UsageError("it changed the request in place", hint="Return allow(input=…) to change the input.")
    return value


def _packed(error: Exception | None, value: object) -> bytes:
    cloudpickle = cast("Any", import_module("ray.cloudpickle"))
    try:
        return cast("bytes", cloudpickle.dumps((error, value)))
    except Exception as cause:  # noqa: BLE001 - objects of the user's may fail in any way
        what = repr(error) if error is not None else type(value).__name__
        log.warning("an answer for a worker cannot be sent: %s", cause)
        return cast("bytes", cloudpickle.dumps((OutriderError(f"the answer cannot be sent: {what}"), None)))


def keep_traces(options: Options, traces: Sequence[bytes]) -> None:
    """Write traces that came back to where the option says."""
    trace = options.trace
    if trace is None:
        return
    for content in traces:
        for path in new_trace_path(trace.path):
            with suppress(FileExistsError):
                make_private(Path(path), content)
                break
