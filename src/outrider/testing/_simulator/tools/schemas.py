"""Owns the built-in tools of the simulated agent as the model is told of them: names and inputs.

Does not carry them out, and does not say which of them a session has.
"""

from __future__ import annotations

from typing import Final

from outrider.testing._simulator.world import ToolSpec
from outrider.wire import JsonObject

__all__ = ["BY_DEFAULT", "CARRIED_OUT", "ONLY_BY_NAME", "SPECS", "WITHOUT_BASH"]

_TEXT: Final[JsonObject] = {"type": "string"}
_NUMBER: Final[JsonObject] = {"type": "number"}
_SWITCH: Final[JsonObject] = {"type": "boolean"}
_TEXTS: Final[JsonObject] = {"type": "array", "items": {"type": "string"}}
_ANYTHING: Final[JsonObject] = {
    "type": "object",
    "propertyNames": {"type": "string"},
    "additionalProperties": {},
}
_LARGEST: Final = 2**53 - 1


def _spec(name: str, description: str, required: tuple[str, ...] = (), /, **fields: JsonObject) -> ToolSpec:
    # Grep has options with dashes: keywords have underscores instead.
    named = {key.replace("_dash_", "-"): schema for key, schema in fields.items()}
    schema: JsonObject = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": named,
        "required": list(required),
        "additionalProperties": False,
    }
    if not required:
        del schema["required"]
    return ToolSpec(name=name, description=description, input_schema=schema)


_KNOWN: Final = (
    _spec(
        "Bash",
        "Runs a shell command in the working folder. `timeout` is in milliseconds.",
        ("command",),
        command=_TEXT,
        timeout=_NUMBER,
        description=_TEXT,
        run_in_background=_SWITCH,
        dangerouslyDisableSandbox=_SWITCH,
    ),
    _spec(
        "Edit",
        "Replaces a text in a file by another.",
        ("file_path", "old_string", "new_string"),
        file_path=_TEXT,
        old_string=_TEXT,
        new_string=_TEXT,
        replace_all={"default": False, **_SWITCH},
    ),
    _spec("Glob", "Lists the files whose paths match a pattern.", ("pattern",), pattern=_TEXT, path=_TEXT),
    _spec(
        "Grep",
        "Searches the contents of files for a regular expression.",
        ("pattern",),
        pattern=_TEXT,
        path=_TEXT,
        glob=_TEXT,
        output_mode={"type": "string", "enum": ["content", "files_with_matches", "count"]},
        _dash_B=_NUMBER,
        _dash_A=_NUMBER,
        _dash_C=_NUMBER,
        context=_NUMBER,
        _dash_n=_SWITCH,
        _dash_i=_SWITCH,
        _dash_o=_SWITCH,
        type=_TEXT,
        head_limit=_NUMBER,
        offset=_NUMBER,
        multiline=_SWITCH,
    ),
    _spec(
        "Read",
        "Reads a file, or some lines of it.",
        ("file_path",),
        file_path=_TEXT,
        offset={"type": "integer", "minimum": 0, "maximum": _LARGEST},
        limit={"type": "integer", "exclusiveMinimum": 0, "maximum": _LARGEST},
        pages=_TEXT,
        allow_large=_SWITCH,
    ),
    _spec(
        "TaskCreate",
        "Adds a task to the list of tasks.",
        ("subject", "description"),
        subject=_TEXT,
        description=_TEXT,
        activeForm=_TEXT,
        metadata=_ANYTHING,
    ),
    _spec("TaskGet", "Shows a task of the list.", ("taskId",), taskId=_TEXT),
    _spec("TaskList", "Shows the list of tasks."),
    _spec("TaskStop", "Stops what runs in the background.", task_id=_TEXT, shell_id=_TEXT),
    _spec(
        "TaskUpdate",
        "Changes a task of the list.",
        ("taskId",),
        taskId=_TEXT,
        subject=_TEXT,
        description=_TEXT,
        activeForm=_TEXT,
        status={
            "anyOf": [
                {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                {"type": "string", "const": "deleted"},
            ]
        },
        addBlocks=_TEXTS,
        addBlockedBy=_TEXTS,
        owner=_TEXT,
        metadata=_ANYTHING,
    ),
    _spec(
        "WebFetch",
        "Fetches a page of the web.",
        ("url", "prompt"),
        url={"type": "string", "format": "uri"},
        prompt=_TEXT,
        offset={"type": "integer", "minimum": 0, "maximum": _LARGEST},
    ),
    _spec(
        "WebSearch",
        "Searches the web.",
        ("query",),
        query={"type": "string", "minLength": 2},
        allowed_domains=_TEXTS,
        blocked_domains=_TEXTS,
    ),
    _spec("Write", "Writes a file.", ("file_path", "content"), file_path=_TEXT, content=_TEXT),
)

_NAMED_ONLY: Final = (
    "CronCreate",
    "CronDelete",
    "CronList",
    "EnterWorktree",
    "ExitWorktree",
    "ListAgents",
    "Monitor",
    "NotebookEdit",
    "ReportFindings",
    "ScheduleWakeup",
    "SendMessage",
    "Skill",
    "ToolSearch",
    "Workflow",
)

CARRIED_OUT: Final = frozenset(spec.name for spec in _KNOWN)
"""The tools that do something here."""

ONLY_BY_NAME: Final = frozenset({"Glob", "Grep", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate"})
"""Those that a session has only if `--tools` names them."""

WITHOUT_BASH: Final = frozenset({"Glob", "Grep"})
"""Those of them that a session without `Bash` has all the same."""

SPECS: Final = {
    spec.name: spec
    for spec in sorted(
        [
            *_KNOWN,
            *(
                ToolSpec(name=name, description="Not simulated.", input_schema={"type": "object"})
                for name in _NAMED_ONLY
            ),
        ],
        key=lambda spec: spec.name,
    )
}
"""All of them, by name, in the order in which the program lists them."""

BY_DEFAULT: Final = frozenset(SPECS) - ONLY_BY_NAME
"""Those that a session has if nothing is said."""
