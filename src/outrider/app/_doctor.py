"""Implements `outrider doctor`: checks the machine, starts Claude Code once, and reports problems.

Sends no prompt, so it costs nothing.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from rich.text import Text

import outrider
from outrider._display import one_line
from outrider.app._flags import BY_OPTION, Code, in_one_line
from outrider.app._render import LABEL
from outrider.app._terminal import Terminal
from outrider.errors import AgentTooOld, OutriderError
from outrider.launch import MINIMUM_AGENT_VERSION, Search, search_agent
from outrider.redaction import MASK, mask
from outrider.transcripts import config_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from outrider.wire.control import AccountInfo, McpServerStatus


# Checks.

State: TypeAlias = Literal["ok", "warning", "problem"]


class Check(msgspec.Struct, frozen=True):
    """What was looked at, how it stands, what was found, and what to do."""

    name: str
    state: State
    text: str
    advice: str = ""

    @classmethod
    def of(cls, name: str, state: State, text: str, advice: str = "") -> Check:
        """One with every secret hidden."""
        return cls(name, state, mask(text), mask(advice))


_NEEDED: Final = ("anyio", "msgspec")
_OPTIONAL: Final = ("mcp", "pydantic", "pyyaml", "rich", "trio", "typer")

_CREDENTIALS: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
)
_NETWORK: Final = (
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "ANTHROPIC_BASE_URL",
    "NODE_EXTRA_CA_CERTS",
)
_FREE_SPACE: Final = 200 * 1024 * 1024
_OPEN_FILES: Final = 256


def machine_checks(environ: Mapping[str, str], cwd: str | None) -> Iterator[Check]:
    """What can be told without starting anything."""
    yield _python()
    yield _packages()
    yield _config(environ)
    yield _working_folder(cwd)
    yield _temporary_folder()
    yield _network(environ)
    yield from _limits()


def program_check(program: str | None) -> tuple[Search, Check]:
    """Where the agent's program is."""
    search = search_agent(cli_path=program)
    if search.found is not None:
        return search, Check.of("program", "ok", f"{search.found} ({search.tried[-1].source})")
    tried = "; ".join(map(str, search.tried))
    advice = (
        "Install it with `npm install -g @anthropic-ai/claude-code`, add its folder to PATH, "
        "or name it with `--program`."
    )
    return search, Check.of("program", "problem", f"not found. Searched: {tried}", advice)


def credentials(environ: Mapping[str, str]) -> list[str]:
    """The variables that hold credentials, or choose who checks them; by name alone."""
    return [name for name in _CREDENTIALS if environ.get(name)]


def _python() -> Check:
    system = f"{platform.system()} {platform.machine()}"
    return Check.of("Python", "ok", f"{platform.python_version()} on {system}")


def _packages() -> Check:
    found = {name: _version(name) for name in (*_NEEDED, *_OPTIONAL)}
    there = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    absent = [name for name, version in found.items() if not version]
    text = f"outrider {outrider.__version__}, {there}" + (
        f"; not installed: {', '.join(absent)}" if absent else ""
    )
    return Check.of("packages", "ok", text)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _config(environ: Mapping[str, str]) -> Check:
    folder = config_folder(environ)
    if not folder.exists():
        parent = next((each for each in folder.parents if each.exists()), Path("/"))
        if os.access(parent, os.W_OK):
            return Check.of("configuration", "ok", f"{folder} is not there yet: the agent makes it")
        advice = "Name a folder that can be written to in CLAUDE_CONFIG_DIR, or run with `--hermetic`."
        return Check.of("configuration", "problem", f"{folder} is not there and cannot be made", advice)
    if fault := _write_fault(folder):
        advice = "Correct its owner, name another in CLAUDE_CONFIG_DIR, or run with `--hermetic`."
        return Check.of("configuration", "problem", f"{folder} cannot be written to: {fault}", advice)
    return Check.of("configuration", "ok", str(folder))


def _working_folder(cwd: str | None) -> Check:
    try:
        folder = Path(cwd or ".").absolute()
    except FileNotFoundError:
        return Check.of("working folder", "problem", "it does not exist any more", "Go to another one.")
    if not folder.is_dir():
        return Check.of("working folder", "problem", f"{folder} is no folder", "Create it, or name another.")
    if fault := _write_fault(folder):
        text = f"{folder} cannot be written to: {fault}"
        return Check.of("working folder", "warning", text, "The agent can read there, and change nothing.")
    return Check.of("working folder", "ok", str(folder))


def _temporary_folder() -> Check:
    try:
        folder = Path(tempfile.gettempdir())
        if fault := _write_fault(folder):
            raise OSError(fault)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        advice = "Name a folder that can be written to in TMPDIR."
        return Check.of("temporary folder", "problem", f"it cannot be written to: {error}", advice)
    text = f"{folder}, {free / 1024**3:.1f} GiB free"
    if free < _FREE_SPACE:
        return Check.of("temporary folder", "warning", text, "Make room, or name another one in TMPDIR.")
    return Check.of("temporary folder", "ok", text)


def _write_fault(folder: Path) -> str:
    """Why nothing can be written to a folder; empty if it can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _network(environ: Mapping[str, str]) -> Check:
    given = {
        name: environ.get(name) or environ.get(name.lower()) or ""
        for name in _NETWORK
        if environ.get(name) or environ.get(name.lower())
    }
    if not given:
        return Check.of("network", "ok", "no proxy, and the API at its usual address")
    shown = ", ".join(f"{name}={_without_user(value)}" for name, value in given.items())
    certificates = given.get("NODE_EXTRA_CA_CERTS")
    if certificates and not Path(certificates).is_file():
        return Check.of(
            "network", "problem", shown, "NODE_EXTRA_CA_CERTS names no file: correct or unset it."
        )
    return Check.of("network", "ok", shown)


def _without_user(address: str) -> str:
    """An address without the name and the password that may be in it."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "", address
    user, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{MASK}@{host}" if at and user else address


def _limits() -> Iterator[Check]:
    if sys.platform == "win32":
        return
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    text = f"open files {_limit(files)}"
    if hasattr(resource, "RLIMIT_NPROC"):
        text += f", processes {_limit(resource.getrlimit(resource.RLIMIT_NPROC)[0])}"
    if files != resource.RLIM_INFINITY and files < _OPEN_FILES:
        yield Check.of("limits", "warning", text, f"Raise it: `ulimit -n {_OPEN_FILES * 4}`.")
    else:
        yield Check.of("limits", "ok", text)
    if os.geteuid() == 0 and not os.environ.get("IS_SANDBOX"):
        advice = "Run as another user, or set IS_SANDBOX=1 inside a container."
        yield Check.of("user", "warning", "root: the agent refuses to work without permissions", advice)


def _limit(number: int) -> str:
    return "unlimited" if number < 0 or number >= 2**62 else f"{number:,}"


# The command.

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
