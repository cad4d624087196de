"""Exports a session as an HTML page that loads nothing and runs nothing.

What the agent wrote is rendered as Markdown by `markup`; all else is escaped.
"""

from __future__ import annotations

from functools import cache
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Final

from outrider.errors import OptionsError
from outrider.transcripts._entries import fields_of
from outrider.transcripts._export.markup import highlighted, is_installed, rendered
from outrider.transcripts._export.turns import Call, Picture, Text, Thought

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from outrider.transcripts._export.turns import Agent, Note, Piece, Transcript, Turn

_STYLE: Final = """
body{margin:0;background:#fff}
@media (prefers-color-scheme:dark){body{background:#15171a}}
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
.outrider-transcript :is(.text,.words)+*,.outrider-transcript *+:is(.text,.words){margin-top:.6rem}
.outrider-transcript pre{max-height:26rem;margin:.5rem 0;padding:.7rem .9rem;overflow:auto;
border-radius:.45rem;
background:var(--card);font:.82rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
white-space:pre-wrap;overflow-wrap:anywhere}
.outrider-transcript code{font:.86em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.outrider-transcript pre code{font:inherit}
.outrider-transcript .words :not(pre)>code{padding:.1em .35em;border-radius:.3em;background:var(--card)}
.outrider-transcript .words>:first-child{margin-top:0}
.outrider-transcript .words>:last-child{margin-bottom:0}
.outrider-transcript .words{overflow-wrap:anywhere}
.outrider-transcript .words :is(h3,h4,h5,h6){margin:1.1rem 0 .4rem;font-size:1.05rem;line-height:1.3}
.outrider-transcript blockquote{margin:.6rem 0;padding:0 1rem;color:var(--soft);
border-left:3px solid var(--line)}
.outrider-transcript table{display:block;max-width:100%;overflow-x:auto;border-collapse:collapse}
.outrider-transcript :is(th,td){padding:.25rem .7rem;border:1px solid var(--line)}
.outrider-transcript hr{border:0;border-top:1px solid var(--line)}
.outrider-transcript details{margin:.5rem 0;border:1px solid var(--line);border-radius:.5rem}
.outrider-transcript summary{padding:.45rem .8rem;cursor:pointer;font-size:.88rem;overflow:hidden;
text-overflow:ellipsis;white-space:nowrap}
.outrider-transcript summary :is(b,time){margin-right:.5rem}
.outrider-transcript summary span{color:var(--soft);font-family:ui-monospace,SFMono-Regular,Menlo,monospace;
font-size:.92em}
.outrider-transcript details>div{padding:.1rem .8rem .6rem}
.outrider-transcript .label{margin:.5rem 0 0;font-size:.75rem;letter-spacing:.04em;text-transform:uppercase;
color:var(--soft)}
.outrider-transcript .failed>summary b,.outrider-transcript .failed .outcome{color:var(--bad)}
.outrider-transcript .thought{color:var(--soft);font-style:italic}
.outrider-transcript img{display:block;max-width:100%;margin:.5rem 0;border-radius:.4rem}
.outrider-transcript .cost{margin:.5rem 0 0;font-size:.8rem;color:var(--soft)}
.outrider-transcript .note{margin:.4rem 0;font-size:.88rem;color:var(--soft)}
"""

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
        f"<style>{_STYLE}{_colors()}</style></head>",
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
def _colors() -> str:
    """The styles of colored code, for bright screens and for dark ones."""
    make = import_module("pygments.formatters").HtmlFormatter
    bright, dark = (
        "\n".join(make(style=style).get_token_style_defs(".outrider-transcript pre"))
        for style in ("default", "github-dark")
    )
    return f"{bright}\n@media (prefers-color-scheme:dark){{\n{dark}\n}}\n"


def _about(call: Call) -> str:
    """What the call is about, in a few words."""
    given = fields_of(call.input)
    values = (given.get(name) for name in _SHOWN_INPUTS)
    text = next((" ".join(value.split()) for value in values if isinstance(value, str) and value.strip()), "")
    return text if len(text) <= _LONGEST_SUMMARY else f"{text[:_LONGEST_SUMMARY]}…"
