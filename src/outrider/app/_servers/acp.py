"""Implements `outrider acp`: an agent for editors, over stdin and stdout."""

from __future__ import annotations

import inspect
import sys
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio

from outrider.app._flags import ENDING, Code, Failed
from outrider.app._terminal import complain
from outrider.handlers import call
from outrider.options import Options

if TYPE_CHECKING:
    import signal
    from collections.abc import Awaitable, Callable

    from anyio.abc import ByteStream

    from outrider.acp import Source
    from outrider.options import OptionFields
    from outrider.testing import Simulator

_SPELLED: Final = "Give a module and a name in it: --module my_agent:options."


def serve_editor(module: str | None, fields: OptionFields, *, editor_tools: bool) -> int:
    """Serve until the editor leaves, or a signal ends it; gives the exit code."""
    if find_spec("acp") is None:
        text = "Editors need a package that is not installed. Run: pip install 'outrider[acp]'"
        raise Failed(text, Code.USAGE)
    from outrider.acp._rpc import stdio

    if sys.stdin.isatty():
        complain("This waits for an editor, which starts it and speaks to it over stdin. Ctrl-C leaves.")
    simulated = fields.pop("transport", None)
    # A simulated agent is one run, and there is one for each session.
    standing_in = nullcontext() if simulated is None else cast("Simulator", simulated).stand_in()
    # Before the module is loaded: it may print.
    with standing_in, stdio() as stream:
        source = Options(**fields) if module is None else _with_flags(load_options(module), fields)
        ended_by = anyio.run(partial(_serve, source, stream, editor_tools=editor_tools))
    return Code.OK if ended_by is None else 128 + ended_by


async def _serve(source: Source, stream: ByteStream, *, editor_tools: bool) -> signal.Signals | None:
    from outrider.acp import serve

    received: signal.Signals | None = None

    async def end_by_signal(scope: anyio.CancelScope) -> None:
        nonlocal received
        with anyio.open_signal_receiver(*ENDING) as signals:
            async for number in signals:
                received = number
                scope.cancel()
                return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end_by_signal, tasks.cancel_scope)
        await serve(source, editor_tools=editor_tools, stream=stream)
        tasks.cancel_scope.cancel()
    return received


def load_options(spec: str) -> Source:
    """The options that a module has, or its function for them. Raises `Failed` if there are none."""
    name, colon, attribute = spec.partition(":")
    if not colon or not name or not attribute:
        raise Failed(f"--module is {spec!r}. {_SPELLED}", Code.USAGE)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise Failed(
            f"--module: there is no module {error.name!r} in {here} or on sys.path.", Code.USAGE
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Failed(f"--module: {name} has no {attribute!r}. {_SPELLED}", Code.USAGE)
        found = getattr(found, part)
    if not isinstance(found, Options) and (not callable(found) or isinstance(found, type)):
        what = f"a {type(found).__name__}" if not isinstance(found, type) else "a class"
        text = (
            f"--module: {spec} is {what}, and has to be an outrider.Options, or a function that returns one."
        )
        raise Failed(text, Code.USAGE)
    return cast("Source", found)


def _with_flags(source: Source, fields: OptionFields) -> Source:
    """The same options, with those that flags set."""
    if not fields or isinstance(source, Options):
        return source.replace(**fields) if isinstance(source, Options) else source
    function = cast("Callable[..., Options | Awaitable[Options]]", source)
    takes_folder = bool(inspect.signature(function).parameters)

    async def changed(cwd: str) -> Options:
        options = await call(function, *([cwd] if takes_folder else []))
        # Of any other value, `serve` says what is wrong.
        return options.replace(**fields) if isinstance(options, Options) else cast("Options", options)

    return changed
