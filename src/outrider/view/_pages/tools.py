"""Shows calls of tools, each kind in its own way: files with line numbers, changes as diffs, commands with
their output, questions with their answers.

Which call has which result is decided in `conversation`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher, unified_diff
from functools import partial
from itertools import accumulate
from pathlib import PurePath
from typing import Final, TypeAlias

import msgspec

from outrider.redaction import DEFAULT
from outrider.transcripts._entries import fields_of
from outrider.view._pages.markup import Markup, code, h, lasting, markdown, text
from outrider.view._sources.transcript import blocks_of, items_of
from outrider.wire import JsonObject

CLIP: Final = 8_000
"""Characters of one text that are shown at once; the rest on demand."""
PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Not SVG, which is a document with a will of its own."""

_INLINE: Final = 80
"""Characters of a list or an object that stands in one line."""
_MOST_DIFF: Final = 400
"""Lines of a diff that are shown at once."""
_LONGEST_SHOWN: Final = 1_000
"""Characters of a line of a diff."""
_MOST_COMPARED: Final = 2_000
"""Lines of a text that is compared with another."""
_MOST_MARKED: Final = 40
_LONGEST_MARKED: Final = 200
"""Lines of a diff in which words are compared, and how many they may have: it takes the square of that."""
_WORD: Final = re.compile(r"\w+|\s+|.")
_PIECE: Final = re.compile(r"<[^>]*>|&[^;]*;|.", re.DOTALL)
"""Of markup: a tag, or a sign."""
_NUMBERED: Final = re.compile(r"^ *(\d+)(?:→|\t)(.*)$")
_ANSI: Final = re.compile(r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_STYLES: Final = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse"}
_ENDS: Final = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("inverse",)}
"""What a terminal is told by numbers."""
_ABOUT: Final = (
    *("command", "file_path", "notebook_path", "pattern", "url", "query", "skill", "description"),
    *("subject", "title", "path", "prompt", "question", "name"),
)
"""Fields of an input that say in a line what a call is about, the best first."""
_REMINDER: Final = ("<system-reminder>", "</system-reminder>")


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """How things are shown."""

    base: str
    """The address of the session; empty where there is none to link to."""
    redact: bool = True
    clip: int | None = CLIP
    query: str = ""
    """Names the subagent, in addresses."""
    prefix: str = ""
    """Of the ids of rows: a subagent's stand among others."""
    folder: str = ""
    """Where the session runs: the paths of files are told from there."""

    def path(self, path: str) -> str:
        return path.removeprefix(f"{self.folder}/") if self.folder else path

    def mask(self, words: str) -> str:
        return DEFAULT.mask(words) if self.redact else words


class Call(msgspec.Struct, kw_only=True):
    """A call, with what is known of it."""

    name: str
    input: JsonObject
    offset: int = 0
    result: list[JsonObject] | None = None
    result_offset: int = 0
    is_error: bool = False
    seconds: float | None = None
    output: JsonObject = {}
    """The result as a value, as far as the transcript has it."""
    agents: Sequence[tuple[str, str]] = ()
    """The ids and descriptions of the subagents that it started."""
    is_waiting: bool = False

    @property
    def text(self) -> str:
        """The words of its result."""
        found = self.result or []
        return "\n".join(str(block.get("text", "")) for block in found if block.get("type") == "text")

    def field(self, name: str) -> str:
        value = self.input.get(name)
        return value if isinstance(value, str) else ""


Body: TypeAlias = Iterator[Markup]


class View(msgspec.Struct, frozen=True):
    """How a kind of call is shown."""

    lane: str
    body: Callable[[Call, Shown], Body]
    shows: tuple[str, ...] = ()
    """The fields of the input that the body shows; the others are listed above it."""
    is_open: bool = False


def call_element(call: Call, shown: Shown) -> Markup:
    """A call that can be opened."""
    view = _VIEWS.get(call.name, _OTHER)
    kind, server, title = kind_of(call.name)
    named, about = about_of(call, shown)
    state = "failed" if call.is_error else "running" if call.result is None else "done"
    badges = [
        h("span.took", lasting(call.seconds)) if call.seconds is not None else None,
        h("span.badge.bad", "failed") if call.is_error else None,
        h("span.badge", "running" if call.is_waiting else "no result") if call.result is None else None,
    ]
    summary = h(
        "summary",
        h("span.sign", aria_hidden="true"),
        h("b", shown.mask(title or call.name)),
        h("span.server", server) if server else None,
        h("span.about", shown.path(about)),
        _counts(call),
        badges,
    )
    # What stands in full above is not said again, unless the tool is one that we do not know.
    said = named if call.name in _VIEWS and about == call.field(named) else ""
    body = h("div.body", list(_body(call, view, shown, said)), _agents(call, shown))
    # Links to the entry of its result lead here.
    place = f"{shown.prefix}e{call.result_offset}" if call.result_offset else None
    return h("details", summary, body, class_=f"call {kind} {state}", open=view.is_open or None, id=place)


def kind_of(name: str) -> tuple[str, str, str]:
    """What kind a tool is of, the MCP server that has it, and what it is called there."""
    if not name.startswith("mcp__"):
        return _VIEWS.get(name, _OTHER).lane, "", name
    server, _, title = name.removeprefix("mcp__").partition("__")
    return "mcp", server, title or name


def _body(call: Call, view: View, shown: Shown, said: str = "") -> Body:
    """All of a call, but for the field that has been said, and, unless somebody decides, what is not set."""
    rest = {
        name: value
        for name, value in call.input.items()
        if name not in view.shows and name != said and not (shown.base and value in (None, False))
    }
    yield from fields_element(rest, shown, call.offset)
    yield from view.body(call, shown)


def about_of(call: Call, shown: Shown) -> tuple[str, str]:
    """The field that says what a call is about, and what it says."""
    named = next((name for name in _ABOUT if call.field(name).strip()), "")
    found = " ".join(call.field(named).split())
    questions = items_of(call.input.get("questions"))
    if not found and questions:
        found = str(fields_of(questions[0]).get("question", ""))
    return named, shown.mask(found[:300])


def _counts(call: Call) -> Markup | None:
    """How many lines a change adds and removes."""
    if _VIEWS.get(call.name, _OTHER).body is not _change or call.is_error:
        return None
    return counts_element(*lines_changed(hunks_of(call)))


def lines_changed(hunks: list[Hunk]) -> tuple[int, int]:
    """How many lines are added and removed."""
    signs = [line[:1] for hunk in hunks for line in hunk[2]]
    return signs.count("+"), signs.count("-")


def counts_element(added: int, removed: int) -> Markup:
    """`+3 -1`."""
    return h("span.counts", h("ins", f"+{added:,}"), " ", h("del", f"\N{MINUS SIGN}{removed:,}"))


def _agents(call: Call, shown: Shown) -> list[Markup]:
    made: list[Markup] = []
    for id, description in call.agents:
        head = h("summary", h("b", "Subagent"), h("span.about", shown.mask(description or id)))
        inside = h("div.body.nested", data_rows=f"{shown.base}/rows?agent={id}&all=1")
        whole = h("a.quiet", "Open it by itself", href=f"{shown.base}?agent={id}")
        made.append(h("details.call.agent-tree", head, whole, inside))
    return made


# Pieces.


def clipped(words: str, shown: Shown, offset: int, show: Callable[[str], Markup]) -> Iterator[Markup]:
    """A text, or its beginning with a way to the rest."""
    words = shown.mask(words)
    if shown.clip is None or len(words) <= shown.clip + 200:
        yield show(words)
        return
    yield show(words[: shown.clip])
    yield more(shown, offset, f"Show all {len(words):,} characters")


def more(shown: Shown, offset: int, says: str) -> Markup:
    """A button that exchanges the row for all of it."""
    if not shown.base:
        return h("p.note", "…")
    return h("button.more", says, type="button", data_full=f"{shown.base}/full?at={offset}{shown.query}")


def output(words: str, kind: str = "") -> Markup:
    """What a program printed."""
    return h("pre", h("code", terminal(words)), class_=f"out {kind}".strip(), tabindex=0)


def terminal(words: str) -> Markup:
    """What a terminal shows of a text: in its colors, and of a line that was written again, the last."""
    if "\r" in words:
        words = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in words.split("\n"))
    if "\x1b" not in words:
        return text(words)
    made: list[Markup] = []
    styles: dict[str, str] = {}
    place = 0

    def add(part: str) -> None:
        if part:
            kinds = " ".join(styles.values())
            made.append(h("span", part, class_=kinds) if kinds else text(part))

    for found in _ANSI.finditer(words):
        add(words[place : found.start()])
        place = found.end()
        if found[2] == "m":
            _style(found[1], styles)
    add(words[place:])
    return Markup("".join(made))


def _style(numbers: str, styles: dict[str, str]) -> None:
    """Change how what follows looks, as a terminal is told to."""
    left = [int(each) if each.isdigit() and len(each) < 4 else 0 for each in re.split("[;:]", numbers)][::-1]
    while left:
        number = left.pop()
        if number == 0:
            styles.clear()
        elif number in _STYLES:
            styles[_STYLES[number]] = _STYLES[number]
        elif number in _ENDS:
            for name in _ENDS[number]:
                styles.pop(name, None)
        elif number in (38, 48) and left:
            color = _color(left)
            if color is not None:
                styles["ink" if number == 38 else "ground"] = f"{'a' if number == 38 else 'g'}{color}"
        elif number in (39, 49):
            styles.pop("ink" if number == 39 else "ground", None)
        elif 30 <= number <= 37 or 90 <= number <= 97:
            styles["ink"] = f"a{number - 30 if number < 90 else number - 82}"
        elif 40 <= number <= 47 or 100 <= number <= 107:
            styles["ground"] = f"g{number - 40 if number < 100 else number - 92}"


def _color(left: list[int]) -> int | None:
    """The nearest of the sixteen colors that pages have to one of 256, or of all."""
    kind = left.pop()
    if kind == 5 and left:
        number = left.pop()
        if number < 16:
            return number
        if number >= 232:
            red = green = blue = (number - 232) * 11
        else:
            red, green, blue = ((number - 16) // each % 6 * 51 for each in (36, 6, 1))
    elif kind == 2 and len(left) >= 3:
        red, green, blue = (left.pop() for _ in range(3))
    else:
        return None
    middle = max(red, green, blue) / 2
    hue = sum(bit for bit, part in ((1, red), (2, green), (4, blue)) if part > max(middle, 50))
    return hue + 8 * (max(red, green, blue) > 200)


def numbered(source: str, first: int, filename: str = "", sign: str = "") -> Markup:
    """Code with the numbers of its lines, which are not copied with it."""
    lines = code(source, filename=filename).removesuffix("\n").split("\n")
    rows = [
        h("span", Markup(f"{line}\n"), class_=f"l {sign}".strip(), data_n=first + place)
        for place, line in enumerate(lines)
    ]
    return h("pre.code", h("code", rows), tabindex=0)


def _items(call: Call, shown: Shown) -> Body:
    """The result, as it is."""
    for place, block in enumerate(call.result or ()):
        if block.get("type") == "text":
            words = without_reminders(str(block.get("text", ""))).strip("\n")
            if words:
                yield from clipped(words, shown, call.offset, lambda part: _guessed(part, call))
        else:
            yield block_element(block, shown, call.result_offset or call.offset, place)


def without_reminders(words: str) -> str:
    """A result without what Claude Code added for the model. Not by a regular expression, which would look
    for the end of each one that has none."""
    kept: list[str] = []
    words = words.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
    while True:
        before, begun, rest = words.partition(_REMINDER[0])
        _, ended, after = rest.partition(_REMINDER[1])
        if not (begun and ended):
            return "".join((*kept, words))
        kept.append(before)
        words = after


def _guessed(words: str, call: Call) -> Markup:
    if not call.is_error and words[:1] in "{[":
        try:
            value = json.loads(words)
        except (ValueError, RecursionError):
            pass
        else:
            return value_element(value)
    return output(words, "bad" if call.is_error else "")


def block_element(block: JsonObject, shown: Shown, offset: int, place: int) -> Markup:
    """A picture, or a note that says what is not shown."""
    source = fields_of(block.get("source"))
    kind, media = str(block.get("type", "")), str(source.get("media_type", ""))
    if kind == "image" and media in PICTURES and shown.base:
        address = f"{shown.base}/picture?at={offset}&n={place}{shown.query}"
        return h("a.picture", h("img", src=address, alt="A picture", loading="lazy"), href=address)
    return h("p.note", f"({', '.join(filter(None, (kind or 'something', media)))})")


def value_element(value: object, *, inline: int = 0) -> Markup:
    """JSON, with colors; in one line if it is so short."""
    try:
        written = json.dumps(value, ensure_ascii=False)
        if len(written) <= inline:
            return h("code", written)
        written = json.dumps(value, indent=2, ensure_ascii=False)
    except (RecursionError, ValueError):
        written = "(nested too deeply to be shown)"
    return h("pre.code", h("code", code(written, language="json")), tabindex=0)


def fields_element(input: JsonObject, shown: Shown, offset: int) -> Body:
    """An input, a row for each field."""
    rows: list[Markup] = []
    for name, value in input.items():
        if isinstance(value, str) and len(value) < 200 and "\n" not in value:
            cell = h("code", shown.mask(value))
        elif isinstance(value, str):
            cell = h("div", list(clipped(value, shown, offset, output)))
        elif isinstance(value, bool | int | float) or value is None:
            cell = h("code", json.dumps(value))
        else:
            cell = value_element(DEFAULT.mask_json(value) if shown.redact else value, inline=_INLINE)
        if shown.redact and DEFAULT.is_secret_key(name):
            cell = h("code", "***")
        rows.append(h("div", h("dt", name), h("dd", cell)))
    if rows:
        yield h("dl.fields", rows)


# Each kind.


def _other(call: Call, shown: Shown) -> Body:
    if call.result:
        yield h("p.label", "Error" if call.is_error else "Result")
    yield from _items(call, shown)


def _read(call: Call, shown: Shown) -> Body:
    name = PurePath(call.field("file_path")).name
    file = fields_of(call.output.get("file"))
    content, first = file.get("content"), file.get("startLine")
    if isinstance(content, str) and not call.is_error:
        number = first if isinstance(first, int) else 1
        yield from clipped(content, shown, call.offset, lambda part: numbered(part, number, name))
        return
    lines = [_NUMBERED.match(line) for line in without_reminders(call.text).rstrip("\n").split("\n")]
    found = [line for line in lines if line is not None]
    if found and len(found) >= len(lines) - 2:
        source = "\n".join(line[2] for line in found)
        yield from clipped(source, shown, call.offset, lambda part: numbered(part, int(found[0][1]), name))
    else:
        yield from _items(call, shown)


Hunk: TypeAlias = tuple[int, int, list[str]]
"""The first old line, the first new line, and the lines with their signs."""


def hunks_of(call: Call) -> list[Hunk]:
    """What a call changes in a file."""
    patch = call.output.get("structuredPatch")
    found: list[Hunk] = []
    for item in items_of(patch):
        hunk = fields_of(item)
        lines = items_of(hunk.get("lines"))
        old, new = hunk.get("oldStart"), hunk.get("newStart")
        if lines:
            texts = [str(line) for line in lines if not str(line).startswith("\\")]
            found.append((old if isinstance(old, int) else 1, new if isinstance(new, int) else 1, texts))
    if found:
        return found
    if call.name in ("Write", "NotebookEdit"):
        now, before = call.field("content") or call.field("new_source"), call.output.get("old_source")
        if isinstance(before, str) and before:
            return [(0, 0, changed_lines(before, now))]
        return [(0, 1, [f"+{line}" for line in now.removesuffix("\n").split("\n")])]
    changes = [fields_of(edit) for edit in items_of(call.input.get("edits"))] or [call.input]
    return [
        (0, 0, made)
        for change in changes
        if (made := changed_lines(str(change.get("old_string", "")), str(change.get("new_string", ""))))
    ]


def changed_lines(before: str, after: str) -> list[str]:
    """What changes, with a sign before each line."""
    if max(before.count("\n"), after.count("\n")) > _MOST_COMPARED:
        # To compare them could take minutes.
        return [f"-{line}" for line in before.split("\n")] + [f"+{line}" for line in after.split("\n")]
    made = unified_diff(before.split("\n"), after.split("\n"), n=3, lineterm="")
    return [line for line in made if not line.startswith(("---", "+++", "@@"))]


def _change(call: Call, shown: Shown) -> Body:
    if call.is_error:
        yield from _items(call, shown)
    edits = items_of(call.input.get("edits"))
    if any(not {*fields_of(each)} <= {"old_string", "new_string"} for each in edits):
        # Such as that every occurrence is meant.
        yield from fields_element({"edits": call.input["edits"]}, shown, call.offset)
    # A cell is taken for Python, which most are.
    name = "cell.py" if call.name == "NotebookEdit" else PurePath(call.field("file_path")).name
    yield from diff(hunks_of(call), shown, call.offset, name)


def diff(hunks: list[Hunk], shown: Shown, offset: int, filename: str = "") -> Body:
    """Changes, with the parts of a line that differ."""
    total = sum(len(lines) for _, _, lines in hunks)
    left, longest = (total, None) if shown.clip is None else (_MOST_DIFF, _LONGEST_SHOWN)
    is_cut = total > left
    rows: list[Markup] = []
    for old, new, lines in hunks:
        if rows:
            rows.append(h("span.l.gap", "\n"))
        some = lines[:left]
        is_cut |= longest is not None and any(len(line) > longest for line in some)
        rows += _diff_rows(old, new, [shown.mask(line)[:longest] for line in some], filename)
        left = max(left - len(lines), 0)
    if rows:
        kind = "code diff" if any(old or new for old, new, _ in hunks) else "code diff bare"
        yield h("pre", h("code", rows), class_=kind, tabindex=0)
    if is_cut:
        yield more(shown, offset, f"Show all {total:,} lines")


def _diff_rows(old: int, new: int, lines: list[str], filename: str) -> list[Markup]:
    numbers = bool(old or new)
    colored = code("\n".join(line[1:] for line in lines), filename=filename).removesuffix("\n").split("\n")
    if len(colored) != len(lines):
        colored = [h("span", line[1:]) for line in lines]
    marked = _marked(lines)
    rows: list[Markup] = []
    for place, line in enumerate(lines):
        sign = line[:1]
        kind = {"+": "add", "-": "del"}.get(sign, "same")
        number = (old if sign == "-" else new) if numbers else ""
        old += sign != "+"
        new += sign != "-"
        inner = _with_marks(colored[place], marked.get(place, set()))
        rows.append(h("span", inner, "\n", class_=f"l {kind}", data_n=number, data_s=sign.strip() or " "))
    return rows


def _marked(lines: list[str]) -> dict[int, set[int]]:
    """Of lines that replace each other, one for one, where the words are that differ."""
    made: dict[int, set[int]] = {}
    place = 0
    while place < len(lines):
        first = place
        while place < len(lines) and lines[place][:1] == "-":
            place += 1
        middle = place
        while place < len(lines) and lines[place][:1] == "+":
            place += 1
        if place - middle == middle - first <= 20:
            for old, new in zip(range(first, middle), range(middle, place), strict=True):
                before, after = (_WORD.findall(lines[each][1:]) for each in (old, new))
                if max(len(before), len(after)) > _LONGEST_MARKED or len(made) > _MOST_MARKED:
                    continue
                match = SequenceMatcher(None, before, after, autojunk=False)
                if match.ratio() > 0.4:
                    same = match.get_matching_blocks()
                    made[old] = _others(before, [range(a, a + size) for a, _, size in same])
                    made[new] = _others(after, [range(b, b + size) for _, b, size in same])
        place = max(place, first + 1)
    return made


def _others(words: list[str], same: list[range]) -> set[int]:
    """The places of the signs of all words but those."""
    known = {number for each in same for number in each}
    ends = list(accumulate(map(len, words)))
    return {
        place
        for number, word in enumerate(words)
        if number not in known
        for place in range(ends[number] - len(word), ends[number])
    }


def _with_marks(colored: str, marked: set[int]) -> Markup:
    """A line with some of its signs marked, within the elements that color it."""
    if not marked:
        return Markup(colored)
    made: list[str] = []
    place, is_open = 0, False
    for piece in _PIECE.findall(colored):
        is_marked = piece[0] != "<" and place in marked
        if is_marked != is_open:
            made.append("<mark>" if is_marked else "</mark>")
            is_open = is_marked
        made.append(piece)
        place += piece[0] != "<"
    return Markup("".join(made) + ("</mark>" if is_open else ""))


def _bash(call: Call, shown: Shown) -> Body:
    command = shown.mask(call.field("command"))
    if description := call.field("description"):
        yield h("p.note", shown.mask(description))
    yield h("pre.code.command", h("code", code(command, language="bash")), tabindex=0)
    stdout, stderr = call.output.get("stdout"), call.output.get("stderr")
    if isinstance(stdout, str) and isinstance(stderr, str) and not call.is_error:
        for words, kind in ((stdout, ""), (stderr, "err")):
            if words.strip():
                yield from clipped(words.strip("\n"), shown, call.offset, partial(output, kind=kind))
        if call.result is not None and not (stdout + stderr).strip():
            yield h("p.note", "No output")
        for block_place, block in enumerate(call.result or ()):
            if block.get("type") != "text":
                yield block_element(block, shown, call.result_offset, block_place)
    else:
        yield from _items(call, shown)


def _page(call: Call, shown: Shown) -> Body:
    if call.text.strip():
        yield from clipped(call.text, shown, call.offset, lambda part: markdown(part, redact=False))


def _todos(call: Call, shown: Shown) -> Body:
    todos = call.input.get("todos")
    rows: list[Markup] = []
    for item in items_of(todos):
        todo = fields_of(item)
        status = str(todo.get("status", ""))
        kind = status if status in ("completed", "in_progress") else "pending"
        sign = {"completed": "✓", "in_progress": "▸"}.get(kind, "○")
        says = shown.mask(str(todo.get("content", "")))
        rows.append(h("li", h("span", sign, aria_hidden="true"), says, class_=kind))
    yield h("ul.todos", rows)
    if call.is_error:
        yield from _items(call, shown)


def _question(call: Call, shown: Shown) -> Body:
    answers = fields_of(call.output.get("answers"))
    questions = call.input.get("questions")
    for item in items_of(questions):
        question = fields_of(item)
        asked = str(question.get("question", ""))
        answer = answers.get(asked)
        chosen = [str(each) for each in items_of(answer)] or str(answer or "").split(", ")
        yield h("p.question", h("b", shown.mask(asked)))
        options = question.get("options")
        rows: list[Markup] = []
        known: list[str] = []
        for each in items_of(options):
            option = fields_of(each)
            label = str(option.get("label", ""))
            known.append(label)
            is_chosen = label in chosen or label == answer
            says = h("small", shown.mask(str(option.get("description", ""))))
            sign = h("span", "●" if is_chosen else "○", aria_hidden="true")
            rows.append(
                h("li", sign, h("b", shown.mask(label)), " ", says, class_="chosen" if is_chosen else "")
            )
            if isinstance(preview := option.get("preview"), str):
                rows.append(h("li", output(shown.mask(preview))))
        if answer and answer not in known and not any(each in known for each in chosen):
            rows.append(h("li.chosen", h("span", "●", aria_hidden="true"), shown.mask(", ".join(chosen))))
        yield h("ul.options", rows)
    if not answers:
        yield from _items(call, shown)


def _plan(call: Call, shown: Shown) -> Body:
    yield h("div.planned", markdown(call.field("plan"), redact=shown.redact))
    yield from _items(call, shown)


def _agent(call: Call, shown: Shown) -> Body:
    if kind := call.field("subagent_type"):
        yield h("p.note", shown.mask(kind))
    yield from clipped(call.field("prompt"), shown, call.offset, lambda part: markdown(part, redact=False))
    if call.text.strip():
        yield h("p.label", "Report")
        yield from clipped(call.text, shown, call.offset, lambda part: markdown(part, redact=False))


_OTHER: Final = View("other", _other)
_VIEWS: Final = {
    "Read": View("files", _read),
    **dict.fromkeys(("Glob", "Grep", "LS"), View("files", _items)),
    "Edit": View("edits", _change, ("old_string", "new_string"), is_open=True),
    "MultiEdit": View("edits", _change, ("edits",), is_open=True),
    "Write": View("edits", _change, ("content",), is_open=True),
    "NotebookEdit": View("edits", _change, ("new_source",), is_open=True),
    **dict.fromkeys(("Bash", "PowerShell"), View("shell", _bash, ("command", "description"))),
    **dict.fromkeys(("BashOutput", "KillShell", "Monitor", "TaskOutput", "TaskStop"), View("shell", _items)),
    **dict.fromkeys(("WebFetch", "WebSearch"), View("web", _page)),
    "TodoWrite": View("plan", _todos, ("todos",), is_open=True),
    **dict.fromkeys(("TaskCreate", "TaskGet", "TaskList", "TaskUpdate"), View("plan", _items)),
    "AskUserQuestion": View("plan", _question, ("questions", "answers"), is_open=True),
    "ExitPlanMode": View("plan", _plan, ("plan",), is_open=True),
    **dict.fromkeys(("Task", "Agent"), View("agents", _agent, ("prompt", "subagent_type"))),
}
"""How calls of known tools are shown; of any other, all fields and the result."""


def input_element(name: str, input: JsonObject) -> Markup:
    """What a call would do, with nothing hidden or cut: for somebody who decides about it."""
    call, view = Call(name=name, input=input), _VIEWS.get(name, _OTHER)
    return h("div.body", list(_body(call, view, Shown(base="", redact=False, clip=None))))


def result_blocks(block: JsonObject) -> list[JsonObject]:
    """What a result consists of."""
    return blocks_of(block.get("content"))
