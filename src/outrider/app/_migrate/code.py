"""Owns the changes in a text of Python: which characters to replace, for `outrider.compat` to take the place.

Does not read files. What is not replaced stays as it is, to the last space.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from outrider.app._migrate.rules import (
    NEW,
    OLD,
    RULES,
    Counterpart,
    Finding,
    Names,
    is_old,
    new_dotted,
    new_module,
    strings_of_modules,
)

__all__ = ["Edit", "Lines", "Reading", "applied", "parsed", "read_code"]

EditKind: TypeAlias = Literal["import", "string"]

_FROM = re.compile(r"from(?:[ \t\f]|\\\r?\n|\\\r)+")
_LINE = re.compile(r"\r\n|\n|\r")
_STRING = re.compile(r"""[rRuU]?(?P<quote>\'{3}|"{3}|\'|")(?P<text>[\w.]+)(?P=quote)""")


class Edit(NamedTuple):
    """Characters to replace, from `start` to before `end`."""

    start: int
    end: int
    text: str
    kind: EditKind


class Reading(NamedTuple):
    """What was found in a text."""

    edits: Sequence[Edit]
    findings: Sequence[Finding]


class Lines:
    """Where the lines of a text begin, as Python counts them: a form feed ends none."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.starts: list[int] = [0, *(found.end() for found in _LINE.finditer(text))]

    def offset(self, line: int, column: int) -> int:
        """The place of a column that is counted in bytes of UTF-8, as `ast` does."""
        start = self.starts[line - 1]
        piece = self._text[start : start + column]
        if not piece.isascii():
            piece = self._text[start : start + column].encode()[:column].decode(errors="ignore")
        return start + len(piece)

    def of(self, offset: int) -> int:
        """The number of the line that a place is in."""
        return bisect_right(self.starts, offset)


def parsed(text: str) -> ast.Module | SyntaxError:
    """The tree of a text, or what keeps it from having one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error) or type(error).__name__)


def read_code(text: str, there: Counterpart) -> Reading:
    """What to replace in a text, and what to look at."""
    tree = parsed(text)
    if isinstance(tree, SyntaxError):
        return Reading((), (Finding(max(tree.lineno or 1, 1), "syntax", tree.msg),))
    lines = Lines(text)
    names = Names(tree, there)
    changes = [*_imports(tree, text, lines, there), *_string_edits(tree, text, lines, there)]
    findings = {(each.line, each.rule): each for each in changes if isinstance(each, Finding)}
    for node in ast.walk(tree):
        line: int = getattr(node, "lineno", 1)
        for rule in RULES:
            if isinstance(node, rule.on) and (found := rule.finds(node, names)):
                # One of a kind on a line is enough: the line is what is looked at.
                findings.setdefault((line, rule.name), Finding(line, rule.name, found))
    edits = sorted({each for each in changes if isinstance(each, Edit)})
    return Reading(edits, [findings[key] for key in sorted(findings)])


def applied(text: str, edits: Sequence[Edit]) -> str:
    """The text with its changes made."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _imports(tree: ast.Module, text: str, lines: Lines, there: Counterpart) -> Iterator[Edit | Finding]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for each in names:
                    module = new_module(each.name, [], there) if is_old(each.name) else None
                    if module is None:
                        continue
                    # Without a name of its own, it is used as `claude_agent_sdk`, and goes on to be.
                    new = module if each.asname else f"{NEW} as {OLD}"
                    start = lines.offset(each.lineno, each.col_offset)
                    yield _replacing(text, start, each.name, new, each.lineno)
            case ast.ImportFrom(module=str(name), level=0, names=names) if is_old(name):
                module = new_module(name, [each.name for each in names], there)
                word = _FROM.match(text, lines.offset(node.lineno, node.col_offset))
                if module is not None and word is not None:
                    yield _replacing(text, word.end(), name, module, node.lineno)
            case _:
                pass


def _replacing(text: str, start: int, name: str, new: str, line: int) -> Edit | Finding:
    # Names may be written in other letters than they have, and with spaces around their dots.
    is_plain = text.startswith(name, start)
    return Edit(start, start + len(name), new, "import") if is_plain else Finding(line, "spelling", name)


def _string_edits(tree: ast.Module, text: str, lines: Lines, there: Counterpart) -> Iterator[Edit | Finding]:
    for node in strings_of_modules(tree):
        value = str(node.value)
        if (new := new_dotted(value, there)) is None:
            continue
        start = lines.offset(node.lineno, node.col_offset)
        end = lines.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
        written = _STRING.fullmatch(text, start, end)
        if written is not None and written["text"] == value:
            yield Edit(*written.span("text"), new, "string")
        else:
            yield Finding(node.lineno, "spelling", value)
