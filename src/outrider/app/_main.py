"""Defines the command line: the commands, their flags, and how errors end them.

Each command is implemented in its own module, which is imported when it runs.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Annotated, Final, TypeAlias

import typer

from outrider._display import one_line, plain
from outrider._version import __version__
from outrider.app._flags import (
    ACP_FLAGS,
    BY_OPTION,
    ENDING,
    AgentKind,
    Code,
    Failed,
    Switches,
    argument,
    code_of,
    in_one_line,
    option,
    signed,
    switch,
    with_flags,
)
from outrider.app._fleet.commands import FLEET_COMMANDS
from outrider.app._sessions.approvals import APPROVAL_COMMANDS
from outrider.app._sessions.commands import SESSION_COMMANDS
from outrider.errors import INSTALL
from outrider.options import OptionFields

# Flags and arguments are described by types, where typer looks for them.
_Debug: TypeAlias = Annotated[bool, switch("--debug", help="Show logs and tracebacks.")]
_Verbose: TypeAlias = Annotated[bool, switch("--verbose", "-v", help="Show logs, and more about errors.")]
_NoColor: TypeAlias = Annotated[bool, switch("--no-color", help="Use no colors.")]
_Json: TypeAlias = Annotated[bool, switch("--json", help="Print JSON.")]
_Recording: TypeAlias = Annotated[Path, argument(help="A trace, a cassette or a recording.", metavar="FILE")]
_Program: TypeAlias = Annotated[str | None, option("--program", metavar="PATH", help="Path of Claude Code.")]
_Agent: TypeAlias = Annotated[
    AgentKind,
    typer.Option(help="Claude Code (real), or the embedded agent, which needs no key (simulated)."),
]
_Bare: TypeAlias = Annotated[
    bool,
    switch("--bare", help="Use no system prompt, and no settings of the user or the project."),
]
_Cwd: TypeAlias = Annotated[str | None, option("--cwd", "-C", metavar="FOLDER", help="Working folder.")]


def carry_out(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; gives its exit code."""
    from outrider.app._terminal import complain

    try:
        with _signal_guard():
            code: object = _app()(
                args=None if arguments is None else list(arguments),
                prog_name="outrider",
                standalone_mode=False,
            )
            sys.stdout.flush()
    except typer.TyperException as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "outrider")
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{error.format_message()}\n")
        else:
            complain(f"error: {_usage_problem(error)} Try `{command} --help`.")
        return Code.USAGE
    except SystemExit as leaving:
        # Shell completion ends like this.
        return leaving.code if isinstance(leaving.code, int) else Code.OK
    except typer.Abort:
        return Code.INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed()
    except OSError as error:
        _drop_output()
        complain(f"error: {in_one_line(error, BY_OPTION)}")
        return code_of(error)
    if code == Code.INTERRUPTED and arguments is None:
        _leave_at_once()
    return code if isinstance(code, int) else Code.OK


def _usage_problem(error: typer.TyperException) -> str:
    """What is wrong with a command line. Of the flags that look like an unknown one, only the nearest."""
    flag: str = getattr(error, "option_name", "")
    if nearest := get_close_matches(flag, getattr(error, "possibilities", None) or (), n=1):
        return f"No such option: {one_line(flag)}. Did you mean '{nearest[0]}'?"
    text = one_line(error.format_message()).replace("Value error, ", "").rstrip(".")
    return text if text.endswith("?") else f"{text}."


class _SignalReceived(BaseException):
    """SIGTERM or SIGHUP has arrived."""


@contextmanager
def _signal_guard() -> Generator[None]:
    """Let SIGTERM and SIGHUP end Claude Code and restore the terminal first; a second one does not wait."""
    if current_thread() is not main_thread():
        yield
        return
    numbers = [number for number in ENDING if signal.getsignal(number) == signal.SIG_DFL]
    received: list[int] = []

    def restore() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)

    def end(number: int, _: object) -> None:
        restore()
        received.append(number)
        raise _SignalReceived

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    except _SignalReceived:
        pass
    finally:
        restore()
        # Whatever else was raised: a terminal that is gone cannot be written to.
        for number in received:
            signal.raise_signal(number)


def _leave_at_once() -> None:
    """End this process if Claude Code is still running: Ctrl-C was pressed again, and exiting would wait.

    The watchdog of `outrider.transports` ends Claude Code.
    """
    from outrider.transports import live_processes

    if live_processes():
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def _pipe_closed() -> int:
    _drop_output()
    return Code.PIPE_CLOSED


def _drop_output() -> None:
    """Discard output that cannot be written: the interpreter would try again at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


# The commands. Their docstrings are the help.


def _part(name: str, help: str) -> object:  # noqa: A002 - as typer calls it
    return switch(f"--{name}/--no-{name}", help=help)


def demo(
    switches: Switches,
    agent: _Agent = "simulated",
    speed: Annotated[
        float, typer.Option(min=0, help="2 is twice as fast, 0 has no pauses.", metavar="FACTOR")
    ] = 1.0,
    program: _Program = None,
    svg: Annotated[Path | None, option(metavar="FILE", help="Save a picture of the session.")] = None,
) -> int:
    """Show a live session from start to end. Needs no API key."""
    from outrider.app._demo import show_demo

    return show_demo(agent, no_color=switches.no_color, speed=speed, program=program, svg=svg)


@with_flags
def run(
    switches: Switches,
    prompt: Annotated[
        str | None,
        argument(
            help="The prompt; `-` or none reads stdin. Piped text is added to a prompt.",
            metavar="PROMPT",
        ),
    ] = None,
    json: Annotated[bool, switch("--json", help="Print the frames, one per line.")] = False,
    output: Annotated[
        str | None, option(metavar="SCHEMA", help="A JSON Schema for the answer: a file, or JSON.")
    ] = None,
    quiet: Annotated[bool, switch("--quiet", "-q", help="Print only the answer.")] = False,
    agent: _Agent = "real",
    bare: _Bare = False,
    *,
    fields: OptionFields,
) -> int:
    """Run one prompt and print the answer."""
    from outrider.app._run import agent_for, run_prompt

    with agent_for(agent, fields, is_bare=bare) as chosen:
        return run_prompt(
            prompt, chosen, no_color=switches.no_color, as_json=json, schema=output, is_quiet=quiet
        )


@with_flags
def chat(switches: Switches, agent: _Agent = "real", bare: _Bare = False, *, fields: OptionFields) -> int:
    """Start a conversation. Ctrl-C interrupts a turn, /help lists commands."""
    from outrider.app._chat import hold_chat
    from outrider.app._run import agent_for

    with agent_for(agent, fields, is_bare=bare) as chosen:
        return hold_chat(chosen, no_color=switches.no_color)


@partial(with_flags, flags=ACP_FLAGS)
def acp(
    switches: Switches,
    module: Annotated[
        str | None,
        option(
            metavar="MODULE:NAME",
            help="Your options: an `Options` in a module, or a function that returns one.",
        ),
    ] = None,
    editor_tools: Annotated[
        bool, switch("--editor-tools", help="Use files and terminals through the editor, where it can.")
    ] = False,
    agent: _Agent = "real",
    bare: _Bare = False,
    *,
    fields: OptionFields,
) -> int:
    """Serve editors over stdio: the Agent Client Protocol."""
    from outrider.app._run import agent_for
    from outrider.app._serve import serve_editor

    with agent_for(agent, fields, is_bare=bare or module is not None) as chosen:
        return serve_editor(module, chosen, editor_tools=editor_tools)


def doctor(switches: Switches, json: _Json = False, program: _Program = None, cwd: _Cwd = None) -> int:
    """Check whether Claude Code works here, and how to fix it."""
    from outrider.app._doctor import examine

    return examine(switches, as_json=json, program=program, cwd=cwd)


def replay(
    switches: Switches,
    file: _Recording,
    speed: Annotated[
        float,
        typer.Option(
            min=0, help="1 is the original speed, 2 twice as fast, 0 has no pauses.", metavar="FACTOR"
        ),
    ] = 0.0,
) -> int:
    """Replay a recorded session as a conversation."""
    from outrider.app._trace import replay_file

    return replay_file(file, no_color=switches.no_color, speed=speed)


def trace_show(
    switches: Switches,
    file: _Recording,
    partials: Annotated[bool, switch("--partials", help="Show partial messages, too.")] = False,
) -> int:
    """Show every frame in both directions, with its time."""
    from outrider.app._trace import show_trace

    return show_trace(file, no_color=switches.no_color, with_partials=partials)


def migrate(
    switches: Switches,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Files and folders.", show_default="this folder"),
    ] = None,
    write: Annotated[bool, switch("--write", "-w", help="Write the changes.")] = False,
    check: Annotated[bool, switch("--check", help="Exit with 1 if anything would change.")] = False,
    json: _Json = False,
) -> int:
    """Move a program from claude_agent_sdk: show or make changes."""
    from outrider.app._migrate import migrate

    return migrate(paths or [Path()], no_color=switches.no_color, write=write, check=check, as_json=json)


def init(
    switches: Switches,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to write it.", show_default="this folder")
    ] = Path(),
    name: Annotated[
        str | None, option(metavar="NAME", help="The name of the project. Default: that of the folder.")
    ] = None,
    service: Annotated[bool, _part("service", "A service with FastAPI.")] = True,
    batch: Annotated[bool, _part("batch", "A batch with a journal.")] = True,
    docker: Annotated[bool, _part("docker", "A Dockerfile.")] = True,
    ci: Annotated[bool, _part("ci", "A workflow for GitHub.")] = True,
) -> int:
    """Write a small project that works, with its tests."""
    from outrider.app._project.project import Part, init

    wanted: dict[Part, bool] = {"service": service, "batch": batch, "docker": docker, "ci": ci}
    parts: set[Part] = {part for part, is_wanted in wanted.items() if is_wanted}
    return init(folder, name, parts, no_color=switches.no_color)


def view(
    switches: Switches,
    what: Annotated[
        str | None,
        argument(
            metavar="WHAT",
            help="A store, the journal of a batch, a trace, a transcript or a session's ID."
            " Default: this machine's sessions.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        option(metavar="N", min=0, max=65535, help="The port. Default: 8450, or the next free one."),
    ] = None,
    no_open: Annotated[bool, switch("--no-open", help="Only print the address.")] = False,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Let others look, too. Needs a password, in OUTRIDER_VIEW_PASSWORD."
        ),
    ] = "127.0.0.1",
    approve: Annotated[bool, switch("--approve", help="Allow decisions on approvals.")] = False,
    store: Annotated[
        str | None,
        option(metavar="URL", envvar="OUTRIDER_STORE", help="Where the sessions of a journal are."),
    ] = None,
    approvals: Annotated[
        str | None,
        option(metavar="URL", envvar="OUTRIDER_APPROVALS", help="Where approvals are kept: a URL or a path."),
    ] = None,
) -> int:
    """Look at live and stored sessions in a browser."""
    from outrider.app._serve import view

    return view(
        what, store=store, approvals=approvals, host=host, port=port, opens=not no_open, approve=approve
    )


_COMMANDS: Final[dict[str, Callable[..., int]]] = {
    "demo": demo,
    "run": run,
    "chat": chat,
    "acp": acp,
    "view": view,
    "init": init,
    "doctor": doctor,
    "replay": replay,
    "migrate": migrate,
}


_GROUPS: Final[dict[str, tuple[str, dict[str, Callable[..., int]]]]] = {
    "trace": ("Inspect a trace.", {"show": trace_show}),
    "approvals": ("List and decide what waits for a person.", APPROVAL_COMMANDS),
    "sessions": ("List, read and change stored sessions.", SESSION_COMMANDS),
    "fleet": ("Run, resume and report on batches of tasks.", FLEET_COMMANDS),
}


def _app() -> typer.Typer:
    switches = Switches()
    app = typer.Typer(
        # Boxes are for terminals, not for logs.
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["--help", "-h"]},
        help="Drive Claude Code. Start with `outrider demo`: it needs no API key.",
    )

    @app.callback()
    def root(
        debug: _Debug = False,
        verbose: _Verbose = False,
        no_color: _NoColor = False,
        version: _Version = False,
    ) -> None:
        switches.is_debugging, switches.is_verbose, switches.no_color = debug, debug or verbose, no_color

    for name, function in _COMMANDS.items():
        app.command(name)(_guarded(function, switches))
    for group, (summary, commands) in _GROUPS.items():
        inner = typer.Typer(no_args_is_help=True, help=summary)
        for name, function in commands.items():
            inner.command(name)(_guarded(function, switches))
        # With a callback, an only command keeps its name.
        inner.callback()(lambda: None)
        app.add_typer(inner, name=group)
    return app


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        sys.stdout.write(f"outrider {__version__}\n")
        raise typer.Exit


_Version: TypeAlias = Annotated[
    bool,
    typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True, metavar=""),
]


@contextmanager
def _plain_output(switches: Switches) -> Generator[None]:
    """Show warnings in one line, and logs only with `--verbose`."""
    import logging
    import warnings

    from outrider.app._terminal import complain
    from outrider.options import PermissionShadowedWarning

    def show(message: Warning | str, *_: object, **__: object) -> None:
        complain(f"warning: {one_line(str(message))}")

    class OneLine(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of `logging`
            return one_line(super().formatMessage(record))

    log = logging.getLogger("outrider")
    handler = logging.StreamHandler() if switches.is_verbose else logging.NullHandler()
    handler.setFormatter(OneLine())
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            if not switches.is_debugging:
                warnings.showwarning = show
                # Allowing something on the command line means not to be asked about it.
                warnings.simplefilter("ignore", PermissionShadowedWarning)
            yield
    finally:
        log.removeHandler(handler)


_WITHOUT_AGENT: Final = (
    f"  Install it with `{INSTALL}`; if it is elsewhere, give its path as `--program`.",
    "  To try Outrider without it: outrider run --agent simulated 'Hello'",
)


def _report(error: Exception, switches: Switches) -> None:
    """Write an error to stderr: in one line, or as a traceback with `--debug`."""
    from outrider.app._terminal import complain
    from outrider.errors import AgentNotFound, OutriderError

    if switches.is_debugging:
        sys.stderr.write(plain("".join(traceback.format_exception(error))))
    elif isinstance(error, AgentNotFound) and not error.message:
        where = "" if switches.is_verbose else " -v lists where it was searched for."
        for line in (f"error: Claude Code was not found.{where}", *_WITHOUT_AGENT):
            complain(line)
    elif isinstance(error, OutriderError | Failed | OSError):
        complain(f"error: {in_one_line(error, BY_OPTION)}")
    else:
        complain(f"error: {type(error).__name__}: {in_one_line(error, {})} (--debug shows where)")
    if switches.is_verbose and isinstance(error, AgentNotFound):
        for place in error.searched:
            complain(f"  {one_line(place)}")


def _guarded(function: Callable[..., int], switches: Switches) -> Callable[..., object]:
    """Add the common flags to a command, and turn every error into an exit code."""

    def command(*, debug: bool, verbose: bool, no_color: bool, **given: object) -> int:
        from outrider.app._terminal import guarded_streams

        switches.is_debugging |= debug
        switches.is_verbose |= debug or verbose
        switches.no_color |= no_color
        try:
            with guarded_streams(), _plain_output(switches):
                return function(switches, **given)
        except BrokenPipeError:
            return _pipe_closed()
        except KeyboardInterrupt:
            return Code.INTERRUPTED
        except Exception as error:  # noqa: BLE001 - every error is reported
            _drop_output()
            _report(error, switches)
            return code_of(error)

    own = [
        each
        for name, each in inspect.signature(function, eval_str=True).parameters.items()
        if name != "switches"
    ]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in (("debug", _Debug), ("verbose", _Verbose), ("no_color", _NoColor))
    ]
    return signed(command, function, [*own, *common])
