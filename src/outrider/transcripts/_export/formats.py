"""Exports a session as an HTML page that loads and runs nothing, and as Markdown in which nothing is live."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from html import escape
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from outrider.errors import OptionsError
from outrider.transcripts._entries import fields_of
from outrider.transcripts._export.turns import Call, Note, Picture, Text, Thought

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore

    from outrider.transcripts._export.turns import Agent, Piece, Transcript, Turn


_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Whatever gets past the rest, a browser loads nothing from elsewhere and runs no script."""

_SHOWN_INPUTS: Final = ("command", "file_path", "path", "pattern", "url", "query", "description", "prompt")
"""Fields of a tool's input that say in a line what the call is about, the best first."""
_LONGEST_SUMMARY: Final = 120
_WRITE_MARKDOWN: Final = ("Agent", "Summary")


def html(transcript: Transcript) -> str:
    """The session as a page. Raises `OptionsError` without the packages that render it."""
    if not is_installed():
        raise OptionsError(
            "A page needs packages that are not installed", hint="Run: pip install 'outrider[export]'"
        )
    title = escape(transcript.title)
    head = (
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{title}</title>",
        f"<style>{_styles()}</style></head>",
        "<body>",
    )
    return "\n".join((*head, *_article(transcript), "</body>", "</html>", ""))


def _article(transcript: Transcript) -> Iterator[str]:
    yield '<article class="outrider-transcript">'
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
            yield from _piece_elements(piece, shown, is_markdown=turn.role in _WRITE_MARKDOWN)
        if cost := _cost(turn):
            yield f'<p class="cost">{cost}</p>'
        yield "</div></section>"


def _cost(turn: Turn) -> str:
    """What a turn took, as far as it is known."""
    parts = [] if turn.seconds is None else [f"{turn.seconds:.1f} s"]
    if turn.tokens:
        parts.append(f"{turn.tokens:,} tokens")
    if turn.cost_usd is not None:
        parts.append(f"${turn.cost_usd:.4f}")
    return " · ".join(parts)


def _piece_elements(piece: Piece, shown: set[int], *, is_markdown: bool) -> Iterator[str]:
    if isinstance(piece, Text):
        if is_markdown and (words := rendered(piece.text)) is not None:
            yield f'<div class="words">{words}</div>'
        else:
            yield f'<div class="text">{escape(piece.text.strip())}</div>'
    elif isinstance(piece, Thought):
        yield '<details class="thought"><summary><b>Thinking</b></summary>'
        yield f'<div class="text">{escape(piece.text)}</div></details>'
    elif isinstance(piece, Call):
        yield from _call_elements(piece, shown)
    else:
        yield _aside_element(piece)


def _call_elements(call: Call, shown: set[int]) -> Iterator[str]:
    kind = "call failed" if call.is_error else "call"
    took = "" if call.seconds is None else f"<time>{call.seconds:.1f} s</time>"
    about = f"<span>{escape(_about(call))}</span>"
    yield f'<details class="{kind}"><summary><b>{escape(call.name)}</b>{took}{about}'
    yield '</summary><div><p class="label">Input</p>'
    yield f"<pre><code>{highlighted(call.given, 'json')}</code></pre>"
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


@cache
def _styles() -> str:
    """The styles of the page, and those of colored code, for bright screens and for dark ones."""
    page = (files("outrider.transcripts._export") / "page.css").read_text(encoding="utf-8")
    make = import_module("pygments.formatters").HtmlFormatter
    bright, dark = (
        "\n".join(make(style=style).get_token_style_defs(".outrider-transcript pre"))
        for style in ("default", "github-dark")
    )
    return f"{page}{bright}\n@media (prefers-color-scheme:dark){{\n{dark}\n}}\n"


def _about(call: Call) -> str:
    """What the call is about, in a few words."""
    given = fields_of(call.input)
    values = (given.get(name) for name in _SHOWN_INPUTS)
    text = next((" ".join(value.split()) for value in values if isinstance(value, str) and value.strip()), "")
    return text if len(text) <= _LONGEST_SUMMARY else f"{text[:_LONGEST_SUMMARY]}…"


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
    Code in fences is put into the first column, whatever it stood in: only there is it sure where it ends."""
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
    """Lines that belong together, with nothing in them that is more than text. Code within a line is left as
    it is, if it is certain: in all of the lines it ends in the line that it begins in, and no cell of a table
    can cut it."""
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
        # Escaped, it is not a beginning; as an end it may be, because in code a backslash is one.
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


_LOWER: Final = {f"h{level}": f"h{min(level + 2, 6)}" for level in range(1, 7)}
"""Headings of the agent are below those of the page."""
_MOST_RENDERED: Final = 200_000
_MOST_COLORED: Final = 50_000
"""How long a text and a piece of code may be. Beyond that they are shown as they are."""


def is_installed() -> bool:
    """Whether the packages that render are there."""
    try:
        _markdown()
        import_module("pygments")
    except ImportError:
        return False
    return True


def rendered(text: str) -> str | None:
    """A text of the agent's as HTML; None if it is too long to be read as Markdown."""
    return _markdown().render(text) if len(text) <= _MOST_RENDERED else None


def highlighted(code: str, language: str, _: str = "", *, filename: str = "") -> str:
    """Code as HTML, colored if its language is known, or told by the name of its file."""
    if len(code) > _MOST_COLORED:
        return escape(code)
    lexer = _lexer(language.strip(), filename)
    if lexer is None:
        return escape(code)
    formatter = import_module("pygments.formatters").HtmlFormatter(nowrap=True)
    return str(import_module("pygments").highlight(code, lexer, formatter))


@lru_cache(maxsize=128)
def _lexer(language: str, filename: str) -> Any:  # noqa: ANN401 - pygments has no types
    lexers, util = import_module("pygments.lexers"), import_module("pygments.util")
    try:
        if filename and not language:
            return lexers.get_lexer_for_filename(filename, stripnl=False)
        return lexers.get_lexer_by_name(language, stripnl=False)
    except util.ClassNotFound:
        return None


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "highlight": highlighted})
    made.enable(["table", "strikethrough"])
    # A link may say another address than it leads to, and a picture tells its server who reads this.
    made.disable(["link", "image", "autolink", "reference"])

    def lower(state: StateCore) -> None:
        for token in state.tokens:
            token.tag = _LOWER.get(token.tag, token.tag)

    made.core.ruler.push("lower", lower)
    return made
