"""A proxy before a server of the tests, which cuts connections after so many bytes of one direction."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Self

__all__ = ["Proxy"]


class Proxy:
    """Lets all through until it is told to cut; then one connection is, and all others go on."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._host, self._port = host, port
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._left: dict[str, int] = {}
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self.cuts = 0

    def cut_after(self, count: int, *, of: str) -> None:
        """Cut when so many bytes more `of` "requests" or "replies" have gone through."""
        with self._lock:
            self._left = {of: count}

    def cut_all(self) -> None:
        """Cut all connections that there are."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            self._cut(pair)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        for thread in self._threads:
            thread.join(10)

    def _start(self, call: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=call, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((self._host, self._port), 10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            pair = client, server
            with self._lock:
                self._pairs.append(pair)
            self._start(self._pump, client, server, "requests", pair)
            self._start(self._pump, server, client, "replies", pair)

    def _pump(
        self, source: socket.socket, target: socket.socket, of: str, pair: tuple[socket.socket, socket.socket]
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                with self._lock:
                    left = self._left.get(of)
                    if left is not None:
                        self._left[of] = left - len(data)
                    is_cut = left is not None and len(data) > left
                    if is_cut:
                        self._left = {}
                        self.cuts += 1
                if is_cut:
                    target.sendall(data[:left])
                    break
                target.sendall(data)
        self._cut(pair)

    @staticmethod
    def _cut(pair: tuple[socket.socket, socket.socket]) -> None:
        for one in pair:
            with suppress(OSError):
                # Reset, not closed in good order.
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            with closing(one):
                pass
