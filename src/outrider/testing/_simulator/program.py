"""The simulated program from outside: its command line, and a run as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

import anyio
import msgspec

import outrider
from outrider.options._checks import split_rules
from outrider.testing._api.requests import Request
from outrider.testing._script.script import Script
from outrider.testing._script.steps import Answer, Drop, Hang, Step, fail
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from outrider.testing._script.steps import Gate
    from outrider.testing._simulator.model import ModelSource
    from outrider.testing._simulator.run import Run


# The command line.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ALONE: Final = _words(
    """allow-dangerously-skip-permissions await-claim await-initialize ax-screen-reader background bare bg
    brief chrome continue dangerously-skip-permissions debug-to-stderr disable-slash-commands
    enable-auth-status exclude-dynamic-system-prompt-sections fork-session forward-subagent-text help ide
    include-hook-events include-partial-messages init init-only maintenance managed-settings-in-initialize
    no-chrome no-session-persistence plan-mode-required print replay-user-messages restricted safe-mode
    session-mirror strict-mcp-config tmux verbose version"""
)
"""The flags that take no value."""
_ONE: Final = _words(
    """advisor agent agent-id agent-name agents append-subagent-system-prompt
    append-subagent-system-prompt-file append-system-prompt append-system-prompt-file autocompact channels
    debug-file effort environment fallback-model input-format json-schema managed-settings max-budget-usd
    max-thinking-tokens max-turns model name output-format parent-session-id permission-mode
    permission-prompt-tool permission-prompts plan-mode-instructions plugin-dir plugin-dir-no-mcp plugin-url
    prefill project-config-root remote-control-session-name-prefix resume-drops-turn resume-session-at
    rewind-files sdk-url session-id setting-sources settings system-prompt system-prompt-file
    system-prompt-snapshot task-budget team-name teammate-mode thinking thinking-display workload"""
)
"""Those that take one."""
_PERHAPS: Final = _words("debug from-pr prompt-suggestions remote-control resume worktree")
"""Those that may have one."""
_SEVERAL: Final = _words("add-dir allowed-tools betas disallowed-tools file mcp-config tools")
"""Those that take all that follows, up to the next flag."""
_OTHER_NAMES: Final = {
    "allowedTools": "allowed-tools",
    "c": "continue",
    "d": "debug",
    "disallowedTools": "disallowed-tools",
    "h": "help",
    "n": "name",
    "p": "print",
    "r": "resume",
    "v": "version",
    "w": "worktree",
}
_LABELS: Final = {"max-budget-usd": "amount", "max-turns": "turns", "permission-mode": "mode"}
"""What the program calls a value in its errors, where it is not as the flag is called."""
_MODES: Final = ("acceptEdits", "auto", "bypassPermissions", "manual", "dontAsk", "plan")


def _cut(argv: Sequence[str]) -> dict[str, list[str]]:
    """Cut the arguments up as the program does: `--flag=value`, `--flag value`, `--many a b`. Returns what
    was given, by name; a flag alone has an empty text. Raises `StartFailed`."""
    values: dict[str, list[str]] = {}
    words = list(argv)
    while words and (word := words.pop(0)) != "--":
        if not word.startswith("-") or word == "-":
            continue
        flag, equals, value = word.partition("=")
        name = flag.lstrip("-")
        name = _OTHER_NAMES.get(name, name)
        given = [value] if equals else []
        if name in _SEVERAL:
            while not equals and words and not words[0].startswith("-"):
                given.append(words.pop(0))
        elif name in _ONE or name in _PERHAPS:
            # A value that must be there may begin with a dash.
            if not equals and words and (name in _ONE or not words[0].startswith("-")):
                given.append(words.pop(0))
        elif name not in _ALONE:
            raise StartFailed(f"error: unknown option '{flag}'")
        problem = f"error: option '{flag} <{_LABELS.get(name, name)}>' argument"
        if name in _ONE | _SEVERAL and not given:
            raise StartFailed(f"{problem} missing")
        for each in given:
            if (reason := _objection(name, each)) is not None:
                raise StartFailed(f"{problem} '{each}' is invalid. {reason}")
        values.setdefault(name.replace("-", "_"), []).extend(given or [""])
    return values


def _objection(name: str, value: str) -> str | None:
    """Why a value is invalid."""
    if name == "permission-mode" and value not in (*_MODES, "default"):
        return f"Allowed choices are {', '.join(_MODES)}."
    if name in ("max-turns", "max-thinking-tokens") and not re.fullmatch(r"[+-]?\d+", value):
        return "must be a number"
    if name == "max-budget-usd":
        try:
            is_positive = float(value) > 0
        except ValueError:
            is_positive = False
        return None if is_positive else "--max-budget-usd must be a positive number greater than 0"
    return None


class StartFailed(Exception):
    """Printed on stderr; the program exits with 1."""


class Invocation(msgspec.Struct, kw_only=True):
    """The command line of the program, with its values read. Unset: not given."""

    output_format: str = "text"
    input_format: str = "text"
    verbose: bool = False
    version: bool = False
    help: bool = False

    model: str | None = None
    fallback_model: tuple[str, ...] = ()
    effort: str | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    json_schema: JsonObject | None = None

    system_prompt: str | None = None
    append_system_prompt: str | None = None
    agents: JsonObject = {}

    tools: tuple[str, ...] | None = None
    """The built-in tools to offer; `("",)` or `()`: none of them; `("default",)` or unset: all."""
    allowed_tools: tuple[str, ...] = ()
    """Rules, one each: `("Bash(git *)", "Edit")`."""
    disallowed_tools: tuple[str, ...] = ()
    permission_mode: str | None = None
    permission_prompt_tool: str | None = None
    """`stdio`: the host is asked."""
    permission_prompts: str | None = None
    dangerously_skip_permissions: bool = False
    allow_dangerously_skip_permissions: bool = False
    add_dirs: tuple[str, ...] = ()

    settings: JsonObject = {}
    """Of `--settings`, a file or a text; a file that cannot be read as JSON counts for nothing."""
    mcp_config: dict[str, JsonObject] = {}
    """The servers of every `--mcp-config`, by name."""

    resume: str | None = None
    """A session's id or title."""
    continue_conversation: bool = False
    fork_session: bool = False
    session_id: str | None = None
    resume_session_at: str | None = None
    name: str | None = None
    no_session_persistence: bool = False
    session_mirror: bool = False

    include_partial_messages: bool = False
    replay_user_messages: bool = False
    forward_subagent_text: bool = False
    await_initialize: bool = False
    disable_slash_commands: bool = False


def read_invocation(argv: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Invocation:
    """Read the arguments, without the program's own name. Raises `StartFailed` for invalid ones."""
    values = _cut(argv)
    last = {name: given[-1] for name, given in values.items()}
    path = partial(_path, cwd)
    fields: dict[str, object] = {name: last[name] for name in Invocation.__struct_fields__ if name in last}
    fields |= {name: True for name in fields if name.replace("_", "-") in _ALONE}
    readers: dict[str, Callable[[str], object]] = {
        "max_turns": int,
        "max_budget_usd": float,
        "fallback_model": lambda text: tuple(filter(None, text.split(","))),
        "permission_mode": lambda text: "default" if text == "manual" else text,
        "json_schema": lambda text: _read_object(text, "--json-schema is not valid JSON"),
        "agents": lambda text: _read_object(text, "Invalid --agents configuration"),
        "settings": lambda text: _read_settings(text, path(text)),
    }
    fields |= {name: read(last[name]) for name, read in readers.items() if name in last}
    for name in ("tools", "allowed_tools", "disallowed_tools"):
        if name in values:
            fields[name] = tuple(rule for text in values[name] for rule in split_rules(text))
    for name in ("system_prompt", "append_system_prompt"):
        if (file := last.get(f"{name}_file")) is not None:
            fields[name] = _read_file(path(file), f"{name.replace('_', ' ').capitalize()} file not found")
    fields["mcp_config"] = {
        name: config
        for text in values.get("mcp_config", ())
        for name, config in _read_servers(text, path(text)).items()
    }
    fields |= {"add_dirs": tuple(values.get("add_dir", ())), "continue_conversation": "continue" in values}
    found = msgspec.convert(fields, type=Invocation)
    if not (found.version or found.help):
        _check(found, environment)
    return found


def _path(cwd: Path, name: str) -> Path:
    return Path(os.path.abspath(cwd / name))  # noqa: PTH100 - no links resolved


def _read_file(path: Path, missing: str) -> str:
    if not path.is_file():
        raise StartFailed(f"Error: {missing}: {path}")
    return path.read_text("utf-8", "replace")


def _read_object(text: str, problem: str) -> JsonObject:
    if (value := _object_in(text)) is None:
        raise StartFailed(f"Error: {problem}")
    return value


def _read_settings(text: str, path: Path) -> JsonObject:
    if text.lstrip().startswith("{"):
        return _read_object(text, "Invalid JSON provided to --settings")
    return _object_in(_read_file(path, "Settings file not found")) or {}


def _read_servers(text: str, path: Path) -> JsonObject:
    invalid = "Invalid MCP configuration:\n"
    config = _object_in(text)
    if config is None:
        config = _object_in(_read_file(path, f"{invalid}MCP config file not found")) or {}
    if not isinstance(found := config.get("mcpServers"), dict):
        raise StartFailed(f'Error: {invalid}mcpServers: Missing "mcpServers".')
    return cast("JsonObject", found)


def _check(found: Invocation, environment: Mapping[str, str]) -> None:
    """Reject arguments that do not go together."""
    is_streamed = found.output_format == "stream-json"
    if found.input_format == "stream-json" and not is_streamed:
        raise StartFailed("Error: --input-format=stream-json requires output-format=stream-json.")
    if is_streamed and not found.verbose:
        raise StartFailed("Error: When using --print, --output-format=stream-json requires --verbose")
    if found.input_format != "stream-json":
        raise StartFailed("The simulated agent runs sessions only: start it with --input-format stream-json")
    skips = found.dangerously_skip_permissions or found.permission_mode == "bypassPermissions"
    if skips and os.geteuid() == 0 and not environment.get("IS_SANDBOX"):
        raise StartFailed(
            "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons"
        )
    if found.session_id is not None:
        try:
            UUID(found.session_id)
        except ValueError:
            raise StartFailed("Error: Invalid session ID. Must be a valid UUID.") from None
        if (found.resume is not None or found.continue_conversation) and not found.fork_session:
            raise StartFailed(
                "Error: --session-id can only be used with --continue or --resume "
                "if --fork-session is also specified."
            )


def _object_in(text: str) -> JsonObject | None:
    try:
        value: object = json.loads(text)
    except ValueError:
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


# A process of its own.

SCRIPT_VARIABLE: Final = "OUTRIDER_AGENT_SCRIPT"
"""The file that has the script of an agent that is started as a program; unset: it is automatic."""
KEY_VARIABLE: Final = "OUTRIDER_AGENT_KEY"
"""Set if the script is not in a file but in another process: `SCRIPT_VARIABLE` is then its address."""
VERSION_VARIABLE: Final = "OUTRIDER_AGENT_VERSION"
"""The version that the agent says it is."""

_POLL_SECONDS: Final = 0.05
_JOIN_SECONDS: Final = 2.0


def write_launcher(folder: str | os.PathLike[str]) -> Path:
    """Write a program `claude` into a folder: the simulated agent."""
    source = str(Path(outrider.__file__).parent.parent)
    path = Path(folder, "claude")
    text = f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {source!r})\n"
    path.write_text(f"{text}from outrider.testing.agent import main\nmain()\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


class Launcher:
    """A program that plays the script of this process. It is there until `close`."""

    def __init__(self, source: ModelSource, *, version: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="outrider-simulator-"))
        self.path = write_launcher(self._folder)
        key = secrets.token_hex(16)
        address = str(self._folder / "script")
        listener = Listener(address, "AF_UNIX", authkey=key.encode())
        self.environment = {SCRIPT_VARIABLE: address, KEY_VARIABLE: key, VERSION_VARIABLE: version}
        served = _Served(listener, source, self._folder)
        self._thread = threading.Thread(target=served.accept, name="script of simulated agents", daemon=True)
        self._thread.start()
        self._finalizer = weakref.finalize(self, _end, served, address, key)

    @property
    def is_closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        """End it. A second time does nothing."""
        self._finalizer()
        self._thread.join()


def _end(served: _Served, address: str, key: str) -> None:
    served.is_over.set()
    # Wakes the thread that waits for agents; it may be gone.
    with contextlib.suppress(OSError, EOFError):
        Client(address, authkey=key.encode()).close()


class _Served:
    """Answers agents, each in its own thread."""

    def __init__(self, listener: Listener, source: ModelSource, folder: Path) -> None:
        self._listener, self._source, self._folder = listener, source, folder
        self.is_over = threading.Event()

    def accept(self) -> None:
        """Wait for agents until it is over, and clean up."""
        threads: list[threading.Thread] = []
        with self._listener:
            while not self.is_over.is_set():
                try:
                    connection = self._listener.accept()
                except (OSError, EOFError, AuthenticationError):
                    continue
                threads = [thread for thread in threads if thread.is_alive()]
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                thread.name = "script of a simulated agent"
                thread.start()
                threads.append(thread)
        for thread in threads:
            # Not for ever: a function of the test may hang.
            thread.join(_JOIN_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self, connection: Connection) -> None:
        with connection:
            while not self.is_over.is_set():
                try:
                    if not connection.poll(_POLL_SECONDS):
                        continue
                    request = msgspec.convert(connection.recv(), type=Request)
                    self._source.requests.add(request)
                    connection.send(self._step(request))
                except (OSError, EOFError):
                    return

    def _step(self, request: Request) -> Step:
        """The step. Gates are awaited here, because they cannot be sent."""
        step = self._source.script.take(request)
        if isinstance(step, Hang):
            self._wait_at(self._source.requests.hanging)
            step = step.then or Drop()
        if isinstance(step, Answer) and step.gate is not None:
            self._wait_at(step.gate)
            step = msgspec.structs.replace(step, gate=None)
        return step

    def _wait_at(self, gate: Gate) -> None:
        gate.reached.set()
        opened = threading.Event()
        gate.on_open(opened.set)
        while not opened.wait(_POLL_SECONDS) and not self.is_over.is_set():
            pass
        gate.forget(opened.set)


class RemoteScript:
    """A script that is in another process, for an agent that was started by it."""

    def __init__(self, address: str, key: str) -> None:
        self._address, self._key = address, key.encode()

    def take(self, request: Request) -> Step:
        # A connection for each: one that waits, for a turn that was interrupted, must not hold up the next.
        try:
            with Client(self._address, authkey=self._key) as connection:
                connection.send(msgspec.to_builtins(request))
                return cast("Step", connection.recv())
        except (OSError, EOFError):
            return fail(418, message="The test that has the script of this agent is over.")


_READ_BYTES: Final = 65536
_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")


async def play(invocation: Invocation, environment: Mapping[str, str], cwd: Path, version: str) -> int:
    """Run the agent; returns the exit code."""
    from outrider.testing._simulator.model import ModelSource
    from outrider.testing._simulator.run import Run

    streams = StandardStreams()
    script = _script(environment)
    home = environment.get("HOME") or str(Path.home())
    config = environment.get("CLAUDE_CONFIG_DIR") or str(Path(home) / ".claude")
    run = Run(
        invocation,
        streams,
        source=ModelSource(script),
        environment=environment,
        cwd=cwd,
        config_dir=Path(config),
        version=version,
    )
    code = 1
    async with anyio.create_task_group() as tasks:
        await tasks.start(_watch_signals, run)
        code = await run.main()
        tasks.cancel_scope.cancel()
    for error in getattr(script, "errors", ()):
        problem = "".join(traceback.format_exception_only(error)).rstrip()
        streams.complain(f"The script: {problem}")
    return code


def _script(environment: Mapping[str, str]) -> Script | RemoteScript:
    source, key = environment.get(SCRIPT_VARIABLE), environment.get(KEY_VARIABLE)
    if source and key:
        return RemoteScript(source, key)
    return Script.of(source or None)


async def _watch_signals(run: Run, *, task_status: TaskStatus[None]) -> None:
    numbers = [getattr(signal, name) for name in _SIGNALS]
    with anyio.open_signal_receiver(*numbers) as received:
        task_status.started()
        async for number in received:
            await run.on_signal(signal.Signals(number).name)


class StandardStreams:
    """Stdin, stdout and stderr of this process."""

    def __init__(self) -> None:
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        self._can_wait = not stat.S_ISREG(os.fstat(self._input).st_mode)
        self._waiting: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()
        # A thread: what reads may stop reading, and the program continues all the same.
        threading.Thread(target=self._write_all, name="stdout", daemon=True).start()

    async def receive(self) -> bytes:
        try:
            if self._can_wait:
                await anyio.wait_readable(self._input)
                return os.read(self._input, _READ_BYTES)
            return await anyio.to_thread.run_sync(os.read, self._input, _READ_BYTES, abandon_on_cancel=True)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        self._waiting.put(data)

    def complain(self, line: str) -> None:
        try:
            os.write(sys.stderr.fileno(), f"{line}\n".encode("utf-8", "replace"))
        except OSError:
            return

    async def drain(self) -> None:
        flag = threading.Event()
        self._waiting.put(flag)
        await anyio.to_thread.run_sync(flag.wait, abandon_on_cancel=True)

    def _write_all(self) -> None:
        is_broken = False
        while True:
            item = self._waiting.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            left = memoryview(item)
            while left and not is_broken:
                try:
                    left = left[os.write(self._output, left) :]
                except OSError:
                    is_broken = True
