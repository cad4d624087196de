"""Runs one attempt in a worker of the cluster, on a channel to the driver.

What an attempt does is known to `attempt_locally`; where it runs is Ray's decision.
"""

from __future__ import annotations

import os
import pickle
import platform
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlsplit, urlunsplit

import anyio
import msgspec

from outrider._folders import make_private
from outrider.errors import OptionsError, OutriderError
from outrider.fleet._budget.budget import Left
from outrider.fleet._engine import Assignment, Attempted, Note, Shared, attempt_locally
from outrider.fleet._ray.channel import (
    AskedFunction,
    AskedHook,
    AskedServer,
    DriverChannel,
    FarGate,
    FarLedger,
    Share,
    current_channel,
)
from outrider.fleet._resilient.retry import Restart, Retry
from outrider.fleet._task import WITH_SECRETS, is_secret, is_secret_variable
from outrider.handlers import Handlers, Policy
from outrider.handlers._hooks.dispatch import as_hook, sent_matcher
from outrider.options import OptionFields, SdkServer
from outrider.options._values import differing, plain
from outrider.redaction import mask
from outrider.session._connection.observers import instrument_of
from outrider.transports._trace.writer import new_trace_path

if TYPE_CHECKING:
    from outrider.fleet._budget.ledger import Ledger
    from outrider.options import McpServer, Options
    from outrider.options._tool_names import ToolNames


_REDIS_PASSWORD: Final = "REDIS_PASSWORD"
_TRACES: Final = 64 * 1024 * 1024
"""Bytes of traces that are sent back at most. What is left stays on the worker, and goes with its folder."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is sent: an attempt, and what it shares with others."""

    work: Assignment
    retry: Retry | None
    restart: Restart | None
    left: Left | None
    """What is left of the run's budget; None if there is none."""
    budget_name: str = ""
    budget_grace: float = 10.0
    has_gate: bool = False
    has_ledger: bool = False
    carrier: Mapping[str, str] = {}
    """The trace that the attempt belongs to."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker sends back."""

    attempted: Attempted | None = None
    """None if it was no longer wanted, or failed."""
    traces: tuple[bytes, ...] = ()
    failure: str = ""
    """The traceback of an error that is not a result of the task."""


def run_order(mailbox: object, key: str, order: bytes) -> bytes:
    """Make the attempt. Ray calls this, in a process that does nothing else meanwhile.

    To cancel the task interrupts the process, which cancels the attempt: its agent is ended first.
    """
    try:
        reply = anyio.run(_run, mailbox, key, order)
    except Exception:  # noqa: BLE001 - Ray's own form of it cannot be read everywhere
        reply = Reply(failure=traceback.format_exc())
    return pickle.dumps(reply)


async def _run(mailbox: object, key: str, packed: bytes) -> Reply:
    order = cast("Order", pickle.loads(packed))
    left = order.left
    share = None if left is None else Share(left, name=order.budget_name, grace=order.budget_grace)
    channel = DriverChannel(mailbox, key, share)
    current_channel.set(channel)
    channel.note(Note(worker=_worker()))
    shared = Shared(
        budget=None if share is None else share.budget,
        gate=FarGate(channel) if order.has_gate else None,
        retry=order.retry,
        restart=order.restart,
        ledger=cast("Ledger", FarLedger(channel)) if order.has_ledger else None,
    )
    if (instrument := instrument_of(order.work.options)) is not None:
        instrument.resume(order.carrier)
    with tempfile.TemporaryDirectory(prefix="outrider-traces-") as folder:
        work = _with_password(_traced(order.work, folder))
        attempted: Attempted | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.hear, tasks.cancel_scope)
            tasks.start_soon(channel.report)
            attempted = await attempt_locally(work, shared, channel.note)
            tasks.cancel_scope.cancel()
        if attempted is None:
            return Reply()
        traces = _traces(Path(folder))
    from ray.exceptions import RayError

    # If the mailbox is gone, the driver knows.
    with suppress(RayError):
        await channel.end()
    return Reply(attempted=_sendable(attempted), traces=traces)


def _worker() -> str:
    """Where this worker runs, for messages."""
    import ray

    context: Any = ray.get_runtime_context()
    return f"{platform.node()}:{os.getpid()} (node {str(context.get_node_id())[:8]})"


def _traced(work: Assignment, folder: str) -> Assignment:
    """The attempt with its trace in a folder here; the driver knows where it belongs."""
    if work.options.trace is None:
        return work
    trace = msgspec.structs.replace(work.options.trace, path=f"{folder}/")
    return msgspec.structs.replace(work, options=work.options.replace(trace=trace))


def _with_password(work: Assignment) -> Assignment:
    """The attempt with the password of its Redis, which did not travel. Drivers of other stores look in the
    environment themselves."""
    store, password = work.options.session_store, os.environ.get(_REDIS_PASSWORD)
    if not isinstance(store, str) or not password or not store.startswith(("redis://", "rediss://")):
        return work
    parts = urlsplit(store)
    if parts.password is not None:
        return work
    place = f"{parts.username or ''}:{quote(password, safe='')}@{parts.netloc.rpartition('@')[2]}"
    url = urlunsplit(parts._replace(netloc=place))
    return msgspec.structs.replace(work, options=work.options.replace(session_store=url))


def _traces(folder: Path) -> tuple[bytes, ...]:
    found: list[bytes] = []
    for path in sorted(folder.iterdir()):
        if sum(map(len, found)) + path.stat().st_size <= _TRACES:
            found.append(path.read_bytes())
    return tuple(found)


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


def _sendable(attempted: Attempted) -> Attempted:
    """Without what is for the process alone that made it."""
    error = attempted.error
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - the facts of an error, or its cause, may be anything
        error = OutriderError(str(error))
    return msgspec.structs.replace(attempted, result=None, error=error)


_CALLBACKS: Final = ("permission", "on_question", "on_plan", "on_elicitation", "on_user_dialog")
"""Options that are functions which the agent's questions go to."""

_STAYING: Final = {
    "approvals": "Let `permission` decide, which is asked here; or use the engine 'local'.",
    "transport": "The agent is started by its worker: give `cli_path`, or have it on the PATH there.",
    "on_auth_refresh": "Log workers in by themselves, or set `CLAUDE_CODE_OAUTH_TOKEN` in their environment.",
    "stderr": "Leave it out: the last lines are kept for errors. Or write a `debug_file` on the worker.",
}
"""Objects of this process that no worker can use, and what to do without them."""

_ELSEWHERE: Final = (
    "Set it in the environment of the workers, where the agent finds it, and leave it out here: what is in a"
    " task is kept and shown by the cluster."
)


def travelling(options: Options) -> Options:
    """The options as they are sent: with nothing in them that is of this process alone.

    Raises `OptionsError` for what can neither be sent nor served, and for secrets.
    """
    _refuse_secrets(options)
    given = differing(options)
    for name, hint in _STAYING.items():
        if name in given:
            raise OptionsError(f"`{name}` cannot be used with the engine 'ray'", hint=hint)
    store = options.session_store
    if store is not None and not isinstance(store, str):
        raise OptionsError(
            "`session_store` is an object of this process, and workers are others",
            hint="Give its URL, for example 'postgresql://user@host/db'.",
        )
    # Of tools that stay here the worker knows no short names: all of them are resolved before they go.
    handlers = Handlers(options.replace(hooks={}), lambda _: None)
    names = handlers.tool_names()
    changes = handlers.resolved_options()
    changes |= {name: _asked(name, given[name], names) for name in _CALLBACKS if name in given}
    if options.hooks:
        changes["hooks"] = _asked_hooks(options.hooks, names)
    changes |= _asked_servers(options, handlers)
    # That of this process does not travel.
    changes |= {} if (instrument := instrument_of(options)) is None else {"telemetry": instrument}
    sent = options.replace(**cast("OptionFields", changes)) if changes else options
    _refuse_what_cannot_be_sent(sent)
    return sent


def _asked(name: str, function: object, names: ToolNames) -> object:
    if isinstance(function, Policy):
        # Rules look at paths, which are those of the worker.
        inner = None if function.otherwise is None else AskedFunction(name)
        return msgspec.structs.replace(function.with_full_names(names), otherwise=inner)
    return AskedFunction(name)


def _asked_hooks(hooks: Mapping[str, tuple[object, ...]], names: ToolNames) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for event, given in hooks.items():
        made = [as_hook(event, each) for each in given]
        found[event] = [
            AskedHook.of(hook, place, sent_matcher(hook, names)) for place, hook in enumerate(made)
        ]
    return found


def _asked_servers(options: Options, handlers: Handlers) -> dict[str, object]:
    """Tools and servers of this process, as servers that ask it."""
    own = handlers.servers.given
    if not own:
        return {}
    servers: dict[str, McpServer] = {}
    if not isinstance(options.mcp_servers, str):
        servers.update(options.mcp_servers)
    for name, given in own.items():
        servers[name] = SdkServer(name=name, instance=AskedServer(name), always_load=given.always_load)
    tools = options.tools
    if not isinstance(tools, str) and tools is not None:
        named = tuple(tool for tool in tools if isinstance(tool, str))
        # Only tools of one's own: all built-in ones.
        tools = named if named or not tools else None
    resolved = handlers.resolved_options().get("allowed_tools", options.allowed_tools)
    allowed = (*cast("tuple[str, ...]", resolved), *handlers.allowed_by_nature)
    return {"mcp_servers": servers, "tools": tools, "allowed_tools": allowed}


def _refuse_what_cannot_be_sent(options: Options) -> None:
    cloudpickle = cast("Any", import_module("ray.cloudpickle"))
    for name, value in differing(options).items():
        try:
            cloudpickle.dumps(value)
        except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
            raise OptionsError(
                f"`{name}` cannot be sent to workers: {error}",
                hint="Give a value, or an object of a class that can be pickled.",
            ) from error


# Secrets.


def _refuse_secrets(options: Options) -> None:
    """Raises `OptionsError` if something in the options looks like a secret."""
    refuse_secrets_in("`env`", options.env)
    for name in WITH_SECRETS:
        refuse_secrets_of(f"`{name}`", plain(getattr(options, name)))
    store = options.session_store
    if isinstance(store, str) and mask(store) != store:
        raise OptionsError(
            "`session_store` has a password in its URL, which would go with the task",
            hint="Leave it out, and set it in the environment of the workers: PGPASSWORD, or REDIS_PASSWORD.",
        )


def refuse_secrets_of(place: str, given: object) -> None:
    """Raises `OptionsError` if something in a value of JSON types looks like a secret."""
    if is_secret(given):
        raise OptionsError(
            f"{place} has something in it that looks like a secret, and would go with the task",
            hint=f"Write ${{NAME}} in its place, if the agent reads it there. {_ELSEWHERE}",
        )


def refuse_secrets_in(place: str, variables: Mapping[str, str]) -> None:
    """Raises `OptionsError` if one of the variables looks like a secret, by its name or by its value."""
    for name, value in variables.items():
        if is_secret_variable(name, value):
            raise OptionsError(
                f"{place} has {name!r}, which looks like a secret, and would go with the task",
                hint=_ELSEWHERE,
            )
