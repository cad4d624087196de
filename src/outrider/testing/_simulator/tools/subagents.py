"""Owns the tool that starts subagents, in the foreground and in the background.

Their conversations go on as the main one does; what is told of them as tasks is in `background`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import anyio

from outrider.testing._simulator import frames
from outrider.testing._simulator.model_loop import Ended, Talk
from outrider.testing._simulator.tools.calls import reminder
from outrider.testing._simulator.turn import Prompt
from outrider.testing._simulator.world import Outcome, ToolCall, ToolSpec
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.run import Run

__all__ = ["Subagents"]

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
_DEFAULT: Final = "general-purpose"
_OF_USERS: Final = frozenset(("AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "StructuredOutput"))


class Subagents:
    """The subagents of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._counts: JsonObject = {}
        self.reset()

    def spec(self) -> ToolSpec:
        kinds = ", ".join(self.definitions())
        return ToolSpec(name="Agent", description=f"Starts an agent. Kinds: {kinds}.", input_schema=_SCHEMA)

    def definitions(self) -> dict[str, JsonObject]:
        """Those of the program, of the command line and of `initialize`."""
        given = (self._run.initialize or {}).get("agents")
        own: dict[str, JsonObject] = {
            **self._run.invocation.agents,
            **(given if isinstance(given, dict) else {}),
        }
        return {**frames.AGENTS, **own}

    def stats(self) -> JsonObject:
        """`subagent_stats` of the result that is about to be written."""
        return self._counts

    def reset(self) -> None:
        self._counts = frames.subagent_stats()

    async def perform(self, call: ToolCall, parent: Talk) -> Outcome:
        """Start one; in the foreground, wait for it."""
        run = self._run
        kind = str(call.input.get("subagent_type") or _DEFAULT)
        definition = self.definitions().get(kind)
        if definition is None:
            known = ", ".join(self.definitions())
            text = f"Agent type '{kind}' not found. Available agents: {known}"
            return Outcome(content=text, is_error=True, detail=f"Error: {text}")
        wanted = call.input.get("run_in_background")
        is_background = wanted is not False
        self._count(kind, wanted, is_background, parent.speaker.depth + 1)
        prompt, description = str(call.input["prompt"]), str(call.input["description"])
        scope = anyio.CancelScope()
        task_id = run.background.start_agent(
            call,
            prompt=prompt,
            description=description,
            subagent_type=kind,
            is_backgrounded=is_background,
            spawn_depth=parent.speaker.depth + 1,
            parent_task_id=parent.speaker.agent_id,
            stop=scope.cancel,
        )
        speaker = frames.Speaker(
            parent_tool_use_id=call.id,
            agent_id=task_id,
            agent_type=kind,
            description=description,
            is_background=is_background,
            depth=parent.speaker.depth + 1,
        )
        run.transcript.start_agent(
            task_id,
            {
                "agentType": kind,
                "description": description,
                "toolUseId": call.id,
                "spawnDepth": speaker.depth,
            },
        )
        model = self._model(call, definition, parent.model)
        talk = Talk(
            run,
            speaker,
            [],
            model=model,
            tools=self._tools(definition),
            system=definition.get("prompt") or "",
            max_turns=definition.get("maxTurns") if isinstance(definition.get("maxTurns"), int) else None,
        )
        if not is_background:
            return await self._foreground(call, talk, prompt, scope)
        run.start_beside(self._background, talk, prompt, scope)
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

    async def _foreground(self, call: ToolCall, talk: Talk, prompt: str, scope: anyio.CancelScope) -> Outcome:
        began = time.monotonic()
        ended = await self._talk(talk, prompt, scope)
        took = int((time.monotonic() - began) * 1000)
        if ended is None:
            text = "The agent was stopped."
            return Outcome(content=text, is_error=True, detail=f"Error: {text}")
        if ended.error is not None:
            text = f"Agent failed: {ended.error.text}"
            return Outcome(content=text, is_error=True, detail=f"Error: {text}")
        used = list(dict.fromkeys(talk.used_tools))
        content: list[JsonObject] = [{"type": "text", "text": talk.text}]
        return Outcome(
            content=content,
            detail={
                "status": "completed",
                "prompt": prompt,
                "agentId": talk.speaker.agent_id,
                "agentType": talk.speaker.agent_type,
                **({"toolsUsed": used} if used else {}),
                "content": content,
                "resolvedModel": talk.model,
                "totalDurationMs": took,
                "totalTokens": talk.tally.total_tokens,
                "totalToolUseCount": len(talk.used_tools),
                "usage": talk.tally.to_wire(),
                "toolStats": _tool_stats(talk.used_tools),
                "canContinueAgent": True,
            },
        )

    async def _background(self, talk: Talk, prompt: str, scope: anyio.CancelScope) -> None:
        run, task_id = self._run, talk.speaker.agent_id or ""
        ended = await self._talk(talk, prompt, scope)
        if ended is None and (run.initialize or {}).get("perTaskStopAffordance") is True:
            # Only if users can stop single tasks is the model told that one was stopped.
            lines = ("<task-notification>", f"<task-id>{task_id}</task-id>", "<status>stopped</status>")
            run_id = run.background.run_id(task_id)
            origin: JsonObject = {"kind": "task-notification", "producer": "session-task", "runId": run_id}
            run.add_prompt(Prompt(content="\n".join((*lines, "</task-notification>")), origin=origin))

    async def _talk(self, talk: Talk, prompt: str, scope: anyio.CancelScope) -> Ended | None:
        """Let the subagent work; none if it was stopped."""
        run, speaker = self._run, talk.speaker
        task_id = speaker.agent_id or ""
        ended: Ended | None = None
        try:
            with scope:
                verdict = await run.hooks.fire(
                    "SubagentStart",
                    {"agent_id": task_id, "agent_type": speaker.agent_type},
                    subject=speaker.agent_type,
                )
                opening: list[JsonObject] = [{"type": "text", "text": prompt}]
                uuid = str(uuid4())
                if speaker.is_shown and not speaker.is_background:
                    run.say(frames.user(opening, speaker, uuid=uuid))
                run.transcript.append_user({"role": "user", "content": prompt}, uuid=uuid, agent_id=task_id)
                notes = [reminder(note) for note in verdict.additional_context]
                talk.messages.append({"role": "user", "content": [*notes, *opening]})
                ended = await talk.run()
        finally:
            # Also when the turn that waits for it is interrupted.
            if ended is None:
                self._cut_off(talk)
            self._finish(talk, ended)
        return ended

    def _cut_off(self, talk: Talk) -> None:
        run, speaker = self._run, talk.speaker
        if talk.is_streaming:
            talk.cut_off()
        marker = frames.INTERRUPTED
        if talk.calls:
            talk.calls.abort()
            marker = frames.INTERRUPTED_TOOL
        if speaker.is_shown:
            run.say(frames.user([{"type": "text", "text": marker}], speaker, uuid=str(uuid4())))

    def _finish(self, talk: Talk, ended: Ended | None) -> None:
        status = "killed" if ended is None else "completed" if ended.error is None else "failed"
        killed = self._counts["killed"]
        if ended is None:
            killed["user"] += 1
        else:
            self._counts[status] += 1
        text = talk.text if ended is None or ended.error is None else ended.error.text
        self._run.transcript.finish_agent(talk.speaker.agent_id or "")
        self._run.background.finish_agent(
            talk.speaker.agent_id or "",
            status=status,
            summary=text or talk.speaker.description,
            usage=self.usage(talk),
            result=text,
        )

    def usage(self, talk: Talk) -> JsonObject:
        """`usage` of the frames about the task."""
        return {
            "total_tokens": talk.tally.total_tokens,
            "tool_uses": len(talk.used_tools),
            "duration_ms": int((time.monotonic() - talk.began) * 1000),
        }

    def note_call(self, talk: Talk, call: ToolCall) -> None:
        """Tell that a subagent calls a tool."""
        self._run.background.progress(
            talk.speaker.agent_id or "",
            description=f"Running {call.input.get('description') or call.input.get('command') or call.name}",
            usage=self.usage(talk),
            last_tool_name=call.name,
        )

    def _model(self, call: ToolCall, definition: JsonObject, inherited: str) -> str:
        chosen = call.input.get("model") or definition.get("model")
        return inherited if chosen in (None, "inherit") else frames.resolve(str(chosen))

    def _tools(self, definition: JsonObject) -> Callable[[], list[ToolSpec]]:
        named, hidden = definition.get("tools"), definition.get("disallowedTools") or ()

        def offered() -> list[ToolSpec]:
            return [
                spec
                for spec in self._run.offered()
                if spec.name not in _OF_USERS
                and spec.name not in hidden
                and (not isinstance(named, list) or spec.name in named)
            ]

        return offered

    def _count(self, kind: str, wanted: object, is_background: bool, depth: int) -> None:
        counts = self._counts
        counts["spawned"] += 1
        counts["requested"]["unset" if wanted is None else "background" if wanted else "foreground"] += 1
        counts["started_in_background"] += is_background
        counts["max_depth"] = max(counts["max_depth"], depth)
        counts["spawned_by_subagents"] += depth > 1
        counts["by_type"][kind] = counts["by_type"].get(kind, 0) + 1


def _tool_stats(names: list[str]) -> JsonObject:
    known = {"Read": "readCount", "Glob": "searchCount", "Grep": "searchCount", "Bash": "bashCount"}
    known |= {"Edit": "editFileCount", "Write": "editFileCount"}
    stats: JsonObject = dict.fromkeys(
        (
            *("readCount", "searchCount", "bashCount", "editFileCount", "linesAdded", "linesRemoved"),
            "otherToolCount",
        ),
        0,
    )
    for name in names:
        stats[known.get(name, "otherToolCount")] += 1
    return stats
