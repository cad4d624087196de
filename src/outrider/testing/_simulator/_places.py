"""Owns the folders of a simulated agent: where it works, where it keeps sessions, where its files are.

Does not decide what is in them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from pathlib import Path

__all__ = ["Places"]


class Places:
    """The folders of one agent, or of several that share them. Those that were not given are temporary."""

    def __init__(
        self, folder: str | os.PathLike[str] | None, config_dir: str | os.PathLike[str] | None
    ) -> None:
        self._given = None if folder is None else Path(folder).absolute()
        self._given_config = None if config_dir is None else Path(config_dir).absolute()
        self._root: Path | None = None
        self._users = 0
        self._lock = threading.Lock()

    @property
    def folder(self) -> Path:
        if self._given is None:
            return self._made("project")
        self._given.mkdir(parents=True, exist_ok=True)
        return self._given

    @property
    def config_dir(self) -> Path:
        return self._made("config") if self._given_config is None else self._given_config

    def make_private(self) -> Path:
        """A folder for one agent alone, which removes it itself."""
        return Path(tempfile.mkdtemp(prefix="outrider-simulator-"))

    def enter(self) -> None:
        """Keep them until as many times `leave` was called."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users > 0 or self._root is None:
                return
            root, self._root = self._root, None
        shutil.rmtree(root, ignore_errors=True)

    def _made(self, name: str) -> Path:
        with self._lock:
            if self._root is None:
                # As the agent will say it: on some systems the folder for temporary files is a link.
                self._root = Path(tempfile.mkdtemp(prefix="outrider-simulator-")).resolve()
                weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
            path = self._root / name
            path.mkdir(exist_ok=True)
        return path
