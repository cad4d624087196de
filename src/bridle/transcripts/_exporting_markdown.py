"""Owns a session as Markdown.

What people and agents wrote is Markdown already, and stays so; but it cannot swallow what is around it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bridle.transcripts._exporting_turns import Call, Note, Picture, Text, Thought

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bridle.transcripts._exporting_turns import Agent, Piece, Transcript, Turn

__all__ = ["fenced", "markdown"]

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_RAW: Final = re.compile(r"( {0,3})<(?=(?i:script|pre|style|textarea)(?:[\s>]|$)|[!?])")
"""What makes everything up to its end, or that of the document, HTML."""
_UNDERLINE: Final = re.compile(r" {0,3}(?:=+|-+)[ \t]*")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_LOWEST: Final = 6


def markdown(transcript: Transcript) -> str:
    """The session in Markdown, with a line end at its end."""
    return "\n\n".join(_document(transcript)).rstrip("\n") + "\n"


def fenced(text: str, language: str = "") -> str:
    """The text as a block of code, whatever is in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _document(transcript: Transcript) -> Iterator[str]:
    yield f"# {_on_one_line(transcript.title)}"
    rows = [f"| {name} | {_cell(value)} |" for name, value in transcript.facts]
    yield "\n".join(["| | |", "| --- | --- |", *rows])
    yield from _turns(transcript.turns, 2)
    if transcript.agents:
        yield "## Subagents"
        for agent in transcript.agents:
            yield f"### {_on_one_line(_name(agent))}"
            yield from _turns(agent.turns, 4)


def _turns(turns: Sequence[Turn], level: int) -> Iterator[str]:
    for turn in turns:
        yield f"{'#' * level} {turn.role}" + (f" · {turn.time}" if turn.time else "")
        for piece in turn.pieces:
            if isinstance(piece, Text) and turn.role != "Agent":
                yield fenced(piece.text) if turn.role == "Program" else _quoted(piece.text)
            else:
                yield from _piece(piece, level)


def _piece(piece: Piece, level: int) -> Iterator[str]:
    if isinstance(piece, Text):
        yield _contained(piece.text, level)
    elif isinstance(piece, Thought):
        yield f"*Thinking*\n\n{_quoted(piece.text)}"
    elif isinstance(piece, Call):
        yield f"**Tool: {_on_one_line(piece.name)}**"
        yield fenced(piece.given, "json")
        if piece.agent is not None:
            yield f"Subagent: {_on_one_line(_name(piece.agent))}"
        if piece.result is None:
            yield "*No result.*"
        else:
            yield "*Error:*" if piece.is_error else "*Result:*"
            for item in piece.result:
                yield fenced(item.text) if isinstance(item, Text) else _aside(item)
    else:
        yield _aside(piece)


def _aside(piece: Note | Picture) -> str:
    if isinstance(piece, Picture):
        return f"*({piece.media_type}, {len(piece.data) * 3 // 4:,} bytes)*"
    return f"*{_on_one_line(piece.text)}*"


def _name(agent: Agent) -> str:
    about = ", ".join(filter(None, [agent.kind, agent.id]))
    return f"{agent.description} ({about})" if agent.description else about


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in _LINE_END.split(text))


def _contained(text: str, level: int) -> str:
    """Markdown of somebody else: its headings below ours, its blocks closed where it ends."""
    made: list[str] = []
    fence = ""
    for given in _LINE_END.split(text):
        line = given
        found = _FENCE.fullmatch(line)
        if fence:
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
        elif found and not (found[1][0] == "`" and "`" in found[2]):
            fence = found[1]
        elif heading := _HEADING.match(line):
            deeper = "#" * min(_LOWEST, len(heading[1]) + level)
            line = f"{deeper}{line[heading.end() :]}"
        elif _UNDERLINE.fullmatch(line) and made and made[-1].strip():
            # It would make a heading of what is before it.
            line = f"\\{line.lstrip()}"
        else:
            line = _RAW.sub(r"\1\\<", line, count=1) if _RAW.match(line) else line
        made.append(line)
    return "\n".join([*made, fence] if fence else made)


def _on_one_line(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(text.split()))


def _cell(text: str) -> str:
    plain = " ".join(text.split())
    return f"`{plain}`" if "`" not in plain and "|" not in plain else _on_one_line(plain)
