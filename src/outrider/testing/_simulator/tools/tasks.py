"""What runs beside or in a turn: commands of the tool `Bash`, subagents, their frames and their output."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import string
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio
import msgspec

from outrider.testing._simulator import frames
from outrider.testing._simulator.frames import Outcome, ToolCall, ToolFailed, ToolSpec, as_object, reminder
from outrider.testing._simulator.model_loop import Ended, ModelLoop
from outrider.testing._simulator.turn import Prompt
from outrider.transcripts import project_key
from outrider.transports._process.processes import processes
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import Process

    from outrider.testing._simulator.run import Run


_USUAL_LIMIT: Final = 120_000
_BACKGROUND_LIMIT: Final = 1_800_000
_MOST_TEXT: Final = 30_000
_MOST_OUTPUT: Final = 1_000_000
_MARK: Final = "OUTRIDER_SIMULATED_COMMAND"
_ALPHABET: Final = string.digits + string.ascii_lowercase
_BY_SIGNAL: Final[dict[int, int]] = {signal.SIGTERM: 144}
"""The exit codes of commands that a signal ended, as the program tells them; 1 for the others."""
_SILENT: Final = frozenset(["mv", "cp", "rm", "mkdir", "rmdir", "chmod", "touch", "ln"])
_USAGE: Final = {"total_tokens": "subagent_tokens", "tool_uses": "tool_uses", "duration_ms": "duration_ms"}


def _make_run_id() -> str:
    return f"0{time.time_ns() // 10**6:x}-{secrets.token_hex(4)}"


class _Task(msgspec.Struct, kw_only=True, eq=False):
    id: str
    call_id: str
    description: str
    is_backgrounded: bool
    run_id: str = msgspec.field(default_factory=_make_run_id)
    is_over: bool = False
    subagent_type: str | None = None
    stop: Callable[[], None] | None = None

    @property
    def kind(self) -> str:
        return "local_bash" if self.subagent_type is None else "local_agent"


class _ShellTask(_Task, kw_only=True, eq=False):
    """A command of the tool `Bash`."""

    command: str
    process: Process
    output: Path
    """Where both of its streams go."""
    ended: anyio.Event = msgspec.field(default_factory=anyio.Event)
    code: int = 0
    """Its exit code, as the program tells it; 0 until it has ended."""
    has_group: bool = True
    """Whether processes of it may be there, also after its end."""

    async def watch(self) -> None:
        """Wait for the end. Cancelled, it kills the whole group."""
        code = -signal.SIGKILL
        try:
            code = await self.process.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                self.kill()
                await self.process.wait()
            raise
        finally:
            self.code = code if code >= 0 else _BY_SIGNAL.get(-code, 1)
            # Without members, its number may soon be that of another group.
            self._signal(0)
            self.ended.set()

    def kill(self) -> None:
        """End all processes of its group, now."""
        if self.has_group:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):  # the last: macOS, when only zombies are left
            self.has_group = False

    def text(self) -> str:
        """What it has written, without blank lines before it and white space behind it, and not too long."""
        raw = self.output.read_bytes() if self.output.exists() else b""
        text = re.sub(r"\A(?:[^\S\n]*\n)+", "", raw.decode("utf-8", "replace")).rstrip()
        if len(text) <= _MOST_TEXT:
            return text
        half = _MOST_TEXT // 2
        return f"{text[:half]}\n\n... [{len(text) - _MOST_TEXT} characters truncated] ...\n\n{text[-half:]}"


class Background:
    """The tasks of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tasks: dict[str, _Task] = {}
        self._started: list[_ShellTask] = []
        self._mark = secrets.token_hex(16)
        self._changed = anyio.Event()
        self.on_end: Callable[[str, JsonObject], None] = lambda text, origin: None
        """Called when a task has ended that the model is notified of: the text of the user message, and the
        `origin` of the turn's result."""

    @property
    def is_busy(self) -> bool:
        """Whether a background shell or a background subagent runs."""
        return bool(self._live())

    def _live(self) -> list[_Task]:
        return [task for task in self._tasks.values() if task.is_backgrounded and not task.is_over]

    # Commands.

    async def run_command(self, call: ToolCall) -> Outcome:
        """Carry out a call of `Bash`. Raises `ToolFailed`."""
        timeout, in_background = call.input.get("timeout"), bool(call.input.get("run_in_background"))
        limit = timeout if isinstance(timeout, int | float) and timeout > 0 else None
        task = await self._open(call, is_backgrounded=in_background)
        detail: JsonObject = {
            "stdout": "",
            "stderr": "",
            "interrupted": False,
            "isImage": False,
            "noOutputExpected": task.command.partition(" ")[0] in _SILENT,
        }
        if in_background:
            self._tasks[task.id] = task
            self.tell_running()
            self._say("task_started", task, {"is_backgrounded": True, "task_type": task.kind})
            self._run.tasks.start_soon(self._follow, task, (limit or _BACKGROUND_LIMIT) / 1000)
            content = (
                f"Command running in background with ID: {task.id}. Output is being written to: "
                f"{task.output}. You will be notified when it completes. To check interim output, use Read "
                "on that file path."
            )
            return Outcome(content=content, detail={**detail, "backgroundTaskId": task.id})
        seconds = (limit or _USUAL_LIMIT) / 1000
        try:
            with anyio.move_on_after(seconds):
                await task.ended.wait()
        finally:
            has_ended = task.ended.is_set()
            with anyio.CancelScope(shield=True):
                if not has_ended:
                    task.kill()
                    await task.ended.wait()
            text = task.text()
            task.output.unlink(missing_ok=True)
        if not has_ended:
            raise ToolFailed(f"Command timed out after {seconds:g}s\n{text}".removesuffix("\n"))
        if task.code:
            raise ToolFailed(f"Exit code {task.code}\n{text}".removesuffix("\n"))
        return Outcome(content=text or "(Bash completed with no output)", detail={**detail, "stdout": text})

    async def _open(self, call: ToolCall, *, is_backgrounded: bool) -> _ShellTask:
        """Start a command. Nothing is reported unless it is in the background."""
        id = "b" + "".join(secrets.choice(_ALPHABET) for _ in range(8))
        output, command = self.output_file(id), str(call.input["command"])
        task = _ShellTask(
            id=id,
            call_id=call.id,
            description=str(call.input.get("description") or command),
            command=command,
            process=await self._start(command, output),
            output=output,
            is_backgrounded=is_backgrounded,
        )
        self._started.append(task)
        self._run.tasks.start_soon(task.watch)
        return task

    async def _start(self, command: str, output: Path) -> Process:
        bash = "/bin/bash" if os.access("/bin/bash", os.X_OK) else shutil.which("bash")
        if bash is None:
            raise ToolFailed("There is no bash on this machine, which the tool Bash needs.")
        cwd = self._run.cwd
        own = {
            "AI_AGENT": f"claude-code_{self._run.version.replace('.', '-')}_agent",
            "CLAUDECODE": "1",
            "CLAUDE_CODE_CHILD_SESSION": "1",
            "CLAUDE_CODE_SESSION_ID": self._run.session_id,
            "CLAUDE_PID": str(os.getpid()),
            "GIT_EDITOR": "true",
            "SHELL": bash,
            "PWD": str(cwd),
            _MARK: self._mark,
        }
        process: Process | None = None
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            # Cut short, it would leave a process that no one waits for.
            with output.open("wb") as file, anyio.CancelScope(shield=True):
                process = await anyio.open_process(
                    [bash, "-c", command],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    cwd=cwd,
                    env={**self._run.environment, **own},
                    start_new_session=True,
                )
        except OSError as error:
            raise ToolFailed(f"The shell could not be started in {cwd}: {error}") from error
        assert process is not None
        return process

    async def _follow(self, task: _ShellTask, limit: float) -> None:
        with anyio.move_on_after(limit) as scope:
            await task.ended.wait()
        if scope.cancelled_caught:
            task.kill()
            await task.ended.wait()
        if task.is_over:
            return
        how = f"failed with exit code {task.code}" if task.code else "completed (exit code 0)"
        how = "was stopped: it ran too long" if scope.cancelled_caught else how
        with task.output.open("a", encoding="utf-8") as file:
            file.write(f"\n[exited with code {task.code}]\n")
        summary = f'Background command "{task.description}" {how}'
        self._finish(task, "failed" if task.code else "completed", summary)

    # Subagents.

    def start_agent(
        self, call: ToolCall, *, is_backgrounded: bool, stop: Callable[[], None], **fields: object
    ) -> str:
        """Report a subagent that starts; returns its id, which is the task's too.

        `stop` is called by `stop(task_id)`, and cancels the subagent.
        """
        task = _Task(
            id="a" + secrets.token_hex(8),
            call_id=call.id,
            description=str(call.input["description"]),
            is_backgrounded=is_backgrounded,
            subagent_type=str(fields["subagent_type"]),
            stop=stop,
        )
        self._tasks[task.id] = task
        if is_backgrounded:
            self.tell_running()
        more: JsonObject = {"is_backgrounded": is_backgrounded, "task_type": task.kind, **fields}
        self._say("task_started", task, {**more, "prompt": str(call.input["prompt"])})
        return task.id

    def progress(self, task_id: str, **fields: object) -> None:
        """Tell that a subagent calls a tool."""
        task = self._tasks[task_id]
        self._say("task_progress", task, {"subagent_type": task.subagent_type, **fields})

    def finish_agent(
        self, task_id: str, *, status: str, summary: str, usage: JsonObject, result: str
    ) -> None:
        """Tell that a subagent has ended ("completed", "failed", "killed"), and the model if it was in the
        background. `summary` is what the subagent said last, `result` is the text for the model."""
        task = self._tasks[task_id]
        if status == "killed" and not task.is_over:
            self._stopped(task)
        elif not task.is_over:
            self._finish(task, status, summary, usage, result)

    # All tasks.

    def run_id(self, task_id: str) -> str:
        return self._tasks[task_id].run_id

    def output_file(self, task_id: str) -> Path:
        """Where the output of a task is."""
        # In the program's own folder for temporary files there would be no one to remove it.
        folder = self._run.config_dir / "tmp" / f"claude-{os.getuid()}"
        return folder / project_key(self._run.cwd) / self._run.session_id / "tasks" / f"{task_id}.output"

    async def stop(self, task_id: str) -> bool:
        """End a task: its frames are written when this returns. False if none of that id runs."""
        task = self._tasks.get(task_id)
        if task is None or task.is_over:
            return False
        self._stopped(task)
        if isinstance(task, _ShellTask):
            task.kill()
            await task.ended.wait()
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
            for shell in self._started:
                # Also what a command that has ended has left behind.
                shell.kill()
                await shell.ended.wait()
            _kill_marked(f"{_MARK}={self._mark}".encode())

    def output(self, task_id: str) -> JsonObject:
        """The answer to `get_task_output`. Raises `LookupError` with the program's text."""
        task = self._tasks.get(task_id)
        if not isinstance(task, _ShellTask):
            # The caller asked for a task that does not exist.
            raise LookupError(  # noqa: TRY004
                "get_task_output: no shell or Monitor task with that task_id in this session"
            )
        raw = task.output.read_bytes()
        text = raw[-_MOST_OUTPUT:].decode("utf-8", "replace")
        return {"output": text, "total_bytes": len(raw), "truncated": len(raw) > _MOST_OUTPUT}

    def running(self) -> list[JsonObject]:
        """The tasks in the background, as `background_tasks_changed` has them."""
        tasks: list[JsonObject] = []
        for task in self._live():
            one: JsonObject = {"task_id": task.id, "run_id": task.run_id, "task_type": task.kind}
            if task.subagent_type is not None:
                one["subagent_type"] = task.subagent_type
            tasks.append({**one, "description": task.description})
        return tasks

    def tell_running(self) -> None:
        """Write `background_tasks_changed`."""
        self._run.say({"type": "system", "subtype": "background_tasks_changed", "tasks": self.running()})

    async def wait_idle(self) -> None:
        """Wait until nothing runs in the background."""
        while self._live():
            await self._changed.wait()

    # Frames.

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
        if not task.is_backgrounded:
            return
        self.tell_running()
        more: list[str] = []
        if result is not None:
            summary = f'Agent "{task.description}" {"finished" if status == "completed" else status}'
            spent = (f"<{word}>{(usage or {}).get(name, 0)}</{word}>" for name, word in _USAGE.items())
            more = [f"<result>{result}</result>", f"<usage>{''.join(spent)}</usage>"]
        lines = [
            "<task-notification>",
            f"<task-id>{task.id}</task-id>",
            f"<tool-use-id>{task.call_id}</tool-use-id>",
            f"<output-file>{self.output_file(task.id)}</output-file>",
            f"<status>{status}</status>",
            f"<summary>{summary}</summary>",
            *more,
            "</task-notification>",
        ]
        origin = {"kind": "task-notification", "producer": "session-task", "runId": task.run_id}
        self.on_end("\n".join(lines), origin)

    def _stopped(self, task: _Task, *, at_end: bool = False) -> None:
        self._end(task)
        if not at_end:
            self._updated(task, "killed")
        self._notified(task, "stopped", task.description, None)
        if at_end:
            self._updated(task, "killed")
        if task.is_backgrounded:
            self.tell_running()

    def _updated(self, task: _Task, status: str) -> None:
        self._say("task_updated", task, {"patch": {"status": status, "end_time": int(time.time() * 1000)}})

    def _notified(self, task: _Task, status: str, summary: str, usage: JsonObject | None) -> None:
        path = str(self.output_file(task.id))
        fields: JsonObject = {"status": status, "output_file": path, "summary": summary}
        self._say("task_notification", task, fields if usage is None else {**fields, "usage": usage})


def _kill_marked(mark: bytes) -> None:
    """End processes with this variable: they may have left their group."""
    table = processes()
    with suppress(OSError):
        for pid, _ in table.entries():
            if b"\0" + mark + b"\0" in table.environment_of(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "description": {"type": "string", "description": "What it is for, in a few words"},
        "prompt": {"type": "string", "description": "What the agent is to do"},
        "subagent_type": {"type": "string", "description": "The kind of agent"},
        "model": {"type": "string", "enum": ["sonnet", "opus", "haiku", "fable"]},
        "run_in_background": {"type": "boolean", "description": "False: wait for it"},
    },
    "required": ["description", "prompt"],
    "additionalProperties": False,
}
_NOT_FOR_AGENTS: Final = frozenset(("AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "StructuredOutput"))
_COUNTED_AS: Final = {
    "Read": "readCount",
    "Glob": "searchCount",
    "Grep": "searchCount",
    "Bash": "bashCount",
    "Edit": "editFileCount",
    "Write": "editFileCount",
}
_COUNTS: Final = (*dict.fromkeys(_COUNTED_AS.values()), "linesAdded", "linesRemoved", "otherToolCount")


class Subagents:
    def __init__(self, run: Run) -> None:
        self._run = run
        self.stats: JsonObject = frames.subagent_stats()
        """`subagent_stats` of the result that is about to be written."""

    def spec(self) -> ToolSpec:
        kinds = ", ".join(self.definitions())
        return ToolSpec(name="Agent", description=f"Starts an agent. Kinds: {kinds}.", input_schema=_SCHEMA)

    def definitions(self) -> dict[str, JsonObject]:
        """Those of the program, of the command line and of `initialize`."""
        given = as_object((self._run.initialize or {}).get("agents"))
        return {**frames.AGENTS, **self._run.invocation.agents, **given}

    def reset(self) -> None:
        self.stats = frames.subagent_stats()

    async def perform(self, call: ToolCall, parent: ModelLoop) -> Outcome:
        """Start one; in the foreground, wait for it."""
        run = self._run
        kind = str(call.input.get("subagent_type") or "general-purpose")
        definition = self.definitions().get(kind)
        if definition is None:
            known = ", ".join(self.definitions())
            return ToolFailed(f"Agent type '{kind}' not found. Available agents: {known}").outcome()
        wanted, depth = call.input.get("run_in_background"), parent.speaker.depth + 1
        is_background = wanted is not False
        self._count(kind, wanted, is_background, depth)
        prompt, description = str(call.input["prompt"]), str(call.input["description"])
        scope = anyio.CancelScope()
        fields: JsonObject = {"subagent_type": kind, "spawn_depth": depth}
        if parent.speaker.agent_id is not None:
            fields["parent_task_id"] = parent.speaker.agent_id
        task_id = run.background.start_agent(call, is_backgrounded=is_background, stop=scope.cancel, **fields)
        speaker = frames.Speaker(
            parent_tool_use_id=call.id,
            agent_id=task_id,
            agent_type=kind,
            description=description,
            is_background=is_background,
            depth=depth,
        )
        metadata: JsonObject = {"agentType": kind, "description": description}
        run.transcript.start_agent(task_id, {**metadata, "toolUseId": call.id, "spawnDepth": depth})
        chosen, limit = call.input.get("model") or definition.get("model"), definition.get("maxTurns")
        model = parent.model if chosen in (None, "inherit") else frames.resolve(str(chosen))
        loop = ModelLoop(
            run,
            speaker,
            [],
            model=model,
            tools=self._tools(definition),
            system=definition.get("prompt") or "",
            max_turns=limit if isinstance(limit, int) else None,
        )
        if not is_background:
            return await self._wait(loop, prompt, scope)
        run.start_beside(self._run_beside, loop, prompt, scope)
        text = (
            f"Async agent launched successfully.\nagentId: {task_id}\n"
            "The agent is working in the background. You will be notified when it completes."
        )
        return Outcome(
            content=[{"type": "text", "text": text}],
            detail={
                "isAsync": True,
                "status": "async_launched",
                "agentId": task_id,
                "description": description,
                "resolvedModel": model,
                "prompt": prompt,
                "outputFile": str(run.background.output_file(task_id)),
                "canReadOutputFile": True,
                "canContinueAgent": True,
            },
        )

    async def _wait(self, loop: ModelLoop, prompt: str, scope: anyio.CancelScope) -> Outcome:
        began = time.monotonic()
        ended = await self._talk(loop, prompt, scope)
        took = int((time.monotonic() - began) * 1000)
        if ended is None:
            return ToolFailed("The agent was stopped.").outcome()
        if ended.error is not None:
            return ToolFailed(f"Agent failed: {ended.error.text}").outcome()
        used = list(dict.fromkeys(loop.used_tools))
        content: list[JsonObject] = [{"type": "text", "text": loop.text}] if loop.text else []
        counts: JsonObject = dict.fromkeys(_COUNTS, 0)
        for name in loop.used_tools:
            counts[_COUNTED_AS.get(name, "otherToolCount")] += 1
        return Outcome(
            content=content,
            detail={
                "status": "completed",
                "prompt": prompt,
                "agentId": loop.speaker.agent_id,
                "agentType": loop.speaker.agent_type,
                **({"toolsUsed": used} if used else {}),
                "content": content,
                "resolvedModel": loop.model,
                "totalDurationMs": took,
                "totalTokens": loop.tally.total_tokens,
                "totalToolUseCount": len(loop.used_tools),
                "usage": loop.tally.to_wire(),
                "toolStats": counts,
                "canContinueAgent": True,
            },
        )

    async def _run_beside(self, loop: ModelLoop, prompt: str, scope: anyio.CancelScope) -> None:
        run, task_id = self._run, loop.speaker.agent_id or ""
        ended = await self._talk(loop, prompt, scope)
        if ended is None and (run.initialize or {}).get("perTaskStopAffordance") is True:
            # Only if users can stop single tasks is the model told that one was stopped.
            lines = ("<task-notification>", f"<task-id>{task_id}</task-id>", "<status>stopped</status>")
            run_id = run.background.run_id(task_id)
            origin: JsonObject = {"kind": "task-notification", "producer": "session-task", "runId": run_id}
            run.add_prompt(Prompt(content="\n".join((*lines, "</task-notification>")), origin=origin))

    async def _talk(self, loop: ModelLoop, prompt: str, scope: anyio.CancelScope) -> Ended | None:
        """Let the subagent work; None if it was stopped."""
        run, speaker = self._run, loop.speaker
        task_id = speaker.agent_id or ""
        ended: Ended | None = None
        try:
            with scope:
                event: JsonObject = {"agent_id": task_id, "agent_type": speaker.agent_type}
                verdict = await run.hooks.fire("SubagentStart", event, subject=speaker.agent_type)
                opening: list[JsonObject] = [{"type": "text", "text": prompt}]
                uuid = str(uuid4())
                if speaker.is_shown and not speaker.is_background:
                    run.say(frames.user(opening, speaker, uuid=uuid))
                run.transcript.append_user({"role": "user", "content": prompt}, uuid=uuid, agent_id=task_id)
                notes = [reminder(note) for note in verdict.additional_context]
                loop.messages.append({"role": "user", "content": [*notes, *opening]})
                ended = await loop.run()
        finally:
            # Also when the turn that waits for it is interrupted.
            if ended is None:
                self._cut_off(loop)
            self._finish(loop, ended)
        return ended

    def _cut_off(self, loop: ModelLoop) -> None:
        run, speaker = self._run, loop.speaker
        if loop.is_streaming:
            loop.cut_off()
        marker = frames.INTERRUPTED
        if loop.calls:
            loop.calls.abort()
            marker = frames.INTERRUPTED_TOOL
        if speaker.is_shown:
            run.say(frames.user([{"type": "text", "text": marker}], speaker, uuid=str(uuid4())))

    def _finish(self, loop: ModelLoop, ended: Ended | None) -> None:
        status = "killed" if ended is None else "completed" if ended.error is None else "failed"
        if ended is None:
            self.stats["killed"]["user"] += 1
        else:
            self.stats[status] += 1
        text = loop.text if ended is None or ended.error is None else ended.error.text
        task_id = loop.speaker.agent_id or ""
        self._run.transcript.finish_agent(task_id)
        self._run.background.finish_agent(
            task_id,
            status=status,
            summary=text or loop.speaker.description,
            usage=_usage(loop),
            result=text,
        )

    def note_call(self, loop: ModelLoop, call: ToolCall) -> None:
        about = call.input.get("description") or call.input.get("command") or call.name
        self._run.background.progress(
            loop.speaker.agent_id or "",
            description=f"Running {about}",
            usage=_usage(loop),
            last_tool_name=call.name,
        )

    def _tools(self, definition: JsonObject) -> Callable[[], list[ToolSpec]]:
        named, hidden = definition.get("tools"), definition.get("disallowedTools") or ()

        def offered() -> list[ToolSpec]:
            return [
                spec
                for spec in self._run.offered()
                if spec.name not in _NOT_FOR_AGENTS
                and spec.name not in hidden
                and (not isinstance(named, list) or spec.name in named)
            ]

        return offered

    def _count(self, kind: str, wanted: object, is_background: bool, depth: int) -> None:
        stats = self.stats
        stats["spawned"] += 1
        stats["requested"]["unset" if wanted is None else "background" if wanted else "foreground"] += 1
        stats["started_in_background"] += is_background
        stats["max_depth"] = max(stats["max_depth"], depth)
        stats["spawned_by_subagents"] += depth > 1
        stats["by_type"][kind] = stats["by_type"].get(kind, 0) + 1


def _usage(loop: ModelLoop) -> JsonObject:
    """`usage` of the frames about the task."""
    return {
        "total_tokens": loop.tally.total_tokens,
        "tool_uses": len(loop.used_tools),
        "duration_ms": int((time.monotonic() - loop.began) * 1000),
    }
