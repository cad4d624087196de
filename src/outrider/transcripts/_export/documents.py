"""Exports a session as Markdown or HTML.

What people and agents wrote is Markdown already. In Markdown it is kept as far as it is text: HTML, links,
images, headings above ours and unclosed blocks are neutralised. In HTML all of it is escaped.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Final

from outrider.transcripts._entries import fields_of
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
"""Where HTML, a link, a picture, or what a link refers to would begin or go on."""
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
    """Markdown of somebody else: its headings below ours, its code closed where it ends, nothing live in it.

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
    """From where to where there is code in a line; None if that may go on elsewhere."""
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


_STYLE: Final = """
.outrider-transcript{--ink:#1c2024;--soft:#60646c;--line:#dfe1e6;--paper:#fff;--card:#f6f7f9;--user:#eaf2ff;
--mark:#0b68cb;--bad:#c62a2f;box-sizing:border-box;max-width:56rem;margin:0 auto;padding:2rem 1.25rem;
color:var(--ink);background:var(--paper);font:16px/1.6 system-ui,-apple-system,"Segoe UI",sans-serif}
@media (prefers-color-scheme:dark){.outrider-transcript{--ink:#e8eaed;--soft:#9ba1a9;--line:#363a40;
--paper:#15171a;--card:#1f2226;--user:#17263c;--mark:#6cb2ff;--bad:#ff8f93}}
.outrider-transcript *{box-sizing:border-box}
.outrider-transcript h1{margin:0 0 .75rem;font-size:1.6rem;line-height:1.25;overflow-wrap:anywhere}
.outrider-transcript dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:0 0 1.75rem;
font-size:.85rem;color:var(--soft)}
.outrider-transcript dd{margin:0;overflow-wrap:anywhere}
.outrider-transcript section{margin:0 0 1.25rem}
.outrider-transcript .who{display:flex;gap:.75rem;align-items:baseline;margin:0 0 .3rem;font-size:.85rem;
font-weight:600;color:var(--mark)}
.outrider-transcript time{font-weight:400;color:var(--soft)}
.outrider-transcript .user .said{padding:.7rem 1rem;border-radius:.6rem;background:var(--user)}
.outrider-transcript .program .who,.outrider-transcript .summary .who{color:var(--soft)}
.outrider-transcript .program .said,.outrider-transcript .summary .said{padding:.5rem 1rem;font-size:.88rem;
color:var(--soft);border-left:3px solid var(--line)}
.outrider-transcript .text{white-space:pre-wrap;overflow-wrap:anywhere}
.outrider-transcript .text+*,.outrider-transcript *+.text{margin-top:.6rem}
.outrider-transcript pre{max-height:26rem;margin:.5rem 0;padding:.7rem .9rem;overflow:auto;
border-radius:.45rem;
background:var(--card);font:.82rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
white-space:pre-wrap;overflow-wrap:anywhere}
.outrider-transcript code{font:.86em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.outrider-transcript pre code{font:inherit}
.outrider-transcript .text code{padding:.1em .35em;border-radius:.3em;background:var(--card)}
.outrider-transcript details{margin:.5rem 0;border:1px solid var(--line);border-radius:.5rem}
.outrider-transcript summary{padding:.45rem .8rem;cursor:pointer;font-size:.88rem;overflow:hidden;
text-overflow:ellipsis;white-space:nowrap}
.outrider-transcript summary b{margin-right:.5rem}
.outrider-transcript summary span{color:var(--soft);font-family:ui-monospace,SFMono-Regular,Menlo,monospace;
font-size:.92em}
.outrider-transcript details>div{padding:.1rem .8rem .6rem}
.outrider-transcript .label{margin:.5rem 0 0;font-size:.75rem;letter-spacing:.04em;text-transform:uppercase;
color:var(--soft)}
.outrider-transcript .failed>summary b,.outrider-transcript .failed .outcome{color:var(--bad)}
.outrider-transcript .thought{color:var(--soft);font-style:italic}
.outrider-transcript img{display:block;max-width:100%;margin:.5rem 0;border-radius:.4rem}
.outrider-transcript .note{margin:.4rem 0;font-size:.88rem;color:var(--soft)}
"""

_FENCED: Final = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<language>[^\n`]*)\n(?P<code>.*?)(?:^ {0,3}(?P=fence)[`~]*[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_INLINE: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)|\*\*(?=\S)([^*\n`]+)(?<=\S)\*\*")
_SHOWN_INPUTS: Final = ("command", "file_path", "path", "pattern", "url", "query", "description", "prompt")
"""Fields of a tool's input that say in a line what the call is about, the best first."""
_LONGEST_SUMMARY: Final = 120


def html(transcript: Transcript) -> str:
    """The session as an HTML fragment."""
    return "\n".join(_article(transcript)) + "\n"


def _article(transcript: Transcript) -> Iterator[str]:
    yield '<article class="outrider-transcript">'
    yield f"<style>{_STYLE}</style>"
    yield f"<header><h1>{escape(transcript.title)}</h1>"
    facts = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in transcript.facts)
    yield f"<dl>{''.join(facts)}</dl></header>"
    shown: set[int] = set()
    yield from _turn_elements(transcript.turns, shown)
    for agent in transcript.agents:
        if id(agent) not in shown:
            yield from _agent_elements(agent, shown)
    yield "</article>"


def _turn_elements(turns: Sequence[Turn], shown: set[int]) -> Iterator[str]:
    for turn in turns:
        time = f"<time>{escape(turn.time)}</time>" if turn.time else ""
        yield f'<section class="{escape(turn.role.lower())}">'
        yield f'<p class="who">{escape(turn.role)}{time}</p><div class="said">'
        for piece in turn.pieces:
            yield from _piece_elements(piece, shown)
        yield "</div></section>"


def _piece_elements(piece: Piece, shown: set[int]) -> Iterator[str]:
    if isinstance(piece, Text):
        yield from _text_elements(piece.text)
    elif isinstance(piece, Thought):
        yield '<details class="thought"><summary><b>Thinking</b></summary>'
        yield f'<div class="text">{escape(piece.text)}</div></details>'
    elif isinstance(piece, Call):
        yield from _call_elements(piece, shown)
    else:
        yield _aside_element(piece)


def _call_elements(call: Call, shown: set[int]) -> Iterator[str]:
    kind = "call failed" if call.is_error else "call"
    yield f'<details class="{kind}"><summary><b>{escape(call.name)}</b><span>{escape(_about(call))}</span>'
    yield '</summary><div><p class="label">Input</p>'
    yield f"<pre><code>{escape(call.given)}</code></pre>"
    if call.agent is not None and id(call.agent) not in shown:
        yield from _agent_elements(call.agent, shown)
    if call.result is None:
        yield '<p class="label outcome">No result</p>'
    else:
        yield f'<p class="label outcome">{"Error" if call.is_error else "Result"}</p>'
        for item in call.result:
            if isinstance(item, Text):
                yield f"<pre><code>{escape(item.text)}</code></pre>"
            else:
                yield _aside_element(item)
    yield "</div></details>"


def _agent_elements(agent: Agent, shown: set[int]) -> Iterator[str]:
    shown.add(id(agent))
    about = " · ".join(filter(None, [agent.kind, agent.id]))
    name = f"<b>Subagent: {escape(agent.description or agent.id)}</b>"
    yield f'<details class="agent"><summary>{name}<span>{escape(about)}</span></summary><div>'
    yield from _turn_elements(agent.turns, shown)
    yield "</div></details>"


def _aside_element(piece: Note | Picture) -> str:
    if isinstance(piece, Picture):
        return f'<img alt="" src="data:{escape(piece.media_type)};base64,{escape(piece.data)}">'
    return f'<p class="note">{escape(piece.text)}</p>'


def _text_elements(text: str) -> Iterator[str]:
    end = 0
    for block in _FENCED.finditer(text):
        yield from _plain_elements(text[end : block.start()])
        yield f"<pre><code>{escape(block['code'])}</code></pre>"
        end = block.end()
    yield from _plain_elements(text[end:])


def _plain_elements(text: str) -> Iterator[str]:
    if text.strip():
        yield f'<div class="text">{_INLINE.sub(_inline, escape(text.strip()))}</div>'


def _inline(found: re.Match[str]) -> str:
    return f"<code>{found[1]}</code>" if found[1] else f"<strong>{found[2]}</strong>"


def _about(call: Call) -> str:
    """What the call is about, in a few words."""
    given = fields_of(call.input)
    values = (given.get(name) for name in _SHOWN_INPUTS)
    text = next((" ".join(value.split()) for value in values if isinstance(value, str) and value.strip()), "")
    return text if len(text) <= _LONGEST_SUMMARY else f"{text[:_LONGEST_SUMMARY]}…"
