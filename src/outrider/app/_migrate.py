"""Implements `outrider migrate`: replaces the other SDK's module in imports, and lists other mentions of it.

Runs nothing of what it reads, follows no link out of a folder, and changes no other character of a file.
"""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import re
import stat
import subprocess
import tokenize
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from rich.text import Text

from outrider._display import one_line, plain
from outrider._folders import replace_file, walk
from outrider._git import find_repository
from outrider.app._flags import Code, Failed, in_one_line
from outrider.app._render import counted, shortened
from outrider.app._terminal import Terminal

Counterpart: TypeAlias = Mapping[str, frozenset[str]]
"""The names in `outrider.compat`, by module; the package itself is `""`."""

_OLD: Final = "claude_agent_sdk"
_NEW: Final = "outrider.compat"
_MODULES: Final = (
    "types",
    "testing",
    "_errors",
    "_version",
    "_cli_version",
    "client",
    "query",
    "_internal",
    *(
        f"_internal.{name}"
        for name in ("client", "message_parser", "query", "sessions", "transport", "transport.subprocess_cli")
    ),
)
_PRIVATE_PARTS: Final = ("_transport", "_query")
"""What programs use of a client that is not theirs to use. Outrider has some of it."""
_NEW_PARTS: Final = ("text", "thinking", "type")
"""What messages have here, and those of the reference do not: programs look for them to tell what it is."""
_MENTION = re.compile(r"(?<![\w.-])(?:claude[-_]agent[-_]sdk|claude_code_sdk)(?![\w-])")
_LINE_END = re.compile(r"\r\n|\n|\r")
_FROM = re.compile(r"(?:from(?:[ \t\f]|\\\r?\n|\\\r)+)?")
_MAGIC = re.compile(r"[ \t]*(?:[%!?]|[\w, \t]+=[ \t]*[%!])|.*\?\s*$")
_PYTHON_MAGIC: Final = ("%%time", "%%timeit", "%%capture", "%%prun")
"""Magics of a cell that is Python all the same."""
_SENTENCES: Final = {
    "import": "outrider.compat has no `{found}`: it is not public. The import is left as it is.",
    "unknown-name": "outrider.compat has no `{found}`: it is not public.",
    "spelling": "`{found}` is written in an unusual way, and is left as it is.",
    "mention": "`{found}` is named here and left. The module is outrider.compat, the package outrider.",
    "private": "`{found}` is private: outrider.compat has a shim, with what programs are known to use of it.",
    "class-name": "`{found}` tells classes by name. They are the same; what the reference drops has others.",
    "new-attribute": "`{found}`: messages have it here, and those of the reference do not.",
    "syntax": "Python cannot read it ({found}), and it is left as it is.",
    "encoding": "Its characters cannot be read ({found}), and it is left as it is.",
    "notebook": "It is not a notebook as Jupyter writes them ({found}), and is left as it is.",
}


class Finding(NamedTuple):
    """A place that the user has to look at."""

    line: int
    rule: str
    found: str
    cell: int | None = None
    """The number of a notebook's cell, in which `line` counts."""

    @property
    def text(self) -> str:
        """The sentence about it."""
        return _SENTENCES[self.rule].format(found=self.found)


class Reading(NamedTuple):
    """A text after its changes, how many there are, and what is left."""

    after: str
    changes: int
    findings: Sequence[Finding]


def counterpart() -> Counterpart:
    """What there is in `outrider.compat`."""
    there = {"": _public(_NEW)} | {name: _public(f"{_NEW}.{name}") for name in _MODULES}
    parts = [name.rpartition(".") for name in _MODULES]
    return {
        name: names | {part for package, _, part in parts if package == name} for name, names in there.items()
    }


def _public(module: str) -> frozenset[str]:
    loaded = import_module(module)
    return frozenset(getattr(loaded, "__all__", dir(loaded)))


# Python.


def read_code(text: str, there: Counterpart, *, is_cell: bool = False) -> Reading:
    """Change Python code. The cell of a notebook may have magic lines."""
    tree = _parse(text)
    if is_cell and isinstance(tree, SyntaxError):
        tree = _parse(_without_magic(text))
    if isinstance(tree, SyntaxError):
        return Reading(text, 0, [Finding(max(tree.lineno or 1, 1), "syntax", tree.msg)])
    # A form feed ends no line for Python.
    starts = [0, *(found.end() for found in _LINE_END.finditer(text))]

    def offset(line: int, column: int) -> int:
        start = starts[line - 1]
        # `ast` counts columns in bytes of UTF-8.
        return start + len(text[start : start + column].encode()[:column].decode(errors="ignore"))

    edits: dict[int, tuple[str, str]] = {}
    findings: list[Finding] = []
    names: set[int] = set()
    """Where the SDK's name stands for what was imported, as it still does after the change."""
    received, in_clients = _received(tree), _in_clients(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if _MENTION.fullmatch(name):
                names.add(offset(node.lineno, node.col_offset))
            case ast.alias(asname=name) if name == _OLD:
                names.add(offset(node.end_lineno or 1, node.end_col_offset or 0) - len(_OLD))
            case ast.Attribute(attr=name, value=value) if name in _PRIVATE_PARTS:
                if ast.unparse(value) not in ("self", "cls") or node in in_clients:
                    findings.append(Finding(node.lineno, "private", one_line(ast.unparse(node))))
            case ast.Call(
                func=ast.Name(id="hasattr" | "getattr"),
                args=[ast.expr() as value, ast.Constant(value=name), *_],
            ):
                if name in _PRIVATE_PARTS:
                    findings.append(Finding(node.lineno, "private", one_line(ast.unparse(node))))
                elif name in _NEW_PARTS and ast.unparse(value) in received:
                    findings.append(Finding(node.lineno, "new-attribute", one_line(ast.unparse(node))))
            case _:
                findings += [
                    Finding(each.lineno, "class-name", one_line(ast.unparse(each)))
                    for each in _compared(node)
                    if _is_class_name(each)
                ]
    for node, old, new, unknown in _imports(tree, there):
        start = offset(node.lineno, node.col_offset)
        start = found.end() if (found := _FROM.match(text, start)) else start
        if new is None:
            findings.append(Finding(node.lineno, "import", unknown or old))
        elif not text.startswith(old, start):
            findings.append(Finding(node.lineno, "spelling", old))
        else:
            edits[start] = old, new
            findings += [Finding(node.lineno, "unknown-name", unknown)] if unknown else []
            if new.startswith(f"{_NEW}._internal"):
                findings.append(Finding(node.lineno, "private", old))
    names |= edits.keys()
    findings += [
        Finding(bisect_right(starts, found.start()), "mention", found[0])
        for found in _MENTION.finditer(text)
        if found.start() not in names
    ]
    after = text
    for start in sorted(edits, reverse=True):
        old, new = edits[start]
        after = after[:start] + new + after[start + len(old) :]
    # One on a line is enough: the line is what is looked at.
    lines = {finding.line: finding for finding in reversed(findings)}
    return Reading(after, len(edits), [lines[line] for line in sorted(lines)])


def _parse(text: str) -> ast.Module | SyntaxError:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error) or type(error).__name__)


def _received(tree: ast.Module) -> set[str]:
    """The names of what is received one by one, as messages are."""
    loops = (ast.AsyncFor, ast.comprehension)
    found = [node for node in ast.walk(tree) if isinstance(node, loops)]
    return {ast.unparse(node.target) for node in found if getattr(node, "is_async", True)}


def _in_clients(tree: ast.Module) -> set[ast.AST]:
    """All that is in classes that derive from the client."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    clients = [each for each in classes if any("ClaudeSDKClient" in ast.unparse(base) for base in each.bases)]
    return {node for each in clients for node in ast.walk(each)}


def _compared(node: ast.AST) -> Sequence[ast.expr]:
    """The values that a node tells apart, or keeps to do so later."""
    match node:
        case ast.Compare(left=left, comparators=others):
            return left, *others
        case ast.Match(subject=value) | ast.Subscript(slice=value) | ast.NamedExpr(value=value):
            return (value,)
        case ast.Assign(value=value):
            return (value,)
        case ast.Call(func=ast.Attribute(attr="get"), args=[value, *_]):
            return (value,)
        case ast.Call(func=ast.Name(id="getattr"), args=[_, value, *_]):
            # The name of a method is made from it.
            return [each for each in ast.walk(value) if isinstance(each, ast.expr)]
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith", value=value)):
            return (value,)
        case _:
            return ()


def _is_class_name(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(
            attr="__name__" | "__qualname__",
            value=ast.Call(func=ast.Name(id="type"), args=[_]) | ast.Attribute(attr="__class__"),
        ):
            return True
        case _:
            return False


def _imports(
    tree: ast.Module, there: Counterpart
) -> Iterator[tuple[ast.alias | ast.ImportFrom, str, str | None, str]]:
    """Each import of the other SDK: the module, what takes its place, and the names that are not there."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                for each in aliases:
                    if _is_old(each.name):
                        new, unknown = _new_module(each.name, [], there)
                        if new and not each.asname:
                            # It is used as `claude_agent_sdk`, which stays so; that loads nothing deeper.
                            new = f"{_NEW} as {_OLD}" if each.name.count(".") < 2 else None
                        yield each, each.name, new, unknown
            case ast.ImportFrom(module=str(name), level=0, names=aliases) if _is_old(name):
                yield node, name, *_new_module(name, [each.name for each in aliases], there)
            case _:
                pass


def _is_old(module: str) -> bool:
    return f"{module}.".startswith(f"{_OLD}.")


def _new_module(module: str, names: list[str], there: Counterpart) -> tuple[str | None, str]:
    """Where to import names from instead, if there is such a place, and those that are not there.

    What is public has one place, wherever it was before.
    """
    nearest = rest = module.removeprefix(_OLD).removeprefix(".")
    if rest not in ("types", "testing", "_errors", "_internal") and names and there[""].issuperset(names):
        nearest = ""
    while nearest not in there:
        nearest = nearest.rpartition(".")[0]
    unknown = ", ".join(name for name in names if name not in there[nearest] | {"*"})
    is_there = nearest == rest or (names and "*" not in names and not unknown)
    return ".".join(filter(None, (_NEW, nearest))) if is_there else None, unknown


# Notebooks.


def read_notebook(text: str, there: Counterpart) -> Reading:
    """Change the code cells of a notebook. All else in it stays as it is written, or it is left alone."""
    try:
        content: Any = json.loads(text)
        cells = [
            (number, cell) for number, cell in enumerate(content["cells"], 1) if cell["cell_type"] == "code"
        ]
        sources = ["".join(cell["source"]) for _, cell in cells]
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        return Reading(text, 0, [Finding(1, "notebook", str(error))])
    end = "\r\n" if text.startswith("{\r\n") else "\n"
    indent = re.match(r"\{\r?\n([ \t]+)", text)

    def written() -> str:
        dumped = json.dumps(content, indent=indent and indent[1], ensure_ascii=text.isascii())
        return dumped.replace("\n", end) + text[len(text.rstrip()) :]

    if written() != text:
        return Reading(text, 0, [Finding(1, "notebook", "its layout is unusual")])
    changes, findings = 0, list[Finding]()
    for (number, cell), source in zip(cells, sources, strict=True):
        if not _MENTION.search(source):
            continue
        reading = read_code(source, there, is_cell=True)
        findings += [each._replace(cell=number) for each in reading.findings]
        if reading.changes:
            changes += reading.changes
            is_list = isinstance(cell["source"], list)
            cell["source"] = reading.after.splitlines(keepends=True) if is_list else reading.after
    return Reading(written(), changes, findings)


def _without_magic(source: str) -> str:
    """A cell with everything that is not Python blanked out."""
    lines = source.splitlines(keepends=True)
    if lines and lines[0].startswith("%%") and not lines[0].startswith(_PYTHON_MAGIC):
        return source
    goes_on = False
    for number, line in enumerate(lines):
        if goes_on or _MAGIC.match(line):
            body = line.rstrip("\r\n")
            indent = body[: len(body) - len(body.lstrip())]
            # A number is the shortest statement that there is.
            lines[number] = (indent + "0 "[goes_on]).ljust(len(body)) + line[len(body) :]
            goes_on = body.endswith("\\")
    return "".join(lines)


# Files.

_CODE: Final = (".py", ".pyi", ".pyw", ".ipynb")
_SKIPPED: Final = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages"})
_OF_ENVIRONMENTS: Final = frozenset({"pyvenv.cfg", "conda-meta"})
_GIT_TIMEOUT: Final = 30.0


class File(msgspec.Struct, frozen=True):
    """A file before and after its changes."""

    path: Path
    before: bytes
    after: bytes
    changes: int
    findings: Sequence[Finding]


def files_in(paths: Sequence[Path], failed: Callable[[OSError], None]) -> Iterator[Path]:
    """The files to look at: those that are named, and those in folders that mention the SDK.

    `failed` is called with what cannot be read. Raises `OSError` if one of the paths is not there.
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
    repositories = {
        top.parent: next((each for each in (top, *top.parents) if (each / ".git").exists()), None)
    }
    tracked: dict[Path, list[Path]] = {}

    def tell(error: OSError) -> None:
        error.filename = str(root / Path(error.filename).relative_to(top))
        failed(error)

    for name, folders, names in walk(top, tell):
        folder, inside = Path(name), {*folders, *names}
        if folder != top and not _OF_ENVIRONMENTS.isdisjoint(inside):
            folders.clear()
            continue
        folders[:] = sorted(each for each in folders if each not in _SKIPPED)
        repositories[folder] = repository = folder if ".git" in inside else repositories[folder.parent]
        for path in (folder / each for each in sorted(names) if each.endswith(_CODE)):
            try:
                # Neither a link nor a pipe.
                is_wanted = stat.S_ISREG(path.lstat().st_mode) and _is_mentioned(path.read_bytes())
            except OSError as error:
                tell(error)
                continue
            if is_wanted:
                kept.append(path)
                if repository is not None:
                    tracked.setdefault(repository, []).append(path)
    ignored = {each for where, paths in tracked.items() for each in _ignored(where, paths, top)}
    return [root / path.relative_to(top) for path in kept if path not in ignored]


def _is_mentioned(data: bytes) -> bool:
    return _MENTION.search(data.decode("latin-1")) is not None


def _ignored(repository: Path, paths: list[Path], top: Path) -> set[Path]:
    """The paths that git ignores; none if there is no git, or if the folder itself is ignored."""
    # Of itself, a repository does not ignore anything; a nested one is not asked about what is outside.
    asked = [top, *paths] if repository in top.parents else paths
    names = b"\0".join(os.fsencode(path.relative_to(repository)) for path in asked)
    try:
        found = find_repository(repository)
        ignored = found.ignored(repository, names, timeout=_GIT_TIMEOUT) if found else b""
    except (OSError, subprocess.SubprocessError):
        return set()
    known = {repository / os.fsdecode(name) for name in ignored.split(b"\0") if name}
    return set() if top in known else known


def examine(path: Path, there: Counterpart) -> File:
    """Find what to change in a file, and what to report.

    Raises `OSError` if it cannot be read.
    """
    before = path.read_bytes()
    if not _is_mentioned(before):
        return File(path, before, before, 0, ())
    try:
        # Of a notebook, too, it tells whether there is a byte order mark.
        encoding = tokenize.detect_encoding(io.BytesIO(before).readline)[0]
        text = before.decode(encoding)
        if text.encode(encoding) != before:
            raise UnicodeError(encoding)
    except (SyntaxError, UnicodeError, LookupError) as error:
        return File(path, before, before, 0, [Finding(1, "encoding", str(error))])
    reading = (read_notebook if path.suffix == ".ipynb" else read_code)(text, there)
    return File(path, before, reading.after.encode(encoding), reading.changes, reading.findings)


def replace(file: File) -> None:
    """Replace a file, all at once or not at all; it keeps its mode.

    Raises `OSError`.
    """
    path = file.path.resolve()
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file.path))
    if path.read_bytes() != file.before:
        raise OSError(errno.EBUSY, "It has changed in the meantime", str(file.path))
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        replace_file(path, file.after)
        path.chmod(mode)
    except OSError as error:
        error.filename = str(file.path)
        raise


# The command.

_LONGEST: Final = 400
"""Of a line; those of notebooks may hold pictures."""
_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def migrate(paths: Sequence[Path], *, no_color: bool, write: bool, check: bool, as_json: bool) -> int:
    """Examine files and folders, change them with `write`, and print what was found.

    Returns the exit code. Raises `OSError` for a path that is not there.
    """
    if write and check:
        raise Failed("--check changes nothing: leave it out, or --write.", Code.USAGE)
    terminal = Terminal(no_color=no_color)
    there, files, written, failures = counterpart(), list[File](), list[File](), list[OSError]()
    if not as_json:
        terminal.wait("reading")
    try:
        for path in files_in(paths, failures.append):
            try:
                files.append(file := examine(path, there))
                if write and file.changes:
                    replace(file)
                    written.append(file)
            except OSError as error:
                failures.append(error)
    finally:
        terminal.clear()
    changed = [file for file in files if file.changes]
    places = [(file, finding) for file in files for finding in file.findings]
    if as_json:
        content = {
            "files": [
                {
                    "path": _readable(file.path),
                    "changes": file.changes,
                    "is_written": file in written,
                    "diff": "".join(f"{line}\n" for line in _diff(file)),
                }
                for file in changed
            ],
            "places": [
                {"path": _readable(file.path), **finding._asdict(), "text": finding.text}
                for file, finding in places
            ],
            "advice": _advice(files) if changed else [],
            "errors": [_readable(in_one_line(failure, {})) for failure in failures],
        }
        terminal.write_json(msgspec.json.format(msgspec.json.encode(content).decode(), indent=2))
    else:
        _show(terminal, changed, places)
        if changed:
            _show_advice(terminal, files)
        for failure in failures:
            terminal.note(f"error: {in_one_line(failure, {})}")
        if changed or places or failures:
            terminal.print(_summary(changed, written if write else None, len(places)))
        else:
            where = ", ".join("this folder" if path == Path() else one_line(str(path)) for path in paths)
            terminal.print(Text(f"No file in {where} imports {_OLD}."))
    return Code.FAILED if failures or (check and changed) else Code.OK


def _show(terminal: Terminal, changed: Sequence[File], places: Sequence[tuple[File, Finding]]) -> None:
    for file in changed:
        for line in _diff(file):
            style = "bold" if line.startswith(("--- ", "+++ ")) else _STYLES.get(line[:1], "")
            terminal.print(Text(shortened(plain(line), _LONGEST), style=style))
        terminal.print()
    if places:
        terminal.print(Text("To look at:", style="bold"))
    for file, finding in places:
        # As compilers write it: editors and other programs know where it is.
        cell = f"cell {finding.cell}:" if finding.cell else ""
        where = f"{one_line(str(file.path))}:{cell}{finding.line}:"
        terminal.print(Text.assemble((where, "yellow"), f" {one_line(finding.text)} [{finding.rule}]"))
    if places:
        terminal.print()


def _show_advice(terminal: Terminal, files: Sequence[File]) -> None:
    terminal.print(Text("Also:", style="bold"))
    for sentence in _advice(files):
        terminal.print(Text(sentence))
    terminal.print()


def _advice(files: Sequence[File]) -> list[str]:
    """What no line of the code says."""
    program = "Claude Code is not part of the package: npm install -g @anthropic-ai/claude-code."
    alias = f"What imports {_OLD} by itself (frameworks, tracing) works after `outrider.compat.install()`."
    plugin = (
        "Outrider's plugin for pytest has a simulated Claude Code. `outrider_forbid_real = true` in the "
        "configuration of pytest refuses to start the real one; --outrider-compat does what `install` does."
    )
    has_tests = any(file.path.name.startswith(("test_", "conftest")) for file in files)
    return [program, alias, plugin] if has_tests else [program, alias]


def _diff(file: File) -> Iterator[str]:
    before, after = (
        [
            line.removesuffix("\r\n").removesuffix("\n")
            if line.endswith("\n")
            else f"{line}\n\\ No newline at end of file"
            for line in io.StringIO(data.decode(errors="replace"), newline="\n")
        ]
        for data in (file.before, file.after)
    )
    path = one_line(_readable(file.path))
    for line in unified_diff(before, after, path, path, lineterm=""):
        yield from line.split("\n")


def _summary(changed: Sequence[File], written: Sequence[File] | None, places: int) -> Text:
    done = changed if written is None else written
    text = "Nothing to change"
    if done:
        text = (
            f"{counted(len(done), 'file')}, {counted(sum(file.changes for file in done), 'import')} changed"
        )
    text += f"; {counted(places, 'place')} to look at" if places else ""
    if changed and written is None:
        return Text(f"{text}. Nothing was written: --write makes the changes.", style="bold yellow")
    if failed := len(changed) - len(done):
        return Text(f"{text}. {counted(failed, 'file')} could not be written.", style="bold red")
    return Text(f"{text}.", style="bold green")


def _readable(path: Path | str) -> str:
    """A path whose bytes may not be text at all, as text."""
    return str(path).encode(errors="replace").decode()
