"""Owns the files of `outrider migrate`: which there are, what is found in each, and how one is replaced.

Runs nothing of what it reads, and follows no link out of the folder.
"""

from __future__ import annotations

import errno
import io
import json
import mmap
import os
import re
import stat
import subprocess
import tempfile
import tokenize
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from outrider._folders import walk
from outrider._git import find_repository
from outrider.app._migrate.code import Edit, Lines, Reading, applied, parsed, read_code
from outrider.app._migrate.rules import OLD, Counterpart, Finding

__all__ = ["Examined", "examined", "files_in", "read_notebook", "replace"]


_Path: TypeAlias = tuple[str | int, ...]

_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LETTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)
_MAGIC = re.compile(r"[ \t]*(?:[%!?]|[\w, \t]+=[ \t]*[%!])|.*\?\s*$")
_INSTALLS = re.compile(r"[ \t]*[%!].*\b(claude[-_]agent[-_]sdk)")
_OF_PYTHON: Final = ("%%time", "%%timeit", "%%capture", "%%prun")
"""Magics of a cell that is Python all the same."""


class _Object(list[tuple[str, object]]):
    """A JSON object in the order in which it is written, with all that it has twice."""


class _Piece(NamedTuple):
    """A string of a cell's source: where it begins in the code, and where in the JSON."""

    start: int
    length: int
    literal: int


def read_notebook(text: str, there: Counterpart) -> Reading:
    """What to replace in the text of a notebook, and what to look at."""
    try:
        content: object = json.loads(text, object_pairs_hook=_Object)
    except (ValueError, RecursionError) as error:
        return Reading((), (Finding(1, "notebook", str(error)),))
    # Both are in the order of the text.
    sources: dict[int, list[tuple[str, int]]] = {}
    codes: set[int] = set()
    for (path, value), literal in zip(_strings(content, ()), _LITERAL.finditer(text), strict=True):
        match path:
            case ("cells", int(cell), "source") | ("cells", int(cell), "source", int()):
                sources.setdefault(cell, []).append((value, literal.start()))
            case ("cells", int(cell), "cell_type") if value == "code":
                codes.add(cell)
            case _:
                pass
    code, pieces, firsts, findings = "", list[_Piece](), list[tuple[int, int]](), list[Finding]()
    for cell, parts in sources.items():
        if cell not in codes:
            continue
        firsts.append((len(code), cell + 1))
        start = len(code)
        for value, place in parts:
            pieces.append(_Piece(start, len(value), place))
            start += len(value)
        source = "".join(value for value, _ in parts)
        python, wrong = _as_python(source)
        findings += [each._replace(cell=cell + 1) for each in (*wrong, *_installed(source))]
        code += f"{python}\n"
    reading = read_code(code, there)
    lines = Lines(code)
    found = [*reading.findings]
    edits: list[Edit] = []
    for edit in reading.edits:
        if (there_too := _in_json(edit, pieces, text)) is not None:
            edits.append(there_too)
        else:
            found.append(Finding(lines.of(edit.start), "spelling", OLD))
    findings += [_in_cell(each, firsts, lines) for each in found]
    return Reading(edits, sorted(findings, key=lambda each: (each.cell, each.line)))


def _strings(value: object, path: _Path) -> Iterator[tuple[_Path, str]]:
    match value:
        case str():
            yield path, value
        case _Object():
            for key, each in value:
                yield (*path, "", key), key
                yield from _strings(each, (*path, key))
        case list():
            for number, each in enumerate(value):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
                yield from _strings(each, (*path, number))  # pyright: ignore[reportUnknownArgumentType]
        case _:
            pass


def _as_python(source: str) -> tuple[str, list[Finding]]:
    """A cell with what is not Python left out, letter for letter; spaces if Python cannot read it at all."""
    tree = parsed(source)
    if isinstance(tree, SyntaxError):
        source = _without_magic(source)
        tree = parsed(source)
    if not isinstance(tree, SyntaxError):
        return source, []
    wrong = [Finding(tree.lineno or 1, "syntax", tree.msg)] if OLD in source else []
    return re.sub(r"[^\r\n]", " ", source), wrong


def _installed(source: str) -> Iterator[Finding]:
    for number, line in enumerate(source.splitlines(), 1):
        if found := _INSTALLS.match(line):
            yield Finding(number, "requirement", found[1])


def _without_magic(source: str) -> str:
    lines = source.splitlines(keepends=True)
    if lines and lines[0].startswith("%%") and not lines[0].startswith(_OF_PYTHON):
        return source
    made: list[str] = []
    goes_on = False
    for line in lines:
        if goes_on or _MAGIC.match(line):
            # A number is the shortest statement that there is.
            sign = " " if goes_on else "0"
            body = line.rstrip("\r\n")
            indent = body[: len(body) - len(body.lstrip())]
            goes_on = body.endswith("\\")
            line = indent + sign + " " * (len(body) - len(indent) - 1) + line[len(body) :]  # noqa: PLW2901
        made.append(line)
    return "".join(made)


def _in_json(edit: Edit, pieces: list[_Piece], text: str) -> Edit | None:
    """The same change in the JSON; None if it goes over the end of a string there."""
    piece = pieces[bisect_right(pieces, edit.start, key=lambda each: each.start) - 1]
    if edit.end > piece.start + piece.length or (literal := _LITERAL.match(text, piece.literal)) is None:
        return None
    letters = [letter.start() for letter in _LETTER.finditer(text, literal.start() + 1, literal.end() - 1)]
    letters.append(literal.end() - 1)
    return edit._replace(start=letters[edit.start - piece.start], end=letters[edit.end - piece.start])


def _in_cell(finding: Finding, firsts: list[tuple[int, int]], lines: Lines) -> Finding:
    at = lines.starts[finding.line - 1]
    start, cell = firsts[bisect_right(firsts, at, key=lambda each: each[0]) - 1]
    return finding._replace(line=finding.line - lines.of(start) + 1, cell=cell)


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
