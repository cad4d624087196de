"""The child's stderr: always drained, the last lines kept, each line given to the user's callback.

Does not read by itself: the supervisor does, and hands over what it has read.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final

from outrider.redaction import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.redaction import Redaction

log = logging.getLogger("outrider.process")

KEPT_LINES: Final = 100
_KEPT_LENGTH: Final = 65536
"""So many characters are kept of a line, and of all lines together: an error made of them is looked through
for secrets on the event loop. The callback gets all of them."""

_LONGEST: Final = 16 * 1024 * 1024
"""Bytes after which a line counts as ended even without a line end, so that memory stays bounded."""
_WAITING_LIMIT: Final = 64 * 1024 * 1024
"""So many characters wait for a callback that is slow; more are left out, so that memory stays bounded."""


class StderrLog:
    """Cuts what comes into lines, right-stripped, blank ones left out."""

    def __init__(
        self,
        callback: Callable[[str], object] | None = None,
        redaction: Callable[[], Redaction] | None = None,
    ) -> None:
        """`redaction` gives what is hidden in what is kept and logged; it is asked when that is shown."""
        self._redaction = redaction
        self._callback = Callback(callback) if callback is not None else None
        self._pieces: list[bytes] = []
        self._held = 0
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._count = self._length = 0

    @property
    def tail(self) -> str:
        """The last lines; the first one says so if there were more."""
        lines = list(self._lines)
        if not lines:
            return ""
        hidden = self._hidden().mask_values("\n".join(lines))
        if self._count > len(lines):
            return f"[stderr truncated, showing last {len(lines)} lines]\n{hidden}"
        return hidden

    def feed(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        self._hold(first)
        for line in others:
            self._end_line()
            self._hold(line)

    def finish(self, wake: Callable[[], object]) -> None:
        """Nothing more will come. `wake` is called when the callback has got all lines, in its thread."""
        self._end_line()
        if self._callback is not None:
            self._callback.finish(wake)

    @property
    def is_finished(self) -> bool:
        """Whether the callback has got all lines."""
        return self._callback is None or self._callback.is_finished

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._held += len(piece)
            if self._held > _LONGEST:
                self._end_line()

    def _end_line(self) -> None:
        # What is no UTF-8 is shown by its numbers: it may be the very thing that one is looking for.
        line = b"".join(self._pieces).decode("utf-8", "backslashreplace").rstrip()
        self._pieces, self._held = [], 0
        if not line:
            return
        self._count += 1
        self._keep(line if len(line) <= _KEPT_LENGTH else line[:_KEPT_LENGTH] + "…")
        if log.isEnabledFor(logging.DEBUG):
            log.debug("stderr: %s", self._hidden().preview(line, _KEPT_LENGTH))
        if self._callback is not None:
            self._callback.put(line)

    def _keep(self, line: str) -> None:
        if len(self._lines) == KEPT_LINES:
            self._length -= len(self._lines.popleft())
        self._lines.append(line)
        self._length += len(line)
        while self._length > _KEPT_LENGTH and len(self._lines) > 1:
            self._length -= len(self._lines.popleft())

    def _hidden(self) -> Redaction:
        return DEFAULT if self._redaction is None else self._redaction()


class Callback:
    """Calls the user's function for each line, in a thread of its own: it may be slow.

    Holds it weakly: it often is a method of what holds the transport, which could never be garbage collected
    then.
    """

    def __init__(self, function: Callable[[str], object]) -> None:
        self._function = _weakly(function)
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._wake: Callable[[], object] = _do_nothing
        self.is_finished = False
        # Each is changed by one thread only.
        self._given = self._taken = self._left_out = 0

    def put(self, line: str) -> None:
        if self._given - self._taken > _WAITING_LIMIT:
            self._left_out += 1
            return
        self._given += len(line)
        self._lines.put(line)
        if self._thread is None:
            thread = Thread(target=self._run, name="outrider-stderr", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending: no new threads; `finish` calls it
                return
            self._thread = thread

    def finish(self, wake: Callable[[], object]) -> None:
        if self._left_out:
            log.warning("%d lines were not given to the stderr callback: it is too slow", self._left_out)
        self._wake = wake
        self._lines.put(None)
        if self._thread is None:
            self._run()

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            self._taken += len(line)
            function = self._function()
            if function is None:
                continue
            try:
                function(line)
            except BaseException:  # an exit that is meant for another thread, too
                log.exception("the stderr callback failed for a line; it will be called for the next one")
            del function
        self.is_finished = True
        self._wake()
        # A traceback of the function's may hold on to this object, and must not hold on to more.
        self._wake = _do_nothing


def _do_nothing() -> None: ...


def _weakly(function: Callable[[str], object]) -> Callable[[], Callable[[str], object] | None]:
    try:
        return weakref.ref(function)
    except TypeError:  # there are objects without weak references
        return lambda: function
