"""The stores that need no server, and children that use them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from outrider.transcripts import FileStore, SessionKey, SessionStoreEntry, SqliteStore

__all__ = ["CHILD", "KEY", "LOCAL", "Local", "Make", "noted", "numbered", "start"]

CHILD = Path(__file__).parent / "child.py"
KEY: SessionKey = {"project_key": "p", "session_id": "s"}

Local = FileStore | SqliteStore


def _make_file(folder: Path, **options: Any) -> Local:
    return FileStore(folder / "store", **options)


def _make_sqlite(folder: Path, **options: Any) -> Local:
    return SqliteStore(folder / "store.db", **options)


LOCAL = pytest.mark.parametrize("make", [_make_file, _make_sqlite], ids=["file", "sqlite"])
"""Makes an object on the same data for the same folder."""


def numbered(start: int, count: int) -> list[SessionStoreEntry]:
    """Entries without a uuid: nothing but the batch keeps them from being there twice."""
    return cast(
        "list[SessionStoreEntry]",
        [{"type": "x", "number": number, "pad": "x" * 500} for number in range(start, start + count)],
    )


def start(store: Local, *words: str | int) -> subprocess.Popen[str]:
    """A child that uses the store."""
    place = f"sqlite:///{store.path}" if isinstance(store, SqliteStore) else store.name
    return subprocess.Popen(
        [sys.executable, str(CHILD), place, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def noted(store: Any, method: str) -> tuple[threading.Event, threading.Event]:
    """Set when the method begins, and when it ends."""
    begun, ended, call = threading.Event(), threading.Event(), getattr(store, method)

    def wrapped(*given: Any) -> Any:
        begun.set()
        try:
            return call(*given)
        finally:
            ended.set()

    setattr(store, method, wrapped)
    return begun, ended


Make = Callable[..., Local]
