"""Owns the folders that tasks work in: a copy of another, a worktree of a repository, or an empty one.

Does not know when a task begins or ends. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

import msgspec

from bridle.fleet._errors import WorkspaceFailed
from bridle.options._readers import choice, fault, is_mapping, listed, path_text, text
from bridle.redaction import preview

if TYPE_CHECKING:
    from bridle.fleet._outcome import Status

__all__ = ["Copy", "Empty", "Keep", "Workspace", "Worktree"]
__all__ += ["discard", "folder_name", "read_workspace", "sweep"]

log = logging.getLogger("bridle.fleet")

Keep: TypeAlias = Literal["never", "failed", "always"]

_LONGEST_NAME: Final = 80
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_PARTIAL: Final = ".partial"
"""Ends the name of a folder that is being made: one that lacks nothing has its own name."""
_LEAVING: Final = ".leaving"
"""Ends the name of a folder that is being removed."""
_GIT_SECONDS: Final = 600.0
"""For a checkout of a large repository on a slow disk."""

_one_at_a_time = Lock()
"""git locks its list of worktrees only for parts of what it does to it."""


class Workspace(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """A folder for a task alone, made before it begins.

    `keep`: whether it stays when the task has ended: never, only if it is not done, or always.
    """

    keep: Keep = "never"

    def __post_init__(self) -> None:
        choice(*get_args(Keep))(f"`{type(self).__name__}.keep`", self.keep)

    def make(self, id: str, root: Path) -> Path:
        """Make the folder of this task below `root`, anew if it is there. Raises `WorkspaceFailed`."""
        path = root / folder_name(id)
        try:
            root.mkdir(parents=True, exist_ok=True)
            for left in (path, path.with_name(path.name + _PARTIAL)):
                if os.path.lexists(left):
                    self.remove(left)
            self._fill(path)
        except (OSError, shutil.Error, subprocess.SubprocessError) as error:
            with suppress(OSError):
                _remove_all(path.with_name(path.name + _PARTIAL))
            raise WorkspaceFailed(path, _reason(error)) from error
        return path

    def remove(self, path: Path) -> None:
        """Remove the folder, if it is there. Raises `WorkspaceFailed`."""
        leaving = path.with_name(path.name + _LEAVING)
        try:
            # A folder that is half gone must not be taken for one to work in.
            _remove_all(leaving)
            if os.path.lexists(path):
                path.rename(leaving)
                _remove_all(leaving)
        except OSError as error:
            raise WorkspaceFailed(path, _reason(error)) from error

    def is_kept(self, status: Status) -> bool:
        """Whether it stays after a task that ended like this."""
        return self.keep == "always" or (self.keep == "failed" and status != "done")

    def _fill(self, path: Path) -> None:
        raise NotImplementedError


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
        source, root = Path(self.source).resolve(), path.parent.resolve()
        making = root / (path.name + _PARTIAL)
        matching = shutil.ignore_patterns(*self.ignore)

        def left_out(folder: str, names: list[str]) -> set[str]:
            places = ((name, Path(folder, name)) for name in names)
            # A copy that has itself in it would never end.
            special = {name for name, each in places if each in (root, making) or not _can_be_copied(each)}
            return special | matching(folder, names)

        shutil.copytree(source, making, symlinks=True, ignore=left_out)
        making.rename(path)


class Worktree(Workspace, frozen=True, tag="worktree"):
    """A worktree of the repository `repo` at `ref`, on no branch. What is committed in it stays in the
    repository as long as git keeps what no branch leads to; make a branch there to keep it for good."""

    repo: str
    ref: str = "HEAD"

    def __post_init__(self) -> None:
        super().__post_init__()
        _set(self, "repo", path_text("`Worktree.repo`", self.repo))
        if text("`Worktree.ref`", self.ref).startswith("-"):
            raise fault("`Worktree.ref`", "a commit, a branch or a tag", self.ref)

    def _fill(self, path: Path) -> None:
        with _one_at_a_time:
            # What is left of a folder that was removed by other means would be in the way.
            self._git("worktree", "prune")
            # Twice: it may have been locked, too, as it is while it is made.
            self._git("worktree", "add", "--force", "--force", "--detach", str(path), self.ref)

    def remove(self, path: Path) -> None:
        with _one_at_a_time, suppress(OSError, subprocess.SubprocessError):
            # git keeps one that an agent has locked. Most are not, or are none any more.
            self._git("worktree", "unlock", str(path))
        super().remove(path)
        with _one_at_a_time:
            try:
                self._git("worktree", "prune")
            except (OSError, subprocess.SubprocessError) as error:
                raise WorkspaceFailed(path, _reason(error)) from error

    def _git(self, *arguments: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        subprocess.run(
            ["git", "-C", self.repo, "-c", "core.hooksPath=/dev/null", *arguments],
            env={**environment, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=True,
        )


_KINDS: Final[Mapping[str, type[Workspace]]] = {"copy": Copy, "empty": Empty, "worktree": Worktree}


def read_workspace(place: str, value: object) -> Workspace | None:
    """A workspace as it is given: one of these, `"empty"`, or a mapping with its `kind`. Raises
    `OptionsError`."""
    if value is None or isinstance(value, Workspace):
        return value
    plain = {"kind": value} if isinstance(value, str) else value
    if not is_mapping(plain):
        raise fault(place, "a `Copy`, `Worktree` or `Empty`, or a mapping with a `kind`", value)
    kind = _KINDS[cast(str, choice(*_KINDS)(f"the kind of {place}", plain.get("kind")))]
    fields = {str(name): item for name, item in plain.items() if name != "kind"}
    for name in fields:
        choice(*kind.__struct_fields__)(f"a field of {place}", name)
    try:
        return cast("Callable[..., Workspace]", kind)(**fields)
    except TypeError as error:
        raise fault(place, f"a whole {kind.__name__}", value, f"{error}.") from None


def folder_name(id: str) -> str:
    """The name of a task's folder: its id, where that can be a name."""
    name = _UNSAFE.sub("-", id)[:_LONGEST_NAME].strip(".-")
    if name and name == id and not name.endswith((_PARTIAL, _LEAVING)):
        return name
    return f"{name or 'task'}-{hashlib.sha256(id.encode()).hexdigest()[:8]}"


def discard(kind: Workspace, folder: Path) -> bool:
    """Remove the folder of a task. What is in the way is logged; gives whether it is gone."""
    try:
        kind.remove(folder)
    except WorkspaceFailed:
        log.warning("the folder of a task could not be removed: %s", folder, exc_info=True)
        return False
    return True


def sweep(root: Path) -> None:
    """Remove what is left of folders that were being made or removed when their process was ended."""
    if root.is_dir():
        for path in root.iterdir():
            if path.name.endswith((_PARTIAL, _LEAVING)):
                try:
                    _remove_all(path)
                except OSError:
                    # Nobody works in it.
                    log.warning("what is left of a folder could not be removed: %s", path, exc_info=True)


def _can_be_copied(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _remove_all(path: Path) -> None:
    """Remove whatever is there; nothing that a link leads to is touched."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path, onerror=_unless_gone)
    except PermissionError:
        # Agents leave folders that nobody may change.
        _make_writable(path)
        shutil.rmtree(path, onerror=_unless_gone)


def _unless_gone(_: object, __: object, raised: tuple[object, BaseException, object]) -> None:
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]


def _make_writable(path: Path) -> None:
    path.chmod(0o700)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            each = Path(folder, name)
            # Only Windows minds what a file allows. It may have other names, elsewhere.
            if not each.is_symlink() and (os.name == "nt" or each.is_dir()):
                each.chmod(0o700)


def _set(workspace: Workspace, name: str, value: object) -> None:
    msgspec.structs.force_setattr(workspace, name, value)


def _reason(error: BaseException) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return preview(os.fsdecode(cast("bytes", error.stderr or b"")).strip() or str(error))
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        # Of each file that could not be copied: where it is, where it was to be, and why not.
        failed = cast("list[tuple[str, str, str]]", error.args[0])
        return preview(f"{failed[0][2]}" + (f", and {len(failed) - 1} more" if failed[1:] else ""))
    return preview(str(error))
