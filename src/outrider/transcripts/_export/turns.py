"""Groups a session into turns as people read them, and exports it: JSON here, the others in `formats`."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

import msgspec

from outrider._display import escaped_json, plain
from outrider.errors import OptionsError
from outrider.redaction import DEFAULT
from outrider.transcripts._chain import conversation
from outrider.transcripts._describe import title_of
from outrider.transcripts._entries import fields_of, to_entry, to_line, to_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from outrider.transcripts._values import Bundle
    from outrider.wire import JsonObject

_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Types that are shown. Not SVG, which is a document with a will of its own."""

_COST_ENTRY: Final = "cost-state"
"""Has what the session has cost so far; the program writes one when it ends."""

FROM_PROGRAM: Final = (
    "<task-notification>",
    "<local-command-",
    "<command-name>",
    "<system-reminder>",
    "<bash-std",
    "[Request interrupted by user",
)
"""How texts begin that the program puts where a prompt would be."""


class Text(msgspec.Struct, frozen=True):
    text: str


class Thought(msgspec.Struct, frozen=True):
    text: str


class Note(msgspec.Struct, frozen=True):
    """Something that is not shown itself."""

    text: str


class Picture(msgspec.Struct, frozen=True):
    media_type: str
    data: str
    """In base64."""


class Call(msgspec.Struct):
    """A call of a tool, and its result once it has come."""

    id: str
    name: str
    input: object
    began: datetime | None = None
    result: list[Text | Note | Picture] | None = None
    is_error: bool = False
    seconds: float | None = None
    """Until its result came."""
    agent: Agent | None = None

    @property
    def given(self) -> str:
        """Its input, as text."""
        try:
            return escaped_json(json.dumps(self.input, indent=2, ensure_ascii=False))
        except RecursionError:
            return "(nested too deeply to be shown)"


Piece: TypeAlias = Text | Thought | Note | Picture | Call


class Turn(msgspec.Struct):
    """What one side said until the other did."""

    role: str
    """Shown as it is: `User`, `Agent`, `Program`, `Result`."""
    time: str
    pieces: list[Piece]
    seconds: float | None = None
    """From the prompt to the last word of the answer."""
    tokens: int = 0
    cost_usd: float | None = None
    """None where the transcript does not say what this turn alone has cost."""


class Agent(msgspec.Struct):
    """A subagent's part of the session."""

    id: str
    description: str
    kind: str
    turns: list[Turn]


class Transcript(msgspec.Struct):
    title: str
    facts: list[tuple[str, str]]
    turns: list[Turn]
    agents: list[Agent]
    """All of them, in the order of their names; those of a call are in it too."""


def read(bundle: Bundle, *, redact: bool) -> Transcript:
    """What there is to read in a session; secrets are masked if so wanted."""
    reading = _Reading(redact=redact)
    agents = {subpath: reading.agent(subpath, part) for subpath, part in sorted(bundle.parts.items())}
    turns = reading.turns(bundle.entries)
    for subpath, part in bundle.parts.items():
        call = reading.calls.get(_called_by(part))
        if call is not None:
            call.agent = agents[subpath]
    title = reading.mask(title_of(bundle)) or f"Session {bundle.session_id}"
    return Transcript(title=title, facts=_facts(bundle, reading), turns=turns, agents=list(agents.values()))


class _Reading:
    def __init__(self, *, redact: bool) -> None:
        self._redact = redact
        self.calls: dict[str, Call] = {}

    def mask(self, text: str) -> str:
        """A text as it is shown, without secrets if so wanted."""
        return plain(DEFAULT.mask(text) if self._redact else text)

    def agent(self, subpath: str, part: list[JsonObject]) -> Agent:
        metadata: JsonObject = {}
        for entry in part:
            if entry.get("type") == "agent_metadata":
                metadata = entry
        return Agent(
            id=self.mask(subpath.rpartition("/")[2].removeprefix("agent-")),
            description=self.mask(_text(metadata.get("description"))),
            kind=self.mask(_text(metadata.get("agentType"))),
            turns=self.turns(part, agent=True),
        )

    def turns(self, entries: list[JsonObject], *, agent: bool = False) -> list[Turn]:
        made: list[Turn] = []
        known = (to_entry(entry) for entry in entries)
        costs = _costs(entries)
        asked: datetime | None = None
        counted: set[str] = set()
        for entry in conversation(known, history="full", agent=agent):
            raw = entry.raw
            when = to_time(raw.get("timestamp"))
            role, pieces = self._said(raw, when)
            if not pieces:
                continue
            if not (made and made[-1].role == role == "Agent"):
                made.append(Turn(role=role, time=_time(raw.get("timestamp")), pieces=[]))
            turn = made[-1]
            turn.pieces += pieces
            if role != "Agent":
                asked = when if role == "User" else asked
                continue
            turn.seconds = _seconds(asked, when)
            turn.cost_usd = costs.get(_text(raw.get("uuid")), turn.cost_usd)
            message = fields_of(raw.get("message"))
            # Each block of a message is an entry, with the usage of all of it.
            if (id := _text(message.get("id"))) not in counted:
                counted.add(id)
                turn.tokens += _tokens(message)
        return made

    def _said(self, entry: JsonObject, when: datetime | None) -> tuple[str, list[Piece]]:
        if entry.get("type") == "system":
            text = self.mask(_text(entry.get("content")))
            return "Program", [Text(text)] if text else []
        blocks = _blocks(fields_of(entry.get("message")).get("content"))
        pieces = [piece for block in blocks for piece in self._block(block, when)]
        if entry.get("type") == "assistant":
            return "Agent", pieces
        if entry.get("isCompactSummary"):
            return "Summary", pieces
        if blocks and all(block.get("type") == "tool_result" for block in blocks):
            return "Result", pieces
        first = pieces[0].text.lstrip() if pieces and isinstance(pieces[0], Text) else ""
        return "Program" if first.startswith(FROM_PROGRAM) else "User", pieces

    def _block(self, block: JsonObject, when: datetime | None) -> Iterator[Piece]:
        kind = _text(block.get("type"))
        if kind == "text":
            if (text := self.mask(_text(block.get("text")))).strip():
                yield Text(text)
        elif kind == "thinking":
            if (text := self.mask(_text(block.get("thinking")))).strip():
                yield Thought(text)
        elif kind == "tool_result" or kind.endswith("_tool_result"):
            yield from self._result(block, when)
        elif kind.endswith("tool_use"):
            value = block.get("input")
            call = Call(
                id=_text(block.get("id")),
                name=self.mask(_text(block.get("name"))) or "a tool",
                input=DEFAULT.mask_json(value) if self._redact else value,
                began=when,
            )
            self.calls[call.id] = call
            yield call
        else:
            yield self._other(block, kind)

    def _result(self, block: JsonObject, when: datetime | None) -> Iterator[Piece]:
        """Nothing if it goes to the call that it is of."""
        shown: list[Text | Note | Picture] = []
        for item in _blocks(block.get("content")):
            if item.get("type") == "text":
                shown.append(Text(self.mask(_text(item.get("text")))))
            else:
                shown.append(self._other(item, _text(item.get("type"))))
        call = self.calls.get(_text(block.get("tool_use_id")))
        if call is None or call.result is not None:
            yield from shown
            return
        call.result, call.is_error = shown, block.get("is_error") is True
        call.seconds = _seconds(call.began, when)

    def _other(self, block: JsonObject, kind: str) -> Note | Picture:
        source = fields_of(block.get("source"))
        media_type, data = _text(source.get("media_type")), _text(source.get("data"))
        if kind == "image" and media_type in _PICTURES and _is_base64(data):
            return Picture(media_type=media_type, data=data)
        named = [self.mask(name) for name in (kind or "something", media_type) if name]
        return Note(f"({', '.join(named)})")


def _seconds(began: datetime | None, ended: datetime | None) -> float | None:
    return None if began is None or ended is None else max((ended - began).total_seconds(), 0.0)


def _tokens(message: JsonObject) -> int:
    counts = (number for name, number in fields_of(message.get("usage")).items() if name.endswith("_tokens"))
    return sum(number for number in counts if isinstance(number, int))


def _cost(entry: JsonObject) -> float | None:
    """What the session had cost by then, if the entry says so."""
    total = entry.get("totalCostUSD") if entry.get("type") == _COST_ENTRY else None
    return float(total) if isinstance(total, int | float) and not isinstance(total, bool) else None


def _costs(entries: list[JsonObject]) -> dict[str, float]:
    """What turns have cost, by the last entry of each: where one turn alone is between two sums."""
    costs: dict[str, float] = {}
    before, prompts, last = 0.0, 0, ""
    for entry in entries:
        if (total := _cost(entry)) is not None:
            if prompts == 1 and last:
                costs[last] = max(total - before, 0.0)
            before, prompts = total, 0
        elif entry.get("type") == "assistant":
            last = _text(entry.get("uuid"))
        elif entry.get("type") == "user" and not _is_of_tools(entry):
            prompts += 1
    return costs


def _is_of_tools(entry: JsonObject) -> bool:
    blocks = _blocks(fields_of(entry.get("message")).get("content"))
    return any(block.get("type") == "tool_result" for block in blocks)


def _facts(bundle: Bundle, reading: _Reading) -> list[tuple[str, str]]:
    def first(field: str, entries: list[JsonObject]) -> str:
        return next((value for entry in entries if (value := _text(entry.get(field)))), "")

    said = [entry for entry in bundle.entries if entry.get("type") in ("user", "assistant")]
    backwards = said[::-1]
    models = {
        model: None
        for entry in said
        if (model := _text(fields_of(entry.get("message")).get("model"))) and not model.startswith("<")
    }
    facts = [
        ("Session", bundle.session_id),
        ("Folder", first("cwd", said)),
        ("Branch", first("gitBranch", backwards)),
        ("Model", ", ".join(models)),
        ("Began", _time(first("timestamp", said))),
        ("Last", _time(first("timestamp", backwards))),
        ("Cost", next((f"${cost:.4f}" for entry in bundle.entries[::-1] if (cost := _cost(entry))), "")),
    ]
    return [(name, reading.mask(value)) for name, value in facts if value]


def _called_by(part: list[JsonObject]) -> str:
    calls = [_text(entry.get("toolUseId")) for entry in part if entry.get("type") == "agent_metadata"]
    return calls[-1] if calls else ""


def _time(timestamp: object) -> str:
    time = to_time(timestamp)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC" if time is not None else ""


def _is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False


def _blocks(content: object) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    items = cast("list[object]", content) if isinstance(content, list) else [content]
    return [block for item in items if (block := fields_of(item))]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# Exports.

ExportFormat: TypeAlias = Literal["markdown", "json", "html"]

FORMAT: Final = "outrider-session"
"""What the JSON form calls itself."""

VERSION: Final = 1


def check_format(form: object) -> ExportFormat:
    """Raises `OptionsError` for one that is not known."""
    if form not in get_args(ExportFormat):
        raise OptionsError(
            f"a session cannot be exported as {form!r}", hint="Give 'markdown', 'json' or 'html'."
        )
    return cast("ExportFormat", form)


def exported(bundle: Bundle, form: ExportFormat = "markdown", *, redact: bool | None = None) -> str:
    """The session as text. Secrets are masked if `redact` is set; by default in all forms but JSON, which
    would not be the same session then."""
    check_format(form)
    if form == "json":
        return _json(bundle, redact=bool(redact))

    transcript = read(bundle, redact=redact is not False)
    if form == "html":
        from outrider.transcripts._export.formats import html

        return html(transcript)
    from outrider.transcripts._export.formats import markdown

    return markdown(transcript)


class JsonExport:
    """A session as JSON, piece by piece: the main transcript, and then its parts. One entry is on each line:
    two exports can be compared."""

    def __init__(self, session_id: str, project: str, *, redact: bool) -> None:
        self._redact = redact
        head = {"format": FORMAT, "version": VERSION, "session_id": session_id, "project": project}
        self._pieces = ["{\n", *(f"{to_line(name)}: {to_line(value)},\n" for name, value in head.items())]
        self._pieces.append('"entries": [')
        self._is_empty = True
        self._parts = 0

    def add(self, entries: Iterable[JsonObject]) -> None:
        """More of the transcript."""
        for entry in entries:
            line = to_line(DEFAULT.mask_json(entry) if self._redact else entry)
            self._pieces.append(("\n" if self._is_empty else ",\n") + line)
            self._is_empty = False

    def begin_part(self, subpath: str) -> None:
        """What is added from now on is of that part."""
        self._end()
        before = ",\n" if self._parts else ',\n"parts": {'
        self._pieces.append(f"{before}{to_line(subpath)}: [")
        self._is_empty, self._parts = True, self._parts + 1

    def text(self) -> str:
        self._end()
        self._pieces.append("}\n}\n" if self._parts else ',\n"parts": {}\n}\n')
        return "".join(map(escaped_json, self._pieces))

    def _end(self) -> None:
        self._pieces.append("]" if self._is_empty else "\n]")


def _json(bundle: Bundle, *, redact: bool) -> str:
    export = JsonExport(bundle.session_id, bundle.project, redact=redact)
    export.add(bundle.entries)
    for subpath, part in bundle.parts.items():
        export.begin_part(subpath)
        export.add(part)
    return export.text()
