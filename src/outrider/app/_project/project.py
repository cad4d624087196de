"""Implements `outrider init`: writes a small project that works, for the user to change.

The files are in the folder beside this module, where `my_agent` and `my-agent` stand for the names of the
package and the project. What is between `%if service` and `%end` is for projects with a service, what is
between `%if !service` and `%end` for those without.
"""

from __future__ import annotations

import json
import keyword
import os
import re
import sys
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from importlib.metadata import distribution
from pathlib import Path
from shlex import quote
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from rich.text import Text

from outrider._display import one_line
from outrider._version import __version__
from outrider.app._flags import Code, Failed
from outrider.app._render import counted
from outrider.app._terminal import Terminal

Part: TypeAlias = Literal["service", "batch", "docker", "ci"]

_FILES: Final = Path(__file__).parent / "files"
_TAKEN: Final = sys.stdlib_module_names | {"fastapi", "outrider", "pydantic", "pytest", "tests", "uvicorn"}


class _File(NamedTuple):
    path: str
    source: str
    what: str
    part: Part | None = None


_PROJECT: Final = (
    _File("my_agent/__init__.py", "package/__init__.py.txt", ""),
    _File("my_agent/agent.py", "package/agent.py.txt", "the agent: its prompt, tools and policy"),
    _File(
        "my_agent/service.py", "package/service.py.txt", "chats over HTTP, with server-sent events", "service"
    ),
    _File("my_agent/batch.py", "package/batch.py.txt", "many prompts, with a journal", "batch"),
    _File("prompts.txt", "prompts.txt.txt", "", "batch"),
    _File("tests/test_agent.py", "tests/test_agent.py.txt", "tests: no Claude Code, no key, no network"),
    _File("tests/test_service.py", "tests/test_service.py.txt", "", "service"),
    _File("tests/test_batch.py", "tests/test_batch.py.txt", "", "batch"),
    _File("Dockerfile", "Dockerfile.txt", "an image with Claude Code in it", "docker"),
    _File(".dockerignore", "dockerignore.txt", "", "docker"),
    _File(".github/workflows/test.yml", "workflow.yml.txt", "runs the tests on GitHub", "ci"),
    _File("pyproject.toml", "pyproject.toml.txt", "dependencies and settings"),
    _File("README.md", "README.md.txt", "how to run all of it"),
    _File(".gitignore", "gitignore.txt", ""),
)


def init(folder: Path, name: str | None, parts: AbstractSet[Part], *, no_color: bool) -> int:
    """Write a project into a folder, where none of its files may exist."""
    name = _checked_name(folder.resolve().name if name is None else name)
    if not parts & {"service", "batch"}:
        # There is nothing that an image could run.
        parts = parts - {"docker"}
    files = [file for file in _PROJECT if file.part is None or file.part in parts]
    texts = {_named(file.path, name): _render(file.source, name, parts) for file in files}
    if existing := [path for path in texts if os.path.lexists(folder / path)]:
        first = one_line(str(folder / existing[0]))
        more = f" (and {counted(len(existing) - 1, 'other file')} of the project)" if existing[1:] else ""
        raise Failed(f"{first} exists{more}. Nothing was written; choose another folder.", Code.USAGE)
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with (folder / path).open("x", encoding="utf-8") as file:
            file.write(text)
    _show(Terminal(no_color=no_color), folder, name, files)
    return Code.OK


def _checked_name(name: str) -> str:
    """The name of the project as package indexes have it."""
    normal = re.sub(r"[-_.\s]+", "-", name).strip("-").lower()
    package = normal.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", normal) or keyword.iskeyword(package):
        reason = "cannot be the name of a Python package"
    elif package in _TAKEN:
        reason = "is the name of another package"
    else:
        return normal
    raise Failed(f"{one_line(name)!r} {reason}. Choose one with `--name`, such as `my-agent`.", Code.USAGE)


def _named(text: str, name: str) -> str:
    return text.replace("my_agent", name.replace("-", "_")).replace("my-agent", name)


def _render(source: str, name: str, parts: AbstractSet[Part]) -> str:
    lines: list[str] = []
    is_wanted = True
    for line in (_FILES / source).read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("%if "):
            conditions = line.split()[1:]
            is_wanted = all((each.lstrip("!") in parts) != each.startswith("!") for each in conditions)
        elif line.startswith("%end"):
            is_wanted = True
        elif is_wanted:
            lines.append(line)
    return _named("".join(lines), name).replace("OUTRIDER_VERSION", __version__)


def _show(terminal: Terminal, folder: Path, name: str, files: Sequence[_File]) -> None:
    package = name.replace("-", "_")
    where = "this folder" if folder.resolve() == Path.cwd() else one_line(str(folder))
    terminal.print(Text.assemble("Created ", (name, "bold cyan"), f" in {where}:"))
    described = [(_named(file.path, name), file.what) for file in files if file.what]
    _table(terminal, described, "")
    terminal.print()
    terminal.print(Text("Next:", style="bold"))
    steps = [] if folder.resolve() == Path.cwd() else [(f"cd {quote(one_line(str(folder)))}", "")]
    steps += [
        ("python -m venv .venv && . .venv/bin/activate", ""),
        *((f"pip install {quote(source)}", "") for source in _sources()),
        ('pip install --editable ".[dev]"', ""),
        ("pytest", "needs no Claude Code"),
        ("outrider doctor", "checks that Claude Code works here"),
    ]
    parts = {file.part for file in files}
    if "service" in parts:
        steps.append((f"uvicorn {package}.service:app", "http://127.0.0.1:8000/docs"))
    if "batch" in parts:
        steps.append((f"python -m {package}.batch prompts.txt answers.jsonl", ""))
    _table(terminal, steps, "bold")


def _sources() -> Iterator[str]:
    """Where Outrider was installed from, if not from a package index: there, its version may not be."""
    written = distribution("outrider").read_text("direct_url.json")
    url = json.loads(written)["url"] if written else ""
    if url.startswith("file:"):
        yield unquote(urlsplit(url).path)


def _table(terminal: Terminal, rows: Sequence[tuple[str, str]], style: str) -> None:
    width = max(len(left) for left, right in rows if right)
    for left, right in rows:
        row = Text.assemble("  ", (left, style))
        if right:
            row.append(" " * (width - len(left) + 2)).append(right, "dim")
        terminal.print(row)
