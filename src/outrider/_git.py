"""Reads git repositories that may be hostile: nothing that a repository configures is ever run.

git runs what a repository's configuration names (filters, monitors, hooks, transports), and no list of
switches turns all of that off. So git runs in a temporary git folder with settings of our own, which borrows
the repository's objects and refs. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, cast

from outrider._folders import FOLDER, NEW_FILE, opened, remove_folder, walk

_SHORT: Final = 1 << 16
"""Bytes of a file that holds a path or a ref: more than the longest one."""
_LARGEST_LIST: Final = 1 << 20
"""Bytes of a file with patterns of names."""
_SECONDS_TO_LOOK: Final = 60.0
_SECONDS_TO_CHECK_OUT: Final = 600.0
"""For a large repository on a slow disk."""

_READING: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)

_CONFIG: Final = "[core]\n\trepositoryFormatVersion = {}\n\tbare = false\n"
_OBJECT_FORMAT: Final = "[extensions]\n\tobjectFormat = sha256\n"


class Repository(NamedTuple):
    """A repository, as one of its worktrees sees it."""

    folder: Path
    """The git folder of the worktree: its HEAD and its index."""
    common: Path
    """The git folder that all worktrees have in common: objects, refs, and the list of worktrees."""
    link: Path | None = None
    """The `.git` that leads to the git folder, if it is a file or a symbolic link."""

    # Its worktrees

    def worktrees(self) -> list[str]:
        """The folders of all its worktrees, the main one first, whether they are still there or not."""
        found = [str(self.common.parent if self.common.name == ".git" else self.common)]
        with suppress(OSError):
            entries = sorted((self.common / "worktrees").iterdir())
            links = filter(None, (_path_in(entry / "gitdir") for entry in entries))
            found += [str(link.parent if link.name == ".git" else link) for link in links]
        return found

    def add_worktree(self, path: Path, making: Path, ref: str) -> None:
        """Check out `ref` into a new folder `making`, which is to become the worktree at `path` by being
        renamed, and is then to be unlocked. Raises `OSError` and `subprocess.SubprocessError`."""
        self._check_is_whole()
        commit, index = self._check_out(making, ref)
        (self.common / "worktrees").mkdir(exist_ok=True)
        name = _worktree_name(path)
        with opened(self.common / "worktrees", FOLDER) as worktrees:
            remove_folder(name, dir_fd=worktrees)
            os.mkdir(name, dir_fd=worktrees)
            with opened(name, FOLDER, dir_fd=worktrees) as folder:
                # First: git removes what has no worktree yet, unless it is locked.
                _write(folder, "locked", b"being made")
                _write(folder, "HEAD", commit + b"\n")
                _write(folder, "commondir", b"../..\n")
                _write(folder, "gitdir", os.fsencode(path / ".git") + b"\n")
                _write(folder, "index", index)
        with opened(making, FOLDER) as folder:
            _write(folder, ".git", b"gitdir: " + os.fsencode(self.common / "worktrees" / name) + b"\n")

    def unlock_worktree(self, path: Path) -> None:
        """Say that a worktree is made. Raises `OSError`."""
        with (
            opened(self.common / "worktrees", FOLDER) as worktrees,
            opened(_worktree_name(path), FOLDER, dir_fd=worktrees) as folder,
        ):
            os.unlink("locked", dir_fd=folder)

    def forget_worktree(self, path: Path) -> None:
        """Take a worktree that `add_worktree` has made off the list. Raises `OSError`."""
        with suppress(FileNotFoundError), opened(self.common / "worktrees", FOLDER) as worktrees:
            remove_folder(_worktree_name(path), dir_fd=worktrees)

    def _check_out(self, target: Path, ref: str) -> tuple[bytes, bytes]:
        """Fill a new folder; returns the commit that `ref` stands for, and the index."""
        with self._borrowed() as git_folder:
            commit = _commit(git_folder, ref)
            target.mkdir()
            index = git_folder / "index"
            _git(
                git_folder,
                ["read-tree", "--reset", "-u", os.fsdecode(commit)],
                {"GIT_WORK_TREE": str(target.absolute()), "GIT_INDEX_FILE": str(index)},
                timeout=_SECONDS_TO_CHECK_OUT,
            )
            return commit, index.read_bytes()

    # What it ignores

    def ignored(self, top: Path, names: bytes, *, timeout: float) -> bytes:
        """Which of these names below `top`, with NULs between them, it ignores: each with a NUL behind it.
        Raises `OSError` and `subprocess.SubprocessError`."""
        with self._borrowed() as git_folder:
            with suppress(OSError):
                patterns = _read(self.common / "info" / "exclude", _LARGEST_LIST)
                (git_folder / "info").mkdir()
                (git_folder / "info" / "exclude").write_bytes(patterns)
            index = self.folder / "index"
            if not index.is_file():
                index = git_folder / "none"
            return _git(
                git_folder,
                ["check-ignore", "-z", "--stdin"],
                {"GIT_WORK_TREE": str(top), "GIT_INDEX_FILE": str(index)},
                given=names,
                timeout=timeout,
                with_settings_of_user=True,
            )

    # Safety

    @contextmanager
    def _borrowed(self) -> Generator[Path]:
        """A git folder with settings of our own, and the objects and refs of the repository."""
        with tempfile.TemporaryDirectory(prefix="outrider-git-") as name:
            own = Path(name)
            (own / "HEAD").write_bytes(_read(self.folder / "HEAD"))
            for borrowed in ("objects", "packed-refs", "refs"):
                (own / borrowed).symlink_to(self.common / borrowed)
            (own / "config").write_text(_CONFIG.format(0))
            stored = _settings(own, self.common / "config")
            if stored.get("extensions.refstorage", "files") != "files":
                raise _refusal(self.common, "its refs are in a format that is not supported; use a `Copy`")
            if stored.get("extensions.objectformat", "sha1") != "sha1":
                (own / "config").write_text(_CONFIG.format(1) + _OBJECT_FORMAT)
            yield own

    def _check_is_whole(self) -> None:
        """Raise `OSError` if a part of it is elsewhere: that would be of a repository that no one named."""
        if self.common != self.folder and self.folder.parent != self.common / "worktrees":
            raise _refusal(
                self.folder, f"its `commondir` leads to {self.common}, of which it is not a worktree"
            )
        places = [self.folder / "HEAD", *(self.common / name for name in ("objects", "packed-refs", "refs"))]
        # Without its refs, commits of another repository cannot be named, wherever the objects are.
        places += [Path(at, each) for at, *inside in walk(places[-1]) for names in inside for each in names]
        for place in places:
            top = self.common if self.common in place.parents else self.folder
            if place.is_symlink() and top not in Path(os.path.realpath(place)).parents:
                raise _refusal(place, "it is a link out of the repository")
        if self.link is not None and not self._leads_back(self.link):
            reason = f"it leads to {self.folder}, which does not lead back; name that as the repository"
            raise _refusal(self.link, reason)

    def _leads_back(self, link: Path) -> bool:
        """Whether the git folder names the worktree that its `.git` was found in."""
        place = _path_in(self.folder / "gitdir")
        if place is None:
            # That of a submodule has it among its settings.
            with tempfile.TemporaryDirectory(prefix="outrider-git-") as nowhere:
                settings = _settings(Path(nowhere), self.folder / "config")
                settings |= _settings(Path(nowhere), self.folder / "config.worktree")
            place = self.folder / settings.get("core.worktree", "") / ".git"
        return os.path.realpath(place.parent) == os.path.realpath(link.parent)


def find_repository(folder: str | os.PathLike[str]) -> Repository | None:
    """The repository that a folder is in, or is; None if there is none."""
    place = Path(os.path.realpath(folder))
    for each in (place, *place.parents):
        git = each / ".git"
        found = _git_folder(git) or _git_folder(_path_in(git, b"gitdir: ")) or _git_folder(each)
        if found is not None:
            is_here = found[0] in (git, each)
            return Repository(*found, None if is_here else git)
    return None


def _git_folder(path: Path | None) -> tuple[Path, Path] | None:
    """This git folder, and the one with its objects; None if it is none."""
    if path is None:
        return None
    place = Path(os.path.realpath(path))
    common = Path(os.path.realpath(_path_in(place / "commondir") or place))
    is_one = os.path.lexists(place / "HEAD") and (common / "objects").is_dir() and (common / "refs").is_dir()
    return (place, common) if is_one else None


def _path_in(file: Path, mark: bytes = b"") -> Path | None:
    """The path that a file names, after a mark; None if it names none."""
    try:
        text = _read(file)
    except OSError:
        return None
    if not text.startswith(mark) or b"\0" in text or not (name := text.removeprefix(mark).rstrip(b"\r\n")):
        return None
    return Path(os.path.normpath(file.parent / os.fsdecode(name)))


def _worktree_name(path: Path) -> str:
    """What the worktree at a path is called in its repository: the same each time, and no one else's."""
    return f"{path.name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"


def _refusal(path: Path, reason: str) -> OSError:
    return OSError(errno.EPERM, f"This is not used as a repository: {reason}", str(path))


# Files


def _read(path: Path, size: int = _SHORT) -> bytes:
    """All of a file that is a short one. Raises `OSError`, also for what is not a file."""
    with opened(path, _READING) as number:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_size > size:
            raise OSError(errno.EINVAL, "Not a short file", str(path))
        return os.read(number, size)


def _write(folder: int, name: str, data: bytes) -> None:
    with open(os.open(name, NEW_FILE, 0o666, dir_fd=folder), "wb") as file:  # noqa: PTH123
        file.write(data)


# git


def _commit(git_folder: Path, ref: str) -> bytes:
    asked = ["rev-parse", "--verify", f"{ref}^{{commit}}"]
    try:
        return _git(git_folder, asked, timeout=_SECONDS_TO_LOOK).strip()
    except subprocess.CalledProcessError as error:
        reason = os.fsdecode(cast("bytes", error.stderr)).strip()
        raise OSError(errno.ENOENT, f"This is not a commit of the repository ({reason})", ref) from error


def _settings(git_folder: Path, file: Path) -> dict[str, str]:
    """Those settings of a file that say how a repository is stored, as data; none if it is not there."""
    if not file.is_file():
        return {}
    wanted = r"^(extensions\..*|core\.worktree)$"
    asked = ["config", "--file", str(file), "--no-includes", "--null", "--get-regexp", wanted]
    listing = os.fsdecode(_git(git_folder, asked, timeout=_SECONDS_TO_LOOK))
    items = (item.partition("\n") for item in listing.split("\0") if item)
    return {name: value for name, _, value in items}


def _git(
    git_folder: Path,
    arguments: Sequence[str],
    variables: Mapping[str, str] | None = None,
    *,
    given: bytes = b"",
    timeout: float,
    with_settings_of_user: bool = False,
) -> bytes:
    """What git says to this in a git folder of ours; nothing, if there is nothing to be said. Raises
    `OSError` and `subprocess.SubprocessError`."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    # A relative one would be in the folder that is worked on.
    program = shutil.which("git", path=os.pathsep.join(filter(os.path.isabs, places)))
    if program is None:
        raise FileNotFoundError(errno.ENOENT, "git is not installed, or not on PATH", "git")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_DIR": str(git_folder), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    if not with_settings_of_user:
        # They may have filters too, for files that a repository chooses.
        environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        [program, *arguments],
        cwd=git_folder,
        env={**environment, **(variables or {})},
        input=given,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode not in (0, 1) or (done.returncode and done.stderr):
        raise subprocess.CalledProcessError(done.returncode, "git", done.stdout, done.stderr)
    return done.stdout
