"""Opens connections from options: makes the transport, sends the first request, explains failures.

Does not decide what is sent afterwards.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio
import msgspec

from outrider.errors import (
    AgentNotFound,
    AgentTooOld,
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
    check_options,
    check_version,
    known_version,
    make_command,
    make_environment,
    make_version_probe,
    remember_version,
)
from outrider.options import JsonSchemaFormat, SdkServer
from outrider.options._table import older_ways
from outrider.redaction import preview
from outrider.session._failures import startup_failure
from outrider.transports import ProcessTransport, Transport, Unreachable, intercepted, is_intercepted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from outrider.command import Command, File
    from outrider.handlers import Handlers, Shape
    from outrider.options import Options
    from outrider.session._connection.answering import Serving
    from outrider.session._connection.connection import Connection
    from outrider.session._store.link import Restored
    from outrider.wire.control import Initialize, Initialized, McpServerStatus

_FIRST_PAUSE: Final = 0.02
_GROWTH: Final = 1.5
_LONGEST_PAUSE: Final = 0.5
"""The agent does not report when a server is connected, so it is polled. An answer takes 1 ms; most servers
connect within 0.3 s, and some take many seconds."""

_WAITING: Final = "pending"


def required_servers(options: Options) -> list[str]:
    """The names of the servers with `required`."""
    if isinstance(options.mcp_servers, str):
        return []
    servers = options.mcp_servers.items()
    return [name for name, server in servers if not isinstance(server, SdkServer) and server.required]


async def wait_for_servers(
    request_status: Callable[[], Awaitable[list[McpServerStatus]]],
    names: Collection[str],
    timeout: float | None = None,
) -> None:
    """Wait until the agent is connected to each of these servers.

    Raises `McpServerFailed` as soon as one of them has failed, or if one is not connected after `timeout`
    seconds, and what `request_status` raises.
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
    """The servers that are not connected yet. Raises `McpServerFailed` for one that has failed."""
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
    """The agent's reason, with the command: it does not name a program that it does not find."""
    command = status.config.command if status.config is not None else None
    said = status.error or ""
    return f"{said} (command: {command})" if command and command not in said else said


_PROGRAM: Final = "claude"

_PROBE_SECONDS: Final = 2.0
"""How long the program may take to print its version after it has failed to start."""


class _RestoringTransport(ProcessTransport):
    """Writes the files of a stored session before it starts the program that resumes it."""

    restored: Restored | None
    own_command: Command
    """The command that is started; a stand-in for the program gets one that includes the session's files."""

    async def connect(self) -> None:
        if self.restored is not None:
            await self.restored.restore_files()
            self.restored, self.command = None, self.own_command
        await super().connect()


def make_transport(
    options: Options, restored: Restored | None = None, version: Version | None = None
) -> Transport:
    """The transport to the agent, whose program is of this version if it is known. Raises a `LaunchError` or
    an `OptionsError` if there is none."""
    transport = options.transport
    if transport is None:
        transport = _to_program(options, restored, version or Version())
    elif not isinstance(transport, Transport):
        raise OptionsError(
            f"`transport` is {transport!r}, which is not a transport",
            hint="Give an object of a class derived from `outrider.transports.Transport`.",
        )
    elif type(transport).prepare is not Transport.prepare:
        transport.prepare(_command_without_program(options, restored))
    transport = intercepted(transport)
    if options.continue_conversation:
        _check_stand_in(transport, options)
    if options.trace is None:
        return transport
    # Imported here, as in the functions below: most sessions do not need it, and start sooner.
    from outrider.transports import traced

    return traced(transport, options.trace)


def _to_program(options: Options, restored: Restored | None, version: Version) -> Transport:
    is_on_disk = restored is not None and restored.location.config is not None
    try:
        _check_continued(options)
        files = () if is_on_disk else _files(restored)
        own = command = make_command(options, version=version, files=files)
        if is_on_disk and is_intercepted():
            command = make_command(options, files=_files(restored))
    except (AgentNotFound, SessionNotFound) as error:
        # An interceptor may have sessions of its own, and need no program.
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
    """The options with what follows from the handlers: full names of tools, rules for tools that need no
    permission, and the schema of the output."""
    changes = handlers.resolved_options()
    if rules := handlers.allowed_by_nature:
        named = cast("tuple[str, ...]", changes.get("allowed_tools", options.allowed_tools))
        changes["allowed_tools"] = tuple(dict.fromkeys((*named, *rules)))
    if shape is not None:
        changes["output_format"] = JsonSchemaFormat(shape.schema)
    # Not `Options.replace`, which would check all of them again, and warn again.
    return msgspec.structs.replace(options, **changes) if changes else options


async def initialize(
    connection: Connection, serving: Serving, request: Initialize, options: Options, version: Version
) -> Initialized:
    """Send the first request, and wait for the required servers. If that fails, close the connection and
    raise the cause.

    `version` is what the program was started for. Raises `OtherVersion` if it has to be started again.
    """
    limit = options.timeouts.connect
    deadline = None if limit is None else anyio.current_time() + limit
    try:
        # First: the agent asks its servers before it answers.
        serving.begin()
        answer = await connection.request(request, {}, limit)
        await learn_version(answer, version, connection, options)
        if names := required_servers(options):
            # Here, because few sessions have any.
            from outrider.wire.control import McpStatus

            async def request_status() -> list[McpServerStatus]:
                return (await connection.request(McpStatus(), {}, options.timeouts.control)).servers

            left = None if deadline is None else deadline - anyio.current_time()
            await wait_for_servers(request_status, names, left)
    except BaseException as error:
        await connection.close("the session could not be opened")
        if isinstance(error, OutriderError):
            found = await _cause(error, connection, options, version)
            # With its own cause, if it has one, and without the error that it replaces.
            raise found from found.__cause__
        raise
    return answer


async def _cause(
    error: OutriderError, connection: Connection, options: Options, version: Version
) -> OutriderError:
    """The most specific error for a session that could not be opened."""
    transport = connection.transport
    if isinstance(error, TransportClosed):
        # The program may exit before the request is written: its exit explains more.
        ends = connection.end_error, transport.exit_error
        error = next((end for end in ends if isinstance(end, ProcessExited)), error)
    if isinstance(error, ProcessExited):
        failure = startup_failure(error, options, searched=_searched(options))
        if failure is not error:
            return failure
    elif not isinstance(error, RequestTimedOut):
        return error
    stderr = getattr(transport, "stderr_tail", "")
    if isinstance(error, RequestTimedOut) and stderr:
        error.add_note(f"On stderr:\n{stderr}")
    return await _probed(error, connection, options, version) if is_process(connection) else error


async def _probed(
    error: OutriderError, connection: Connection, options: Options, version: Version
) -> OutriderError:
    """Ask the program for its version: it may be too old, or not run at all."""
    from outrider.transports import run_to_end

    try:
        finished = await run_to_end(make_version_probe(options), timeout=_PROBE_SECONDS)
        said = finished.output.decode("utf-8", "replace").strip()
        if finished.returncode is None:
            error.add_note(f"The program did not even say its version within {_PROBE_SECONDS:g} s.")
        elif finished.returncode:
            error.add_note(f"Asked for its version, the program exits with code {finished.returncode}.")
        elif Version.parse(said).is_known:
            found = check_version(said)
            if isinstance(error, ProcessExited):
                check_expected(found, version, connection, options)
            error.add_note(f"The program says that it is {preview(said)!r}.")
        else:
            printed = f"prints {preview(said)!r}" if said else "prints nothing"
            error.add_note(f"Asked for its version, the program {printed}: it may not be Claude Code.")
    except LaunchError as cause:
        cause.__cause__ = error
        return cause
    return error


def _check_continued(options: Options) -> None:
    if not options.continue_conversation or options.runner is not None or options.user is not None:
        return
    try:
        cwd = options.cwd or Path.cwd()
    except FileNotFoundError:
        raise FolderNotFound(".") from None
    if (config := _config_folder(options)) is not None:
        from outrider.transcripts import check_can_continue

        check_can_continue(config, cwd)


def _check_stand_in(transport: Transport, options: Options) -> None:
    """Check the same for a transport with sessions of its own, such as the simulated agent."""
    config, folder = getattr(transport, "config_dir", None), getattr(transport, "folder", None)
    if isinstance(config, Path) and isinstance(folder, Path):
        from outrider.transcripts import check_can_continue

        check_can_continue(config, options.cwd or folder)


def _searched(options: Options) -> list[str]:
    """The folders of this machine where the program looks for sessions."""
    config = None if options.runner is not None else _config_folder(options)
    return [] if config is None else [str(config / "projects")]


def _config_folder(options: Options) -> Path | None:
    if options.isolation.is_hermetic and options.isolation.config_dir is None:
        return None
    if options.isolation.config_dir is not None:
        return Path(os.path.abspath(options.isolation.config_dir))  # noqa: PTH100 - no links resolved
    from outrider.transcripts import config_folder

    return config_folder(make_environment(options))


_SECONDS: Final = 10.0
"""How long the program may take to print its version. An old one takes a second, and more on a busy
machine."""


class OtherVersion(AgentTooOld):
    """The program is not of the version that it was started for, and takes some options in another way. Now
    its version is known, so it can be started again."""


def is_process(connection: Connection) -> bool:
    """Whether it leads to a program that can be asked, and started again."""
    return getattr(connection.transport, "pid", None) is not None


def version_before_start(options: Options) -> Version:
    """The version of the program, if it can be known before it runs. Raises `AgentTooOld`."""
    if options.transport is not None:
        return Version()
    version = known_version(options)
    if version.is_known and not is_intercepted():
        check_version(str(version))
        check_options(options, version)
    return version


def version_behind(transport: Transport, version: Version) -> Version:
    """The version that a transport says it stands for, such as a recording; else the one of the program."""
    said: object = getattr(transport, "agent_version", None)
    return Version.parse(said) if isinstance(said, str) else version


async def learn_version(
    answer: Initialized, expected: Version, connection: Connection, options: Options
) -> None:
    """Note the version of the program in its first answer: old ones do not say it there, and are asked.

    Raises `AgentTooOld`, or `OtherVersion` if it is not of the version that was expected.
    """
    said = answer.claude_code_version
    if not said and expected.is_known:
        said = str(expected)
    elif not said and is_process(connection):
        said = await _ask(options)
    answer.claude_code_version = said
    if said or options.transport is None:
        # A transport of the user's may lead to something else than Claude Code.
        connection.version = check_version(said)
        check_expected(connection.version, expected, connection, options)


async def _ask(options: Options) -> str | None:
    """What the program prints as its version. It is asked once."""
    from outrider.transports import run_to_end

    finished = await run_to_end(make_version_probe(options), timeout=_SECONDS)
    said = finished.output.decode("utf-8", "replace").strip()
    return str(version) if (version := Version.parse(said)).is_known else said or None


def check_expected(version: Version, expected: Version, connection: Connection, options: Options) -> None:
    """Check that a program of this version has the options. Raises `AgentTooOld`, or `OtherVersion` if it was
    not expected to be of this version, and has to be told in another way."""
    if not version.is_known or version == expected:
        return
    can_restart = is_process(connection)
    if can_restart:
        remember_version(options, version)
    check_options(options, version, as_sent=not can_restart)
    if can_restart and (moved := older_ways(options, version.numbers).moved):
        raise OtherVersion(str(version), str(Version(max(moved.values()))), list(moved))
