"""Exports a session as HTML: one `article` with its style, no scripts, nothing from elsewhere.

Escapes everything that comes from the session. Of its Markdown, only code and bold text are rendered.
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

__all__ = ["html"]

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
    yield from _turns(transcript.turns, shown)
    for agent in transcript.agents:
        if id(agent) not in shown:
            yield from _agent(agent, shown)
    yield "</article>"


def _turns(turns: Sequence[Turn], shown: set[int]) -> Iterator[str]:
    for turn in turns:
        time = f"<time>{escape(turn.time)}</time>" if turn.time else ""
        yield f'<section class="{escape(turn.role.lower())}">'
        yield f'<p class="who">{escape(turn.role)}{time}</p><div class="said">'
        for piece in turn.pieces:
            yield from _piece(piece, shown)
        yield "</div></section>"


def _piece(piece: Piece, shown: set[int]) -> Iterator[str]:
    if isinstance(piece, Text):
        yield from _text(piece.text)
    elif isinstance(piece, Thought):
        yield '<details class="thought"><summary><b>Thinking</b></summary>'
        yield f'<div class="text">{escape(piece.text)}</div></details>'
    elif isinstance(piece, Call):
        yield from _call(piece, shown)
    else:
        yield _aside(piece)


def _call(call: Call, shown: set[int]) -> Iterator[str]:
    kind = "call failed" if call.is_error else "call"
    yield f'<details class="{kind}"><summary><b>{escape(call.name)}</b><span>{escape(_about(call))}</span>'
    yield '</summary><div><p class="label">Input</p>'
    yield f"<pre><code>{escape(call.given)}</code></pre>"
    if call.agent is not None and id(call.agent) not in shown:
        yield from _agent(call.agent, shown)
    if call.result is None:
        yield '<p class="label outcome">No result</p>'
    else:
        yield f'<p class="label outcome">{"Error" if call.is_error else "Result"}</p>'
        for item in call.result:
            if isinstance(item, Text):
                yield f"<pre><code>{escape(item.text)}</code></pre>"
            else:
                yield _aside(item)
    yield "</div></details>"


def _agent(agent: Agent, shown: set[int]) -> Iterator[str]:
    shown.add(id(agent))
    about = " · ".join(filter(None, [agent.kind, agent.id]))
    name = f"<b>Subagent: {escape(agent.description or agent.id)}</b>"
    yield f'<details class="agent"><summary>{name}<span>{escape(about)}</span></summary><div>'
    yield from _turns(agent.turns, shown)
    yield "</div></details>"


def _aside(piece: Note | Picture) -> str:
    if isinstance(piece, Picture):
        return f'<img alt="" src="data:{escape(piece.media_type)};base64,{escape(piece.data)}">'
    return f'<p class="note">{escape(piece.text)}</p>'


def _text(text: str) -> Iterator[str]:
    end = 0
    for block in _FENCED.finditer(text):
        yield from _plain(text[end : block.start()])
        yield f"<pre><code>{escape(block['code'])}</code></pre>"
        end = block.end()
    yield from _plain(text[end:])


def _plain(text: str) -> Iterator[str]:
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
