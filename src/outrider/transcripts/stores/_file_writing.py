"""Owns how files of a store are written so that they outlive a loss of power, and how writers take turns.

Does not know what is in them.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from outrider.transcripts.stores._threads import go_on

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["locked", "make_folder", "opened", "sync_folder", "write_all", "write_whole"]

_LONGEST_PAUSE: Final = 0.02


@contextmanager
def opened(path: Path, flags: int) -> Generator[int]:
    number = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield number
    finally:
        os.close(number)


@contextmanager
def locked(path: Path, *, shared: bool, wait: float) -> Generator[None]:
    """Hold a lock, among all threads and processes. Raises `TimeoutError` if others hold it for so long."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    end, pause = time.monotonic() + wait, 0.0005
    with opened(path, os.O_RDWR | os.O_CREAT) as number:
        while True:
            try:
                fcntl.flock(number, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError("other writers did not finish in time") from None
            # `flock` itself would wait without end.
            time.sleep(pause)
            go_on()
            pause = min(pause * 2, _LONGEST_PAUSE)
        try:
            yield
        finally:
            # A process that was forked off meanwhile has the file too, and closing it here would not do.
            fcntl.flock(number, fcntl.LOCK_UN)


def write_all(number: int, data: bytes, offset: int) -> None:
    """Write to a file, and see that it is on the disk."""
    left = memoryview(data)
    while left:
        written = os.pwrite(number, left, offset)
        left, offset = left[written:], offset + written
    os.fsync(number)


def write_whole(path: Path, data: bytes, *, sync: bool) -> None:
    """Replace a file: others see the old one or the new one."""
    new = path.with_name(f".{uuid4().hex}.tmp")
    try:
        with opened(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as number:
            if sync:
                write_all(number, data, 0)
            else:
                os.write(number, data)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder that only its owner can read, unless it is there; its parent has to be."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        return
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """See that the names in a folder are on the disk."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as number:
        os.fsync(number)
