"""Owns a small HTTP server on this machine: a thread for each connection, and an end that leaves none.

Does not know what it serves.
"""

from __future__ import annotations

import selectors
import socket
import struct
import sys
import threading
import time
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from io import BufferedReader

__all__ = ["Ended", "Exchange", "Server"]

# Enough for a whole test run on one machine.
_BACKLOG = 64
# Some clients send nothing of a large body before they are told to.
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Ended(Exception):
    """The exchange cannot go on: the client has left, or the server closes."""


class _Bell:
    """Wakes a thread that waits for it, or for a socket."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair()
        self._outside.setblocking(False)

    def ring(self) -> None:
        try:
            self._outside.send(b"\0")
        except OSError:
            # Full, so it has rung; or closed, so nobody waits.
            pass

    def wait(self, other: socket.socket | None, timeout: float | None = None) -> bool:
        """Wait until it rings or the other can be read; says whether the latter is so."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._inside, selectors.EVENT_READ)
            if other is not None:
                selector.register(other, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(timeout)]
        if self._inside in ready:
            self._inside.recv(1024)
        return other in ready

    def close(self) -> None:
        self._inside.close()
        self._outside.close()


class Exchange:
    """One request, and the means to answer it."""

    def __init__(
        self, server: Server, connection: _Connection, method: str, path: str, headers: Mapping[str, str]
    ) -> None:
        self.method, self.path, self.headers = method, path, headers
        self.body = b""
        self._server, self._connection = server, connection

    def send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answer at once."""
        length = {"content-length": str(len(body))}
        # An answer to HEAD says how long it would be.
        self._write(_head(status, {**headers, **length}) + (b"" if self.method == "HEAD" else body))

    def start(self, headers: Mapping[str, str]) -> None:
        """Begin an answer in pieces."""
        self._write(_head(200, {**headers, "transfer-encoding": "chunked"}))

    def send_piece(self, piece: bytes) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def finish(self) -> None:
        self._write(b"0\r\n\r\n")

    def cut(self) -> None:
        """End the connection where it is, with no goodbye."""
        self._connection.reset()
        raise Ended

    def wake(self) -> None:
        """Have `wait` look again. Any thread may call it."""
        self._connection.bell.ring()

    def wait(self, is_over: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait until it is so, or the time is up. Raises `Ended` if the client or the server leaves."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not is_over():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            self._connection.wait(left)
            if self._server.is_closing:
                raise Ended

    def _write(self, data: bytes) -> None:
        try:
            self._connection.socket.sendall(data)
        except OSError:
            raise Ended from None


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    known = {entry.value: entry.phrase for entry in HTTPStatus}
    lines = [f"HTTP/1.1 {status} {known.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class _Connection:
    """A client's connection."""

    def __init__(self, client: socket.socket) -> None:
        self.socket = client
        self.bell = _Bell()
        self._is_watched = True
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def wait(self, timeout: float | None) -> None:
        """Wait for the bell. Raises `Ended` if the client leaves."""
        if self.bell.wait(self.socket if self._is_watched else None, timeout):
            try:
                has_left = not self.socket.recv(1, socket.MSG_PEEK)
            except OSError:
                has_left = True
            if has_left:
                raise Ended
            # It has sent its next request already, behind which its end cannot be seen.
            self._is_watched = False

    def reset(self) -> None:
        """Have the client see a reset, not an end, when it is closed."""
        linger = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def end(self) -> None:
        """Wake whoever reads from it or waits."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.bell.ring()

    def close(self) -> None:
        self.socket.close()
        self.bell.close()


class Server:
    """Calls `respond` for each request, in a thread of the connection's.

    What it raises, other than `Ended`, goes to `on_error`, and the connection ends.
    """

    def __init__(
        self, respond: Callable[[Exchange], object], on_error: Callable[[Exception], object]
    ) -> None:
        self.is_closing = False
        self._respond, self._on_error = respond, on_error
        # Touched by the accepting thread alone, and by `close` once that has ended.
        self._threads: dict[threading.Thread, _Connection] = {}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._bell = _Bell()
        # Daemons: a server that was forgotten does not keep a program from its end.
        self._thread = threading.Thread(target=self._accept, name=f"messages-api-{self.port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End every connection, and wait until all threads have."""
        self.is_closing = True
        self._bell.ring()
        self._thread.join()
        self._listener.close()
        self._bell.close()
        for connection in self._threads.values():
            connection.end()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self.is_closing:
            if not self._bell.wait(self._listener):
                continue
            try:
                client, _ = self._listener.accept()
            except OSError:
                # It left again.
                continue
            client.setblocking(True)
            connection = _Connection(client)
            thread = threading.Thread(
                target=self._serve, args=(connection,), name=f"{self._thread.name}-client", daemon=True
            )
            self._threads = {each: its for each, its in self._threads.items() if each.is_alive()}
            self._threads[thread] = connection
            thread.start()

    def _serve(self, connection: _Connection) -> None:
        try:
            with connection.socket.makefile("rb") as reader:
                while not self.is_closing and (exchange := self._read(connection, reader)):
                    self._respond(exchange)
                    if exchange.headers.get("connection", "").lower() == "close":
                        break
        except (Ended, OSError):
            pass
        except Exception as error:  # noqa: BLE001 - told to whoever runs the server
            self._on_error(error)
        finally:
            connection.close()

    def _read(self, connection: _Connection, reader: BufferedReader) -> Exchange | None:
        """The next request of a connection, if there is one."""
        words = reader.readline(65536).decode("latin-1").split()
        if not words:
            return None
        if len(words) != 3:
            raise HTTPException(f"the first line of a request is {' '.join(words)[:80]!r}")
        headers = {name.lower(): value for name, value in parse_headers(reader).items()}
        exchange = Exchange(self, connection, words[0], words[1].partition("?")[0], headers)
        if "transfer-encoding" in headers:
            exchange.send(411, {"connection": "close"}, b"")
            return None
        if headers.get("expect", "").lower() == "100-continue":
            connection.socket.sendall(_CONTINUE)
        exchange.body = reader.read(int(headers.get("content-length") or 0))
        return exchange
