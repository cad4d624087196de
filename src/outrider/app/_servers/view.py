"""Implements `outrider view`: serves the viewer, and opens it in a browser.

The pages are `outrider.view`'s.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider._display import one_line
from outrider.app._flags import Code, Failed
from outrider.app._terminal import Terminal, complain
from outrider.errors import OptionsError

if TYPE_CHECKING:
    from outrider.view import View, Viewable

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
    _serve(made, listening)
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


def _serve(made: View, listening: socket.socket) -> None:
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
