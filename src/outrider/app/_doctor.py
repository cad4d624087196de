"""Implements `outrider doctor`: checks the machine, starts Claude Code once, and reports problems.

Sends no prompt, so it costs nothing.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from rich.text import Text

import outrider
from outrider._display import one_line
from outrider.app._flags import BY_OPTION, Code, Switches, in_one_line
from outrider.app._render import LABEL, counted
from outrider.app._run import AS_USUAL
from outrider.app._terminal import Terminal
from outrider.errors import INSTALL, AgentTooOld, OutriderError
from outrider.launch import MINIMUM_AGENT_VERSION, Search, search_agent
from outrider.redaction import MASK, mask
from outrider.transcripts import config_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from outrider.wire.control import AccountInfo, McpServerStatus


# Checks.

State: TypeAlias = Literal["ok", "warning", "problem"]


class Check(msgspec.Struct, frozen=True):
    """The result of a check: its state, what was found, and what to do. Secrets in it are masked."""

    name: str
    state: State
    text: str
    advice: str = ""

    def __post_init__(self) -> None:
        for name in ("text", "advice"):
            msgspec.structs.force_setattr(self, name, mask(getattr(self, name)))


_NEEDED: Final = ("anyio", "msgspec")
_OPTIONAL: Final = ("mcp", "pydantic", "pyyaml", "rich", "trio", "typer")

_CREDENTIALS: Final = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
)
_NETWORK: Final = (
    *("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("ANTHROPIC_BASE_URL", "NODE_EXTRA_CA_CERTS"),
)
_FREE_SPACE: Final = 200 * 1024 * 1024
_OPEN_FILES: Final = 256


def machine_checks(environ: Mapping[str, str], cwd: str | None) -> Iterator[Check]:
    """The checks that start nothing."""
    yield _python()
    yield _packages()
    yield _config(environ)
    yield _working_folder(cwd)
    yield _temporary_folder()
    yield _network(environ)
    yield from _limits()


def program_check(program: str | None, *, with_places: bool) -> tuple[Search, Check]:
    """Find Claude Code."""
    search = search_agent(cli_path=program)
    if search.found is not None:
        return search, Check("Claude Code", "ok", f"{search.found} ({search.tried[-1].source})")
    tried = " (-v lists the places)"
    if with_places or program is not None:
        tried = f". Searched: {'; '.join(map(str, search.tried))}"
    advice = f"Install it with `{INSTALL}`, add its folder to PATH, or give its path as `--program`."
    return search, Check("Claude Code", "problem", f"not found{tried}", advice)


def credentials(environ: Mapping[str, str]) -> list[str]:
    """The names of the variables that hold or choose credentials."""
    return [name for name in _CREDENTIALS if environ.get(name)]


def _python() -> Check:
    system = f"{platform.system()} {platform.machine()}"
    return Check("Python", "ok", f"{platform.python_version()} on {system}")


def _packages() -> Check:
    found = {name: _version(name) for name in (*_NEEDED, *_OPTIONAL)}
    there = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    absent = [name for name, version in found.items() if not version]
    text = f"outrider {outrider.__version__}, {there}" + (
        f"; not installed: {', '.join(absent)}" if absent else ""
    )
    return Check("packages", "ok", text)


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
            return Check("configuration", "ok", f"{folder} does not exist yet: Claude Code creates it")
        advice = "Set CLAUDE_CONFIG_DIR to a writable folder, or run with `--hermetic`."
        return Check("configuration", "problem", f"{folder} does not exist and cannot be created", advice)
    if problem := _write_problem(folder):
        advice = "Fix its permissions, set CLAUDE_CONFIG_DIR, or run with `--hermetic`."
        return Check("configuration", "problem", f"{folder} is not writable: {problem}", advice)
    return Check("configuration", "ok", str(folder))


def _working_folder(cwd: str | None) -> Check:
    try:
        folder = Path(cwd or ".").absolute()
    except FileNotFoundError:
        return Check("working folder", "problem", "it no longer exists", "Change to another folder.")
    if not folder.is_dir():
        return Check("working folder", "problem", f"{folder} is not a folder", "Create it, or use another.")
    if problem := _write_problem(folder):
        text = f"{folder} is not writable: {problem}"
        return Check("working folder", "warning", text, "Claude Code can read there, but change nothing.")
    return Check("working folder", "ok", str(folder))


def _temporary_folder() -> Check:
    try:
        folder = Path(tempfile.gettempdir())
        if problem := _write_problem(folder):
            raise OSError(problem)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        advice = "Set TMPDIR to a writable folder."
        return Check("temporary folder", "problem", f"it is not writable: {error}", advice)
    text = f"{folder}, {free / 1024**3:.1f} GiB free"
    if free < _FREE_SPACE:
        return Check("temporary folder", "warning", text, "Free some space, or set TMPDIR to another folder.")
    return Check("temporary folder", "ok", text)


def _write_problem(folder: Path) -> str:
    """Why a folder is not writable; empty if it is."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _network(environ: Mapping[str, str]) -> Check:
    found = {name: environ.get(name) or environ.get(name.lower()) for name in _NETWORK}
    given = {name: value for name, value in found.items() if value}
    if not given:
        return Check("network", "ok", "no proxy, default API address")
    shown = ", ".join(f"{name}={_without_user(value)}" for name, value in given.items())
    certificates = given.get("NODE_EXTRA_CA_CERTS")
    if certificates and not Path(certificates).is_file():
        return Check("network", "problem", shown, "NODE_EXTRA_CA_CERTS is not a file: fix or unset it.")
    return Check("network", "ok", shown)


def _without_user(address: str) -> str:
    """An address with user and password masked."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "", address
    user, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{MASK}@{host}" if at and user else address


def _limits() -> Iterator[Check]:
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    text = f"open files {_limit(files)}"
    if hasattr(resource, "RLIMIT_NPROC"):
        text += f", processes {_limit(resource.getrlimit(resource.RLIMIT_NPROC)[0])}"
    if files != resource.RLIM_INFINITY and files < _OPEN_FILES:
        yield Check("limits", "warning", text, f"Raise it: `ulimit -n {_OPEN_FILES * 4}`.")
    else:
        yield Check("limits", "ok", text)
    if os.geteuid() == 0 and not os.environ.get("IS_SANDBOX"):
        advice = "Run as another user, or set IS_SANDBOX=1 inside a container."
        yield Check("user", "warning", "root: Claude Code refuses to bypass permissions", advice)


def _limit(number: int) -> str:
    return "unlimited" if number < 0 or number >= 2**62 else f"{number:,}"


# The command.

_CONNECT: Final = 30.0
_SERVERS: Final = 5.0
"""Seconds for Claude Code to answer, and for MCP servers to start."""

_NAME: Final = 2 * LABEL

_STYLES: Final[Mapping[State, str]] = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def examine(switches: Switches, *, as_json: bool, program: str | None, cwd: str | None) -> int:
    """Run and print all checks; gives the exit code, which is 1 if there is a problem."""
    terminal = Terminal(no_color=switches.no_color)
    checks: list[Check] = []
    with_places = as_json or switches.is_verbose
    try:
        for check in _checks(terminal, program, cwd, is_quiet=as_json, with_places=with_places):
            checks.append(check)
            if not as_json:
                _print(terminal, check)
    finally:
        terminal.clear()
    problems = sum(check.state == "problem" for check in checks)
    warnings = sum(check.state == "warning" for check in checks)
    if as_json:
        content = {"ok": not problems, "checks": checks}
        terminal.write_json(msgspec.json.format(msgspec.json.encode(content).decode(), indent=2))
    else:
        terminal.print()
        terminal.print(_verdict(problems, warnings))
    return Code.FAILED if problems else Code.OK


def _checks(
    terminal: Terminal, program: str | None, cwd: str | None, *, is_quiet: bool, with_places: bool
) -> Iterator[Check]:
    yield from machine_checks(os.environ, cwd)
    search, found = program_check(program, with_places=with_places)
    yield found
    if search.found is None:
        yield _variables_alone("Claude Code was not found")
        return
    if not is_quiet:
        terminal.wait("starting Claude Code, without a prompt")
    options = outrider.Options(**AS_USUAL).replace(
        cli_path=search.found, cwd=cwd, persist_session=False, timeouts={"connect": _CONNECT}
    )
    try:
        with outrider.sync.Session(options) as session:
            yield from _of_session(session)
    except AgentTooOld as error:
        yield Check("version", "problem", f"{error.version}; at least {error.minimum} is needed", error.hint)
        yield _variables_alone("Claude Code is too old")
    except OutriderError as error:
        line = in_one_line(error, BY_OPTION)
        yield Check("start", "problem", line.removesuffix(error.hint).strip(), error.hint)
        yield _variables_alone("Claude Code does not start")


def _of_session(session: outrider.sync.Session) -> Iterator[Check]:
    info = session.info
    yield Check("version", "ok", f"{info.version or 'unknown'} (at least {MINIMUM_AGENT_VERSION})")
    yield Check("capabilities", "ok", ", ".join(sorted(info.capabilities)) or "none")
    yield _authentication(info.account)
    servers = _servers(session)
    if not servers:
        yield Check("MCP servers", "ok", "none")
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
        return Check("authentication", "ok", f"{' and '.join(sources) or 'by the provider'}{through}")
    if named:
        return Check("authentication", "ok", f"{', '.join(named)} in the environment")
    advice = "Log in with `claude auth login`, or `export` ANTHROPIC_API_KEY."
    return Check("authentication", "problem", "Claude Code has no credentials", advice)


def _variables_alone(why: str) -> Check:
    named = credentials(os.environ)
    if named:
        return Check("authentication", "ok", f"{', '.join(named)} in the environment")
    return Check("authentication", "warning", f"unknown, because {why}", "Fix that first.")


def _servers(session: outrider.sync.Session) -> list[McpServerStatus]:
    """The servers, once none is pending, or after a time limit."""
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
            return Check(name, "ok", f"connected, {len(server.tools or ())} tools")
        case "disabled":
            return Check(name, "ok", "disabled")
        case "needs-auth":
            return Check(name, "warning", "needs a login", "Log in with `claude mcp`.")
        case status:
            reason = f": {one_line(server.error)}" if server.error else ""
            return Check(name, "warning", f"{status}{reason}", "Check its command or address.")


# Output.


def _print(terminal: Terminal, check: Check) -> None:
    signs = {"ok": terminal.glyphs.good, "warning": terminal.glyphs.warning, "problem": terminal.glyphs.bad}
    style = _STYLES[check.state]
    head = f"{signs[check.state]} {one_line(check.name):<{_NAME}} "
    if not terminal.out.is_terminal:
        # In words, for logs.
        head = f"{check.state:<8} {one_line(check.name):<{_NAME}} "
    texts = [Text(one_line(check.text))]
    if check.advice:
        texts.append(Text(f"To do: {one_line(check.advice)}", style="bold"))
    width = max(terminal.out.width - len(head), 20)
    for text in texts:
        for line in text.wrap(terminal.out, width) if terminal.out.is_terminal else [text]:
            terminal.print(Text.assemble((head, style), line))
            head = " " * len(head)


def _verdict(problems: int, warnings: int) -> Text:
    if problems:
        return Text(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}.", style="bold red")
    if warnings:
        return Text(f"This should work, with {counted(warnings, 'warning')}.", style="bold yellow")
    return Text("No problems found.", style="bold green")
