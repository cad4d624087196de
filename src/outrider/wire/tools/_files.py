"""Inputs of the built-in tools that work on files: read, write, search, notebooks, symbols and worktrees.

Does not hold the shells, which can touch files too; the table of all tools is in `_table`.
"""

from __future__ import annotations

from typing import Literal

from outrider.wire._value import Number, Value


class ReadInput(Value):
    """Shows a file to the agent, whole or in part; also images, notebooks and PDF files."""

    file_path: str
    offset: int | None = None
    """The line to begin with."""
    limit: int | None = None
    """How many lines at the most."""
    pages: str | None = None
    """A range of PDF pages, such as `"3-7"`."""
    allow_large: bool | None = None
    """Go past the usual size limits."""


class WriteInput(Value):
    """Creates a file or replaces all that is in it."""

    file_path: str
    content: str


class EditInput(Value):
    """Replaces one piece of text in a file by another."""

    file_path: str
    old_string: str
    new_string: str
    replace_all: bool | None = None
    """Every occurrence, not just one that must be unique. The program writes it out even when it is false."""


class NotebookEditInput(Value):
    """Replaces, adds or removes a cell of a Jupyter notebook."""

    notebook_path: str
    new_source: str
    cell_id: str | None = None
    """The cell to change, or the one that a new cell comes after."""
    cell_type: Literal["code", "markdown"] | None = None
    edit_mode: Literal["replace", "insert", "delete"] | None = None


class GlobInput(Value):
    """Finds files whose path matches a pattern."""

    pattern: str
    path: str | None = None
    """The folder to search, the working folder if left out."""


class GrepInput(
    Value,
    rename={
        "after": "-A",
        "before": "-B",
        "around": "-C",
        "ignore_case": "-i",
        "line_numbers": "-n",
        "only_matching": "-o",
    },
):
    """Finds lines that match a regular expression."""

    pattern: str
    path: str | None = None
    glob: str | None = None
    """Only files whose name matches this pattern."""
    type: str | None = None
    """Only files of this kind, by ripgrep's names: `"py"`, `"rust"`."""
    output_mode: Literal["content", "files_with_matches", "count"] | None = None
    after: Number | None = None
    """Lines to show behind each match."""
    before: Number | None = None
    """Lines to show ahead of each match."""
    around: Number | None = None
    """Lines to show on both sides of each match."""
    context: Number | None = None
    """The same as `around`, by its long name."""
    ignore_case: bool | None = None
    line_numbers: bool | None = None
    only_matching: bool | None = None
    """Show just the part of a line that matched."""
    head_limit: Number | None = None
    """How many entries to return."""
    offset: Number | None = None
    """How many entries to pass over first."""
    multiline: bool | None = None
    """Let a match run over line ends."""


class LSPInput(Value, rename={"file_path": "filePath"}):
    """Asks a language server about the symbol at a place in a file."""

    operation: str
    """`goToDefinition`, `findReferences`, `hover`, `documentSymbol`, `workspaceSymbol`, `goToImplementation`,
    `prepareCallHierarchy`, `incomingCalls`, `outgoingCalls`, or what a later program adds."""
    file_path: str
    line: int
    """Counted from 1."""
    character: int
    """Counted from 1."""
    query: str | None = None
    """The name to look for, with `workspaceSymbol`."""


class EnterWorktreeInput(Value):
    """Moves the session into a git worktree, a new one or one that is there."""

    name: str | None = None
    """What to call a new one."""
    path: str | None = None
    """Where an existing one is."""


class ExitWorktreeInput(Value):
    """Leaves the worktree that the session had moved into."""

    action: Literal["keep", "remove"]
    discard_changes: bool | None = None
    """Remove it even if that loses work."""
