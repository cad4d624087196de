"""Owns the changes in a notebook: its code as one text of Python, and where in the JSON each letter stands.

Does not read files. What is not replaced stays as it is, in the JSON too.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from outrider.app._migrate_code import Edit, Lines, Reading, parsed, read_code
from outrider.app._migrate_names import OLD, Counterpart
from outrider.app._migrate_rules import Finding

__all__ = ["read_notebook"]

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
