"""What a docstring says of each parameter, in the styles of Google, NumPy and reST, and the rest of it.

Does not know which parameters there are.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Final

_GOOGLE_HEADER: Final = re.compile(
    r"(?:Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters|Attributes):\s*"
)
_GOOGLE_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*)|)")
_NUMPY_HEADER: Final = re.compile(r"(?:Other )?Parameters|Attributes")
_NUMPY_ENTRY: Final = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_UNDERLINE: Final = re.compile(r"-{3,}\s*")
_REST_PARAM: Final = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|ivar|var|attribute)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)"
)
_REST_TYPE: Final = re.compile(r":(?:type|vartype)\s+\w+\s*:")


def read_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """The docstring without what it says of parameters, and that: a text for each name."""
    reading = _Reading(cleandoc(doc or "").splitlines())
    while reading.lines:
        reading.step()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(reading.kept)).strip(), reading.found


class _Reading:
    """The lines that are left to be read, those that stay, and the parameters found so far."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.kept: list[str] = []
        self.found: dict[str, str] = {}

    def step(self) -> None:
        line = self.lines[0]
        if _GOOGLE_HEADER.fullmatch(line) and self._google(self._indented(1)):
            return
        if _NUMPY_HEADER.fullmatch(line.rstrip()) and self._is_underlined(0):
            self._numpy()
        elif match := _REST_PARAM.match(line):
            section = self._indented(1)
            self._note(match[1], [match[2], *section])
            self._drop(1 + len(section))
        elif _REST_TYPE.match(line):
            self._drop(1 + len(self._indented(1)))
        else:
            self.kept.append(line)
            self._drop(1)

    def _indented(self, start: int) -> list[str]:
        """The lines from one on that stand to the right, with the empty ones between them."""
        end = last = start
        while end < len(self.lines) and (not self.lines[end].strip() or self.lines[end][0] in " \t"):
            end += 1
            if self.lines[end - 1].strip():
                last = end
        return self.lines[start:last]

    def _google(self, section: list[str]) -> bool:
        entries = _entries(section)
        matches = [_GOOGLE_ENTRY.fullmatch(entry[0]) for entry in entries]
        # A section that has no parameters is prose.
        if not entries or not all(matches):
            return False
        for match, entry in zip(matches, entries, strict=True):
            assert match is not None
            self._note(match[1], [match[2] or "", *entry[1:]])
        self._drop(1 + len(section))
        return True

    def _numpy(self) -> None:
        self._drop(2)
        while self.lines:
            line = self.lines[0]
            if not line.strip():
                self._drop(1)
                continue
            match = _NUMPY_ENTRY.fullmatch(line)
            if match is None or self._is_underlined(0):
                return
            section = self._indented(1)
            for name in match[1].split(","):
                self._note(name.strip().lstrip("*"), section)
            self._drop(1 + len(section))

    def _is_underlined(self, index: int) -> bool:
        return len(self.lines) > index + 1 and _UNDERLINE.fullmatch(self.lines[index + 1]) is not None

    def _note(self, name: str, lines: list[str]) -> None:
        if text := " ".join(line.strip() for line in lines if line.strip()):
            self.found[name] = text

    def _drop(self, count: int) -> None:
        del self.lines[:count]


def _entries(section: list[str]) -> list[list[str]]:
    """Lines in groups: each begins with one that is indented as little as the first is."""
    groups: list[list[str]] = []
    indent = min((len(line) - len(line.lstrip()) for line in section if line.strip()), default=0)
    for line in section:
        if line.strip() and not line[indent].isspace():
            groups.append([line.strip()])
        elif groups:
            groups[-1].append(line)
    return groups
