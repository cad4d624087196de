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
from pathlib import Path
from threading import current_thread, main_thread
from typing import Annotated, Final, Literal, TypeAlias

import typer

from outrider._display import one_line, plain
from outrider._version import __version__
from outrider.app._flags import BY_OPTION, Switches, signed, with_flags
from outrider.app._fleet.commands import FLEET_COMMANDS
from outrider.app._sessions.commands import SESSION_COMMANDS
from outrider.options import OptionFields

AgentKind: TypeAlias = Literal["simulated", "real"]

# How flags and arguments are described; as types, because that is where typer looks.
_Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show tracebacks.", metavar="")]
_NoColor: TypeAlias = Annotated[bool, typer.Option("--no-color", help="Use no colours.", metavar="")]
_Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.", metavar="")]
_Recording: TypeAlias = Annotated[
    Path, typer.Argument(help="A trace, a cassette or a recording.", metavar="FILE", show_default=False)
]
_Program: TypeAlias = Annotated[
    str | None,
    typer.Option("--program", metavar="PATH", help="The agent's program.", show_default=False),
]
_Cwd: TypeAlias = Annotated[
    str | None,
    typer.Option("--cwd", "-C", metavar="FOLDER", help="The working folder.", show_default=False),
]


def carry_out(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line, and give its exit code."""
    from outrider.app._flags import Code, code_of, in_one_line
    from outrider.app._terminal import complain

    try:
        with _asked_to_end():
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
            text = one_line(error.format_message())
            complain(f"error: {text.rstrip('.')}. Try `{command} --help`.")
        return Code.USAGE
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


class _AskedToEnd(BaseException):
    """SIGTERM has come, or the terminal is gone."""


@contextmanager
def _asked_to_end() -> Generator[None]:
    """Have SIGTERM and SIGHUP end the agent and give the terminal back before they end us. A second one does
    not wait."""
    from outrider.app._flags import ENDING

    if current_thread() is not main_thread():
        yield
        return
    numbers = [number for number in ENDING if signal.getsignal(number) == signal.SIG_DFL]
    asked: list[int] = []

    def let_them() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)

    def end(number: int, _: object) -> None:
        let_them()
        asked.append(number)
        raise _AskedToEnd

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    except _AskedToEnd:
        pass
    finally:
        let_them()
        # Whatever else went wrong on the way: a terminal that is gone cannot be written to.
        for number in asked:
            signal.raise_signal(number)


def _leave_at_once() -> None:
    """End this process if an agent has not ended: Ctrl-C was pressed again, and the interpreter would wait.

    The agent is ended all the same: `outrider.transports` has somebody look after that.
    """
    from outrider.transports import live_processes

    if live_processes():
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def _pipe_closed() -> int:
    from outrider.app._flags import Code

    _drop_output()
    return Code.PIPE_CLOSED


def _drop_output() -> None:
    """Let go of what cannot be written: it would be tried again at the end of the interpreter."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


# The commands. Their docstrings are the help.


def demo(
    switches: Switches,
    agent: Annotated[
        AgentKind, typer.Option(help="The embedded agent, or the installed program.")
    ] = "simulated",
    speed: Annotated[
        float, typer.Option(min=0, help="2 is twice as fast, 0 without any pause.", metavar="FACTOR")
    ] = 1.0,
    program: _Program = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep a picture of it.", show_default=False)
    ] = None,
) -> int:
    """Show a live session, from the first word to the clean end. Needs no key."""
    from outrider.app._demo import show_demo

    return show_demo(agent, no_color=switches.no_color, speed=speed, program=program, svg=svg)


@with_flags
def run(
    switches: Switches,
    prompt: Annotated[
        str | None,
        typer.Argument(
            help="What to do; `-` or none: read from stdin. With both, what is piped is added.",
            metavar="PROMPT",
            show_default=False,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the agent's frames, one a line.", metavar="")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="SCHEMA", help="A JSON Schema that the answer must fit.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing but the answer.", metavar="")] = False,
    *,
    fields: OptionFields,
) -> int:
    """Run one prompt and print the answer."""
    from outrider.app._run import run_prompt

    return run_prompt(prompt, fields, no_color=switches.no_color, as_json=json, schema=output, is_quiet=quiet)


@with_flags
def chat(switches: Switches, *, fields: OptionFields) -> int:
    """Hold a conversation. Ctrl-C interrupts a turn, /help lists the commands."""
    from outrider.app._chat import hold_chat

    return hold_chat(fields, no_color=switches.no_color)


def doctor(switches: Switches, json: _Json = False, program: _Program = None, cwd: _Cwd = None) -> int:
    """Find what could keep an agent from working here, and say what to do about it."""
    from outrider.app._doctor import examine

    return examine(no_color=switches.no_color, as_json=json, program=program, cwd=cwd)


def replay(
    switches: Switches,
    file: _Recording,
    speed: Annotated[
        float,
        typer.Option(min=0, help="1 is as it was, 2 twice as fast, 0 without any pause.", metavar="FACTOR"),
    ] = 0.0,
) -> int:
    """Play a recorded session as a conversation."""
    from outrider.app._trace import replay_file

    return replay_file(file, no_color=switches.no_color, speed=speed)


def trace_show(
    switches: Switches,
    file: _Recording,
    partials: Annotated[
        bool, typer.Option("--partials", help="With the pieces of messages.", metavar="")
    ] = False,
) -> int:
    """Show every frame and its time, both ways."""
    from outrider.app._trace import show_trace

    return show_trace(file, no_color=switches.no_color, with_partials=partials)


def migrate(
    switches: Switches,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Files and folders.", show_default="this folder"),
    ] = None,
    write: Annotated[bool, typer.Option("--write", "-w", help="Make the changes.", metavar="")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if there is something to change.", metavar="")
    ] = False,
    json: _Json = False,
) -> int:
    """Show what changes for a program that used claude_agent_sdk, or make the changes."""
    from outrider.app._migrate import migrate

    return migrate(paths or [Path()], no_color=switches.no_color, write=write, check=check, as_json=json)


_COMMANDS: Final[dict[str, Callable[..., int]]] = {
    "demo": demo,
    "run": run,
    "chat": chat,
    "doctor": doctor,
    "replay": replay,
    "migrate": migrate,
}


def _app() -> typer.Typer:
    switches = Switches()
    app = typer.Typer(
        # Boxes are for terminals: in a log they are noise.
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        add_completion=False,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["--help", "-h"]},
        help="Drive an agent program (Claude Code). Start with `outrider demo`: it needs no key.",
    )

    @app.callback()
    def root(debug: _Debug = False, no_color: _NoColor = False, version: _Version = False) -> None:
        switches.is_debugging, switches.no_color = debug, no_color

    for name, function in _COMMANDS.items():
        app.command(name)(_guarded(function, switches))
    trace = typer.Typer(no_args_is_help=True, help="Look into a trace.")
    trace.command("show")(_guarded(trace_show, switches))
    # With a callback, the one command keeps its name.
    trace.callback()(lambda: None)
    app.add_typer(trace, name="trace")
    sessions = typer.Typer(no_args_is_help=True, help="List, read and change what is kept of conversations.")
    for name, function in SESSION_COMMANDS.items():
        sessions.command(name)(_guarded(function, switches))
    app.add_typer(sessions, name="sessions")
    fleet = typer.Typer(no_args_is_help=True, help="Run many tasks, go on with them, and report on them.")
    for name, function in FLEET_COMMANDS.items():
        fleet.command(name)(_guarded(function, switches))
    app.add_typer(fleet, name="fleet")
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
def _plain_words(is_debugging: bool) -> Generator[None]:
    """Logs and warnings are for programmers, but for what somebody at the command line should know."""
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
    handler = logging.StreamHandler() if is_debugging else logging.NullHandler()
    handler.setFormatter(OneLine())
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            if not is_debugging:
                warnings.showwarning = show
                # To allow something on the command line is to say that it need not be asked.
                warnings.simplefilter("ignore", PermissionShadowedWarning)
            yield
    finally:
        log.removeHandler(handler)


def _say(error: Exception, switches: Switches) -> None:
    """What is wrong, on stderr: in one line, or as a traceback if that is wanted."""
    from outrider.app._flags import Failed, in_one_line
    from outrider.app._terminal import complain
    from outrider.errors import OutriderError

    if switches.is_debugging:
        sys.stderr.write(plain("".join(traceback.format_exception(error))))
    elif isinstance(error, OutriderError | Failed | OSError):
        complain(f"error: {in_one_line(error, BY_OPTION)}")
    else:
        complain(f"error: {type(error).__name__}: {in_one_line(error, {})} (--debug shows where)")


def _guarded(function: Callable[..., int], switches: Switches) -> Callable[..., object]:
    """A command that takes the common flags, and ends with a code whatever happens."""

    def command(*, debug: bool, no_color: bool, **given: object) -> int:
        from outrider.app._flags import Code, code_of
        from outrider.app._terminal import guarded_streams

        switches.is_debugging |= debug
        switches.no_color |= no_color
        try:
            with guarded_streams(), _plain_words(switches.is_debugging):
                return function(switches, **given)
        except BrokenPipeError:
            return _pipe_closed()
        except KeyboardInterrupt:
            return Code.INTERRUPTED
        except Exception as error:  # noqa: BLE001 - whatever it is, it is said
            _drop_output()
            _say(error, switches)
            return code_of(error)

    own = [
        each
        for name, each in inspect.signature(function, eval_str=True).parameters.items()
        if name != "switches"
    ]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in (("debug", _Debug), ("no_color", _NoColor))
    ]
    return signed(command, function, [*own, *common])
