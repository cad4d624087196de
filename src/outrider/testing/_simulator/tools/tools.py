"""The built-in tools of the simulated agent: which there are, and those for files and for questions."""

from __future__ import annotations

import difflib
import errno
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.testing._simulator.frames import (
    Outcome,
    ToolCall,
    ToolFailed,
    ToolSpec,
    Unusable,
    as_list,
    as_object,
    check_input,
    covers_tool,
    no_such_tool,
)
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.host.permissions import Permissions
    from outrider.testing._simulator.run import Run
    from outrider.testing._simulator.tools.tasks import Background


_CURRENT: Final = " (file state is current in your context — no need to Read it back)"


class Files:
    """Reads and writes files, and knows which of them the model has seen whole."""

    def __init__(self, environment: Mapping[str, str], cwd: Path) -> None:
        self._environment, self._cwd = environment, cwd
        self._seen: set[Path] = set()

    def _find(self, path: str) -> Path:
        home = self._environment.get("HOME")
        if home is not None and (path == "~" or path.startswith("~/")):
            path = home + path[1:]
        return Path(os.path.normpath(self._cwd / path))

    def mark_read(self, path: str) -> None:
        """Take a file for read, as `seed_read_state` asks."""
        self._seen.add(self._find(path))

    def read(self, given: JsonObject) -> Outcome:
        path = self._find(given["file_path"])
        text = self._load(path)
        if text is None:
            raise ToolFailed(self._missing())
        offset = max(int(given.get("offset", 1)), 0)
        limit: int | None = given.get("limit") or None
        lines, first = text.split("\n"), max(offset - 1, 0)
        shown = lines[first : None if limit is None else first + limit]
        (self._seen.add if len(shown) == len(lines) else self._seen.discard)(path)
        if not text:
            content = _warning("the file exists but the contents are empty.")
        elif not shown:
            content = _warning(
                f"the file exists but is shorter than the provided offset ({offset}). "
                f"The file has {len(lines)} lines."
            )
        else:
            content = "\n".join(f"{number}\t{line}" for number, line in enumerate(shown, offset))
        detail: JsonObject = {
            "filePath": given["file_path"],
            "content": "\n".join(shown),
            "numLines": len(shown),
            "startLine": offset,
            "totalLines": len(lines),
        }
        return Outcome(content=content, detail={"type": "text", "file": detail})

    def write(self, given: JsonObject) -> Outcome:
        path, content = self._find(given["file_path"]), str(given["content"])
        # An empty file is like no file.
        original = self._load(path) or None
        self._save(path, content)
        self._seen.add(path)
        detail: JsonObject = {
            "type": "create" if original is None else "update",
            "filePath": given["file_path"],
            "content": content,
            "structuredPatch": [] if original is None else _patch(original, content),
            "originalFile": original,
            "userModified": False,
        }
        text = (
            f"File created successfully at: {given['file_path']}"
            if original is None
            else f"The file {given['file_path']} has been updated successfully."
        )
        return Outcome(content=text + _CURRENT, detail=detail)

    def edit(self, given: JsonObject) -> Outcome:
        path, original = self._find(given["file_path"]), self.original(given)
        old, new = str(given["old_string"]), str(given["new_string"])
        replaces_all = bool(given.get("replace_all"))
        text = original.replace(old, new, -1 if replaces_all else 1) if old else new
        is_seen = path in self._seen or not path.exists()
        self._save(path, text)
        detail: JsonObject = {
            "filePath": given["file_path"],
            "oldString": old,
            "newString": new,
            "originalFile": original,
            "structuredPatch": _patch(original, text),
            "userModified": False,
            "replaceAll": replaces_all,
        }
        if not is_seen:
            detail["contentNotInModelContext"] = True
        how = ". All occurrences were successfully replaced." if replaces_all else " successfully."
        message = f"The file {given['file_path']} has been updated{how}{_CURRENT if is_seen else ''}"
        return Outcome(content=message, detail=detail)

    def original(self, given: JsonObject) -> str:
        """What is in the file that is to be edited. Raises `Unusable` for an edit that cannot be made."""
        old = str(given["old_string"])
        if old == given["new_string"]:
            raise Unusable("No changes to make: old_string and new_string are exactly the same.")
        original = self._load(self._find(given["file_path"]))
        if original is None:
            if old:
                raise Unusable(self._missing())
            return ""
        if not old:
            if original.strip():
                raise Unusable("Cannot create new file - file already exists.")
            return original
        count = original.count(old)
        if not count:
            raise Unusable(f"String to replace not found in file.\nString: {old}")
        if count > 1 and not given.get("replace_all"):
            raise Unusable(
                f"Found {count} matches of the string to replace, but replace_all is false. To replace all "
                "occurrences, set replace_all to true. To replace only one occurrence, please provide more "
                f"context to uniquely identify the instance.\nString: {old}"
            )
        return original

    def _missing(self) -> str:
        return f"File does not exist. Note: your current working directory is {self._cwd}."

    def _load(self, path: Path) -> str | None:
        """The text of a file; none if there is no such file."""
        try:
            return path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ToolFailed(_system_error(error, path)) from error

    def _save(self, path: Path, text: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "replace"))
        except OSError as error:
            raise ToolFailed(_system_error(error, path)) from error


def _warning(text: str) -> str:
    return f"<system-reminder>Warning: {text}</system-reminder>"


def _system_error(error: OSError, path: Path) -> str:
    name = errno.errorcode.get(error.errno or 0, "EIO")
    if name == "EISDIR":
        return f"EISDIR: illegal operation on a directory, read '{path}'"
    return f"{name}: {(error.strerror or str(error)).lower()}, open '{path}'"


def _patch(before: str, after: str) -> list[JsonObject]:
    """What changed, as `structuredPatch` has it."""
    old, new = before.splitlines(), after.splitlines()
    hunks: list[JsonObject] = []
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes():
        lines: list[str] = []
        for kind, old_start, old_end, new_start, new_end in group:
            lines += [f"{' ' if kind == 'equal' else '-'}{line}" for line in old[old_start:old_end]]
            lines += [f"+{line}" for line in new[new_start:new_end] if kind != "equal"]
        (_, start, _, new_start, _), (_, _, end, _, new_end) = group[0], group[-1]
        hunk: JsonObject = {"oldStart": start + 1, "oldLines": end - start}
        hunks.append(hunk | {"newStart": new_start + 1, "newLines": new_end - new_start, "lines": lines})
    return hunks


def _spec(name: str, description: str, fields: str) -> ToolSpec:
    """A tool and its parameters: `name`, `name!` if it is required, `name:type` if it is not text."""
    properties: JsonObject = {}
    for field in fields.split():
        parameter, _, kind = field.partition(":")
        properties[parameter.rstrip("!")] = {"type": kind or "string"}
    required = [field.rstrip("!") for field in fields.split() if field.endswith("!")]
    schema: JsonObject = {"type": "object", "properties": properties, "required": required}
    return ToolSpec(name=name, description=description, input_schema=schema | {"additionalProperties": False})


_KNOWN: Final = (
    _spec(
        "Bash",
        "Runs a shell command in the working folder. `timeout` is in milliseconds.",
        "command! timeout:number description run_in_background:boolean dangerouslyDisableSandbox:boolean",
    ),
    _spec("Edit", "Replaces a text.", "file_path! old_string! new_string! replace_all:boolean"),
    _spec("Read", "Reads a file.", "file_path! offset:integer limit:integer pages allow_large:boolean"),
    _spec("Write", "Writes a file.", "file_path! content!"),
)
_SCRIPTED: Final = (
    *("CronCreate", "CronDelete", "CronList", "EnterWorktree", "ExitWorktree", "Glob", "Grep", "ListAgents"),
    *("Monitor", "NotebookEdit", "ReportFindings", "ScheduleWakeup", "SendMessage", "Skill", "TaskCreate"),
    *("TaskGet", "TaskList", "TaskStop", "TaskUpdate", "ToolSearch", "WebFetch", "WebSearch", "Workflow"),
)
"""The tools whose results the script gives."""
_ONLY_BY_NAME: Final = frozenset({"Glob", "Grep", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate"})
"""Those that a session has only if `--tools` names them."""
_WITHOUT_BASH: Final = frozenset({"Glob", "Grep"})
"""Those of them that a session without `Bash` has nevertheless."""
_FORMER: Final = frozenset(["TodoWrite"])
"""Those of older programs, which the program still knows by name."""

_BY_SCRIPT: Final = "Its result is given by the script."
_SPECS: Final = {spec.name: spec for spec in _KNOWN} | {
    name: ToolSpec(name=name, description=_BY_SCRIPT, input_schema={"type": "object"}) for name in _SCRIPTED
}
_FOR_THE_SYSTEM: Final = ("command", "file_path")
_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")


class Tools:
    """The built-in tools of one run."""

    def __init__(self, run: Run, background: Background) -> None:
        self._run, self._background = run, background
        self._files = Files(run.environment, run.cwd)
        self.mark_read = self._files.mark_read

    def specs(self) -> list[ToolSpec]:
        """The tools offered to the model, as `--tools` and `--disallowedTools` leave them, by name. `Agent`,
        `AskUserQuestion`, `EnterPlanMode`, `ExitPlanMode` and `StructuredOutput` are not among them: other
        parts have those."""
        return [_SPECS[name] for name in sorted(self._names()) if name in _SPECS]

    def _names(self) -> frozenset[str]:
        invocation = self._run.invocation
        if invocation.tools is not None and "default" not in invocation.tools:
            return frozenset(invocation.tools) - _barred(invocation.disallowed_tools)
        denied = as_list(as_object(invocation.settings.get("permissions")).get("deny"))
        barred = _barred([*invocation.disallowed_tools, *map(str, denied)])
        names = frozenset(_SPECS) - _ONLY_BY_NAME - barred
        return names if "Bash" in names else (names | (_WITHOUT_BASH - barred)) - {"Monitor"}

    def owns(self, name: str) -> bool:
        """Whether a call of this name is for `perform`; true also for a tool that is switched off."""
        return name in _SPECS or name in _FORMER

    def check(self, call: ToolCall) -> Outcome | None:
        """What is wrong with a call that the program refuses before it asks anyone: a tool that is not there,
        an input that does not fit. None: nothing. The frame of such a result has no `tool_result_meta`, and
        no hook is called."""
        name, given = call.name, call.input
        if name not in self._names():
            return no_such_tool(name, self._absence(name))
        try:
            check_input(_SPECS[name], given)
            for key in _FOR_THE_SYSTEM:
                if _NO_TEXT.search(str(given.get(key, ""))):
                    raise Unusable(f"`{key}` has a character in it that the system does not take.")
            if name == "Edit":
                self._files.original(given)
        except Unusable as error:
            return error.outcome()
        except ToolFailed:
            # Reported when it is carried out.
            return None
        return None

    async def perform(self, call: ToolCall) -> Outcome:
        """Carry a call out. Cancelled, it leaves no process behind."""
        if (unusable := self.check(call)) is not None:
            # A hook or the host may have changed the input.
            return unusable
        try:
            match call.name:
                case "Bash":
                    return await self._background.run_command(call)
                case "Edit":
                    return self._files.edit(call.input)
                case "Read":
                    return self._files.read(call.input)
                case "Write":
                    return self._files.write(call.input)
                case _:
                    problem = (
                        f"The simulated agent does not run {call.name}. Give its result in the script: "
                        f'`use_tool("{call.name}", …, tool_result="…")`.'
                    )
                    self._run.complain(problem)
                    return ToolFailed(problem).outcome()
        except ToolFailed as error:
            return error.outcome()

    def _absence(self, name: str) -> str:
        if name in _WITHOUT_BASH:
            if self._run.invocation.tools is not None:
                return f". {name} is disabled for this session."
            instead = "find files with `find`" if name == "Glob" else "search file contents with `grep`"
            return f". {name} is not available in this session — {instead} via the Bash tool instead."
        if self.owns(name):
            return f". {name} is disabled for this session, in subagents as well as here."
        return ""


def _barred(rules: Iterable[str]) -> frozenset[str]:
    """The tools that rules take away altogether: those named without a bracket."""
    return frozenset(rule for rule in rules if "(" not in rule)


# Tools that ask the user.

_ENTERED: Final = (
    "Entered plan mode. You should now focus on exploring the codebase and designing an implementation"
    " approach."
)
_WORDS: Final = ("calm", "curious", "eager", "gentle", "lantern", "meadow", "patient", "river", "summit")
_QUESTIONS: Final = (
    _spec("AskUserQuestion", "Ask the user to choose between options.", "questions:array"),
    _spec("EnterPlanMode", "Change to plan mode, to design before anything is changed.", ""),
    _spec("ExitPlanMode", "Put the plan in the plan file before the user.", "allowedPrompts:array"),
)


class Questions:
    """AskUserQuestion, EnterPlanMode and ExitPlanMode. They are offered only if someone can be asked."""

    def __init__(self, run: Run, permissions: Permissions) -> None:
        self._run, self._permissions = run, permissions
        name = "-".join(secrets.choice(_WORDS) for _ in range(3))
        self.plan_path: Path = run.config_dir / "plans" / f"{name}.md"
        """Where the model keeps its plan."""

    def specs(self) -> list[ToolSpec]:
        found = self._run.invocation
        if found.permission_prompt_tool is None:
            return []
        return [
            spec
            for spec in _QUESTIONS
            if (found.tools is None or {"default", spec.name} & set(found.tools))
            and not any(covers_tool(rule, spec.name) for rule in found.disallowed_tools)
        ]

    def owns(self, name: str) -> bool:
        return any(spec.name == name for spec in _QUESTIONS)

    def plan(self) -> JsonObject:
        """The answer to `get_plan`."""
        text = self._plan_text()
        if text is None:
            return {"exists": False}
        return {"exists": True, "content": text, "path": str(self.plan_path)}

    def _plan_text(self) -> str | None:
        try:
            return self.plan_path.read_text(encoding="utf-8")
        except OSError:
            return None

    def filled(self, call: ToolCall) -> ToolCall:
        """The call with what the program adds to its input before anyone sees it: the plan. A plan that the
        script gives, and that no file holds, is put into the file."""
        if call.name == "AskUserQuestion":
            return call
        rest = {name: call.input[name] for name in call.input if name != "plan"}
        given = call.input.get("plan")
        if call.name == "ExitPlanMode" and self._run.permission_mode == "plan":
            if isinstance(given, str) and self._plan_text() is None:
                self.plan_path.parent.mkdir(parents=True, exist_ok=True)
                self.plan_path.write_text(given, encoding="utf-8")
            if (text := self._plan_text()) is not None:
                rest |= {"plan": text, "planFilePath": str(self.plan_path)}
        return msgspec.structs.replace(call, input=rest)

    def perform(self, call: ToolCall) -> Outcome:
        """Carry the call out, with the input that was allowed."""
        if call.name == "AskUserQuestion":
            return _answered(call.input)
        return self._enter() if call.name == "EnterPlanMode" else self._exit(call.input)

    def _enter(self) -> Outcome:
        self._permissions.change_mode("plan")
        text = f"{_ENTERED}\n\nExplore, and call ExitPlanMode with the plan. Do not change any files yet."
        return Outcome(content=text, detail={"message": _ENTERED})

    def _exit(self, given: JsonObject) -> Outcome:
        if self._run.permission_mode == "plan":
            self._permissions.change_mode(self._permissions.mode_before_plan)
        kept, plan = self._plan_text(), given.get("plan")
        text = plan if isinstance(plan, str) else kept
        path = str(self.plan_path)
        detail: JsonObject = {"plan": text, "isAgent": False, "filePath": path}
        if text is None:
            return Outcome(content="User has approved exiting plan mode. You can now proceed.", detail=detail)
        title = "Approved Plan"
        if text != kept:
            detail["planWasEdited"] = True
            title += " (edited by user)"
        content = (
            "User has approved your plan. You can now start coding.\n\nYour plan has been saved to:"
            f" {path}\n\n## {title}:\n{text}"
        )
        return Outcome(content=content, detail=detail)


def _answered(given: JsonObject) -> Outcome:
    questions, answers = as_list(given.get("questions")), as_object(given.get("answers"))
    detail: JsonObject = {"questions": questions, "answers": answers}
    detail |= {name: given[name] for name in ("annotations", "response") if name in given}
    if given.get("response"):
        return Outcome(content=f"The user responded: {given['response']}", detail=detail)
    asked = [str(as_object(question).get("question")) for question in questions]
    replies = [f'"{text}"="{_joined(answers[text])}"' for text in asked if text in answers]
    if not replies:
        return Outcome(content="The user did not answer the questions.", detail=detail)
    options = [
        as_object(each) for question in questions for each in as_list(as_object(question).get("options"))
    ]
    labels = {str(option.get("label")) for option in options}
    if given.get("annotations") or not set(", ".join(map(_joined, answers.values())).split(", ")) <= labels:
        text = f"The user answered: {', '.join(replies)}. Read the answers carefully, and do what they say."
        return Outcome(content=text, detail=detail)
    text = f"Your questions have been answered: {', '.join(replies)}."
    return Outcome(content=f"{text} You can now continue with these answers in mind.", detail=detail)


def _joined(answer: object) -> str:
    parts: list[object] = [*as_list(answer)] or [answer]
    return ", ".join(map(str, parts))
