"""From options to an open connection: the transport, the first request, and why either failed.

Does not decide what is sent afterwards.
"""

from __future__ import annotations

import os
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from outrider.errors import (
    AgentNotFound,
    FolderNotFound,
    LaunchError,
    McpServerFailed,
    OptionsError,
    OutriderError,
    ProcessExited,
    RequestTimedOut,
    SessionNotFound,
    TransportClosed,
)
from outrider.launch import (
    Version,
    check_version,
    make_command,
    make_environment,
    make_version_probe,
)
from outrider.options import JsonSchemaFormat, SdkServer
from outrider.redaction import preview
from outrider.session._failures import startup_failure
from outrider.transcripts import check_can_continue, config_folder
from outrider.transports import (
    ProcessTransport,
    Transport,
    Unreachable,
    intercepted,
    is_intercepted,
    run_to_end,
    traced,
)
from outrider.wire.control import McpStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from outrider.command import Command, File
    from outrider.handlers import Handlers, Shape
    from outrider.options import Options
    from outrider.session._connection.connection import Connection
    from outrider.session._store.link import Restored
    from outrider.wire.control import Initialize, Initialized, McpServerStatus


_FIRST_PAUSE: Final = 0.02
_GROWTH: Final = 1.5
_LONGEST_PAUSE: Final = 0.5
"""The agent does not tell when a server is connected, so it is asked again and again. An answer takes it
1 ms; most servers are there within 0.3 s, and some take many seconds."""

_WAITING: Final = "pending"


def required_servers(options: Options) -> tuple[str, ...]:
    """The names of the servers that options call required."""
    if isinstance(options.mcp_servers, str):
        return ()
    external = {
        name: server for name, server in options.mcp_servers.items() if not isinstance(server, SdkServer)
    }
    return tuple(name for name, server in external.items() if server.required)


async def wait_for_servers(
    request_status: Callable[[], Awaitable[list[McpServerStatus]]],
    names: Collection[str],
    timeout: float | None = None,
) -> None:
    """Wait until the agent is connected to each of these servers.

    Raises `McpServerFailed` as soon as one of them cannot be used, and after `timeout` seconds for one that
    is still awaited. What `request_status` raises comes through.
    """
    missing = set(names)
    with anyio.move_on_after(timeout):
        pause = _FIRST_PAUSE
        while missing := _still_awaited(await request_status(), names):
            await anyio.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)
        return
    first = next(name for name in names if name in missing)
    raise McpServerFailed(first, f"it was not reached within {timeout:g} s", _WAITING)


def _still_awaited(statuses: list[McpServerStatus], names: Collection[str]) -> set[str]:
    """The servers that are not connected yet. Raises `McpServerFailed` for one that will not be."""
    known = {status.name: status for status in statuses}
    awaited: set[str] = set()
    for name in names:
        status = known.get(name)
        if status is None:
            hint = "Its settings, or a policy of the machine, may forbid it."
            raise McpServerFailed(name, "the agent does not have it", None, hint=hint)
        if status.status == _WAITING:
            awaited.add(name)
        elif status.status != "connected":
            raise McpServerFailed(name, _reason(status), status.status)
    return awaited


def _reason(status: McpServerStatus) -> str:
    """What the agent says, with what it leaves out of it: it names no program that it does not find."""
    command = status.config.command if status.config is not None else None
    said = status.error or ""
    return f"{said} (command: {command})" if command and command not in said else said


_PROGRAM: Final = "claude"

_PROBE_SECONDS: Final = 2.0
"""How long the program may take to say its version when it has failed to start."""


class _RestoringTransport(ProcessTransport):
    """A program that resumes a session which has to be put where it looks first."""

    restored: Restored | None
    own_command: Command
    """As it is started; whoever stands in for the program gets the session with the command."""

    async def connect(self) -> None:
        if self.restored is not None:
            await self.restored.restore_files()
            self.restored, self.command = None, self.own_command
        await super().connect()


def make_transport(options: Options, restored: Restored | None = None) -> Transport:
    """What leads to the agent. Raises a `LaunchError` or an `OptionsError` if there is no way."""
    transport = options.transport
    if transport is None:
        transport = _to_program(options, restored)
    elif not isinstance(transport, Transport):
        raise OptionsError(
            f"`transport` is {transport!r}, which is no transport",
            hint="Give an object of a class derived from `outrider.transports.Transport`.",
        )
    elif type(transport).prepare is not Transport.prepare:
        transport.prepare(_command_without_program(options, restored))
    transport = intercepted(transport)
    if options.continue_conversation:
        _check_stand_in(transport, options)
    return transport if options.trace is None else traced(transport, options.trace)


def _to_program(options: Options, restored: Restored | None) -> Transport:
    is_on_disk = restored is not None and restored.location.config is not None
    try:
        _check_continued(options)
        own = command = make_command(options, files=() if is_on_disk else _files(restored))
        if is_on_disk and is_intercepted():
            command = make_command(options, files=_files(restored))
    except (AgentNotFound, SessionNotFound) as error:
        # What is in the way may have sessions of its own, and need no program.
        if not is_intercepted():
            raise
        return Unreachable(_command_without_program(options, restored), error)
    timeouts = options.timeouts
    transport = (_RestoringTransport if is_on_disk else ProcessTransport)(
        command,
        stderr=options.stderr,
        max_buffer_size=options.max_buffer_size,
        grace=timeouts.close,
        terminate=timeouts.terminate,
        write_timeout=timeouts.write,
    )
    if isinstance(transport, _RestoringTransport):
        transport.restored, transport.own_command = restored, own
    return transport


def _command_without_program(options: Options, restored: Restored | None) -> Command:
    return make_command(options, program=options.cli_path or _PROGRAM, files=_files(restored))


def _files(restored: Restored | None) -> tuple[File, ...]:
    return () if restored is None else restored.session_files.files


def prepared(options: Options, handlers: Handlers, shape: Shape[object] | None) -> Options:
    """The options with what follows from the rest: the full names of tools, rules for those that need not be
    asked about, and the schema of the output."""
    # Not by `replace`, which would look at all of them again, and warn again.
    options = copy(options)
    for name, value in handlers.resolved_options().items():
        msgspec.structs.force_setattr(options, name, value)
    rules = dict.fromkeys((*options.allowed_tools, *handlers.allowed_by_nature))
    msgspec.structs.force_setattr(options, "allowed_tools", tuple(rules))
    if shape is not None:
        msgspec.structs.force_setattr(options, "output_format", JsonSchemaFormat(shape.schema))
    return options


async def initialize(
    connection: Connection, request: Initialize, options: Options, begin_to_serve: Callable[[], None]
) -> Initialized:
    """Send the first request, and wait for what has to be there. If that fails, the connection is closed, and
    the cause raised."""
    limit = options.timeouts.connect
    deadline = None if limit is None else anyio.current_time() + limit
    try:
        # First: the agent asks its servers before it answers.
        begin_to_serve()
        answer = await connection.request(request, {}, limit)
        if answer.claude_code_version or options.transport is None:
            # What a transport of the user's leads to need not be the program.
            check_version(answer.claude_code_version)
        if names := required_servers(options):

            async def request_status() -> list[McpServerStatus]:
                return (await connection.request(McpStatus(), {}, options.timeouts.control)).servers

            left = None if deadline is None else deadline - anyio.current_time()
            await wait_for_servers(request_status, names, left)
    except BaseException as error:
        await connection.close("the session could not be opened")
        if isinstance(error, OutriderError):
            told = await _cause(error, connection, options)
            # Its own cause, if it has one; never the error that it takes the place of.
            raise told from told.__cause__
        raise
    return answer


async def _cause(error: OutriderError, connection: Connection, options: Options) -> OutriderError:
    """The best that can be said about why a session could not be opened."""
    transport = connection.transport
    if isinstance(error, TransportClosed):
        # A program that exits at once may be gone before the request is written: how it ended says more.
        ends = connection.end_error, transport.exit_error
        error = next((end for end in ends if isinstance(end, ProcessExited)), error)
    if isinstance(error, ProcessExited):
        told = startup_failure(error, options, searched=_searched(options))
        if told is not error:
            return told
    elif not isinstance(error, RequestTimedOut):
        return error
    told_on_stderr = getattr(transport, "stderr_tail", "")
    if isinstance(error, RequestTimedOut) and told_on_stderr:
        error.add_note(f"On stderr:\n{told_on_stderr}")
    # Only a process has a program that can be asked.
    return error if getattr(transport, "pid", None) is None else await _probed(error, options)


async def _probed(error: OutriderError, options: Options) -> OutriderError:
    """Ask the program for its version: it may be too old, or not run at all."""
    try:
        finished = await run_to_end(make_version_probe(options), timeout=_PROBE_SECONDS)
        said = finished.output.decode("utf-8", "replace").strip()
        if finished.returncode is None:
            error.add_note(f"The program did not even say its version within {_PROBE_SECONDS:g} s.")
        elif finished.returncode:
            error.add_note(f"Asked for its version, the program exits with code {finished.returncode}.")
        elif Version.parse(said).is_known:
            check_version(said)
            error.add_note(f"The program says that it is {preview(said)!r}.")
        else:
            told = f"says {preview(said)!r}" if said else "says nothing"
            error.add_note(f"Asked for its version, the program {told}: it may be no agent at all.")
    except LaunchError as found:
        found.__cause__ = error
        return found
    return error


def _check_continued(options: Options) -> None:
    if not options.continue_conversation or options.runner is not None or options.user is not None:
        return
    try:
        cwd = options.cwd or Path.cwd()
    except FileNotFoundError:
        raise FolderNotFound(".") from None
    if (config := _config_folder(options)) is not None:
        check_can_continue(config, cwd)


def _check_stand_in(transport: Transport, options: Options) -> None:
    """The same for one that has sessions of its own, as the simulated agent does."""
    config, folder = getattr(transport, "config_dir", None), getattr(transport, "folder", None)
    if isinstance(config, Path) and isinstance(folder, Path):
        check_can_continue(config, options.cwd or folder)


def _searched(options: Options) -> list[str]:
    """Where the program looks for sessions, if that is on this machine."""
    config = None if options.runner is not None else _config_folder(options)
    return [] if config is None else [str(config / "projects")]


def _config_folder(options: Options) -> Path | None:
    if options.isolation.is_hermetic and options.isolation.config_dir is None:
        return None
    if options.isolation.config_dir is not None:
        return Path(os.path.abspath(options.isolation.config_dir))  # noqa: PTH100 - no links resolved
    return config_folder(make_environment(options))
