"""`Run`, one run of the simulated program: what it reads, what it writes, and how long it lasts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

import anyio

from outrider.testing._simulator import frames
from outrider.testing._simulator.frames import Meter, Tally, resolve, text_of
from outrider.testing._simulator.host.control import (
    CONTROL_TYPES,
    HostLine,
    Introspection,
    Requests,
    Streams,
    current_owner,
)
from outrider.testing._simulator.host.hooks import Hooks
from outrider.testing._simulator.host.permissions import Permissions
from outrider.testing._simulator.model import Model
from outrider.testing._simulator.model_loop import ModelLoop
from outrider.testing._simulator.program import Invocation, StartFailed
from outrider.testing._simulator.tools.mcp import McpServers
from outrider.testing._simulator.tools.tasks import Background, Subagents
from outrider.testing._simulator.tools.tools import Questions, Tools
from outrider.testing._simulator.transcript import Transcript
from outrider.testing._simulator.turn import Deferred, Prompt, PromptQueue, Turn
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from outrider.testing._simulator.frames import ToolSpec
    from outrider.testing._simulator.model import ModelSource


def _open_session(run: Run) -> bool:
    """Open the session. False, with a message, if it does not exist. Raises `StartFailed` otherwise."""
    found = run.invocation
    try:
        _begin(run)
    except FileExistsError as error:
        raise StartFailed(str(error)) from error
    except LookupError as error:
        text = str(error.args[0]) if error.args else str(error)
        run.complain(text)
        run.code = 1
        if found.resume is not None and text.endswith(f"session ID: {found.resume}"):
            run.session_id = found.resume
        _say_failed(run, text)
        return False
    run.transcript_path = run.transcript.path
    if found.name:
        run.set_title(found.name)
    return True


def _begin(run: Run) -> None:
    found = run.invocation
    resumed = found.resume
    if resumed is None and found.continue_conversation:
        resumed = run.transcript.latest()
    if resumed is None:
        run.transcript.open_new(run.session_id)
        return
    fork = run.session_id if found.fork_session else None
    run.session_id, run.messages = run.transcript.resume(resumed, at=found.resume_session_at, fork_as=fork)
    if run.transcript.deferred is not None:
        run.deferred.found(run.transcript.deferred)
    run.meter.earlier_usd = run.transcript.cost_so_far


def _say_failed(run: Run, text: str) -> None:
    run.say(
        {
            "type": "result",
            "subtype": "error_during_execution",
            "duration_ms": 0,
            "duration_api_ms": 0,
            "is_error": True,
            "num_turns": 0,
            "stop_reason": None,
            "total_cost_usd": 0,
            "usage": Tally().to_wire(),
            "modelUsage": {},
            "permission_denials": [],
            "errors": [text],
            "result_index": 0,
        }
    )


_QUESTIONS: Final = frozenset(("can_use_tool", "elicitation", "request_user_dialog"))
"""What a user has to answer: the session waits for it."""
_MADE_BY_PARTS: Final = frozenset(("keep_alive", "transcript_mirror"))


class Run:
    """A run of the simulated program. `main` is all of it, and gives the exit code."""

    def __init__(
        self,
        invocation: Invocation,
        streams: Streams,
        *,
        source: ModelSource,
        environment: Mapping[str, str],
        cwd: Path,
        config_dir: Path,
        version: str,
    ) -> None:
        self.invocation = invocation
        self.environment = environment
        self.cwd = cwd
        self.config_dir = config_dir
        self.version = version
        self.model = resolve(invocation.model)
        self.permission_mode = invocation.permission_mode or "default"
        self.session_id = invocation.session_id or str(uuid4())
        self.initialize: JsonObject | None = None
        self.title: str | None = None
        self.messages: list[JsonObject] = []
        """The main conversation, as the API gets it."""
        self.scripted_results: dict[str, str] = {}
        """Results of tools that the script gives, by the id of the call."""
        self.queue = PromptQueue()
        self.meter = Meter()
        self.code = 0

        self.hooks = Hooks(self)
        self.mcp: McpServers = McpServers(self)
        self.permissions: Permissions = Permissions(self, self.hooks)
        if invocation.dangerously_skip_permissions:
            self.permission_mode = "bypassPermissions"
        elif invocation.permission_mode is None:
            self.permission_mode = self.permissions.settings_mode or "default"
        self.questions: Questions = Questions(self, self.permissions)
        self.background: Background = Background(self)
        self.background.on_end = lambda text, origin: self.add_prompt(Prompt(content=text, origin=origin))
        self.tools = Tools(self, self.background)
        self.transcript = Transcript(self)
        self.transcript_path = self.transcript.path
        self.subagents = Subagents(self)
        self.introspection: Introspection = Introspection(self)
        self.offered: Callable[[], list[ToolSpec]] = self.introspection.tools
        """The tools offered to the model."""
        self.requests: Requests = Requests(self)
        self.deferred: Deferred = Deferred(self)
        self.script_model = Model(self, source)

        self._streams = streams
        self.line = HostLine(self, streams)
        self._held_results: list[JsonObject] = []
        self._results = 0
        self._state: Literal["idle", "running", "requires_action"] = "idle"
        self._open_questions = 0
        self._turn: Turn | None = None
        self._had_turn = False
        self._was_idle = False
        self._beside = 0
        self._is_latched = False
        self._wake = anyio.Event()
        self._starting = 0
        self._has_started = False
        self.is_ending = False
        self._turn_over = anyio.Event()
        self.tasks: TaskGroup

    # The program's life.

    async def main(self) -> int:
        """Run until stdin has ended and nothing runs any more; returns the exit code."""
        async with anyio.create_task_group() as self.tasks:
            try:
                if _open_session(self):
                    self.tasks.start_soon(self.line.read, name="simulated stdin")
                    await self._work()
            except StartFailed as failed:
                self.complain(str(failed))
                self.code = 1
            finally:
                with anyio.CancelScope(shield=True):
                    await self._finish()
            self.tasks.cancel_scope.cancel()
        return self.code

    async def _finish(self) -> None:
        self.is_ending = True
        await self.background.stop_all()
        self._release_results()
        state: JsonObject = {"totalCostUSD": self.meter.cost_usd, "modelUsage": self.meter.by_model()}
        self.transcript.close(state)
        await self._streams.drain()

    async def _work(self) -> None:
        """Take prompts until there are no more."""
        while not self.is_ending:
            self._wake = anyio.Event()
            if self.deferred.is_due or (self._starting == 0 and len(self.queue)):
                await self.ensure_started()
                await self._take_turn()
            elif self.is_input_over and self._starting == 0:
                if not self.background.is_busy and not self._beside:
                    return
                await self._wait_for_background()
            else:
                await self._wake.wait()

    async def _wait_for_background(self) -> None:
        """Wait for what still runs after the end of stdin."""
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await self.background.wait_idle()
                # Subagents that end say so themselves.
                if not self._beside:
                    tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await self._wake.wait()
            tasks.cancel_scope.cancel()

    async def _take_turn(self) -> None:
        if (turn := self.deferred.take()) is None:
            prompts = self.queue.take(alone=self._was_idle)
            self._was_idle = False
            if not prompts:
                return
            turn = Turn(self, prompts)
        self._set_state("running")
        self._turn = turn
        self._turn_over = anyio.Event()
        token = current_owner.set(self._turn)
        try:
            await self._turn.run()
        finally:
            current_owner.reset(token)
            self._turn = None
            self._had_turn = True
            self._turn_over.set()
        self._settle()

    def _settle(self) -> None:
        """Report the session as idle if nothing runs. Commands in the background do not count."""
        if self._turn is None and not len(self.queue) and not self._beside:
            self._release_results()
            self._set_state("idle")

    async def ensure_started(self) -> None:
        """Start the MCP servers, unless `initialize` has done so."""
        if not self._has_started:
            await self.start_servers()

    async def start_servers(self) -> None:
        """Start the MCP servers that are known now."""
        self._has_started = True
        await self.mcp.start()

    def begin_start(self) -> None:
        """Wait with prompts until `initialize` is answered."""
        self._starting += 1

    async def finish_start(self) -> None:
        """Do what follows the answer to `initialize`."""
        self._starting -= 1
        self._wake.set()
        await self.mcp.settle()
        if len(self.queue):
            self._set_state("running")

    @property
    def is_input_over(self) -> bool:
        """Whether the host can say nothing more."""
        return self.line.is_input_over

    def wake(self) -> None:
        """Check again for something to do."""
        if self.deferred.is_due:
            self._set_state("running")
        elif self._turn is None:
            self._settle()
        self._wake.set()

    def end(self, code: int) -> None:
        """End the program now, without a result of the turn that runs."""
        self.code = code
        self.is_ending = True
        self.tasks.cancel_scope.cancel()

    def add_prompt(self, prompt: Prompt) -> None:
        """Queue a prompt."""
        is_idle = self._turn is None and not len(self.queue)
        if not self.queue.add(prompt):
            return
        # A turn begins with the first of them at once; those that follow are merged.
        self._was_idle = self._was_idle or is_idle
        if self._starting == 0:
            self._set_state("running")
        if prompt.uuid is not None:
            self.say(frames.lifecycle(prompt.uuid, "queued"))
        if prompt.priority == "now" and self._turn is not None:
            self._interrupt_turn("now")
        self._wake.set()

    # Writing.

    def say(self, frame: JsonObject) -> None:
        """Write a frame, with what every frame has."""
        kind = frame.get("type")
        if kind not in CONTROL_TYPES and kind not in _MADE_BY_PARTS:
            frame.setdefault("uuid", str(uuid4()))
            frame.setdefault("session_id", self.session_id)
        self.line.send(frame)

    def complain(self, line: str) -> None:
        self._streams.complain(line)

    async def ask(self, subtype: str, fields: JsonObject) -> JsonObject:
        """Ask the host, and wait. Raises `Refused`, also once stdin has ended."""
        if subtype not in _QUESTIONS:
            return await self.line.ask(subtype, fields)
        self._open_questions += 1
        if not self.is_input_over:
            self._set_state("requires_action")
        try:
            return await self.line.ask(subtype, fields)
        finally:
            self._open_questions -= 1
            if not self._open_questions and not self.is_ending:
                self._set_state("running")

    def write_result(self, frame: JsonObject) -> None:
        """Write the end of a turn; after the end of stdin, not before the subagents are done."""
        self.transcript.flush()
        self.permissions.denials.clear()
        self.code = 1 if frame["is_error"] else 0
        if self.is_input_over and self._beside:
            self._held_results.append(frame)
            return
        self._release_results()
        self.say(frame)

    def _release_results(self) -> None:
        held, self._held_results = self._held_results, []
        for frame in held:
            self.say(frame)

    def next_result_index(self) -> int:
        self._results += 1
        return self._results - 1

    def later(self, function: Callable[[], None]) -> None:
        """Call this after what is being written."""

        async def call() -> None:
            function()

        self.tasks.start_soon(call)

    @property
    def state(self) -> str:
        return self._state

    def _set_state(self, state: Literal["idle", "running", "requires_action"]) -> None:
        if state == self._state:
            return
        self._state = state
        is_for_host = bool(self.environment.get("CLAUDE_CODE_SDK_READS_SESSION_STATE"))
        if is_for_host or self.environment.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"):
            self.say(frames.state_changed(state, is_for_host=is_for_host))

    # Turns.

    def interrupt(self, *, cancel_queued: bool = False) -> JsonObject:
        """End the turn that runs; returns the answer to `interrupt`."""
        if self._turn is not None:
            self._interrupt_turn("interrupt")
        elif not self._had_turn and len(self.queue):
            # Once, at the very beginning, the program remembers it.
            self._is_latched = True
        if not cancel_queued:
            return {"still_queued": self.queue.uuids}
        cancelled = self.queue.clear()
        for uuid in cancelled:
            self.say(frames.lifecycle(uuid, "cancelled"))
        return {"still_queued": [], "cancelled": cancelled}

    def _interrupt_turn(self, why: Literal["interrupt", "now"]) -> None:
        if self._turn is not None:
            self._turn.interrupt(why)
            self.line.withdraw(self._turn)

    def take_latched_interrupt(self) -> bool:
        is_latched, self._is_latched = self._is_latched, False
        return is_latched

    def show_prompts(self) -> None:
        if self._turn is not None:
            self._turn.show()

    def fold_prompts(self) -> None:
        """Hand new prompts to the running turn."""
        if self._turn is not None:
            self._turn.fold(self.queue.take_folded())

    def start_beside(self, function: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Start work that outlives the turn, and is not interrupted with it."""

        async def go() -> None:
            current_owner.set(None)
            try:
                await function(*arguments)
            finally:
                self._beside -= 1
                self.wake()

        self._beside += 1
        self.tasks.start_soon(go, name="simulated subagent")

    async def ask_beside(self, question: str) -> str:
        """Ask the model something that does not become part of the conversation. Raises `ApiError`."""
        messages = [*self.messages, {"role": "user", "content": question}]
        system = self.introspection.system_prompt()
        loop = ModelLoop(
            self, frames.Speaker(), messages, model=self.model, tools=self.offered, system=system
        )
        _, body, _ = await self.script_model.answer(loop)
        loop.count(body)
        return text_of(body)

    # What the parts change.

    def set_title(self, title: str) -> None:
        self.title = title
        self.transcript.set_title(title)
        self.say({"type": "system", "subtype": "session_title_changed", "title": title})

    def set_model(self, name: str | None) -> None:
        """Use another model from now on, and tell the host if it is another."""
        model = resolve(name)
        if model == self.model:
            return
        self.model = model
        shown = model if name in (None, "default", model) else f"{name} ({model})"
        text = f"<local-command-stdout>Set model to `{shown}`</local-command-stdout>"
        if self._had_turn:
            self.say(frames.replay(text))

    def start_over(self) -> None:
        """Continue with an empty conversation under another id."""
        self.session_id = str(uuid4())
        self.transcript.restart(self.session_id)
        self.transcript_path = self.transcript.path
        self.messages.clear()
        self.meter.forget()
        self.title = None

    # Signals.

    async def on_signal(self, name: str) -> None:
        """React to a signal as the program does."""
        if name == "SIGINT":
            self.interrupt()
            if self._turn is not None:
                await self._turn_over.wait()
            self.end(0)
            return
        if not self.is_input_over:
            with anyio.move_on_after(1):
                await self.hooks.fire("SessionEnd", {"reason": "other"}, subject="other")
        self.end(143 if name == "SIGTERM" else 129)
