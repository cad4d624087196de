"""Owns the built-in tools of the simulated agent: which there are, and which of them carries out a call.

Does not ask whether a call is allowed; `_permissions` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.testing._simulator.tools.bash import Bash
from outrider.testing._simulator.tools.files import Files, Paths
from outrider.testing._simulator.tools.read import Reader
from outrider.testing._simulator.tools.results import (
    Unusable,
    WentWrong,
    keep,
    no_such_tool,
    preview,
    read_input,
)
from outrider.testing._simulator.tools.schemas import (
    BY_DEFAULT,
    CARRIED_OUT,
    ONLY_BY_NAME,
    SPECS,
    WITHOUT_BASH,
)
from outrider.testing._simulator.tools.search import Search
from outrider.testing._simulator.tools.tasks import TaskList
from outrider.testing._simulator.world import Outcome, ToolCall, ToolSpec, as_list, as_object
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.tools.background import Background
    from outrider.testing._simulator.world import Surroundings

__all__ = ["Tools", "no_such_tool"]

_MOST_FOUND: Final = 20_000

_FOR_THE_SYSTEM: Final = ("command", "file_path", "notebook_path", "path")
_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")

# Those of older programs, which the program still knows by name.
_FORMER: Final = frozenset(["TodoWrite"])


class Tools:
    """The built-in tools of one run."""

    def __init__(self, run: Surroundings, background: Background) -> None:
        self._run = run
        self._background = background
        self._bash = Bash(run, background)
        paths = Paths(run.environment, self._cwd)
        self._paths = paths
        self._reader = Reader(paths)
        self._files = Files(paths)
        self._search = Search(paths)
        self._list = TaskList()
        self._simple: dict[str, Callable[[JsonObject], Outcome]] = {
            "Edit": self._files.edit,
            "Glob": self._search.glob,
            "Grep": self._search.grep,
            "Read": self._reader.read,
            "TaskCreate": self._list.create,
            "TaskGet": self._list.get,
            "TaskList": lambda _: self._list.show(),
            "TaskUpdate": self._list.update,
            "WebFetch": _fetch,
            "WebSearch": _search_web,
            "Write": self._files.write,
        }
        self._checks: dict[str, Callable[[JsonObject], None]] = {
            "Bash": self._bash.check,
            "Edit": self._files.check_edit,
            "Read": self._reader.check,
            "TaskStop": self._check_stop,
            "Write": self._files.check_write,
        }

    def _cwd(self) -> Path:
        return self._bash.cwd

    def specs(self) -> list[ToolSpec]:
        """The tools that the model is told of, as `--tools` and `--disallowedTools` leave them, in the order
        of the program.

        `Agent`, `AskUserQuestion`, `EnterPlanMode`, `ExitPlanMode` and `StructuredOutput` are not among
        them: other parts have those.
        """
        names = self._names()
        return [spec for name, spec in SPECS.items() if name in names]

    def _names(self) -> frozenset[str]:
        invocation = self._run.invocation
        given = invocation.tools
        if given is not None and "default" not in given:
            return frozenset(given) - _barred(invocation.disallowed_tools)
        denied = as_list(as_object(invocation.settings.get("permissions")).get("deny"))
        barred = _barred([*invocation.disallowed_tools, *map(str, denied)])
        names = BY_DEFAULT - barred
        if "Bash" not in names:
            names = (names | (WITHOUT_BASH - barred)) - {"Monitor"}
        return names

    def owns(self, name: str) -> bool:
        """Whether a call of this name is for `perform`; true also for a tool that is switched off."""
        return name in SPECS or name in _FORMER

    def check(self, call: ToolCall) -> Outcome | None:
        """What is wrong with a call that the program refuses before it asks anybody: a tool that is not
        there, an input that does not fit. None: nothing.

        The frame of such a result has no `tool_result_meta`, and no hook hears of the call.
        """
        try:
            self._read(call)
        except Unusable as error:
            return error.outcome()
        except _Missing as error:
            return no_such_tool(call.name, str(error))
        except (OSError, WentWrong):
            # Told by whoever carries it out.
            return None
        return None

    async def perform(self, call: ToolCall) -> Outcome:
        """Carry a call out. Cancelled, it leaves no process behind."""
        try:
            given = self._read(call)
            if call.name == "Bash":
                return await self._bash.perform(call, given)
            if call.name == "TaskStop":
                return await self._stop(given)
            if call.name not in CARRIED_OUT:
                raise WentWrong(f"The simulated agent does not carry out {call.name}.")
            return self._shortened(call, self._simple[call.name](given))
        except WentWrong as error:
            return error.outcome()
        except _Missing as error:
            return no_such_tool(call.name, str(error))
        except OSError as error:
            return WentWrong(str(error)).outcome()

    def _shortened(self, call: ToolCall, outcome: Outcome) -> Outcome:
        text = outcome.content
        if call.name != "Grep" or not isinstance(text, str) or len(text) <= _MOST_FOUND:
            return outcome
        raw = text.encode("utf-8", "replace")
        path = keep(self._run, call.id, raw)
        return msgspec.structs.replace(outcome, content=preview(text, path, len(raw)))

    def has_read(self, path: str, mtime: float) -> None:
        """Take a file for read, as `seed_read_state` asks."""
        found = self._paths.find(path)
        try:
            if found.stat().st_mtime * 1000 <= mtime:
                self._reader.read({"file_path": path})
        except (OSError, WentWrong):
            pass

    def _read(self, call: ToolCall) -> JsonObject:
        name = call.name
        if name not in self._names():
            raise _Missing(self._absence(name))
        given = read_input(SPECS[name], call.input)
        for key in _FOR_THE_SYSTEM:
            if _NO_TEXT.search(str(given.get(key, ""))):
                raise Unusable(f"`{key}` has a character in it that the system does not take.")
        if check := self._checks.get(name):
            check(given)
        return given

    def _absence(self, name: str) -> str:
        is_chosen = self._run.invocation.tools is not None
        if name in WITHOUT_BASH:
            if is_chosen:
                return f". {name} is disabled for this session."
            instead = "find files with `find`" if name == "Glob" else "search file contents with `grep`"
            return f". {name} is not available in this session — {instead} via the Bash tool instead."
        if name in BY_DEFAULT | ONLY_BY_NAME | _FORMER:
            return f". {name} is disabled for this session, in subagents as well as here."
        return ""

    def _check_stop(self, given: JsonObject) -> None:
        task_id = given.get("task_id") or given.get("shell_id")
        if not task_id:
            raise Unusable("Missing required parameter: task_id")
        if self._background.find(task_id) is None:
            raise Unusable(f"No task found with ID: {task_id}")

    async def _stop(self, given: JsonObject) -> Outcome:
        task_id: str = given.get("task_id") or given["shell_id"]
        found = self._background.find(task_id) or {}
        await self._background.stop(task_id)
        message = f"Successfully stopped task: {task_id} ({found.get('command')})"
        detail: JsonObject = {"message": message, **found}
        return Outcome(content=json.dumps(detail, separators=(",", ":"), ensure_ascii=False), detail=detail)


class _Missing(Exception):
    pass


def _barred(rules: Iterable[str]) -> frozenset[str]:
    """The tools that rules take away altogether: those named without a bracket."""
    return frozenset(rule for rule in rules if "(" not in rule)


def _fetch(given: JsonObject) -> Outcome:
    raise WentWrong(
        f"The simulated agent does not reach the network: {given['url']} was not fetched. Let a tool of your "
        "own answer, or replace the result in a hook."
    )


def _search_web(given: JsonObject) -> Outcome:
    raise WentWrong(
        f"The simulated agent does not reach the network: nothing was searched for {given['query']!r}. Let a "
        "tool of your own answer, or replace the result in a hook."
    )
