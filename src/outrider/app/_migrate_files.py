"""Owns the files of `outrider migrate`: which there are, what is found in each, and how one is replaced.

Runs nothing of what it reads, and follows no link out of the folder.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import re
import stat
import subprocess
import tempfile
import tokenize
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from outrider._folders import walk
from outrider._git import find_repository
from outrider.app._migrate_code import Reading, applied, read_code
from outrider.app._migrate_names import OLD, Counterpart
from outrider.app._migrate_notebook import read_notebook
from outrider.app._migrate_rules import Finding

__all__ = ["Examined", "examined", "files_in", "replace"]

Kind: TypeAlias = Literal["python", "notebook", "requirements", "documentation"]

_KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    *((pattern, "python") for pattern in ("*.py", "*.pyi", "*.pyw")),
    ("*.ipynb", "notebook"),
    *(
        (pattern, "requirements")
        for pattern in (
            *("requirements*.txt", "*requirements.txt", "constraints*.txt", "requirements/*.txt"),
            *("pyproject.toml", "setup.cfg", "tox.ini", "Pipfile", "Pipfile.lock", "*.lock"),
            *("environment*.yml", "environment*.yaml", "Dockerfile", "Dockerfile.*", "*.Dockerfile"),
        )
    ),
    *((pattern, "documentation") for pattern in ("*.md", "*.mdx", "*.markdown", "*.rst")),
)
_SKIPPED: Final = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages"})
_OWN_WORLD: Final = frozenset({"pyvenv.cfg", "conda-meta"})
"""What is in the folder of an environment, whose packages are somebody else's."""

_LARGEST: Final = 32 * 1024 * 1024
_GIT_TAKES: Final = 30.0

_MENTION = re.compile(rb"claude[-_]agent[-_]sdk|claude_code_sdk|outrider\.compat")
_PACKAGE = re.compile(r"claude[-_]agent[-_]sdk")
_BLOCK = re.compile(r"[ \t>]*(?:```|~~~)")
_SCRIPT = re.compile(r"^# /// script\s*\n(?:#.*\n)*?# ///", re.MULTILINE)
"""Where a script says which packages it needs."""


class Examined(msgspec.Struct, frozen=True):
    """A file, what to change in it, and what to look at."""

    path: Path
    before: bytes
    after: bytes
    imports: int
    strings: int
    findings: Sequence[Finding]

    @property
    def is_changed(self) -> bool:
        """Whether there is something to change."""
        return self.before != self.after


# Which there are.


def files_in(paths: Sequence[Path], failed: Callable[[OSError], None]) -> Iterator[Path]:
    """The files there that mention the SDK, in order.

    What cannot be read is told to `failed`. Raises `OSError` if one of the paths is not there.
    """
    seen: set[Path] = set()
    for path in paths:
        mode = path.stat().st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Neither a file nor a folder", str(path))
        for each in _below(path, failed) if stat.S_ISDIR(mode) else [path]:
            if (real := each.resolve()) not in seen:
                seen.add(real)
                yield each


def _below(root: Path, failed: Callable[[OSError], None]) -> list[Path]:
    top = root.resolve()
    kept: list[Path] = []
    # The repository that each folder is in, and what was found in each repository.
    repositories = {top.parent: _repository(top)}
    tracked: dict[Path, list[Path]] = {}

    def tell(error: OSError) -> None:
        error.filename = str(root / Path(error.filename).relative_to(top))
        failed(error)

    for name, folders, names in walk(top, tell):
        folder, inside = Path(name), {*folders, *names}
        if folder != top and not _OWN_WORLD.isdisjoint(inside):
            folders.clear()
            continue
        folders[:] = sorted(each for each in folders if each not in _SKIPPED)
        repositories[folder] = repository = folder if ".git" in inside else repositories[folder.parent]
        for path in (folder / each for each in sorted(names)):
            try:
                is_wanted = (_kind(path) or not path.suffix) and _is_file(path) and _mentions(path)
            except OSError as error:
                tell(error)
                continue
            if is_wanted:
                kept.append(path)
                if repository is not None:
                    tracked.setdefault(repository, []).append(path)
    ignored = {each for where, paths in tracked.items() for each in _ignored(where, paths, top)}
    return [root / path.relative_to(top) for path in kept if path not in ignored]


def _is_file(path: Path) -> bool:
    """Whether it is one, and neither a link nor a pipe."""
    return stat.S_ISREG(path.lstat().st_mode)


def _repository(folder: Path) -> Path | None:
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def _ignored(repository: Path, paths: list[Path], top: Path) -> Iterator[Path]:
    """Which of these git ignores; none if there is no git to ask, or if the folder itself is ignored."""
    # Of itself, a repository does not ignore anything; a nested one is not asked about what is outside.
    asked = [top, *paths] if repository in top.parents else paths
    names = b"\0".join(os.fsencode(path.relative_to(repository)) for path in asked)
    found = find_repository(repository)
    if found is None:
        return
    try:
        ignored = found.ignored(repository, names, timeout=_GIT_TAKES)
    except (OSError, subprocess.SubprocessError):
        return
    told = {repository / os.fsdecode(name) for name in ignored.split(b"\0") if name}
    if top not in told:
        yield from told


def _kind(path: Path) -> Kind | None:
    where = f"{path.parent.name}/{path.name}"
    return next(
        (kind for pattern, kind in _KINDS if fnmatch(where if "/" in pattern else path.name, pattern)), None
    )


def _mentions(path: Path) -> bool:
    with path.open("rb") as file:
        if not (size := os.fstat(file.fileno()).st_size):
            return False
        # Not all of a file has to be in memory for that.
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            if _kind(path) is None and not re.match(rb"#!.*python", data):
                return False
            return _MENTION.search(data) is not None and data.find(b"\0") < 0


# What is in one.


def examined(path: Path, there: Counterpart) -> Examined:
    """What to change in a file, and what to look at.

    Raises `OSError` if it cannot be read.
    """
    size = path.stat().st_size
    if size > _LARGEST:
        return _left(path, b"", Finding(1, "size", f"{size // 1024 // 1024} MiB"))
    before = path.read_bytes()
    if not _MENTION.search(before):
        return _left(path, before)
    kind = _kind(path) or "python"
    if kind in ("requirements", "documentation"):
        text = before.decode(errors="replace")
        found = _requirements(text, path) if kind == "requirements" else _documentation(text)
        return _left(path, before, *found)
    try:
        # Of a notebook, too, it tells whether there is a byte order mark.
        encoding = tokenize.detect_encoding(io.BytesIO(before).readline)[0]
        text = before.decode(encoding)
        if text.encode(encoding) != before:
            return _left(path, before, Finding(1, "encoding", encoding))
    except (SyntaxError, UnicodeError, LookupError) as error:
        return _left(path, before, Finding(1, "encoding", str(error)))
    reading: Reading = (read_code if kind == "python" else read_notebook)(text, there)
    kinds = [edit.kind for edit in reading.edits]
    after = applied(text, reading.edits).encode(encoding)
    findings = [*_script(text), *reading.findings] if kind == "python" else reading.findings
    return Examined(path, before, after, kinds.count("import"), kinds.count("string"), findings)


def _left(path: Path, data: bytes, *findings: Finding) -> Examined:
    return Examined(path, data, data, 0, 0, findings)


def _script(text: str) -> Iterator[Finding]:
    if (block := _SCRIPT.search(text)) is None:
        return
    first = text.count("\n", 0, block.start()) + 1
    for number, line in enumerate(block[0].splitlines(), first):
        if found := _PACKAGE.search(line):
            yield Finding(number, "requirement", found[0])


def _requirements(text: str, path: Path) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := _PACKAGE.search(line.partition("#")[0]):
            yield Finding(number, "requirement", found[0])
            if path.suffix == ".lock":
                return


def _documentation(text: str) -> Iterator[Finding]:
    """The first line of each block, and of the text before and after it, that imports the package."""
    is_told = False
    for number, line in enumerate(text.splitlines(), 1):
        if _BLOCK.match(line):
            is_told = False
        elif not is_told and re.match(rf"[ \t>]*(?:>>> )?(?:from|import) {OLD}\b", line):
            is_told = True
            yield Finding(number, "documentation", OLD)


# How one is replaced.


def replace(file: Examined) -> None:
    """Put what is new in the place of a file, all at once or not at all; it keeps its mode.

    Raises `OSError`.
    """
    path = file.path.resolve()
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file.path))
    if path.read_bytes() != file.before:
        raise OSError(errno.EBUSY, "It has changed in the meantime", str(file.path))
    number, name = tempfile.mkstemp(prefix=".outrider-", dir=path.parent)
    try:
        with open(number, "wb") as made:  # noqa: PTH123 - of a descriptor
            made.write(file.after)
            made.flush()
            os.fsync(made.fileno())
        Path(name).chmod(stat.S_IMODE(path.stat().st_mode))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
