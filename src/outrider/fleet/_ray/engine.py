"""The engine that runs attempts on a Ray cluster, or on one that it starts on this machine.

Ray decides where and when each attempt runs, by the memory and processors that its task declares. `worker`
runs the attempt; the mailbox carries its messages and its questions to the driver.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from contextvars import copy_context
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast
from uuid import uuid4

import anyio
import msgspec
from anyio.lowlevel import current_token

from outrider import handlers
from outrider._threads import run_sync
from outrider.errors import LimitReached, OptionsError, OutriderError, UsageError
from outrider.fleet._engine import Attempted, Note, Shared
from outrider.fleet._errors import ClusterNotFound, WorkerLost
from outrider.fleet._fields import write_size
from outrider.fleet._ray.channel import ChannelMessage, Mailbox, MessageKind
from outrider.fleet._ray.worker import (
    Order,
    Reply,
    keep_traces,
    refuse_secrets_in,
    refuse_secrets_of,
    run_order,
    travelling,
)
from outrider.handlers._hooks.dispatch import as_hook
from outrider.options._validators import invalid_value, is_mapping, seconds, text
from outrider.redaction import preview
from outrider.session import background
from outrider.session._connection.observers import instrument_of
from outrider.wire.control import McpMessage

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from anyio.abc import TaskGroup

    from outrider.fleet._budget.budget import Spent
    from outrider.fleet._engine import Assignment, Tell
    from outrider.fleet._task import Task
    from outrider.options import Options
    from outrider.wire import JsonObject
    from outrider.wire.hooks import HookInput


log = logging.getLogger("outrider.fleet")


Send: TypeAlias = Callable[..., object]
"""Takes the kind and the body of a message for the worker, and for an answer the id of the call."""


class _FarOrigin:
    """Stands for the session of an attempt on another machine."""

    def __getattr__(self, name: str) -> NoReturn:
        raise UsageError(
            "the session runs on another machine, and only its questions come here",
            hint="Use what is in the request itself.",
        )


_ORIGIN: Final = cast("handlers.Origin", _FarOrigin())

_REQUESTS: Final[Mapping[str, Callable[..., handlers.CallContext]]] = {
    "permission": handlers.PermissionRequest,
    "on_plan": handlers.Plan,
    "on_elicitation": handlers.ElicitationRequest,
    "on_user_dialog": handlers.DialogRequest,
}
"""What each callback is asked with."""


class _FarLink:
    """The way from a server here to the agent of the attempt."""

    def __init__(self, server: str, send: Send) -> None:
        self._server = server
        self._send = send

    def post(self, message: JsonObject) -> None:
        self._send("post", pickle.dumps((self._server, message)))


class Visit:
    """An attempt on another machine, as the driver sees it."""

    def __init__(self, options: Options, shared: Shared, tell: Tell, send: Send) -> None:
        """Raises `OptionsError` for an invalid handler."""
        self._tell = tell
        self.worker = ""
        """Where it is made, as far as that is known."""
        self.gate_changed: Callable[[], Coroutine[object, object, None]] | None = None
        """Tells the other workers."""
        self.unplaced: OptionsError | None = None
        """Why it was given up before it began."""
        self.has_ended = anyio.Event()
        """Set when the last message of the worker has arrived."""
        self._options = options
        self._shared = shared
        self._context = copy_context()
        self._tasks: TaskGroup | None = None
        self._calls: dict[str, anyio.CancelScope] = {}
        # Hooks are called one by one: the worker keeps their order.
        self._handlers = handlers.Handlers(options.replace(hooks={}), lambda _: None)
        self._send = send

    def begin(self, tasks: TaskGroup) -> None:
        """From now on answer questions, in tasks of this group."""
        self._tasks = tasks
        for name in self._handlers.servers.given:
            endpoint = self._handlers.servers.open(name, _FarLink(name, self._send))
            self._begin(endpoint.run)

    def receive(self, message: ChannelMessage) -> None:
        """Take a message of the worker's."""
        if message.kind == "note":
            note = cast("Note", pickle.loads(message.body))
            self.worker = note.worker or self.worker
            self._tell(note)
        elif message.kind == "call":
            self._begin(self._answer, message.call, message.body)
        elif message.kind == "end":
            self.has_ended.set()
        elif (scope := self._calls.get(message.call)) is not None:
            # Withdrawn: the worker no longer waits for the answer.
            scope.cancel()

    def _begin(self, function: Callable[..., Coroutine[object, object, None]], *arguments: object) -> None:
        """Start a task in the context of the attempt."""
        if (tasks := self._tasks) is not None:

            def begin() -> None:
                tasks.start_soon(function, *arguments)

            self._context.copy().run(begin)

    async def _answer(self, id: str, body: bytes) -> None:
        error: Exception | None = None
        value: object = None
        with anyio.CancelScope() as scope:
            self._calls[id] = scope
            try:
                kind, question = cast("tuple[str, Sequence[object]]", pickle.loads(body))
                value = await self._asked(kind, *question)
            except Exception as failed:  # noqa: BLE001 - the worker raises it there
                error = failed
            finally:
                del self._calls[id]
        if not scope.cancelled_caught:
            self._send("answer", _packed(error, value), id)

    async def _asked(self, kind: str, *question: Any) -> object:  # noqa: ANN401 - each kind has its own
        ask: Any = question[0] if question else None
        if kind == "hook":
            return await self._hook(*question)
        if kind == "server":
            return await self._server(*question)
        if kind == "ledger":
            from outrider.fleet._budget.ledger import backlog_of

            await backlog_of(cast("Any", self._shared.ledger)).add(ask)
            return None
        if kind == "gate":
            value = await getattr(self._shared.gate, ask)(*question[1:])
            if ask != "wait" and self.gate_changed is not None:
                await self.gate_changed()
            return value
        if kind == "on_question":
            _, index, answers = question
            asked = ask.input["questions"]
            places: dict[str, Any] = {"index": index, "total": len(asked), "answers": answers}
            return await self._called(kind, handlers.Question(asked[index], ask, _ORIGIN, **places))
        return await self._called(kind, _REQUESTS[kind](ask, _ORIGIN))

    async def _called(self, name: str, request: handlers.CallContext) -> object:
        function = getattr(self._options, name)
        if isinstance(function, handlers.Policy):
            # The rules were gone through there.
            function = function.otherwise
        value = await handlers.call(cast("Callable[..., object]", function), request, context=request)
        is_answered = isinstance(value, handlers.Answer) and (value.changes or value.input is not None)
        if isinstance(request, handlers.PermissionRequest) and request.is_changed and not is_answered:
            # The worker has another copy, and would allow what was asked.
            hint = "Return allow(input=…) to change the input."
            raise UsageError("it changed the request in place", hint=hint)
        return value

    async def _hook(self, event: str, place: int, given: HookInput, tool_use_id: str | None) -> object:
        from outrider.handlers._hooks.hook import takes_context

        hook = as_hook(event, self._options.hooks[event][place])
        context = handlers.HookContext(_ORIGIN, tool_use_id)
        arguments = (given, context) if takes_context(hook) else (given,)
        return await handlers.call(hook.function, *arguments, context=context)

    async def _server(self, name: str, message: JsonObject) -> object:
        ask = McpMessage(server_name=name, message=message)
        reply = (await self._handlers.servers.answer(ask, _ORIGIN))["mcp_response"]
        # What gets no reply is answered with an empty result, which the other side makes itself.
        return reply if "id" in message else None


def _packed(error: Exception | None, value: object) -> bytes:
    cloudpickle = cast("Any", import_module("ray.cloudpickle"))
    try:
        return cast("bytes", cloudpickle.dumps((error, value)))
    except Exception as cause:  # noqa: BLE001 - objects of the user's may fail in any way
        what = repr(error) if error is not None else type(value).__name__
        log.warning("an answer for a worker cannot be sent: %s", cause)
        return cast("bytes", cloudpickle.dumps((OutriderError(f"the answer cannot be sent: {what}"), None)))


_WORDS: Final = ("auto", "local")
_CLIENT: Final = "ray://"


def address_of(address: object) -> str | None:
    """Validate an address. Raises `OptionsError`."""
    if address is None:
        return None
    given = text("`address`", address)
    if given in _WORDS:
        return given
    if given.startswith(_CLIENT):
        raise OptionsError(
            f"`address` is {given!r}, and Ray's client is not supported",
            hint="Run on a node of the cluster, with address='auto', or give the cluster's own 'host:port'.",
        )
    host, _, port = given.rpartition(":")
    if not host or not port.isdecimal():
        raise invalid_value("`address`", "'auto', 'local' or 'host:port'", given, "Ray's own port is 6379.")
    return given


async def connect(ray: Any, address: str | None, timeout: float) -> bool:  # noqa: ANN401 - a module
    """Connect this process, unless it is connected. Returns whether it was connected here.

    Raises `ClusterNotFound` within the timeout.
    """
    if ray.is_initialized():
        known = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", known):
            raise OptionsError(
                f"this process is connected to the cluster at {known!r} already, not to {address!r}",
                hint="Call `ray.shutdown()` before, or leave `address` out.",
            )
        return False
    target = address or os.environ.get("RAY_ADDRESS") or None
    if target is not None and target not in _WORDS:
        # Ray itself would try for two minutes, and end the whole process a minute later.
        await _reach(address_of(target) or "", timeout)
    # It would warn of what it cannot do outside of the main thread, which is not needed here.
    fields: dict[str, object] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if target == "local":
        fields["include_dashboard"] = False
    try:
        # What it prints belongs to no output of this program.
        with redirect_stdout(sys.stderr):
            await run_sync(lambda: ray.init(address=target, **fields))
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterNotFound(target or "", preview(str(error))) from error
    return True


async def _reach(address: str, timeout: float) -> None:
    host, _, port = address.rpartition(":")
    try:
        with anyio.fail_after(timeout):
            stream = await anyio.connect_tcp(host.strip("[]"), int(port))
            await stream.aclose()
    except (OSError, TimeoutError) as error:
        reason = str(error) or f"no answer within {timeout:g} s"
        raise ClusterNotFound(address, reason) from error


def lost_by(error: Exception, worker: str) -> OutriderError:
    """Turn an error of Ray into one of Outrider, for the attempt of this worker."""
    from ray import exceptions

    summary = preview(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
    if isinstance(error, exceptions.RuntimeEnvSetupError):
        return OptionsError(
            f"the workers' environment could not be made: {preview(str(error))}", hint="Check `runtime_env`."
        )
    if isinstance(error, exceptions.RayTaskError) and not isinstance(error, exceptions.TaskCancelledError):
        return OptionsError(
            f"a worker cannot run Outrider: {preview(str(error).strip().splitlines()[-1])}",
            hint="Install the same version of `outrider[ray]` on all nodes, or name it in `runtime_env`.",
        )
    return WorkerLost(worker, f"{type(error).__name__}: {summary}")


_POLL: Final = 5.0
"""Seconds that the mailbox is listened to at a time."""
_GRACE: Final = 5.0
"""Seconds that a worker may take to end an attempt, beyond what its agent may, before it is killed."""
_LOOK: Final = 1.0
"""Seconds between two looks at the nodes."""
_USUAL_CPUS: Final = 0.5
"""What a task sets aside, unless it says otherwise."""
_FEWEST: Final = 16
"""Attempts that a cluster is given in any case, if only to let it grow."""
_LAST_WORDS: Final = 10.0
"""Seconds to wait for the last messages of a worker after its result has arrived."""


class RayEngine:
    """Makes attempts on a Ray cluster: `fleet.map(…, engine=RayEngine("10.0.0.1:6379"))`, or `engine="ray"`.

    Each attempt is one task of Ray's, with the `cpus` and the `memory` of its `Task`. Where a worker or a
    node is lost, another attempt begins elsewhere; it resumes the session if `session_store` names a store
    that both reach, and begins from the prompt otherwise. The budget, the gate and the ledger of the run stay
    here and count for all workers. Tools, hooks and callbacks are called here, too: workers ask for them.

    Every node needs Outrider, of the same version, and Claude Code. Works on asyncio only.
    """

    name: str = "ray"

    def __init__(
        self,
        address: str | None = None,
        *,
        runtime_env: Mapping[str, object] | None = None,
        connect_seconds: float = 30.0,
        node_seconds: float = 60.0,
    ) -> None:
        """`address`: of a cluster, `host:port`; `"auto"`: the one that runs on this machine; `"local"`: a new
        one on this machine, which ends with the run; None: the one that this process is connected to, or
        that RAY_ADDRESS names, or that runs on this machine, or a new one.

        `runtime_env` is Ray's: `{"working_dir": …, "pip": […]}`. A cluster that does not answer within
        `connect_seconds` is an error, and so is a task that is larger than each of the nodes for
        `node_seconds`. Raises `OptionsError`.
        """
        self._address = address_of(address)
        self._runtime_env = dict(runtime_env or {})
        variables = self._runtime_env.get("env_vars")
        if is_mapping(variables):
            refuse_secrets_in("`runtime_env['env_vars']`", cast("Mapping[str, str]", variables))
        refuse_secrets_of("`runtime_env`", self._runtime_env)
        self._connect_seconds = seconds("`connect_seconds`", connect_seconds)
        self._node_seconds = seconds("`node_seconds`", node_seconds)
        self._shared = Shared()
        self._visits: dict[str, Visit] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._collecting: anyio.CancelScope | None = None
        self._has_collected = anyio.Event()
        self._published: tuple[object, ...] | None = None
        self._gate_until: float | None = None
        self._is_open = False
        self._owns_connection = False
        self._failure: Exception | None = None
        """Why the cluster cannot be used any more."""
        # Ray makes its objects at run time.
        self._ray: Any = None
        self._mailbox: Any = None
        self._run: Any = None

    # Beginning and end.

    async def open(self, shared: Shared) -> None:
        """Connect, and start the mailbox. Raises `OptionsError`, and `ClusterNotFound` for a cluster that
        does not answer."""
        self._ray = _ray()
        if "trio" in current_token().backend_class.__module__:
            raise OptionsError("the engine 'ray' works on asyncio only", hint="Use the local engine on trio.")
        if shared.pool is not None:
            raise OptionsError(
                "`pool` cannot be used with the engine 'ray': it is of this process",
                hint="Leave it out; limit what runs by `memory` and `cpus` of the tasks.",
            )
        if shared.restart is not None and callable(shared.restart.resend):
            raise OptionsError(
                "`restart.resend` is a function, and the engine 'ray' cannot ask it",
                hint="Give True, False or None.",
            )
        self.check(shared.options)
        if self._is_open:
            raise UsageError("the engine is in use by another run", hint="Make one for each that runs.")
        self._is_open, self._shared, self._failure = True, shared, None
        try:
            self._owns_connection = await connect(self._ray, self._address, self._connect_seconds)
            self._run = self._ray.remote(run_order)
            await self._start_mailbox()
            scope, self._has_collected = anyio.CancelScope(), anyio.Event()
            await (await background()).start(self._collect, scope, name="outrider mailbox")
            self._collecting = scope
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.close()
            raise

    async def _start_mailbox(self) -> None:
        """Start the mailbox here, because nodes may be lost, and this one takes the run with it.

        Raises `ClusterNotFound`, and `OptionsError` for workers that cannot be started as they are wanted.
        """
        strategies = import_module("ray.util.scheduling_strategies")
        node = self._ray.get_runtime_context().get_node_id()
        here = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        try:
            made = self._ray.remote(Mailbox).options(
                num_cpus=0,
                max_concurrency=10_000,
                scheduling_strategy=here,
                runtime_env=self._runtime_env or None,
            )
            self._mailbox = made.remote()
        except (TypeError, ValueError) as error:
            raise OptionsError(f"`runtime_env` cannot be used: {preview(str(error))}") from error
        self._published = self._gate_until = None
        where = self._address or ""
        try:
            with anyio.fail_after(self._connect_seconds):
                await self._mailbox.__ray_ready__.remote()
                await self._publish()
        except TimeoutError:
            late = f"no worker was started within {self._connect_seconds:g} s"
            raise ClusterNotFound(where, late) from None
        except self._ray.exceptions.RayError as error:
            meant = lost_by(error, "")
            raise (
                ClusterNotFound(where, meant.reason) if isinstance(meant, WorkerLost) else meant
            ) from error

    async def close(self) -> None:
        """End the mailbox; a cluster that was started here ends, too."""
        if self._collecting is not None:
            self._collecting.cancel()
            await self._has_collected.wait()
            self._collecting = None
        mailbox, self._mailbox = self._mailbox, None
        if mailbox is not None and self._ray.is_initialized():
            self._ray.kill(mailbox)
        if self._owns_connection:
            self._owns_connection = False
            with redirect_stdout(sys.stderr):
                await run_sync(self._ray.shutdown)
        self._is_open = False

    # Attempts.

    def check(self, options: Options) -> None:
        """Raises `OptionsError` for what can neither be sent to workers nor be served to them."""
        _ray()
        travelling(options)

    async def attempt(self, work: Assignment, tell: Tell) -> Attempted:
        """Make one attempt on the cluster. Raises `WorkerLost`, and `OptionsError` for what cannot be sent.

        Cancelling the call ends the attempt: its agent is ended by its worker, or with it.
        """
        if self._mailbox is None:
            raise UsageError("the engine is not open")
        if self._failure is not None:
            raise ClusterNotFound(self._address or "", str(self._failure)) from self._failure
        order = self._order(work)
        if self._shared.budget is not None:
            try:
                self._shared.budget.check(session_id=work.session_id)
            except LimitReached as error:
                return Attempted(status="over_budget", session_id=work.session_id, error=error)
        key, mailbox = uuid4().hex, self._mailbox
        visit = Visit(work.options, self._shared, tell, partial(_send, mailbox, key))
        visit.gate_changed = self._publish_gate
        self._visits[key] = visit
        try:
            reply = await self._visited(key, visit, work, order)
        finally:
            del self._visits[key]
            mailbox.drop.remote(key)
        if reply.attempted is None:
            raise _failure(reply)
        try:
            await run_sync(keep_traces, work.options, reply.traces)
        except OSError:
            # The task is done, with or without its trace.
            log.warning("the trace of a task could not be written: %s", work.id, exc_info=True)
        return reply.attempted

    def _order(self, work: Assignment) -> bytes:
        shared = self._shared
        budget = shared.budget
        instrument = instrument_of(work.options)
        order = Order(
            work=msgspec.structs.replace(work, options=travelling(work.options)),
            retry=shared.retry,
            restart=shared.restart,
            left=None if budget is None else budget.left,
            budget_name="" if budget is None else budget.name,
            budget_grace=10.0 if budget is None else budget.grace,
            has_gate=shared.gate is not None,
            has_ledger=shared.ledger is not None,
            carrier={} if instrument is None else instrument.carrier(),
        )
        return cast("bytes", self._ray.cloudpickle.dumps(order))

    async def _visited(self, key: str, visit: Visit, work: Assignment, order: bytes) -> Reply:
        """Run the attempt on a worker and return its reply. Raises `WorkerLost`."""
        reply: Reply | None = None
        failed: Exception | None = None
        async with anyio.create_task_group() as tasks:
            visit.begin(tasks)
            with anyio.CancelScope() as scope:
                # Cancelled when the mailbox is lost.
                self._scopes[key] = scope
                # Submitted first, so that an autoscaler sees what is wanted.
                tasks.start_soon(self._expect_place, work.task, visit, scope)
                try:
                    reply = await self._made(key, visit, work, order)
                except Exception as error:  # noqa: BLE001 - raised below, not in a group
                    failed = error
                finally:
                    del self._scopes[key]
            tasks.cancel_scope.cancel()
        if visit.unplaced is not None:
            raise visit.unplaced
        if failed is not None:
            raise failed
        if reply is None:
            raise WorkerLost("", "the mailbox of the run was lost")
        return reply

    async def _made(self, key: str, visit: Visit, work: Assignment, order: bytes) -> Reply:
        mailbox = self._mailbox
        try:
            await mailbox.expect.remote(key)
            ref = self._run.options(
                num_cpus=work.task.cpus,
                memory=work.task.memory_bytes,
                max_retries=0,
                name=f"outrider {work.id}",
                runtime_env=self._runtime_env or None,
            ).remote(mailbox, key, order)
        except self._ray.exceptions.RayError as error:
            raise lost_by(error, visit.worker) from error
        try:
            reply = cast("Reply", pickle.loads(await ref))
        except self._ray.exceptions.RayError as error:
            raise lost_by(error, visit.worker) from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._end(ref, work)
            raise
        with anyio.move_on_after(_LAST_WORDS):
            if reply.attempted is not None:
                await visit.has_ended.wait()
        return reply

    async def _end(self, ref: object, work: Assignment) -> None:
        """End an attempt: interrupt it, which ends its agent first, or else kill its worker."""
        timeouts = work.options.timeouts
        for force, patience in ((False, timeouts.close + timeouts.terminate + _GRACE), (True, _GRACE)):
            self._ray.cancel(ref, force=force)
            with anyio.move_on_after(patience):
                try:
                    await cast("Any", ref)
                except self._ray.exceptions.RayError:
                    pass
                return
        log.warning("the cluster does not tell whether a cancelled attempt has ended: %s", work.id)

    async def _expect_place(self, task: Task, visit: Visit, scope: anyio.CancelScope) -> None:
        """Give up an attempt that no node is large enough for. Ray would wait for ever, in case that one is
        added."""
        largest = (0.0, 0)
        ends_at = anyio.current_time() + self._node_seconds
        while anyio.current_time() < ends_at:
            await anyio.sleep(min(_LOOK, max(0.01, ends_at - anyio.current_time())))
            if visit.worker:
                return
            sizes = await self._sizes()
            if any(cpus >= task.cpus and memory >= (task.memory_bytes or 0) for cpus, memory in sizes):
                # It waits for its turn.
                return
            largest = max(sizes, default=largest)
        wanted = f"{task.cpus:g} CPUs" + (
            "" if task.memory_bytes is None else f" and {write_size(task.memory_bytes)}"
        )
        visit.unplaced = OptionsError(
            f"no node of the cluster is large enough for the task {task.id!r}, which wants {wanted}",
            hint=f"The largest has {largest[0]:g} CPUs and {write_size(largest[1])}: want less, or add one.",
        )
        scope.cancel()

    async def _sizes(self) -> list[tuple[float, int]]:
        nodes = await run_sync(self._ray.nodes)
        return [_size(node) for node in nodes if node["Alive"]]

    async def slots(self) -> int:
        """How many attempts to have with the cluster: all that fit, and as many again, so that an autoscaler
        sees that more are wanted."""
        cpus = sum(cpus for cpus, _ in await self._sizes())
        return max(_FEWEST, int(2 * cpus / _USUAL_CPUS))

    # What workers say.

    async def _collect(self, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                while True:
                    try:
                        for message in await self._mailbox.collect.remote(_POLL):
                            self._take(message)
                        await self._publish()
                    except self._ray.exceptions.RayError as error:
                        log.warning("the mailbox of the run was lost: %s", error)
                        for each in self._scopes.values():
                            each.cancel()
                        await self._start_mailbox()
        except Exception as error:
            log.exception("the cluster cannot be used any more")
            self._failure = error
            for each in self._scopes.values():
                each.cancel()
        finally:
            self._has_collected.set()

    def _take(self, message: ChannelMessage) -> None:
        if message.kind == "charge":
            # Whether the attempt is still wanted or not, it was spent.
            if self._shared.budget is not None:
                self._shared.budget.charge(cast("Spent", pickle.loads(message.body)))
        elif (visit := self._visits.get(message.key)) is not None:
            visit.receive(message)

    async def _publish(self) -> None:
        """Send all workers what is left of the budget, if anything but the time has changed, and until when
        the gate is closed."""
        await self._publish_gate()
        budget = self._shared.budget
        if budget is None:
            return
        left = budget.left
        figures = (left.usd, left.tokens, left.tool_calls, budget.exceeded)
        if figures != self._published:
            self._published = figures
            body = pickle.dumps((left, budget.exceeded))
            await self._mailbox.publish.remote(ChannelMessage(key="", kind="left", body=body))

    async def _publish_gate(self) -> None:
        gate = self._shared.gate
        until = 0.0 if gate is None else gate.opens_at or 0.0
        if until != self._gate_until and self._mailbox is not None:
            self._gate_until = until
            message = ChannelMessage(key="", kind="gate", body=pickle.dumps(until))
            await self._mailbox.publish.remote(message)


def _send(mailbox: Any, key: str, kind: MessageKind, body: bytes, call: str = "") -> None:  # noqa: ANN401 - of Ray's
    mailbox.send.remote(ChannelMessage(key=key, kind=kind, body=body, call=call))


def _ray() -> ModuleType:
    # Its own report of how it is used would go out over the network.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return import_module("ray")
    except ImportError:
        raise OptionsError(
            "The engine 'ray' needs a package that is not installed", hint="Run: pip install 'outrider[ray]'"
        ) from None


def _size(node: Mapping[str, Any]) -> tuple[float, int]:
    resources = node["Resources"]
    return float(resources.get("CPU", 0.0)), int(resources.get("memory", 0))


def _failure(reply: Reply) -> Exception:
    if not reply.failure:
        return WorkerLost("", "it was stopped because nobody waits for it")
    last = reply.failure.strip().splitlines()[-1]
    if "ModuleNotFoundError" in last or "AttributeError" in last:
        return OptionsError(
            f"a worker cannot load what the task needs: {last}",
            hint="Have the same code on all nodes, for example with `runtime_env={'working_dir': '.'}`.",
        )
    return UsageError(f"the attempt failed on its worker: {reply.failure}")
