"""Owns `outrider doctor`: has everything looked at, starts the agent once, and says how it stands.

No prompt is sent: it costs nothing.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import msgspec
from rich.text import Text

import outrider
from outrider.app._checks import Check, State, credentials, machine_checks, program_check
from outrider.app._failing import Code, in_one_line
from outrider.app._flags import BY_OPTION
from outrider.app._page import LABEL
from outrider.app._terminal import Terminal, one_line
from outrider.errors import AgentTooOld, OutriderError
from outrider.launch import MINIMUM_AGENT_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from outrider.wire.control import AccountInfo, McpServerStatus

__all__ = ["examine"]

_CONNECT: Final = 30.0
_SERVERS: Final = 5.0
"""Seconds for the agent to answer, and for MCP servers to come up."""

_NAME: Final = 2 * LABEL

_STYLES: Final[Mapping[State, str]] = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def examine(*, no_color: bool, as_json: bool, program: str | None, cwd: str | None) -> int:
    """Look at everything, and print it; gives the exit code: 1 if there is a problem."""
    terminal = Terminal(no_color=no_color)
    checks: list[Check] = []
    try:
        for check in _checks(terminal, program, cwd, is_quiet=as_json):
            checks.append(check)
            if not as_json:
                _print(terminal, check)
    finally:
        terminal.clear()
    problems = sum(check.state == "problem" for check in checks)
    warnings = sum(check.state == "warning" for check in checks)
    if as_json:
        told = {"ok": not problems, "checks": checks}
        terminal.write_json(msgspec.json.format(msgspec.json.encode(told).decode(), indent=2))
    else:
        terminal.print()
        terminal.print(_verdict(problems, warnings))
    return Code.FAILED if problems else Code.OK


def _checks(terminal: Terminal, program: str | None, cwd: str | None, *, is_quiet: bool) -> Iterator[Check]:
    yield from machine_checks(os.environ, cwd)
    search, found = program_check(program)
    yield found
    if search.found is None:
        yield _variables_alone("the program was not found")
        return
    if not is_quiet:
        terminal.wait("starting the agent, without a prompt")
    options = outrider.Options(
        cli_path=search.found, cwd=cwd, persist_session=False, timeouts={"connect": _CONNECT}
    )
    try:
        with outrider.sync.Session(options) as session:
            yield from _of_session(session)
    except AgentTooOld as error:
        yield Check.of("version", "problem", f"{error.version}, and {error.minimum} is needed", error.hint)
        yield _variables_alone("the program is too old")
    except OutriderError as error:
        line = in_one_line(error, BY_OPTION)
        yield Check.of("start", "problem", line.removesuffix(error.hint).strip(), error.hint)
        yield _variables_alone("the program does not start")


def _of_session(session: outrider.sync.Session) -> Iterator[Check]:
    info = session.info
    yield Check.of("version", "ok", f"{info.version or 'unknown'} (at least {MINIMUM_AGENT_VERSION})")
    yield Check.of("capabilities", "ok", ", ".join(sorted(info.capabilities)) or "it names none")
    yield _authentication(info.account)
    servers = _servers(session)
    if not servers:
        yield Check.of("MCP servers", "ok", "none")
    for server in servers:
        yield _server(server)


def _authentication(account: AccountInfo) -> Check:
    sources = [
        source for source in (account.api_key_source, account.token_source) if source and source != "none"
    ]
    provider = account.api_provider or "firstParty"
    through = "" if provider == "firstParty" else f", through {provider}"
    named = credentials(os.environ)
    if sources or through:
        return Check.of("authentication", "ok", f"{' and '.join(sources) or 'by the provider'}{through}")
    if named:
        return Check.of("authentication", "ok", f"{', '.join(named)} in the environment")
    advice = "Log in with `claude auth login`, or set ANTHROPIC_API_KEY."
    return Check.of("authentication", "problem", "the agent has no credentials", advice)


def _variables_alone(why: str) -> Check:
    named = credentials(os.environ)
    if named:
        return Check.of("authentication", "ok", f"{', '.join(named)} in the environment")
    return Check.of("authentication", "warning", f"not known, because {why}", "Put that right first.")


def _servers(session: outrider.sync.Session) -> list[McpServerStatus]:
    """The servers, once none is on its way any more, or they had time enough."""
    until = time.monotonic() + _SERVERS
    while True:
        servers = session.mcp_status()
        if all(server.status != "pending" for server in servers) or time.monotonic() > until:
            return servers
        time.sleep(0.2)


def _server(server: McpServerStatus) -> Check:
    name = f"MCP {one_line(server.name)}"
    match server.status:
        case "connected":
            return Check.of(name, "ok", f"connected, {len(server.tools or ())} tools")
        case "disabled":
            return Check.of(name, "ok", "disabled")
        case "needs-auth":
            return Check.of(name, "warning", "it wants a login", "Log in to it with `claude mcp`.")
        case status:
            reason = f": {one_line(server.error)}" if server.error else ""
            return Check.of(name, "warning", f"{status}{reason}", "Check its command or its address.")


# How it looks.


def _print(terminal: Terminal, check: Check) -> None:
    signs = {"ok": terminal.glyphs.good, "warning": terminal.glyphs.warning, "problem": terminal.glyphs.bad}
    style = _STYLES[check.state]
    head = f"{signs[check.state]} {one_line(check.name):<{_NAME}} "
    if not terminal.out.is_terminal:
        # In words: a log is searched.
        head = f"{check.state:<8} {one_line(check.name):<{_NAME}} "
    words = Text(one_line(check.text))
    width = max(terminal.out.width - len(head), 20)
    lines = list(words.wrap(terminal.out, width)) if terminal.out.is_terminal else [words]
    terminal.print(Text.assemble((head, style), lines[0]))
    for line in lines[1:]:
        terminal.print(Text(" " * len(head)).append_text(line))
    if check.advice:
        advice = Text(f"To do: {one_line(check.advice)}", style="bold")
        more = list(advice.wrap(terminal.out, width)) if terminal.out.is_terminal else [advice]
        for line in more:
            terminal.print(Text(" " * len(head)).append_text(line))


def _verdict(problems: int, warnings: int) -> Text:
    if problems:
        return Text(f"{_count(problems, 'problem')}, {_count(warnings, 'warning')}.", style="bold red")
    if warnings:
        return Text(f"It should work, with {_count(warnings, 'warning')}.", style="bold yellow")
    return Text("All is well.", style="bold green")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
