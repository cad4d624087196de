"""Shim: the reference SDK's transport that starts Claude Code, to derive from and to patch.

Every session of `outrider.compat` is opened with one. As it is, it only stands for the session. A change of
`_build_command` or `_find_cli` changes what the session starts; with a change of anything else, it moves the
messages itself.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Final

import msgspec

from outrider.compat._errors import CLIConnectionError, translating
from outrider.compat._options import translated_options
from outrider.compat._transport import Transport
from outrider.compat._types.options import ClaudeAgentOptions
from outrider.launch import (
    Version,
    check_options,
    check_version,
    find_agent,
    known_version,
    make_command,
)
from outrider.options import Options
from outrider.session import SessionState
from outrider.transports import ProcessTransport
from outrider.wire import Frame, Framer

if TYPE_CHECKING:
    from outrider.command import Command
    from outrider.session import Session

__all__ = ["SubprocessCLITransport"]


class _Process:
    """What programs use of the process."""

    def __init__(self, transport: ProcessTransport) -> None:
        self._transport = transport

    @property
    def pid(self) -> int | None:
        return self._transport.pid

    @property
    def returncode(self) -> int | None:
        return self._transport.returncode

    def send_signal(self, number: int) -> None:
        # For the session it has ended by itself, which is an error where somebody waits for an answer.
        if self.returncode is None and (pid := self.pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    terminate = partialmethod(send_signal, 15)
    kill = partialmethod(send_signal, 9)

    async def wait(self) -> int | None:
        return await self._transport.wait_exited()


class SubprocessCLITransport(Transport):
    """Claude Code as a child process.

    Derive from it to change the command, as for a sandbox, and pass it as `transport`:

        class Sandboxed(SubprocessCLITransport):
            def _build_command(self):
                return ["bwrap", "--ro-bind", "/", "/", *super()._build_command()]
    """

    def __init__(self, prompt: str | AsyncIterable[dict[str, Any]], options: ClaudeAgentOptions) -> None:
        self._prompt = prompt
        self._options = options
        self._cli_path = None if options.cli_path is None else str(options.cli_path)
        self._cwd = str(options.cwd) if options.cwd else None
        self._command: Command | None = None
        """The command of the session that it starts."""
        self._session: Session | None = None
        """The session that it stands for, once that is connected."""
        self._pipes: ProcessTransport | None = None
        """What it moves messages through, if it does so itself."""

    # What programs change.

    def _find_cli(self) -> str:
        """The path of Claude Code."""
        with translating():
            return self._find_bundled_cli() or find_agent(cli_path=self._cli_path)

    def _find_bundled_cli(self) -> str | None:
        """The path of a Claude Code that comes with the package; there is none."""
        return None

    def _build_command(self) -> list[str]:
        """The program and its arguments. A NUL byte stands for the session's private folder."""
        if self._command is None:
            with translating():
                program = self._cli_path or self._find_cli()
                return [*make_command(translated_options(self._options), program=program).argv]
        return [*self._command.argv]

    @property
    def _process(self) -> _Process | None:
        """The process, while there is one: programs look at its id, and end it."""
        transport: Any = self._pipes
        if self._session is not None:
            transport = self._session._conversation.connected().transport  # pyright: ignore[reportPrivateUsage]
        return None if getattr(transport, "pid", None) is None else _Process(transport)

    # How a session uses it.

    def launch_options(self, given: ClaudeAgentOptions) -> ClaudeAgentOptions:
        """The options of a session that was given both: what is set in either, and the program."""
        options = self._options
        if given is not options:
            defaults = ClaudeAgentOptions()
            fields = [each.name for each in dataclasses.fields(given)]
            values = {name: getattr(given, name) for name in fields}
            changes = {name: value for name, value in values.items() if value != getattr(defaults, name)}
            options = dataclasses.replace(options, **changes)
        if options.cli_path is None and (_is_changed(self, "_find_cli", "_find_bundled_cli")):
            options = dataclasses.replace(options, cli_path=self._find_cli())
        self._options = options
        return options

    @property
    def moves_messages(self) -> bool:
        """Whether a change makes it more than a stand-in for the session."""
        return _is_changed(self, *Transport.__abstractmethods__, "_read_messages_impl")

    @property
    def agent_version(self) -> str | None:
        """The version of the program that it starts, if that is certain and its installation says it.

        Old ones take some options in other ways.
        """
        if _is_changed(self, "connect"):
            return None
        version = known_version(Options(cli_path=self.launch_options(self._options).cli_path))
        return str(version) if version.is_known else None

    def with_command(self, options: Options) -> Options:
        """Options that start the command that it builds."""
        if not _is_changed(self, "_build_command"):
            return options
        return msgspec.structs.replace(options, runner=self)

    is_local: Final = True

    def wrap(self, command: Command) -> Command:
        """The command that it builds from that of the session, as a runner does."""
        self._command = command
        return msgspec.structs.replace(command, argv=tuple(self._build_command()))

    def attach(self, session: Session) -> None:
        """Stand for a session."""
        self._session = session

    # The transport.

    async def connect(self) -> None:
        if self._pipes is None and self._session is None:
            with translating():
                options = self.with_command(translated_options(self.launch_options(self._options)))
                expected, version = Version.parse(self.agent_version), known_version(options)
                if version.is_known:
                    check_version(str(version))
                    check_options(options, version, as_sent=not expected.is_known)
                command = make_command(options, version=expected)
                self._pipes = ProcessTransport(
                    command, stderr=options.stderr, max_buffer_size=options.max_buffer_size
                )
                await self._pipes.connect()

    async def write(self, data: str) -> None:
        with translating():
            if self._session is not None:
                # As it is, and of no turn.
                connection = self._session._conversation.connected()  # pyright: ignore[reportPrivateUsage]
                connection.check_open()
                with connection.flow:
                    await connection.transport.send(data.encode())
            elif self._pipes is not None:
                await self._pipes.send(data.encode())
            else:
                raise CLIConnectionError("ProcessTransport is not ready for writing")

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        return self._read_messages_impl()

    async def _read_messages_impl(self) -> AsyncIterator[dict[str, Any]]:
        if self._session is not None:
            async for message in self._session:
                if isinstance(message, Frame):
                    yield message.raw
            return
        if self._pipes is None:
            raise CLIConnectionError("Not connected")
        framer = Framer()
        with translating():
            while chunk := await self._pipes.receive():
                for arrival in framer.feed(chunk):
                    if isinstance(arrival, Frame):
                        yield arrival.raw

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        if self._pipes is not None:
            await self._pipes.close()

    def is_ready(self) -> bool:
        if self._session is not None:
            return self._session.state is not SessionState.CLOSED
        return self._pipes is not None and self._pipes.is_ready

    async def end_input(self) -> None:
        if self._session is not None:
            self._session.end_input()
        elif self._pipes is not None:
            await self._pipes.end_input()


_AS_IT_IS: Final = dict(vars(SubprocessCLITransport))
OwnTransport: Final = SubprocessCLITransport
"""The class itself, whatever takes its place in this module."""


def _is_changed(transport: SubprocessCLITransport, *names: str) -> bool:
    """Whether a program derived from the class, or patched it."""
    return any(getattr(type(transport), name) is not _AS_IT_IS[name] for name in names)
