"""Owns what the model and the host are told of a run at the beginning of each turn: tools, prompts, settings.

Does not carry any of it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from outrider.testing._simulator import _frames as frames
from outrider.testing._simulator._world import ToolSpec
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator._run import Run

__all__ = ["Offer"]


class Offer:
    """What one run has to offer."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def max_retries(self) -> int:
        """How often a request to the API is tried again."""
        value = self._run.environment.get("CLAUDE_CODE_MAX_RETRIES", "")
        return int(value) if value.isdigit() else 10

    @property
    def forwards_text(self) -> bool:
        """Whether the host wants to see what subagents in the foreground say."""
        run = self._run
        return run.invocation.forward_subagent_text or self._asked("forwardSubagentText") is True

    @property
    def schema(self) -> JsonObject | None:
        """What a structured answer has to look like."""
        given = self._asked("jsonSchema")
        return cast("JsonObject", given) if isinstance(given, dict) else self._run.invocation.json_schema

    def tools(self) -> list[ToolSpec]:
        """The tools that the model is told of."""
        run, found = self._run, self._run.invocation
        specs = [*run.tools.specs(), *run.questions.specs(), *run.mcp.specs()]
        is_named = found.tools is None or any(name in found.tools for name in ("default", "Agent", "Task"))
        if is_named and not {"Agent", "Task"} & set(found.disallowed_tools):
            specs.insert(0, run.subagents.spec())
        if (schema := self.schema) is not None:
            specs.append(ToolSpec(name="StructuredOutput", description="The answer.", input_schema=schema))
        return specs

    def system_prompt(self) -> list[JsonObject]:
        """The one of the user, if there is one, as blocks."""
        found, given = self._run.invocation, self._asked("systemPrompt")
        texts: list[str] = []
        if isinstance(given, list):
            texts = [str(text) for text in cast("list[object]", given)]
        elif isinstance(given, str):
            texts = [given]
        elif found.system_prompt is not None:
            texts = [found.system_prompt]
        for more in (self._asked("appendSystemPrompt"), found.append_system_prompt):
            texts += [more] if isinstance(more, str) else []
        return [{"type": "text", "text": text} for text in texts]

    def init_frame(self, uuids: list[str]) -> JsonObject:
        """What a turn for these prompts begins with."""
        run = self._run
        return frames.init(
            cwd=str(run.cwd),
            session_id=run.session_id,
            tools=self.tools(),
            servers=run.mcp.statuses(brief=True),
            model=run.model,
            permission_mode=run.permission_mode,
            version=run.version,
            agents=list(run.subagents.definitions()),
            memory=f"{run.transcript_path.parent / 'memory'}/",
            folders=run.invocation.add_dirs,
            key_source="ANTHROPIC_API_KEY" if run.environment.get("ANTHROPIC_API_KEY") else "none",
            uuids=uuids,
        )

    def cost_text(self) -> str:
        """What the session has cost, for people."""
        meter = self._run.meter
        return (
            f"Total cost:            ${meter.cost_usd:.4f}\n"
            f"Total duration (API):  {meter.api_ms}ms\n"
            "Total code changes:    0 lines added, 0 lines removed"
        )

    def _asked(self, name: str) -> object:
        return (self._run.initialize or {}).get(name)
