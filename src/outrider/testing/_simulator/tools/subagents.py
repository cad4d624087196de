"""The tool that starts subagents, in the foreground and in the background."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio

from outrider.testing._simulator import frames
from outrider.testing._simulator.frames import Outcome, ToolCall, ToolFailed, ToolSpec, as_object, reminder
from outrider.testing._simulator.model_loop import Ended, ModelLoop
from outrider.testing._simulator.turn import Prompt
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.run import Run


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
    """The subagents of one run."""

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
        """Tell that a subagent calls a tool."""
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
