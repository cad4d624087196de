"""Exports a session as Markdown.

What people and agents wrote is Markdown already. It is kept as far as it is text: HTML, links, images,
headings above ours and unclosed blocks are neutralised.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from outrider.transcripts._export.turns import Call, Note, Picture, Text, Thought

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from outrider.transcripts._export.turns import Agent, Piece, Transcript, Turn

_LEAD: Final = r"[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]++[ \t>]*+)*+"
"""What a line begins with that is in a list or a quotation."""
_FENCE: Final = re.compile(rf"(?P<lead>{_LEAD})(?P<fence>`{{3,}}+|~{{3,}}+)(?P<info>.*)")
_HEADING: Final = re.compile(rf"(?P<lead>{_LEAD})(?P<signs>#{{1,6}})(?=[ \t]|$)")
_UNDERLINE: Final = re.compile(r"([ \t>]*)(=+|-+)[ \t]*")
_BACKTICKS: Final = re.compile(r"\\?`+")
_LIVE: Final = re.compile(r"<(?=[A-Za-z/!?])|\](?=[(\[:])")
"""Where HTML, a link, a picture, or a link's target would begin or continue."""
_ENTITIES: Final = {"<": "&lt;", "]": "&#93;"}
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
                yield fenced(piece.text) if turn.role == "Program" else _quoted(piece.text, level)
            else:
                yield from _piece(piece, level)


def _piece(piece: Piece, level: int) -> Iterator[str]:
    if isinstance(piece, Text):
        yield _contained(piece.text, level)
    elif isinstance(piece, Thought):
        yield f"*Thinking*\n\n{_quoted(piece.text, level)}"
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


def _quoted(text: str, level: int) -> str:
    return "\n".join(f"> {line}".rstrip() for line in _contained(text, level).split("\n"))


def _contained(text: str, level: int) -> str:
    """Markdown of someone else: its headings below ours, its code closed where it ends, nothing live in it.

    Code in fences is put into the first column, whatever it stood in: only there is it sure where it ends.
    """
    made: list[str] = []
    paragraph: list[str] = []
    fence = ""

    def end_paragraph() -> None:
        made.extend(_inert(paragraph))
        paragraph.clear()

    for line in _LINE_END.split(text):
        found = _FENCE.fullmatch(line)
        if fence:
            closes = found and found["fence"].startswith(fence) and not found["info"].strip()
            made.append(fence if closes else line)
            fence = "" if closes else fence
        elif found and not (found["fence"][0] == "`" and "`" in found["info"]):
            end_paragraph()
            if marker := found["lead"].strip(" \t>"):
                # Not right below a text, of which a dash would make a heading.
                made += ["", marker, ""]
            fence = found["fence"]
            made.append(fence + _language(found["info"]))
        elif not line.strip():
            end_paragraph()
            made.append("")
        elif heading := _HEADING.match(line):
            deeper = "#" * min(_LOWEST, len(heading["signs"]) + level)
            paragraph.append(f"{heading['lead']}{deeper}{line[heading.end() :]}")
        elif paragraph and (underline := _UNDERLINE.fullmatch(line)):
            # It would make a heading of what is before it.
            paragraph.append(f"{underline[1]}\\{underline[2]}")
        else:
            paragraph.append(line)
    end_paragraph()
    return "\n".join([*made, fence] if fence else made)


def _language(info: str) -> str:
    found = re.match(r"[\w+#.-]{1,30}", info.strip(), re.ASCII)
    return found[0] if found else ""


def _inert(paragraph: list[str]) -> list[str]:
    """Lines that belong together, with nothing in them that is more than text.

    Code within a line is left as it is, if it is certain: in all of the lines it ends in the line that it
    begins in, and no cell of a table can cut it.
    """
    spans = [_code_spans(line) for line in paragraph]
    is_certain = None not in spans
    return [
        _without_live(line, found if is_certain and found else [])
        for line, found in zip(paragraph, spans, strict=True)
    ]


def _code_spans(line: str) -> list[tuple[int, int]] | None:
    """From where to where there is code in a line; None if it may continue elsewhere."""
    runs = list(_BACKTICKS.finditer(line))
    lengths = [found[0].count("`") for found in runs]
    spans: list[tuple[int, int]] = []
    first = 0
    while first < len(runs):
        # Escaped, it is no beginning; as an end it may be, because in code a backslash is one.
        last = next((n for n in range(first + 1, len(runs)) if lengths[n] == lengths[first]), None)
        if last is None or runs[first][0][0] == "\\":
            return None
        spans.append((runs[first].start(), runs[last].end()))
        if "|" in line[slice(*spans[-1])]:
            return None
        first = last + 1
    return spans


def _without_live(line: str, code: list[tuple[int, int]]) -> str:
    made: list[str] = []
    end = 0
    for start, stop in [*code, (len(line), len(line))]:
        made += (_LIVE.sub(lambda found: _ENTITIES[found[0]], line[end:start]), line[start:stop])
        end = stop
    return "".join(made)


def _on_one_line(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(text.split()))


def _cell(text: str) -> str:
    plain = " ".join(text.split())
    return f"`{plain}`" if "`" not in plain and "|" not in plain else _on_one_line(plain)
