"""The folders that tasks work in: a copy of another, a worktree of a repository, or an empty one.

Nearly everything here blocks: `in_thread` calls it.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar, TypeVarTuple, cast, get_args

import anyio
import msgspec
from anyio.lowlevel import RunVar

from outrider._folders import copy_folder, remove_folder
from outrider._git import Repository, find_repository
from outrider._threads import run_sync
from outrider.fleet._errors import WorkspaceFailed
from outrider.options._validators import choice, invalid_value, is_mapping, listed, path_text, text
from outrider.redaction import preview

if TYPE_CHECKING:
    from outrider.fleet._task import Status


log = logging.getLogger("outrider.fleet")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Keep: TypeAlias = Literal["never", "failed", "always"]

_LONGEST_NAME: Final = 80
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_PARTIAL: Final = ".partial"
"""Ends the name of a folder that is being made: one that lacks nothing has its own name."""
_TEMPORARY: Final = "outrider-fleet-"
_KEPT: Final = stat.S_ISVTX
"""The mode of a temporary place with folders that are kept: nothing else needs this bit in it."""
_YOUNG: Final = 60.0
_LEAVING: Final = ".leaving"
"""Ends the name of a folder that is being removed."""


class Workspace(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """A folder for one task alone, made before the task begins.

    `keep`: whether it stays when the task has ended: never, only if it is not done, or always.
    """

    keep: Keep = "never"

    def __post_init__(self) -> None:
        choice(*get_args(Keep))(f"`{type(self).__name__}.keep`", self.keep)

    def make(self, id: str, root: Path) -> Path:
        """Make the folder of this task below `root`, again if it is there. Raises `WorkspaceFailed`."""
        path = root / folder_name(id)
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.remove(path)
            remove_folder(_making(path))
            self._fill(path)
        except WorkspaceFailed:
            raise
        except Exception as error:  # whatever it is, it is about this folder alone
            with suppress(Exception):
                remove_folder(_making(path))
                self._forget(path)
            raise WorkspaceFailed(path, _reason(error)) from error
        return path

    def remove(self, path: Path) -> None:
        """Remove the folder, if it is there. Raises `WorkspaceFailed`."""
        leaving = path.with_name(path.name + _LEAVING)
        try:
            # A folder that is half gone must not be taken for one to work in.
            remove_folder(leaving)
            with suppress(FileNotFoundError):
                path.rename(leaving)
            remove_folder(leaving)
            self._forget(path)
        except Exception as error:  # as above
            raise WorkspaceFailed(path, _reason(error)) from error

    def is_kept(self, status: Status) -> bool:
        """Whether it stays after a task that ended like this."""
        # What waits is gone on with, in the same folder.
        return self.keep == "always" or status == "waiting" or (self.keep == "failed" and status != "done")

    @property
    def repository(self) -> str | None:
        """The repository that is written to when the folder is made or removed."""
        return None

    def _fill(self, path: Path) -> None:
        raise NotImplementedError

    def _forget(self, path: Path) -> None:
        """Remove the traces of a folder in other places."""


class Empty(Workspace, frozen=True, kw_only=True, tag="empty"):
    """An empty folder."""

    def _fill(self, path: Path) -> None:
        path.mkdir()


class Copy(Workspace, frozen=True, tag="copy"):
    """A copy of the folder `source`. `ignore` has patterns of names to leave out, as in `*.pyc`. Sockets,
    pipes and devices are left out, too, and so are the folders of tasks, if they are in it."""

    source: str
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, "source", path_text("`Copy.source`", self.source))
        _set(self, "ignore", listed(text)("`Copy.ignore`", self.ignore))

    def _fill(self, path: Path) -> None:
        making = _making(path)
        # A copy that has itself in it would never end.
        copy_folder(self.source, making, is_left_out=self._is_left_out, without=[path.parent])
        making.rename(path)

    def _is_left_out(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self.ignore)


class Worktree(Workspace, frozen=True, tag="worktree"):
    """A worktree of the repository `repo` at `ref`, on no branch. What is committed in it stays in the
    repository as long as git keeps what no branch leads to; make a branch there to keep it permanently."""

    repo: str
    ref: str = "HEAD"

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, "repo", path_text("`Worktree.repo`", self.repo))
        if text("`Worktree.ref`", self.ref).startswith("-"):
            raise invalid_value("`Worktree.ref`", "a commit, a branch or a tag", self.ref)

    @property
    def repository(self) -> str | None:
        return os.path.realpath(self.repo)

    def _fill(self, path: Path) -> None:
        repository = self._repository()
        if repository is None:
            raise FileNotFoundError(errno.ENOENT, "This is not a git repository", self.repo)
        place, making = _real(path), _making(path)
        repository.add_worktree(place, making, self.ref)
        making.rename(path)
        repository.unlock_worktree(place)

    def _forget(self, path: Path) -> None:
        repository = self._repository()
        if repository is not None:
            repository.forget_worktree(_real(path))

    def _repository(self) -> Repository | None:
        return find_repository(self.repo)


_KINDS: Final[Mapping[str, type[Workspace]]] = {"copy": Copy, "empty": Empty, "worktree": Worktree}


def read_workspace(place: str, value: object) -> Workspace | None:
    """A workspace as it is given: one of these, `"empty"`, or a mapping with its `kind`. Raises
    `OptionsError`."""
    if value is None or isinstance(value, Workspace):
        return value
    plain = {"kind": value} if isinstance(value, str) else value
    if not is_mapping(plain):
        raise invalid_value(place, "a `Copy`, `Worktree` or `Empty`, or a mapping with a `kind`", value)
    kind = _KINDS[cast(str, choice(*_KINDS)(f"the kind of {place}", plain.get("kind")))]
    fields = {str(name): item for name, item in plain.items() if name != "kind"}
    for name in fields:
        choice(*kind.__struct_fields__)(f"a field of {place}", name)
    try:
        return cast("Callable[..., Workspace]", kind)(**fields)
    except TypeError as error:
        raise invalid_value(place, f"a whole {kind.__name__}", value, f"{error}.") from None


def folder_name(id: str) -> str:
    """The name of a task's folder: its id, where that can be a name."""
    name = _UNSAFE.sub("-", id)[:_LONGEST_NAME].strip(".-")
    if name and name == id and not name.endswith((_PARTIAL, _LEAVING)):
        return name
    return f"{name or 'task'}-{hashlib.sha256(id.encode()).hexdigest()[:8]}"


_THREADS: Final = 8
"""How many folders are made or removed at once in one event loop."""

_limiter: RunVar[anyio.CapacityLimiter] = RunVar("outrider workspaces")
_locks: RunVar[dict[str, anyio.Lock]] = RunVar("outrider repositories")


async def in_thread(kind: Workspace, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Call what makes or removes a folder, in one of a few threads for that alone: it may take long, and
    agents need threads to start. Those of one repository come one after the other."""
    if (limiter := _limiter.get(None)) is None:
        _limiter.set(limiter := anyio.CapacityLimiter(_THREADS))
    if kind.repository is None:
        return await run_sync(function, *arguments, limiter=limiter)
    if (locks := _locks.get(None)) is None:
        _locks.set(locks := {})
    # Before a thread is taken, which others need.
    async with locks.setdefault(kind.repository, anyio.Lock()):
        return await run_sync(function, *arguments, limiter=limiter)


def has_folder(path: Path) -> bool:
    """Whether a task has its folder. A link in its place leads to another one."""
    return path.is_dir() and not path.is_symlink()


def working_folder(folder: Path, cwd: str) -> Path:
    """The part of a task's folder that it works in. Raises `WorkspaceFailed` if a link leads out of it."""
    place = folder / cwd
    try:
        top, real = (Path(os.path.realpath(each)) for each in (folder, place))
    except (OSError, ValueError) as error:
        raise WorkspaceFailed(folder, _reason(error)) from error
    if top != real and top not in real.parents:
        raise WorkspaceFailed(folder, f"`cwd` is {preview(cwd)!r}, which leads out of it, to {real}")
    return place


def discard(kind: Workspace, folder: Path) -> bool:
    """Remove the folder of a task. What is in the way is logged; returns whether it is gone."""
    try:
        kind.remove(folder)
    except WorkspaceFailed:
        log.warning("the folder of a task could not be removed: %s", folder, exc_info=True)
        return False
    return True


def make_root() -> tuple[Path, int | None]:
    """A temporary place for folders, and its lock. Those of processes that were killed are removed."""
    sweep_abandoned(Path(tempfile.gettempdir()))
    root = Path(tempfile.mkdtemp(prefix=_TEMPORARY))
    return root, _lock(root)


def sweep_abandoned(place: Path) -> None:
    """Remove what processes that were killed have left in a temporary place."""
    for path in place.glob(f"{_TEMPORARY}*"):
        with suppress(OSError):
            found = path.lstat()
            is_mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            # One that was just made may not have its lock yet.
            if not is_mine or time.time() - found.st_mtime < _YOUNG or found.st_mode & _KEPT:
                continue
            lock = _lock(path)
            if lock is not None:
                try:
                    log.info("what a run that was killed has left is removed: %s", path)
                    remove_folder(path)
                finally:
                    os.close(lock)


def mark_kept(root: Path) -> None:
    """A folder in this place is kept: it is not swept."""
    if root.name.startswith(_TEMPORARY):
        with suppress(OSError):
            root.chmod(0o700 | _KEPT)


def _lock(folder: Path) -> int | None:
    """Lock a folder as long as this process lives; None if another has it."""
    # Only where sessions run: Windows has none.
    import fcntl

    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(number)
        return None
    return number


def sweep(root: Path) -> None:
    """Remove what is left of folders that were being made or removed when their process was ended.

    What is in the way is logged: no one works in it.
    """
    try:
        left = [path for path in root.iterdir() if path.name.endswith((_PARTIAL, _LEAVING))]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        log.warning("the folders of tasks could not be listed: %s", root, exc_info=True)
        return
    for path in left:
        try:
            remove_folder(path)
        except Exception:
            log.warning("what is left of a folder could not be removed: %s", path, exc_info=True)


def _making(path: Path) -> Path:
    """What a folder is called until it lacks nothing."""
    return path.with_name(path.name + _PARTIAL)


def _real(path: Path) -> Path:
    """The real path of a folder; only the folder itself may be a link."""
    return Path(os.path.realpath(path.parent), path.name)


def _set(workspace: Workspace, name: str, value: object) -> None:
    msgspec.structs.force_setattr(workspace, name, value)


def _reason(error: BaseException) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return preview(os.fsdecode(cast("bytes", error.stderr or b"")).strip() or str(error))
    return preview(str(error) or repr(error))
