"""Implements what serves: `outrider acp` an agent for editors, `outrider view` pages for a browser."""

from __future__ import annotations

import inspect
import os
import socket
import sys
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio

from outrider._display import one_line
from outrider.app._flags import ENDING, Code, Failed
from outrider.app._terminal import Terminal, complain
from outrider.errors import OptionsError
from outrider.handlers import call
from outrider.options import Options

if TYPE_CHECKING:
    import signal
    from collections.abc import Awaitable, Callable

    from anyio.abc import ByteStream

    from outrider.acp import Source
    from outrider.options import OptionFields
    from outrider.testing import Simulator
    from outrider.view import View, Viewable

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
        ended_by = anyio.run(partial(_serve_stream, source, stream, editor_tools=editor_tools))
    return Code.OK if ended_by is None else 128 + ended_by


async def _serve_stream(source: Source, stream: ByteStream, *, editor_tools: bool) -> signal.Signals | None:
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


PASSWORD: Final = "OUTRIDER_VIEW_PASSWORD"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_PORT: Final = 8450
_TRIES: Final = 20


def view(
    what: str | None,
    *,
    store: str | None,
    approvals: str | None,
    host: str,
    port: int | None,
    opens: bool,
    approve: bool,
) -> int:
    """Serve until Ctrl-C; gives the exit code."""
    password = _password(host)
    made = _viewer(what, store, approvals, host, password, approve=approve)
    listening = _bound(host, port)
    number = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else "localhost" if host in ("0.0.0.0", "::") else host
    address = f"http://{name}:{number}/"
    if password is None:
        address += f"?token={made.token}"
    Terminal().write(f"{address}\n")
    if opens:
        _open(address)
    _serve_pages(made, listening)
    return Code.OK


def _viewer(
    what: str | None,
    store: str | None,
    approvals: str | None,
    host: str,
    password: str | None,
    *,
    approve: bool,
) -> View:
    from outrider.app._sessions.sessions import check_is_there
    from outrider.fleet import Journal
    from outrider.transcripts import Sessions

    try:
        import_module("uvicorn")
        from outrider.approvals import Approvals
        from outrider.transcripts._export.formats import is_installed
        from outrider.view import app
        from outrider.view._sources.batch import is_batch
    except ImportError as error:
        raise Failed(
            f"The viewer needs {error.name}, which is not installed. Run: pip install 'outrider[view]'.",
            Code.USAGE,
        ) from error
    if not is_installed():
        raise Failed(
            "The viewer needs packages that are not installed. Run: pip install 'outrider[view]'.", Code.USAGE
        )
    things: list[Viewable] = []
    if what is not None:
        if is_batch(what):
            # Raises what is wrong with it before anything is served.
            with Journal(what):
                pass
        elif "://" in what:
            _check_store(what)
        elif Path(what).is_dir() and what and not Path(what, "projects").is_dir():
            _check_store(f"file://{Path(what).absolute()}")
        things.append(_session(what) or what)
    if store is not None and (what is None or _is_journal(what)):
        _check_store(store)
        things.append(Sessions(store))
    if approvals is not None:
        check_is_there(approvals)
        things.append(Approvals(approvals))
    elif approve and what is None and store is None:
        raise Failed("Say where approvals are kept: --approvals URL, or set OUTRIDER_APPROVALS.", Code.USAGE)
    hosts = (*_LOOPBACK, host, "*", socket.gethostname()) if password is not None else _LOOPBACK
    return app(*things, approve=approve, password=password, hosts=hosts)


def _check_store(store: str) -> None:
    """Raise what is wrong with a store before anything is served."""
    from outrider.app._sessions.sessions import check_is_there
    from outrider.sync import Sessions

    check_is_there(store)
    with Sessions(store) as sessions:
        sessions.list(limit=1)


def _is_journal(what: str) -> bool:
    from outrider.view._sources.batch import Batch, is_batch

    return is_batch(what) or (Path(what).is_file() and Batch.is_journal(Path(what)))


def _session(what: str) -> Path | None:
    """The file of the session of this machine with this id, or the beginning of one."""
    from outrider.sync import Sessions
    from outrider.transcripts import StoredSession

    if "/" in what or "." in what or ":" in what or Path(what).exists() or not what.strip():
        return None
    with Sessions() as sessions:
        found: list[StoredSession] = [
            info for info in sessions.list(archived=None) if info.id.startswith(what.lower())
        ]
    if len(found) > 1:
        raise Failed(f"{len(found)} sessions have an ID that begins with {what!r}.", Code.USAGE)
    return found[0].path if found else None


def _password(host: str) -> str | None:
    """The password, which a server needs that others can reach. Never a flag: others can read those."""
    password = os.environ.get(PASSWORD) or None
    if host in _LOOPBACK or password is not None:
        return password
    if not sys.stdin.isatty():
        raise Failed(f"--host {one_line(host)} lets others in: set {PASSWORD} to a password.", Code.USAGE)
    import getpass

    return getpass.getpass("Password for visitors: ") or _no_password()


def _no_password() -> str:
    raise OptionsError("There is no password", hint=f"Set {PASSWORD}, or leave out --host.")


def _bound(host: str, port: int | None) -> socket.socket:
    """A socket that listens: on this port, or on the first that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wanted = [port] if port is not None else [*range(_PORT, _PORT + _TRIES), 0]
    problem: OSError | None = None
    for number in wanted:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
            listening.listen()
        except OSError as error:
            listening.close()
            problem = error
        else:
            return listening
    said = problem.strerror if problem is not None else "no port is free"
    raise Failed(f"Cannot listen on {one_line(host)}:{wanted[0]}: {said}.", Code.USAGE)


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        complain("No browser was found. Open the address in one yourself.")


def _serve_pages(made: View, listening: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(
        made,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        lifespan="on",
    )

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            made.hang_up()
            await super().shutdown(sockets)

    try:
        Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()
