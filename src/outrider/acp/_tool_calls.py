"""Describes tool calls for editors: title, kind, files with lines, diffs, and results.

Knows the tools of Claude Code; any other tool is shown by its name and input.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from acp import schema

from outrider._display import one_line
from outrider.acp._editor import own_name
from outrider.options._validators import is_list
from outrider.wire._tolerant import is_object

if TYPE_CHECKING:
    from typing import TypeAlias

    from outrider.wire import JsonObject, ToolResultBlock

    Content: TypeAlias = (
        schema.ContentToolCallContent | schema.FileEditToolCallContent | schema.TerminalToolCallContent
    )

_TOOLS: Final[Mapping[schema.ToolKind, str]] = {
    "read": "Read NotebookRead",
    "search": "LS Glob Grep LSP ToolSearch",
    "edit": "Edit MultiEdit Write NotebookEdit",
    "execute": "Bash PowerShell Monitor",
    "fetch": "WebFetch WebSearch",
    "think": "Agent Task TodoWrite TaskCreate TaskUpdate TaskList TaskGet",
    "switch_mode": "EnterPlanMode ExitPlanMode",
}
_KINDS: Final[Mapping[str, schema.ToolKind]] = {
    name: kind for kind, names in _TOOLS.items() for name in names.split()
}
_PATHS: Final = ("file_path", "notebook_path", "filePath", "path")
_LONGEST_TITLE: Final = 200
_MOST_OLD_TEXT: Final = 1024 * 1024
"""A larger file is not read for its diff."""


class ToolCall:
    """One call of a tool."""

    def __init__(self, id: str, name: str, input: JsonObject, cwd: str, *, is_main: bool = True) -> None:
        self.id, self.input, self._cwd = id, input, cwd
        self.is_main = is_main
        """Whether it is the agent's own, and not a subagent's."""
        self.name = own_name(name)
        """As Claude Code calls the tool, also where the editor's stands for it."""
        self.terminal: str | None = None
        """The editor's terminal that the call runs in."""

    @property
    def kind(self) -> schema.ToolKind:
        return _KINDS.get(self.name, "other")

    @property
    def path(self) -> str | None:
        """The file or folder that it is about."""
        given = next((value for key in _PATHS if isinstance(value := self.input.get(key), str)), None)
        return None if not given else str(Path(self._cwd, given))

    @property
    def title(self) -> str:
        given, name = self._text, self.name
        match name:
            case "Bash" | "PowerShell":
                title = given("command")
            case "Read" | "Write" | "Edit" | "MultiEdit" | "NotebookEdit" | "LS":
                title = f"{name} {self._short_path()}{self._range()}"
            case "Glob" | "Grep":
                where = f" in {self._short_path()}" if self.path else ""
                title = f"{name} {given('pattern')}{where}"
            case "WebFetch":
                title = f"Fetch {given('url')}"
            case "WebSearch":
                title = f"Search {given('query')}"
            case "Agent" | "Task":
                title = given("description")
            case "ExitPlanMode":
                title = "Carry out the plan"
            case "AskUserQuestion":
                title = "A question for you"
            case _:
                shown = msgspec.json.encode(self.input, enc_hook=str).decode() if self.input else ""
                title = f"{name.removeprefix('mcp__').replace('__', ': ', 1)} {shown}"
        title = one_line(title).strip() or name
        return title if len(title) <= _LONGEST_TITLE else f"{title[:_LONGEST_TITLE]}…"

    def _text(self, key: str) -> str:
        value: object = self.input.get(key)
        return value if isinstance(value, str) else ""

    def _short_path(self) -> str:
        path = Path(self.path or self._cwd)
        return str(path.relative_to(self._cwd)) if path.is_relative_to(self._cwd) else str(path)

    def _range(self) -> str:
        offset, limit = self.input.get("offset"), self.input.get("limit")
        if self.name != "Read" or not (isinstance(offset, int) or isinstance(limit, int)):
            return ""
        first = offset if isinstance(offset, int) else 1
        return f" ({first}-{first + limit - 1})" if isinstance(limit, int) else f" (from {first})"

    # What editors show.

    def locations(self, line: int | None = None) -> list[schema.ToolCallLocation] | None:
        """The file, for editors that follow the agent."""
        offset: object = self.input.get("offset")
        if line is None and self.name == "Read" and isinstance(offset, int) and offset >= 0:
            line = offset
        return None if self.path is None else [schema.ToolCallLocation(path=self.path, line=line)]

    def preview(self) -> list[Content]:
        """What is to happen: a diff for a change of a file, else the words of the input."""
        match self.name:
            case "Edit" | "MultiEdit" | "Write":
                return [*self._diffs()]
            case "ExitPlanMode" if self._text("plan"):
                return [_words(self._text("plan"))]
            case "Agent" | "Task" if self._text("prompt"):
                return [_words(self._text("prompt"))]
            case "Bash" | "PowerShell" if self._text("description"):
                return [_words(self._text("description"))]
            case _:
                return []

    def _diffs(self) -> list[schema.FileEditToolCallContent]:
        path = self.path
        if path is None:
            return []
        if self.name == "Write":
            return [_diff(path, _old_text(path), self._text("content"))]
        edits: object = self.input.get("edits") if self.name == "MultiEdit" else [self.input]
        return [
            _diff(path, str(edit.get("old_string") or "") or None, str(edit.get("new_string") or ""))
            for edit in (edits if is_list(edits) else ())
            if is_object(edit)
        ]

    def result(self, block: ToolResultBlock, output: object) -> list[Content] | None:
        """What came of it; None where nothing is to change. `output` is the tool's own result."""
        if self.terminal is not None:
            return None
        if not block.is_error and self.kind == "edit":
            return self._changed(output)
        parts = (
            block.content if isinstance(block.content, list) else [{"type": "text", "text": block.content}]
        )
        found = [made for part in parts if (made := self._part(part, is_error=bool(block.is_error)))]
        return found or None

    def _changed(self, output: object) -> list[Content] | None:
        """The diff of what was really changed, by the tool's own report."""
        if not is_object(output) or self.name != "Write" or self.path is None:
            return None
        original: object = output.get("originalFile")
        return [_diff(self.path, original if isinstance(original, str) else None, self._text("content"))]

    def first_line(self, output: object) -> int | None:
        """The first line that was changed, by the tool's own report."""
        hunks: object = output.get("structuredPatch") if is_object(output) else None
        first = hunks[0] if is_list(hunks) and hunks else None
        line: object = first.get("newStart") if is_object(first) else None
        return line if isinstance(line, int) and line >= 0 else None

    def _part(self, part: JsonObject, *, is_error: bool) -> Content | None:
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            # Claude Code marks its own errors for the model.
            text = part["text"].removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
            if not text.strip():
                return None
            return _words(f"```console\n{text.rstrip()}\n```" if self.kind == "execute" or is_error else text)
        source: object = part.get("source")
        if part.get("type") == "image" and is_object(source) and source.get("type") == "base64":
            made = schema.ImageContentBlock(
                type="image", data=str(source.get("data")), mime_type=str(source.get("media_type"))
            )
            return schema.ContentToolCallContent(type="content", content=made)
        return None


def text_block(text: str) -> schema.TextContentBlock:
    """A text, for an editor."""
    return schema.TextContentBlock(type="text", text=text)


def _words(text: str) -> schema.ContentToolCallContent:
    return schema.ContentToolCallContent(type="content", content=text_block(text))


def _diff(path: str, old: str | None, new: str) -> schema.FileEditToolCallContent:
    return schema.FileEditToolCallContent(type="diff", path=path, old_text=old, new_text=new)


def _old_text(path: str) -> str | None:
    """What is in a file before it is written; None if there is none, or nothing to compare with."""
    try:
        file = Path(path)
        # To read a pipe or a device might never end.
        is_readable = file.is_file() and file.stat().st_size <= _MOST_OLD_TEXT
        return file.read_text(encoding="utf-8") if is_readable else None
    except (OSError, ValueError):
        return None
