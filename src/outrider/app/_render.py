"""Puts frames into words, and lays them out: with labels (`Page`), or as a turn runs (`Stream`).

Does not ask anything: `_ask` does."""

from __future__ import annotations

import operator
import os
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import dropwhile
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, cast

import anyio
import msgspec
from rich.cells import cell_len
from rich.console import Console, Group
from rich.segment import Segment, SegmentLines
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from outrider import wire
from outrider._display import one_line, printable
from outrider.app._terminal import INDENT
from outrider.wire.control import CanUseTool, HookCallback, ask_from_wire, request_from_wire

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.markdown import Markdown

    from outrider.app._terminal import Terminal

Kind: TypeAlias = Literal[
    "user",
    "agent",
    "thinks",
    "tool",
    "returns",
    "fails",
    "asks",
    "answer",
    "request",
    "refused",
    "note",
    "done",
    "failed",
]
"""Who speaks, or what happens."""


class DisplayLine(NamedTuple):
    """A line to show."""

    kind: Kind
    text: str
    name: str = ""
    """The tool of a tool call."""
    is_aside: bool = False
    """Not part of the main conversation, such as a subagent's words."""


# The field that describes a call best.
_TELLING: Final[Mapping[str, str]] = {
    "Bash": "command",
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "Glob": "pattern",
    "Grep": "pattern",
    "WebFetch": "url",
    "WebSearch": "query",
    "Agent": "description",
    "Task": "description",
    "Skill": "skill",
    "ToolSearch": "query",
}
_LONG: Final = 200


def describe(
    message: object, *, cwd: str | None = None, is_from_agent: bool = True, with_requests: bool = False
) -> Iterator[DisplayLine]:
    """The lines to show for a frame. Stream events have none, because their message follows.

    With `with_requests`, control requests and replies are described, too.
    """
    match message:
        case wire.UserMessage() if not is_from_agent or message.is_replay:
            if text := message.text.strip():
                yield DisplayLine("user", printable(text))
        case wire.UserMessage(content=list(blocks)) | wire.AssistantMessage(content=list(blocks)):
            is_aside = message.parent_tool_use_id is not None
            for block in blocks:
                for each in _of_block(block, cwd, is_spoken=isinstance(message, wire.AssistantMessage)):
                    yield each._replace(is_aside=is_aside)
        case wire.ResultMessage():
            yield DisplayLine("done" if message.is_success else "failed", outcome(message))
        case wire.ControlRequest() | wire.ControlResponse() | wire.ControlCancelRequest():
            if with_requests:
                yield from _of_request(message, cwd, is_from_agent)
        case wire.StreamEvent():
            pass
        case _:
            if note := _note(message):
                yield DisplayLine("note", one_line(note))


def _of_block(block: wire.ContentBlock, cwd: str | None, *, is_spoken: bool) -> Iterator[DisplayLine]:
    match block:
        case wire.TextBlock(text):
            # Text beside tool results in a user message was written by Claude Code.
            if text.strip() and is_spoken:
                yield DisplayLine("agent", printable(text.strip("\n")))
        case wire.ThinkingBlock(thinking):
            if thinking.strip():
                yield DisplayLine("thinks", printable(thinking.strip()))
        case wire.ToolUseBlock(name=name, input=input):
            yield DisplayLine("tool", call_in_words(name, input, cwd), tool_name(name))
        case wire.ToolResultBlock():
            text = printable(_from_here(block.joined_text().strip("\n"), cwd)) or "(nothing)"
            yield DisplayLine("fails" if block.is_error else "returns", text)
        case _:
            pass


def _of_request(frame: object, cwd: str | None, is_from_agent: bool) -> Iterator[DisplayLine]:
    match frame:
        case wire.ControlRequest(request=request) if is_from_agent:
            asked = ask_from_wire(request)
            if isinstance(asked, CanUseTool):
                what = call_in_words(asked.tool_name, asked.input, cwd)
                yield DisplayLine("asks", f"may it use {tool_name(asked.tool_name)}? {what}".rstrip())
            elif isinstance(asked, HookCallback):
                given = _mapping(request.get("input"))
                names = [str(given[name]) for name in ("hook_event_name", "tool_name") if given.get(name)]
                yield DisplayLine("asks", one_line(f"the hook {' '.join(names)}"))
        case wire.ControlRequest(request=request):
            yield DisplayLine("request", one_line(request_from_wire(request).subtype))
        case wire.ControlResponse(response=response) if is_from_agent:
            if response.error:
                yield DisplayLine("refused", printable(response.error))
        case wire.ControlResponse(response=response):
            if answer := _answer(response.response, response.error):
                yield DisplayLine("answer", printable(answer))
        case _:
            yield DisplayLine("note", "request cancelled")


def _answer(payload: object, error: str | None) -> str:
    fields = _mapping(payload)
    decided = _mapping(fields.get("hookSpecificOutput"))
    parts = decided.get("permissionDecision"), decided.get("permissionDecisionReason")
    if "behavior" in fields:
        parts = fields["behavior"], fields.get("message")
    return error or " ".join(str(part) for part in parts if part)


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _note(message: object) -> str:
    match message:
        case wire.InitMessage(model=model, tools=tools, permission_mode=mode):
            return f"{model}, {len(tools)} tools, permission mode {mode}"
        case wire.ApiRetryMessage():
            status = f"status {message.error_status}" if message.error_status else "no answer"
            return f"the API failed ({status}): attempt {message.attempt} of {message.max_retries}"
        case wire.CompactBoundaryMessage():
            return "conversation compacted"
        case wire.PermissionDeniedMessage(tool_name=name):
            return f"{tool_name(name)} was denied by Claude Code's rules"
        case wire.ModelFallbackMessage():
            return "switched to the fallback model"
        case wire.InformationalMessage(content=content):
            return content
        case wire.TaskNotificationMessage():
            return f"background task {message.status}: {message.summary}"
        case wire.MalformedLine():
            return f"not a frame: {message.text}"
        case wire.OversizedMessage():
            return f"message of {message.size:,} bytes skipped"
        case wire.UnknownMessage(type=type):
            return f"message of unknown type: {type}"
        case _:
            return ""


def tool_name(name: str) -> str:
    """A tool's display name: `mcp__tools__lookup` is the user's own `lookup`."""
    if not name.startswith("mcp__"):
        return one_line(name)
    server, _, tool = name.removeprefix("mcp__").partition("__")
    return one_line(tool if server == "tools" else f"{server}.{tool}")


def call_in_words(name: str, input: Mapping[str, object], cwd: str | None = None) -> str:
    """Describe a tool call's input on one line."""
    telling = input.get(_TELLING.get(name, ""))
    if isinstance(telling, str):
        text = _relative(telling, cwd) if name not in ("Bash", "WebFetch") else telling
    else:
        text = " ".join(f"{key}={as_json(value)}" for key, value in input.items())
    return shortened(one_line(text))


def as_json(value: object) -> str:
    """A value on one line; what JSON has no form for, as text."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def _relative(path: str, cwd: str | None) -> str:
    """A path relative to the working folder, if it is inside."""
    if cwd is None or not os.path.isabs(path):  # noqa: PTH117 - a text of the agent's, perhaps of another system
        return path
    return path.removeprefix(cwd.rstrip("/") + "/")


def _from_here(text: str, cwd: str | None) -> str:
    """A text with its paths relative to the working folder."""
    return text.replace(cwd.rstrip("/") + "/", "") if cwd and cwd != "/" else text


def shortened(text: str, length: int = _LONG) -> str:
    """Cut a text that is too long."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def outcome(result: wire.ResultMessage) -> str:
    """Describe the end of a turn on one line."""
    if not result.is_success and (result.errors or result.result):
        return shortened(one_line((result.errors or [str(result.result)])[0]))
    words = "" if result.is_success else f"{one_line(result.subtype)}, "
    seconds = result.duration_ms / 1000
    return f"{words}{result.num_turns} model calls, {seconds:.1f} s, {money(result.cost_usd)} so far"


def counted(number: int, thing: str) -> str:
    """A number of things: `1 task`, `2 tasks`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def money(usd: float) -> str:
    """Format an amount of money."""
    return f"${usd:.2f}" if usd >= 0.995 else f"${usd:.4f}"


LABEL: Final = 8
"""The width of a label."""

_MARGIN: Final = 2
_WIDEST: Final = 100
"""The greatest width of a page: longer lines are hard to read."""

_LOOKS: Final[Mapping[Kind, tuple[str, str]]] = {
    "user": ("bold cyan", "bold"),
    "agent": ("bold green", ""),
    "thinks": ("dim", "dim italic"),
    "tool": ("bold blue", ""),
    "returns": ("dim", "dim"),
    "fails": ("red", "red"),
    "asks": ("bold yellow", ""),
    "answer": ("yellow", ""),
    "request": ("dim", "dim"),
    "refused": ("red", "red"),
    "note": ("dim", "dim"),
    "done": ("bold green", ""),
    "failed": ("bold red", "red"),
}
"""The styles of the label and the words of each kind."""

_MOST_LINES: Final[Mapping[Kind, int]] = {"returns": 3, "fails": 3, "thinks": 3, "note": 2, "answer": 3}
"""The lines after which a kind is cut."""


class Page:
    """Prints a conversation with labels, optionally also to a second console, `copy`."""

    def __init__(
        self,
        terminal: Terminal,
        *,
        with_times: bool = False,
        with_markdown: bool = False,
        copy: Console | None = None,
    ) -> None:
        """`with_markdown`: a terminal shows what the agent says as it is meant."""
        self.terminal = terminal
        self._with_times = with_times
        self._with_markdown = with_markdown and terminal.is_live
        self._copy = copy

    def print(self, renderable: RenderableType = "") -> None:
        """Print anything."""
        self.terminal.print(renderable)
        if self._copy is not None:
            self._copy.print(renderable, highlight=False)

    def say(self, line: DisplayLine, *, label: str | None = None, at: float | None = None) -> None:
        """Print a line with its label."""
        if self._with_markdown and line.kind == "agent" and not line.is_aside:
            self.terminal.print(self._rendered(line.text), end="")
            return
        self.terminal.print(self._block(line, label, at, self.terminal.out))
        if self._copy is not None:
            self._copy.print(self._block(line, label, at, self._copy), highlight=False)

    def draw(self, line: DisplayLine, *, at: float | None = None) -> None:
        """Draw a line until something else is printed."""
        self.terminal.show(self._block(line, None, at, self.terminal.out))

    def code(self, source: str) -> None:
        """Print Python source."""
        from rich.syntax import Syntax

        drawn = Syntax(
            source, "python", theme="ansi_dark", background_color="default", padding=(0, 2), word_wrap=True
        )
        plain = Text("\n".join(f"  {line}".rstrip() for line in source.splitlines()))
        self.terminal.print(drawn if self.terminal.out.is_terminal else plain)
        if self._copy is not None:
            self._copy.print(drawn, highlight=False)

    def indented(self, text: Text) -> Text:
        """Indent a line to where the words begin."""
        return Text(" " * self._left()).append_text(text)

    def _left(self) -> int:
        return LABEL + _MARGIN + (8 if self._with_times else 0)

    def _rendered(self, text: str) -> SegmentLines:
        style, console = Style.parse(_LOOKS["agent"][0]), self.terminal.out
        width = min(console.width, _WIDEST) - self._left()
        rows = markdown_rows(text, console, max(width, 20))
        first, *more = list(dropwhile(operator.not_, rows)) or [[]]
        head = [Segment(f"{'agent':>{LABEL}}", style), Segment(" " * _MARGIN), *first]
        left = Segment(" " * self._left())
        return SegmentLines([head, *([left, *row] if row else row for row in more)], new_lines=True)

    def _block(
        self, line: DisplayLine, label: str | None, at: float | None, console: Console
    ) -> RenderableType:
        label_style, style = _LOOKS[line.kind]
        words = Text(line.text, style=style)
        if line.name:
            words = Text.assemble((line.name, "bold"), " ", words)
        if line.is_aside:
            label_style, words.style = "dim", "dim"
        lines = self._wrapped(words, line.kind, console)
        stamp = (
            f"{at:6.2f}  " if self._with_times and at is not None else " " * (self._left() - LABEL - _MARGIN)
        )
        head = Text.assemble((stamp, "dim"), (f"{label or line.kind:>{LABEL}}", label_style), " " * _MARGIN)
        made = [head.append_text(lines[0])]
        made += [self.indented(each) for each in lines[1:]]
        for each in made:
            each.rstrip()
        return Group(*made)

    def _wrapped(self, words: Text, kind: Kind, console: Console) -> list[Text]:
        most = _MOST_LINES.get(kind)
        lines: list[Text] = []
        for line in words.split("\n", allow_blank=True):
            if console.is_terminal:
                width = min(console.width, _WIDEST) - self._left()
                lines += line.wrap(console, max(width, 20))
            else:
                lines.append(line)
            if most is not None and len(lines) > most:
                break
        if most is not None and len(lines) > most:
            lines = lines[:most]
            lines[-1].rstrip()
            lines[-1].append(" …", style="dim")
        return lines or [Text()]


# Pictures.


def _colors(text: str) -> list[tuple[int, int, int]]:
    numbers = [int(each, 16) for each in text.split()]
    return [(number >> 16, number >> 8 & 0xFF, number & 0xFF) for number in numbers]


_THEME: Final = TerminalTheme(
    (0x16, 0x1B, 0x22),
    (0xC9, 0xD1, 0xD9),
    _colors("484f58 ff7b72 56d364 e3b341 79c0ff d2a8ff 56d4dd b1bac4"),
    _colors("6e7681 ffa198 7ee787 f2cc60 a5d6ff e2c5ff b3f0ff f0f6fc"),
)

# Like rich's own, but with installed fonts: a picture in a README cannot load any.
_FORM: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
  font-variant-east-asian: full-width;
  white-space: pre;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
@keyframes {unique_id}-appear {{ from {{ opacity: 0 }} }}
@media not (prefers-reduced-motion) {{
  .{unique_id}-matrix text {{ animation: {unique_id}-appear 0.2s both }}
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""

_LINE_SECONDS: Final = 0.3


def picture(console: Console) -> str:
    """The output of a recording console as SVG, whose lines appear one after the other."""
    drawn = console.export_svg(
        title="outrider demo",
        theme=_THEME,
        code_format=_FORM,
        unique_id="outrider-demo",
        font_aspect_ratio=0.61,
    )
    # The last line has no clip path of its own.
    lines = drawn.count('<clipPath id="outrider-demo-line-') + 1
    delays = "\n".join(
        f'text[clip-path$="-line-{line})"] {{ animation-delay: {line * _LINE_SECONDS:.2f}s }}'
        for line in range(lines)
    )
    return drawn.replace("</style>", f"{delays}\n</style>", 1)


_CALL_LENGTH: Final = 300

_PATIENCE: Final = 1.0
"""Seconds that a question waits until its tool call is on the screen."""


class Stream:
    """Shows the messages of a turn as they arrive.

    On a terminal the answer is rendered as Markdown, paragraph by paragraph, with the unfinished part drawn
    below. For a pipe the answer is not printed here, but as a whole at the end.
    """

    def __init__(self, terminal: Terminal, *, cwd: str | None = None, is_quiet: bool = False) -> None:
        self.terminal = terminal
        self._cwd = cwd
        self._is_quiet = is_quiet
        self._text = ""
        """The text since the last tool call or note."""
        self._printed = 0
        """The lines of it that are printed."""
        self._is_streamed = False
        self._shown_calls: set[str] = set()

    def show(self, message: object) -> None:
        """Show a message."""
        if isinstance(message, wire.StreamEvent):
            if message.parent_tool_use_id is None:
                self._grow(message.text)
            return
        if isinstance(message, wire.AssistantMessage) and message.parent_tool_use_id is None and message.text:
            # The complete message repeats what was streamed.
            if not self._is_streamed and message.error is None:
                self._grow(message.text)
            self.finish()
        # The start is reported by the caller.
        if not isinstance(message, wire.InitMessage):
            for each in describe(message, cwd=self._cwd):
                self._line(each)
        self.remember(message)
        self._wait()

    def remember(self, message: object) -> None:
        """Note that a message is on the screen."""
        if isinstance(message, wire.AssistantMessage):
            self._shown_calls.update(call.id for call in message.tool_uses)

    async def wait_for(self, tool_use_id: str | None) -> None:
        """Wait a moment for a tool call to appear on the screen."""
        with anyio.move_on_after(_PATIENCE):
            # Another thread shows messages.
            while tool_use_id and tool_use_id not in self._shown_calls:  # noqa: ASYNC110
                await anyio.sleep(0.01)

    def finish(self) -> None:
        """Print the rest of the answer."""
        text, self._text, self._is_streamed = self._text, "", False
        if text.strip() and self.terminal.is_live:
            self._print(printable(text))
        self._printed = 0

    def _grow(self, text: str) -> None:
        if not text:
            return
        self._is_streamed = True
        self._text += text
        if not self.terminal.is_live:
            return
        # Finished Markdown can be printed for good; the rest is drawn.
        shown = printable(self._text)
        done, rest = split_finished(shown)
        if done.strip():
            self._print(done)
        if rest.strip():
            self.terminal.show(SegmentLines(self._lines(shown), new_lines=True))

    def _lines(self, text: str) -> list[list[Segment]]:
        """The rendered lines that are not printed yet."""
        console = self.terminal.out
        rows = markdown_rows(text, console, max(console.width - len(INDENT), 20))
        return [_indented(row) for row in rows[self._printed :]]

    def _print(self, text: str) -> None:
        lines = self._lines(text)
        if lines:
            self._printed += len(lines)
            self.terminal.print(SegmentLines(lines, new_lines=True), end="")

    def _line(self, each: DisplayLine) -> None:
        if self._is_quiet:
            return
        signs = self.terminal.glyphs
        indent = "  " if each.is_aside else ""
        match each.kind:
            case "tool":
                head = Text.assemble(indent, (f"{signs.tool} ", "blue"), (each.name, "bold"), " ")
                self._note(head.append(shortened(each.text, _CALL_LENGTH)))
            case "returns" | "fails":
                style = "red" if each.kind == "fails" else "dim"
                self._note(Text(f"{indent}  {signs.returns} {_head(each.text)}", style=style))
            case "note":
                self._note(Text(f"{indent}{signs.dot} {each.text}", style="dim"))
            case _:
                pass

    def _note(self, line: Text) -> None:
        self.finish()
        if self.terminal.err.is_terminal:
            line.truncate(max(self.terminal.err.width, 20), overflow="ellipsis")
        self.terminal.note(line)

    def _wait(self) -> None:
        if not self._text:
            self.terminal.wait("working")


def parsed_markdown(text: str) -> Markdown:
    """Markdown whose HTML is shown as text. Rich would leave it out, and "Replace <name>" be a riddle."""
    # Slow to import.
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown

    parsed = Markdown("", hyperlinks=False)
    parsed.parsed = MarkdownIt(options_update={"html": False}).enable(["strikethrough", "table"]).parse(text)
    return parsed


def markdown_rows(text: str, console: Console, width: int) -> list[list[Segment]]:
    """Markdown as rows of this width at most."""
    drawn = console.render_lines(parsed_markdown(text), console.options.update_width(width), pad=False)
    return [row for line in drawn for row in _fitting(_without_margin(line), width)]


def _indented(line: list[Segment]) -> list[Segment]:
    return [Segment(INDENT), *line] if line else line


def _fitting(line: list[Segment], width: int) -> list[list[Segment]]:
    """Split a line into rows that fit: Rich takes some Indic vowels to have no width."""
    if all(segment.text.isascii() for segment in line):
        return [line]
    rows: list[list[Segment]] = [[]]
    used = 0
    for segment in line:
        begun = 0
        for number, sign in enumerate(segment.text):
            size = max(cell_len(sign), unicodedata.category(sign) == "Mc")
            if used + size > width:
                rows[-1].append(segment._replace(text=segment.text[begun:number]))
                rows.append([])
                begun, used = number, 0
            used += size
        rows[-1].append(segment._replace(text=segment.text[begun:]))
    return rows


def _without_margin(line: list[Segment]) -> list[Segment]:
    """Strip trailing spaces: they would be copied, and `^C` at the edge would wrap."""
    kept = list(line)
    while kept and not (kept[-1].style or Style()).bgcolor:
        last = kept.pop()
        if text := last.text.rstrip():
            return [*kept, last._replace(text=text)]
    return kept


def _head(text: str) -> str:
    """The first line, and the number of further lines."""
    lines = text.splitlines()
    more = len(lines) - 1
    return lines[0] + (f"  (and {more} more line{'s' if more > 1 else ''})" if more else "")


def split_finished(text: str) -> tuple[str, str]:
    """Split Markdown after the last empty line outside of code, into the finished part and the rest."""
    is_code = False
    cut = position = 0
    for line in text.splitlines(keepends=True):
        position += len(line)
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif not line.strip() and line.endswith("\n") and not is_code:
            cut = position
    return text[:cut], text[cut:]
