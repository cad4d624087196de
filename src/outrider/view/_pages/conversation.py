"""Shows a transcript as a conversation: a row for each entry, with the results of its calls in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from outrider.transcripts._entries import fields_of
from outrider.view._pages.markup import Markup, amount, h, lasting, markdown, moment, money, size
from outrider.view._pages.tools import (
    Call,
    Shown,
    about_of,
    block_element,
    call_element,
    clipped,
    diff,
    hunks_of,
    kind_of,
    lines_changed,
    result_blocks,
    terminal,
)
from outrider.view._sources.transcript import Line, blocks_of, is_answer, is_call, items_of, noted, typed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outrider.view._sources.transcript import TranscriptFile, Window
    from outrider.wire import JsonObject

_REMEMBERED: Final = 40
"""How many entries a prompt may follow; if it follows an earlier one, the conversation was rewound."""
_MOST_CHANGED: Final = 5_000
"""Lines of all changes that are shown on one page."""


class Pairs:
    """The results in some lines, by their calls, and the subagents that calls started."""

    def __init__(
        self, lines: Sequence[Line], agents: Mapping[str, Sequence[tuple[str, str]]], *, live: bool
    ) -> None:
        self.agents = agents
        self.live = live
        self.results: dict[str, tuple[Line, JsonObject]] = {}
        self.calls: set[str] = set()
        for line in lines:
            for block in line.blocks:
                if is_answer(block):
                    self.results.setdefault(str(block.get("tool_use_id")), (line, block))
                elif is_call(block):
                    self.calls.add(str(block.get("id")))

    def call(self, line: Line, block: JsonObject) -> Call:
        id = str(block.get("id"))
        call = Call(
            name=str(block.get("name") or "a tool"),
            input=fields_of(block.get("input")),
            offset=line.offset,
            agents=self.agents.get(id, ()),
            is_waiting=self.live,
        )
        if id in self.results:
            answered, result = self.results[id]
            call.result, call.result_offset = result_blocks(result), answered.offset
            call.is_error = result.get("is_error") is True
            call.output = fields_of(answered.raw.get("toolUseResult"))
            if line.when is not None and answered.when is not None:
                call.seconds = max((answered.when - line.when).total_seconds(), 0.0)
        return call


def rows(
    window: Window,
    shown: Shown,
    agents: Mapping[str, Sequence[tuple[str, str]]],
    *,
    live: bool = False,
    only: int | None = None,
) -> list[Markup]:
    """The rows of a window, or the one of the entry at an offset."""
    pairs = Pairs(window.lines, agents, live=live and window.is_last)
    made: list[Markup] = []
    recent: list[str] = []
    for line in window.lines:
        entry = line.entry
        if line.is_shown and only in (None, line.offset):
            follows = entry.parent_uuid
            is_rewound = bool(follows and len(recent) >= 2 and follows not in recent)
            row = _row(line, pairs, shown, is_rewound=is_rewound)
            if row is not None:
                made.append(row)
        if entry.uuid:
            recent = [*recent[-_REMEMBERED:], entry.uuid]
    return made


def _row(line: Line, pairs: Pairs, shown: Shown, *, is_rewound: bool) -> Markup | None:
    entry = line.entry
    if entry.type == "assistant":
        return _assistant(line, pairs, shown)
    if entry.type in ("user", "attachment"):
        return _user(line, pairs, shown, is_rewound=is_rewound)
    if entry.type == "too-long":
        return _plain_row(
            line, shown, "note", f"A line of {size(line.end - line.offset)} is too long to be shown."
        )
    if entry.type == "result":
        return _ended(line, shown)
    return _system(line, shown)


def _frame(
    line: Line, shown: Shown, kind: str, *children: Markup | list[Markup] | None, head: Markup | None = None
) -> Markup:
    place, said = f"{shown.prefix}e{line.offset}", h("div.said", *children)
    return h("article", head, said, id=place, class_=f"row {kind}", data_at=line.offset, tabindex=-1)


def _head(who: str, line: Line, shown: Shown, *extra: Markup | None) -> Markup:
    address = f"{shown.base}?at={line.offset}{shown.query}#{shown.prefix}e{line.offset}"
    link = h("a.when", moment(line.when, short=True) or "#", href=address, title="Link to this")
    copy = h("button.copy", "Copy", type="button", title="Copy the text (c)")
    return h("header", h("b", who), list(filter(None, extra)), h("span.grow"), copy, link)


# The model.


def _assistant(line: Line, pairs: Pairs, shown: Shown) -> Markup | None:
    pieces: list[Markup] = []
    failed = line.raw.get("isApiErrorMessage") is True
    spoke = False
    for place, block in enumerate(line.blocks):
        kind = str(block.get("type"))
        if kind == "text":
            words = str(block.get("text") or "")
            if words.strip():
                spoke = True
                pieces += clipped(words, shown, line.offset, lambda part: markdown(part, redact=False))
        elif "thinking" in kind:
            words = str(block.get("thinking") or "")
            says = h(
                "summary", h("b", "Thinking"), h("span.about", shown.mask(" ".join(words.split()))[:200])
            )
            if words.strip():
                inside = h("div", list(clipped(words, shown, line.offset, lambda part: h("div.text", part))))
                pieces.append(h("details.thought", says, inside))
            elif kind == "redacted_thinking":
                pieces.append(h("p.note", "Thinking that is not shown"))
        elif is_call(block):
            pieces.append(call_element(pairs.call(line, block), shown))
        elif not is_answer(block):
            pieces.append(block_element(block, shown, line.offset, place))
    if not pieces:
        return None
    if failed:
        return _frame(line, shown, "failed", pieces, head=_head("API error", line, shown))
    # Rows that only work stand together, without a head each.
    head = _head("Claude", line, shown, _usage(line)) if spoke else None
    return _frame(line, shown, "claude" if spoke else "claude work", pieces, head=head)


def _usage(line: Line) -> Markup | None:
    usage = fields_of(line.message.get("usage"))

    def count(name: str) -> int:
        value = usage.get(name)
        return value if isinstance(value, int) else 0

    given = sum(map(count, ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")))
    if not given:
        return None
    cached = count("cache_read_input_tokens") / given
    says = f"{given:,} tokens in, {cached:.0%} of them cached; {count('output_tokens'):,} out"
    return h("span.tokens", f"{amount(given)} → {amount(count('output_tokens'))}", title=says)


# The user, and what stands in the user's role.


def _user(line: Line, pairs: Pairs, shown: Shown, *, is_rewound: bool) -> Markup | None:
    blocks = line.blocks
    if line.entry.type == "attachment":
        blocks = blocks_of(fields_of(line.raw.get("attachment")).get("prompt"))
    if any(is_answer(block) for block in blocks):
        return _strays(line, blocks, pairs, shown)
    words = "\n".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    if line.entry.is_compact_summary:
        summary = h("summary", h("b", "Summary"), h("span.about", "of what was said before"))
        inside = list(clipped(words, shown, line.offset, lambda part: markdown(part, redact=False)))
        return _frame(line, shown, "summary", h("details", summary, h("div.body", inside)))
    said = typed(words)
    if said is None:
        return _note_row(line, shown, words)
    pieces: list[Markup] = []
    if said.strip():
        pieces += clipped(said, shown, line.offset, lambda part: h("div.text", part))
    pieces += [
        block_element(block, shown, line.offset, place)
        for place, block in enumerate(blocks)
        if block.get("type") != "text"
    ]
    if not pieces:
        return None
    says = "The conversation was taken back to an earlier point here, and goes on from there."
    rewound = h("p.rewound", says) if is_rewound else None
    stats = h("span.stats")
    head = _head("Task" if shown.query else "You", line, shown, stats)
    return _frame(line, shown, "prompt", rewound, pieces, head=head)


def _strays(line: Line, blocks: list[JsonObject], pairs: Pairs, shown: Shown) -> Markup | None:
    """Results whose calls are not here, which a damaged transcript may have."""
    made: list[Markup] = []
    for block in blocks:
        id = str(block.get("tool_use_id"))
        if is_answer(block) and (id not in pairs.calls or pairs.results[id][0] is not line):
            call = Call(name="Result", input={}, offset=line.offset, result=result_blocks(block))
            call.result_offset, call.is_error = line.offset, block.get("is_error") is True
            made.append(call_element(call, shown))
    return _frame(line, shown, "claude work", made) if made else None


# The program.


def _plain_row(line: Line, shown: Shown, kind: str, words: str) -> Markup:
    return _frame(line, shown, kind, h("p", words))


def _note_row(line: Line, shown: Shown, words: str) -> Markup:
    said = clipped(noted(words), shown, line.offset, lambda part: h("div.text", terminal(part)))
    return _frame(line, shown, "note", list(said))


def _system(line: Line, shown: Shown) -> Markup | None:
    raw, subtype = line.raw, line.entry.subtype or ""
    if subtype == "compact_boundary":
        told = fields_of(raw.get("compactMetadata") or raw.get("compact_metadata"))
        before = told.get("preTokens") or told.get("pre_tokens")
        tokens = f" at {before:,} tokens" if isinstance(before, int) else ""
        trigger = f" ({told['trigger']})" if isinstance(told.get("trigger"), str) else ""
        return _plain_row(line, shown, "compaction", f"Compacted{tokens}{trigger}")
    if subtype in ("api_error", "api_retry"):
        return _plain_row(line, shown, "retry", shown.mask(_retry(raw)))
    words = raw.get("content")
    if not isinstance(words, str) or not words.strip() or subtype in ("init", "turn_duration"):
        return None
    return _note_row(line, shown, words)


def _retry(raw: JsonObject) -> str:
    error = fields_of(raw.get("error"))
    inner = fields_of(error.get("error"))
    reason = (
        error.get("message")
        or fields_of(inner.get("error")).get("message")
        or inner.get("message")
        or raw.get("error")
    )
    attempt, most = (
        raw.get("retryAttempt") or raw.get("attempt"),
        raw.get("maxRetries") or raw.get("max_retries"),
    )
    wait = raw.get("retryInMs") or raw.get("retry_delay_ms")
    said = "The API failed"
    status = error.get("status") or raw.get("error_status")
    if isinstance(status, int):
        said += f" with {status}"
    if isinstance(reason, str):
        said += f": {reason[:300]}"
    if isinstance(attempt, int):
        said += f" · retry {attempt}" + (f" of {most}" if isinstance(most, int) else "")
    if isinstance(wait, int | float):
        said += f" in {lasting(wait / 1000)}"
    return said


def _ended(line: Line, shown: Shown) -> Markup:
    raw = line.raw
    is_error = raw.get("is_error") is True
    cost, took = raw.get("total_cost_usd"), raw.get("duration_ms")
    parts = [str(raw.get("subtype", "")).replace("_", " ") if is_error else "Turn ended"]
    if isinstance(took, int | float):
        parts.append(lasting(took / 1000))
    if isinstance(cost, int | float):
        parts.append(f"{money(float(cost))} so far")
    pieces: list[Markup] = [h("p", " · ".join(parts))]
    if is_error:
        said = str(raw.get("result") or "") or "\n".join(map(str, items_of(raw.get("errors"))))
        pieces += clipped(said, shown, line.offset, lambda part: h("div.text", part)) if said else ()
    return _frame(line, shown, "failed" if is_error else "ended", pieces)


def doing(file: TranscriptFile, shown: Shown) -> tuple[str, bool]:
    """What a session is at, in a few words, and whether that is a call without a result. Blocks. Raises
    `OSError`."""
    lines = file.last(1).lines
    pairs = Pairs(lines, {}, live=True)
    for line in reversed(lines):
        for block in reversed(line.blocks):
            if is_call(block):
                call = pairs.call(line, block)
                said = f"{kind_of(call.name)[2]} {shown.path(about_of(call, shown)[1])}"
                return said, call.result is None
            if line.entry.type == "assistant" and block.get("type") == "text":
                return shown.mask(" ".join(str(block.get("text")).split()))[:200], False
    return "", False


# What it changed.


class ChangedFile(msgspec.Struct):
    """What the calls of a session changed in a file."""

    path: str
    added: int = 0
    removed: int = 0
    is_new: bool = False
    edits: list[Markup] = []


def changed_files(
    transcripts: Sequence[tuple[TranscriptFile, Sequence[tuple[int, int]], Shown, str]],
) -> list[ChangedFile]:
    """The files that were changed, by path, of transcripts with the places of their edits, and what each is
    called. Blocks. Raises `OSError`."""
    found: dict[str, ChangedFile] = {}
    shown_lines = 0
    for file, edits, shown, who in transcripts:
        bare = msgspec.structs.replace(shown, base="")
        for place in edits:
            lines = [line for offset in place if (line := file.line_at(offset)) is not None]
            pairs = Pairs(lines, {}, live=False)
            for block in lines[0].blocks if lines else ():
                call = pairs.call(lines[0], block)
                if call.result is None:
                    continue
                path = shown.mask(shown.path(call.field("file_path") or call.field("notebook_path")))
                changed = found.setdefault(path, ChangedFile(path))
                hunks = hunks_of(call)
                added, removed = lines_changed(hunks)
                changed.added, changed.removed = changed.added + added, changed.removed + removed
                changed.is_new |= call.output.get("type") == "create"
                shown_lines += added + removed
                inside = [h("p.note", "Too much to be shown here.")]
                if shown_lines <= _MOST_CHANGED:
                    inside = list(diff(hunks, bare, call.offset, path))
                link = f"{shown.base}?at={call.offset}{shown.query}#e{call.result_offset}"
                said = h("a", "in the conversation", href=link)
                head = h("p.note", moment(lines[0].when, short=True), f" · {who} · ", said)
                changed.edits.append(h("div.change", head, inside))
    return sorted(found.values(), key=lambda each: each.path)
