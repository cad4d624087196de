"""What a run says of itself, and what it has to offer: `init`, the answer to `initialize`, usage."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from outrider.testing._simulator import frames
from outrider.testing._simulator.context import ToolSpec, as_list, as_object
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.run import Run


_WINDOW: Final = 1_000_000
_BUFFER: Final = 33_000


class Introspection:
    """What one run says of itself, and has to offer."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began = time.monotonic()

    def _asked(self, name: str) -> object:
        return (self._run.initialize or {}).get(name)

    @property
    def max_retries(self) -> int:
        """How often a request to the API is tried again."""
        value = self._run.environment.get("CLAUDE_CODE_MAX_RETRIES", "")
        return int(value) if value.isdigit() else 10

    @property
    def forwards_text(self) -> bool:
        """Whether the host wants to see what subagents in the foreground say."""
        return self._run.invocation.forward_subagent_text or self._asked("forwardSubagentText") is True

    @property
    def schema(self) -> JsonObject | None:
        """What a structured answer has to look like."""
        return as_object(self._asked("jsonSchema")) or self._run.invocation.json_schema

    def tools(self) -> list[ToolSpec]:
        """The tools offered to the model."""
        run, found = self._run, self._run.invocation
        specs = [*run.tools.specs(), *run.questions.specs(), *run.mcp.specs()]
        is_named = found.tools is None or {"default", "Agent", "Task"} & set(found.tools)
        if is_named and not {"Agent", "Task"} & set(found.disallowed_tools):
            specs.insert(0, run.subagents.spec())
        if (schema := self.schema) is not None:
            specs.append(ToolSpec(name="StructuredOutput", description="The answer.", input_schema=schema))
        return specs

    def system_prompt(self) -> list[JsonObject]:
        """The one of the user, if there is one, as blocks."""
        found, given = self._run.invocation, self._asked("systemPrompt")
        own: list[object] = [*as_list(given)] or [found.system_prompt if given is None else given]
        texts = [*own, self._asked("appendSystemPrompt"), found.append_system_prompt]
        return [{"type": "text", "text": text} for text in texts if isinstance(text, str)]

    def init_frame(self, uuids: list[str]) -> JsonObject:
        """What a turn for these prompts begins with."""
        run = self._run
        names = ["Task" if spec.name == "Agent" else spec.name for spec in self.tools()]
        frame: JsonObject = {
            "type": "system",
            "subtype": "init",
            "cwd": str(run.cwd),
            "session_id": run.session_id,
            "tools": sorted(names, key=lambda name: (name != "Task", name.startswith("mcp__"), name)),
            "mcp_servers": run.mcp.statuses(brief=True),
            "model": run.model,
            "permissionMode": run.permission_mode,
            "slash_commands": [*frames.SKILLS, *frames.COMMANDS],
            "terminal_slash_commands": ["doctor", "color", "focus", "reload-plugins"],
            "apiKeySource": "ANTHROPIC_API_KEY" if run.environment.get("ANTHROPIC_API_KEY") else "none",
            "claude_code_version": run.version,
            "output_style": "default",
            "agents": list(run.subagents.definitions()),
            "skills": list(frames.SKILLS),
            "plugins": [
                {"name": name, "path": "builtin", "source": f"{name}@builtin"} for name in frames.PLUGINS
            ],
            "capabilities": list(frames.CAPABILITIES),
            "analytics_disabled": True,
            "product_feedback_disabled": True,
            "uuid": str(uuid4()),
            "memory_paths": {"auto": f"{run.transcript_path.parent / 'memory'}/"},
            "original_cwd": str(run.cwd),
            "additional_directories": list(run.invocation.add_dirs),
            "fast_mode_state": "off",
            "fast_mode_disabled_reason": "sdk_opt_in_required",
            "per_turn_effort_active": True,
            "ultrathink_available": False,
            "ultrathink_typed_raises": False,
            "view_mode": "default",
        }
        return frame | ({"user_message_uuids": list(uuids)} if uuids else {})

    def initialized(self, *, has_hooks: bool) -> JsonObject:
        """The answer to `initialize`."""
        run = self._run
        account: JsonObject = {"tokenSource": "none"}
        if run.environment.get("ANTHROPIC_API_KEY"):
            account["apiKeySource"] = "ANTHROPIC_API_KEY"
        agents = [
            {"name": name, "description": str(given.get("description", ""))}
            | ({"model": given["model"]} if isinstance(given.get("model"), str) else {})
            for name, given in run.subagents.definitions().items()
        ]
        answer: JsonObject = {
            "commands": frames.commands(),
            "agents": agents,
            "output_style": "default",
            "available_output_styles": list(frames.OUTPUT_STYLES),
            "user_output_styles_dir": str(run.config_dir / "output-styles"),
            "models": frames.models(),
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
            "capabilities": list(frames.INITIALIZE_CAPABILITIES),
        }
        return answer | ({"hooks_applied": True} if has_hooks else {})

    def context_usage(self, _: JsonObject) -> JsonObject:
        """An estimate: four characters are a token."""
        run, offered = self._run, self.tools()
        servers = [spec for spec in offered if spec.name.startswith("mcp__")]
        sizes = {
            "System prompt": _tokens(self.system_prompt()),
            "System tools": _tokens([spec.input_schema for spec in offered if spec not in servers]),
            "MCP tools": _tokens([spec.input_schema for spec in servers]),
            "Messages": _tokens(run.messages),
        }
        total = sum(sizes.values())
        categories = [
            {"id": name.lower().replace(" ", "_"), "name": name, "tokens": size}
            | {"color": "inactive", "kind": "free" if name == "Free space" else "used"}
            for name, size in (sizes | {"Free space": _WINDOW - total}).items()
        ]
        names = [
            {"name": spec.name, "serverName": spec.name.split("__")[1], "tokens": _tokens(spec.input_schema)}
            for spec in servers
        ]
        counted = {f"{role}MessageTokens": 0 for role in ("assistant", "user")}
        for message in run.messages:
            counted[f"{message['role']}MessageTokens"] += _tokens(message)
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
            "slashCommands": {"totalCommands": len(frames.COMMANDS), "includedCommands": 0, "tokens": 0},
            "skills": {"totalSkills": 0, "includedSkills": 0, "tokens": 0, "skillFrontmatter": []},
            "autoCompactThreshold": _WINDOW - _BUFFER,
            "isAutoCompactEnabled": True,
            "messageBreakdown": {**counted, "toolCallsByType": [], "attachmentsByType": []},
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

    def cost(self, _: JsonObject) -> JsonObject:
        meter = self._run.meter
        text = (
            f"Total cost:            ${meter.cost_usd:.4f}\n"
            f"Total duration (API):  {meter.api_ms}ms\n"
            "Total code changes:    0 lines added, 0 lines removed"
        )
        return {"text": text}

    def settings(self, changed: JsonObject) -> JsonObject:
        run = self._run
        effective = {**run.invocation.settings, **changed}
        sources = [{"source": "flagSettings", "settings": effective}] if effective else []
        off = (
            *("ultracode", "ultracodeRequested", "ultrathinkAvailable", "outsideFileToolReadsBlocked"),
            *("outsideFileToolWritesBlocked", "outsideBlocksCountLaunchFoldersOnly"),
            "launchEnvLeftOwnFilesInPlace",
        )
        applied: JsonObject = {
            "model": run.model,
            "effort": run.invocation.effort or "medium",
            "advisor": None,
            "ultracodeAvailable": True,
            **dict.fromkeys(off, False),
        }
        return {"effective": effective, "sources": sources, "applied": applied}


def _tokens(value: object) -> int:
    return 0 if not value else -(-len(str(value)) // 4)
