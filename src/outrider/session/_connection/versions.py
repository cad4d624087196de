"""What a connection has to know of the version of Claude Code that it leads to.

Which options a version has, and how it takes them, is declared in `outrider.options`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from outrider.errors import AgentTooOld, RequestFailed, Unsupported
from outrider.launch import (
    Version,
    check_options,
    check_version,
    known_version,
    make_version_probe,
    remember_version,
)
from outrider.options._table import older_ways
from outrider.transports import is_intercepted
from outrider.wire import UNSUPPORTED_REQUEST

if TYPE_CHECKING:
    from outrider.options import Options
    from outrider.protocol import RequestRefused
    from outrider.session._connection.connection import Connection
    from outrider.transports import Transport
    from outrider.wire.control import Initialized, Request

_SECONDS: Final = 10.0
"""How long the program may take to print its version. An old one takes a second, and more on a busy
machine."""

_ANSWERS_ALL: Final = Version((2, 1, 40))
"""The first version that answers requests that it does not know."""

_READS_WITHDRAWALS: Final = Version((2, 1, 100))
"""A version that can be told that a request is withdrawn. Others exit, some of these later than 2.1.45."""

_KNOWN_BEFORE: Final = {
    "initialize": (2, 0, 0),
    "interrupt": (2, 0, 0),
    "mcp_status": (2, 0, 0),
    "set_model": (2, 0, 0),
    "set_permission_mode": (2, 0, 0),
    "set_max_thinking_tokens": (2, 0, 22),
    "mcp_message": (2, 0, 45),
    "rewind_files": (2, 0, 64),
    "mcp_set_servers": (2, 0, 70),
    "mcp_reconnect": (2, 1, 15),
    "mcp_toggle": (2, 1, 15),
}
"""The requests that versions before that one know, each since when."""


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


def check_request(request: Request[Any], version: Version) -> None:
    """Raise `Unsupported` if a version that is known would leave this request unanswered."""
    if version.is_known and version < _ANSWERS_ALL:
        since = _KNOWN_BEFORE.get(request.subtype)
        if since is None or version.numbers < since:
            raise Unsupported(request, f"Claude Code {version} does not know it")


def can_withdraw_requests(version: Version) -> bool:
    """Whether a version can be told that a request needs no answer any more."""
    return version >= _READS_WITHDRAWALS


def refusal(request: Request[Any], refused: RequestRefused, session_id: str | None) -> RequestFailed:
    """The error of a request that was refused: `Unsupported` if Claude Code does not know it, for which old
    versions give no code."""
    is_unknown = refused.error.startswith("Unsupported control request subtype")
    kind = Unsupported if is_unknown or refused.code == UNSUPPORTED_REQUEST else RequestFailed
    return kind(request, refused.error, refused.code, session_id=session_id)
