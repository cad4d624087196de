"""Owns what goes on beside a turn of the simulated agent: shells and subagents, their frames, their output.

Does not run subagents, nor the turn that follows a notification; the core does.
"""

from __future__ import annotations

import os
import secrets
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from outrider.testing._simulator.tools.bash import Shell, Shells
from outrider.testing._simulator.world import Surroundings, ToolCall
from outrider.transcripts import project_key
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Background", "ShellTask"]

_NO_OUTPUT: Final = "get_task_output: no shell or Monitor task with that task_id in this session"
_ALPHABET: Final = string.digits + string.ascii_lowercase
_MOST_OUTPUT: Final = 1_000_000


class _Task(msgspec.Struct, kw_only=True, eq=False):
    id: str
    run_id: str
    call_id: str
    description: str
    is_backgrounded: bool
    is_announced: bool = False
    """Whether `task_started` was written."""
    is_over: bool = False
    subagent_type: str | None = None
    stop: Callable[[], None] | None = None


class ShellTask(_Task, kw_only=True, eq=False):
    """A command of the tool `Bash`."""

    command: str
    shell: Shell
    moved: anyio.Event = msgspec.field(default_factory=anyio.Event)
    """Set when a command in the foreground goes to the background."""


class Background:
    """The tasks of one run."""

    def __init__(self, run: Surroundings) -> None:
        self._run = run
        self._tasks: dict[str, _Task] = {}
        self._changed = anyio.Event()
        self._shells: Shells | None = None
        self.notifications: Callable[[str, JsonObject], None] | None = None
        """Called when a task has ended that the model is to hear of: the text of the user message, and the
        `origin` of the turn's result."""

    @property
    def is_busy(self) -> bool:
        """Whether a background shell or a background subagent runs."""
        return bool(self._live())

    @property
    def has_agents(self) -> bool:
        """Whether a background subagent runs: the session is not idle until none does."""
        return any(not isinstance(task, ShellTask) for task in self._live())

    def _live(self) -> list[_Task]:
        return [task for task in self._tasks.values() if task.is_backgrounded and not task.is_over]

    # Shells

    async def open_shell(
        self, call: ToolCall, command: str, description: str, *, cwd: Path, is_backgrounded: bool
    ) -> ShellTask:
        """Start a command. Nothing is told of it unless it is in the background.

        Raises `WentWrong` if it cannot be started.
        """
        if self._shells is None:
            self._shells = Shells(self._run.tasks, self._run.environment)
        task_id = "b" + "".join(secrets.choice(_ALPHABET) for _ in range(8))
        extra = self._variables()
        shell = await self._shells.start(command, cwd=cwd, output=self.output_file(task_id), extra=extra)
        task = ShellTask(
            id=task_id,
            run_id=_run_id(),
            call_id=call.id,
            description=description,
            command=command,
            shell=shell,
            is_backgrounded=is_backgrounded,
        )
        self._tasks[task_id] = task
        return task

    def _variables(self) -> Mapping[str, str]:
        return {
            "AI_AGENT": f"claude-code_{self._run.version.replace('.', '-')}_agent",
            "CLAUDECODE": "1",
            "CLAUDE_CODE_CHILD_SESSION": "1",
            "CLAUDE_CODE_SESSION_ID": self._run.session_id,
            "CLAUDE_PID": str(os.getpid()),
            "GIT_EDITOR": "true",
        }

    async def start_shell(
        self,
        call: ToolCall,
        command: str,
        description: str,
        *,
        cwd: Path | None = None,
        limit: float | None = None,
    ) -> str:
        """Start a command in the background; gives the task's id. It is stopped after `limit` seconds.

        Raises `WentWrong` if it cannot be started.
        """
        task = await self.open_shell(
            call, command, description, cwd=cwd or self._run.cwd, is_backgrounded=True
        )
        self.tell_running()
        self.announce(task)
        self._run.tasks.start_soon(self._follow, task, limit)
        return task.id

    def announce(self, task: ShellTask) -> None:
        """Write `task_started` for a command."""
        task.is_announced = True
        self._say("task_started", task, {"is_backgrounded": task.is_backgrounded, "task_type": "local_bash"})

    def move(self, task: ShellTask, limit: float | None = None) -> None:
        """Let a command in the foreground go on in the background."""
        task.is_backgrounded = True
        self.tell_running()
        if task.is_announced:
            self._say("task_updated", task, {"patch": {"is_backgrounded": True}})
        else:
            self.announce(task)
        task.moved.set()
        self._run.tasks.start_soon(self._follow, task, limit)

    def move_all(self, tool_use_id: str | None = None) -> bool:
        """Move the commands in the foreground, or that of one call, as `background_tasks` asks.

        Only those that `task_started` told of can be moved; says whether there was one.
        """
        tasks = [
            task
            for task in self._tasks.values()
            if isinstance(task, ShellTask)
            and task.is_announced
            and not (task.is_backgrounded or task.is_over)
            and tool_use_id in (None, task.call_id)
        ]
        for task in tasks:
            self.move(task)
        return bool(tasks)

    def end_foreground(self, task: ShellTask) -> None:
        """Forget a command that ended in the foreground."""
        was_stopped, task.is_over = task.is_over, True
        if task.is_announced and not was_stopped:
            status = "failed" if task.shell.code else "completed"
            fields: JsonObject = {"status": status, "output_file": "", "summary": task.description}
            self._say("task_notification", task, fields)
        task.shell.output.unlink(missing_ok=True)
        del self._tasks[task.id]

    async def kill_foreground(self, task: ShellTask) -> None:
        """Kill a command whose call was cancelled, and forget it."""
        with anyio.CancelScope(shield=True):
            task.shell.kill()
            await task.shell.ended.wait()
            self.end_foreground(task)

    async def _follow(self, task: ShellTask, limit: float | None) -> None:
        was_cut = True
        with anyio.move_on_after(limit):
            await task.shell.ended.wait()
            was_cut = False
        if was_cut:
            task.shell.kill()
            await task.shell.ended.wait()
        if task.is_over:
            return
        code = task.shell.code
        with task.shell.output.open("a", encoding="utf-8") as file:
            file.write(f"\n[exited with code {code}]\n")
        if was_cut:
            how = "was stopped: it ran too long"
        else:
            how = f"failed with exit code {code}" if code else "completed (exit code 0)"
        summary = f'Background command "{task.description}" {how}'
        self._finish(task, "failed" if code else "completed", summary)

    # Subagents

    def start_agent(
        self,
        call: ToolCall,
        *,
        prompt: str,
        description: str,
        subagent_type: str,
        is_backgrounded: bool,
        spawn_depth: int = 1,
        parent_task_id: str | None = None,
        stop: Callable[[], None] | None = None,
    ) -> str:
        """Tell of a subagent that starts; gives its id, which is the task's too.

        `stop` is called by `stop(task_id)`; the core cancels the subagent then.
        """
        task = _Task(
            id="a" + secrets.token_hex(8),
            run_id=_run_id(),
            call_id=call.id,
            description=description,
            is_backgrounded=is_backgrounded,
            is_announced=True,
            subagent_type=subagent_type,
            stop=stop,
        )
        self._tasks[task.id] = task
        if is_backgrounded:
            self.tell_running()
        fields: JsonObject = {
            "subagent_type": subagent_type,
            "is_backgrounded": is_backgrounded,
            "spawn_depth": spawn_depth,
            "task_type": "local_agent",
            "prompt": prompt,
        }
        if parent_task_id is not None:
            fields["parent_task_id"] = parent_task_id
        self._say("task_started", task, fields)
        return task.id

    def progress(self, task_id: str, *, description: str, usage: JsonObject, last_tool_name: str) -> None:
        """Tell that a subagent calls a tool."""
        task = self._tasks[task_id]
        fields: JsonObject = {
            "description": description,
            "subagent_type": task.subagent_type,
            "usage": usage,
            "last_tool_name": last_tool_name,
        }
        self._say("task_progress", task, fields)

    def finish_agent(
        self, task_id: str, *, status: str, summary: str, usage: JsonObject, result: str | None = None
    ) -> None:
        """Tell that a subagent has ended ("completed", "failed", "killed"), and the model if it was in the
        background. `summary` is what the subagent said last; `result` what the model is told instead."""
        task = self._tasks.get(task_id)
        if task is None or task.is_over:
            return
        if status == "killed":
            self._stopped(task)
        else:
            self._finish(task, status, summary, usage, summary if result is None else result)

    # All tasks

    def run_id(self, task_id: str) -> str:
        """The id of a task's run, for the frames of its turn. Raises `LookupError` if there is none."""
        return self._tasks[task_id].run_id

    def output_file(self, task_id: str) -> Path:
        """Where the output of a task is."""
        # In the program's own folder for temporary files there would be nobody to remove it.
        folder = self._run.config_dir / "tmp" / f"claude-{os.getuid() if hasattr(os, 'getuid') else 0}"
        return folder / project_key(self._run.cwd) / self._run.session_id / "tasks" / f"{task_id}.output"

    async def stop(self, task_id: str) -> bool:
        """End a task: its frames are written when this returns. False if none of that id runs."""
        task = self._tasks.get(task_id)
        if task is None or task.is_over:
            return False
        self._stopped(task)
        if isinstance(task, ShellTask):
            task.shell.kill()
            await task.shell.ended.wait()
        elif task.stop is not None:
            task.stop()
        return True

    async def stop_all(self) -> None:
        """End all tasks and every process that a tool has started, as at the end of the program."""
        with anyio.CancelScope(shield=True):
            for task in self._live():
                self._stopped(task, at_end=True)
                if task.stop is not None:
                    task.stop()
            if self._shells is not None:
                await self._shells.end_all()

    def find(self, task_id: str) -> JsonObject | None:
        """What `TaskStop` says of a task that runs."""
        task = self._tasks.get(task_id)
        if task is None or task.is_over:
            return None
        if isinstance(task, ShellTask):
            return {"task_id": task.id, "task_type": "local_bash", "command": task.command}
        return {"task_id": task.id, "task_type": "local_agent", "command": task.description}

    def output(self, task_id: str) -> JsonObject:
        """The answer to `get_task_output`. Raises `LookupError` with the program's text."""
        task = self._tasks.get(task_id)
        if not isinstance(task, ShellTask):
            # To whoever asks it is a task that is not there.
            raise LookupError(_NO_OUTPUT)  # noqa: TRY004
        raw = task.shell.raw()
        text = raw[-_MOST_OUTPUT:].decode("utf-8", "replace")
        return {"output": text, "total_bytes": len(raw), "truncated": len(raw) > _MOST_OUTPUT}

    def running(self) -> list[JsonObject]:
        """The tasks in the background, as `background_tasks_changed` has them."""
        told: list[JsonObject] = []
        for task in self._live():
            kind = "local_bash" if isinstance(task, ShellTask) else "local_agent"
            one: JsonObject = {"task_id": task.id, "run_id": task.run_id, "task_type": kind}
            if task.subagent_type is not None:
                one["subagent_type"] = task.subagent_type
            told.append({**one, "description": task.description})
        return told

    def tell_running(self) -> None:
        """Write `background_tasks_changed`."""
        self._run.say({"type": "system", "subtype": "background_tasks_changed", "tasks": self.running()})

    async def wait_idle(self) -> None:
        """Wait until nothing runs in the background."""
        while self._live():
            await self._changed.wait()

    # Frames

    def _say(self, subtype: str, task: _Task, fields: JsonObject) -> None:
        frame: JsonObject = {"type": "system", "subtype": subtype, "task_id": task.id, "run_id": task.run_id}
        if subtype != "task_updated":
            frame["tool_use_id"] = task.call_id
        if subtype == "task_started":
            frame["description"] = task.description
        self._run.say({**frame, **fields})

    def _end(self, task: _Task) -> None:
        task.is_over = True
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _finish(
        self,
        task: _Task,
        status: str,
        summary: str,
        usage: JsonObject | None = None,
        result: str | None = None,
    ) -> None:
        self._end(task)
        self._updated(task, status)
        self._notified(task, status, summary, usage)
        if task.is_backgrounded:
            self.tell_running()
            if self.notifications is not None:
                origin: JsonObject = {
                    "kind": "task-notification",
                    "producer": "session-task",
                    "runId": task.run_id,
                }
                self.notifications(self._text(task, status, summary, result, usage or {}), origin)

    def _stopped(self, task: _Task, *, at_end: bool = False) -> None:
        self._end(task)
        if at_end:
            self._notified(task, "stopped", task.description, None)
            self._updated(task, "killed")
        else:
            self._updated(task, "killed")
            self._notified(task, "stopped", task.description, None)
        if task.is_backgrounded:
            self.tell_running()

    def _updated(self, task: _Task, status: str) -> None:
        self._say("task_updated", task, {"patch": {"status": status, "end_time": int(time.time() * 1000)}})

    def _notified(self, task: _Task, status: str, summary: str, usage: JsonObject | None) -> None:
        fields: JsonObject = {
            "status": status,
            "output_file": str(self.output_file(task.id)),
            "summary": summary,
        }
        self._say("task_notification", task, fields if usage is None else {**fields, "usage": usage})

    def _text(self, task: _Task, status: str, summary: str, result: str | None, usage: JsonObject) -> str:
        if result is not None:
            summary = f'Agent "{task.description}" {"finished" if status == "completed" else status}'
        words = {"total_tokens": "subagent_tokens", "tool_uses": "tool_uses", "duration_ms": "duration_ms"}
        spent = "".join(f"<{word}>{usage.get(name, 0)}</{word}>" for name, word in words.items())
        lines = [
            "<task-notification>",
            f"<task-id>{task.id}</task-id>",
            f"<tool-use-id>{task.call_id}</tool-use-id>",
            f"<output-file>{self.output_file(task.id)}</output-file>",
            f"<status>{status}</status>",
            f"<summary>{summary}</summary>",
            *([] if result is None else [f"<result>{result}</result>", f"<usage>{spent}</usage>"]),
            "</task-notification>",
        ]
        return "\n".join(lines)


def _run_id() -> str:
    number, digits = int(time.time() * 1000), ""
    while number:
        number, digit = divmod(number, 36)
        digits = _ALPHABET[digit] + digits
    return f"0{digits}-{secrets.token_hex(4)}"
