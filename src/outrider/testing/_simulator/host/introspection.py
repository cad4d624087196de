"""Owns what the program tells of itself when the host asks: lists, sizes, settings, the state of things.

Changes nothing.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, cast

from outrider.testing._simulator import frames
from outrider.testing._simulator.host import catalogue
from outrider.testing._simulator.world import ToolSpec
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.run import Run

__all__ = ["Offer", "Told"]


_WINDOW: Final = 1_000_000
_BUFFER: Final = 33_000


class Told:
    """What one run says of itself."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began = time.monotonic()

    def initialized(self, *, has_hooks: bool) -> JsonObject:
        """The answer to `initialize`."""
        run = self._run
        account: JsonObject = {"tokenSource": "none"}
        if run.environment.get("ANTHROPIC_API_KEY"):
            account["apiKeySource"] = "ANTHROPIC_API_KEY"
        answer: JsonObject = {
            "commands": catalogue.commands(),
            "agents": self.agents(),
            "output_style": "default",
            "available_output_styles": list(catalogue.OUTPUT_STYLES),
            "user_output_styles_dir": str(run.config_dir / "output-styles"),
            "models": catalogue.models(),
            "account": account | {"apiProvider": "firstParty"},
            "pid": os.getpid(),
            "claude_code_version": run.version,
            "current_permission_mode": run.permission_mode,
            "hook_on_failure_supported": True,
            "other_hook_ask_outranks_host": True,
            "feedback_mode": {"kind": "disabled"},
            "analytics_disabled": True,
            "remote_control_auto_enable": False,
            "remote_control_auto_connect_default": False,
            "remote_control_available": False,
            "remote_control_auto_on_by_default": False,
            "ide_rc_auto_enable_gate": False,
            "fast_mode_state": "off",
            "fast_mode_disabled_reason": "sdk_opt_in_required",
            "session_state": run.state,
            "capabilities": list(catalogue.INITIALIZE_CAPABILITIES),
        }
        if has_hooks:
            answer["hooks_applied"] = True
        return answer

    def agents(self) -> list[JsonObject]:
        found: list[JsonObject] = []
        for name, definition in self._run.subagents.definitions().items():
            agent: JsonObject = {"name": name, "description": str(definition.get("description", ""))}
            if isinstance(model := definition.get("model"), str):
                agent["model"] = model
            found.append(agent)
        return found

    def context_usage(self, _: JsonObject) -> JsonObject:
        """An estimate: four characters are a token."""
        run = self._run
        tools = [spec for spec in run.offered() if not spec.name.startswith("mcp__")]
        servers = [spec for spec in run.offered() if spec.name.startswith("mcp__")]
        sizes = {
            "system_prompt": ("System prompt", _tokens(run.offer.system_prompt())),
            "system_tools": ("System tools", _tokens([spec.input_schema for spec in tools])),
            "mcp_tools": ("MCP tools", _tokens([spec.input_schema for spec in servers])),
            "messages": ("Messages", _tokens(run.messages)),
        }
        total = sum(size for _, size in sizes.values())
        categories: list[JsonObject] = [
            {"id": id, "name": name, "tokens": size, "color": "inactive", "kind": "used"}
            for id, (name, size) in sizes.items()
        ]
        for id, name, size, kind in (
            ("autocompact_buffer", "Autocompact buffer", _BUFFER, "buffer"),
            ("free_space", "Free space", _WINDOW - _BUFFER - total, "free"),
        ):
            categories.append({"id": id, "name": name, "tokens": size, "color": "inactive", "kind": kind})
        names = [
            {"name": spec.name, "serverName": spec.name.split("__")[1], "tokens": _tokens(spec.input_schema)}
            for spec in servers
        ]
        return {
            "categories": categories,
            "totalTokens": total,
            "maxTokens": _WINDOW,
            "rawMaxTokens": _WINDOW,
            "autocompactSource": "auto",
            "percentage": round(100 * total / _WINDOW),
            "gridRows": [],
            "model": run.model,
            "memoryFiles": [],
            "mcpTools": names,
            "mcpInstructions": [],
            "agents": [],
            "slashCommands": {"totalCommands": len(catalogue.COMMANDS), "includedCommands": 0, "tokens": 0},
            "skills": {
                "totalSkills": len(catalogue.SKILLS),
                "includedSkills": 0,
                "tokens": 0,
                "skillFrontmatter": [],
            },
            "autoCompactThreshold": _WINDOW - _BUFFER,
            "isAutoCompactEnabled": True,
            "messageBreakdown": {
                "toolCallTokens": 0,
                "toolResultTokens": 0,
                "attachmentTokens": 0,
                "assistantMessageTokens": _tokens([m for m in run.messages if m["role"] == "assistant"]),
                "userMessageTokens": _tokens([m for m in run.messages if m["role"] == "user"]),
                "redirectedContextTokens": 0,
                "unattributedTokens": 0,
                "toolCallsByType": [],
                "attachmentsByType": [],
            },
            "apiUsage": None if run.meter.last is None else run.meter.last.counts(),
        }

    def usage(self, _: JsonObject) -> JsonObject:
        meter = self._run.meter
        session: JsonObject = {
            "total_cost_usd": meter.cost_usd,
            "total_api_duration_ms": meter.api_ms,
            "total_duration_ms": int((time.monotonic() - self._began) * 1000),
            "total_lines_added": 0,
            "total_lines_removed": 0,
            "model_usage": meter.by_model(),
        }
        return {
            "session": session,
            "subscription_type": None,
            "rate_limits_available": False,
            "rate_limits": None,
            "behaviors": None,
        }

    def settings(self, changed: JsonObject) -> JsonObject:
        run = self._run
        effective = {**run.invocation.settings, **changed}
        sources = [{"source": "flagSettings", "settings": effective}] if effective else []
        applied: JsonObject = {
            "model": run.model,
            "effort": run.invocation.effort or "medium",
            "advisor": None,
            "ultracode": False,
            "ultracodeRequested": False,
            "ultracodeAvailable": True,
            "ultrathinkAvailable": False,
            "outsideFileToolReadsBlocked": False,
            "outsideFileToolWritesBlocked": False,
            "outsideBlocksCountLaunchFoldersOnly": False,
            "launchEnvLeftOwnFilesInPlace": False,
        }
        return {"effective": effective, "sources": sources, "applied": applied}


def _tokens(value: object) -> int:
    return 0 if not value else -(-len(str(value)) // 4)


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
