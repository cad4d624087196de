"""Owns the requests of the host: what each of them does, what the program tells of itself, and the answers.

How requests come in is in `line`.
"""

from __future__ import annotations

import base64
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from outrider.testing._simulator import frames
from outrider.testing._simulator.model import ApiError
from outrider.testing._simulator.model_loop import Talk
from outrider.testing._simulator.world import ToolSpec
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.run import Run
    from outrider.wire import RequestId

__all__ = ["Control", "Offer", "Told"]

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
            "commands": frames.commands(),
            "agents": self.agents(),
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
            "slashCommands": {"totalCommands": len(frames.COMMANDS), "includedCommands": 0, "tokens": 0},
            "skills": {
                "totalSkills": len(frames.SKILLS),
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


Answer: TypeAlias = JsonObject | None
_Handler: TypeAlias = Callable[[JsonObject], "Answer | Awaitable[Answer]"]


_BESIDE: Final[dict[str, JsonObject]] = {
    "initialize": {"pending_permission_requests": [], "pending_user_dialog_requests": []}
}
"""What stands beside the payload of an answer."""


class _Wrong(Exception):
    """The request cannot be carried out."""

    def __init__(self, text: str, code: str | None = None, **beside: object) -> None:
        super().__init__(text)
        self.code = code
        self.beside: JsonObject | None = beside or None


class Control:
    """Answers the requests of the host in one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._told = told = Told(run)
        self._settings: JsonObject = {}
        own: dict[str, _Handler] = {
            "initialize": self._initialize,
            "interrupt": self._interrupt,
            "set_model": self._set_model,
            "set_permission_mode": self._set_permission_mode,
            "set_max_thinking_tokens": self._set_max_thinking_tokens,
            "cancel_async_message": self._cancel_message,
            "mcp_status": lambda _: {"mcpServers": self._run.mcp.statuses()},
            "mcp_toggle": self._mcp_toggle,
            "mcp_reconnect": self._mcp_reconnect,
            "mcp_set_servers": self._mcp_set_servers,
            "mcp_message": self._mcp_message,
            "mcp_call": self._mcp_call,
            "mcp_read_resource": self._mcp_read_resource,
            "read_file": self._read_file,
            "seed_read_state": self._seed_read_state,
            "rename_session": self._rename_session,
            "add_directory": self._add_directory,
            "apply_flag_settings": self._apply_flag_settings,
            "background_tasks": self._background_tasks,
            "stop_task": self._stop_task,
            "get_task_output": self._get_task_output,
            "rewind_files": self._rewind_files,
            "generate_session_title": self._generate_title,
            "side_question": self._side_question,
            "list_permission_rules": lambda _: self._run.permissions.listing(),
        }
        told_of: dict[str, _Handler] = {
            "get_context_usage": told.context_usage,
            "get_session_cost": lambda _: {"text": self._run.offer.cost_text()},
            "get_usage": told.usage,
            "get_binary_version": lambda _: {
                "version": self._run.version,
                "buildTime": "2026-11-13T18:52:23Z",
            },
            "list_models": lambda _: {"models": frames.models()},
            "get_settings": lambda _: told.settings(self._settings),
            "get_plan": lambda _: self._run.questions.plan(),
        }
        empty = ("set_has_subscribers", "set_prompt_suggestions_paused", "end_session")
        self._handlers = own | told_of | dict.fromkeys(empty, _nothing)

    @property
    def serves(self) -> frozenset[str]:
        """The requests that are known."""
        return frozenset(self._handlers)

    def handler(self, id: RequestId, request: JsonObject) -> Callable[[], Awaitable[None]] | None:
        """Answer a request at once, or give what will."""
        subtype = str(request["subtype"])
        handle, beside = self._handlers[subtype], _BESIDE.get(subtype)
        if handle == self._side_question:
            request = {**request, "request_id": id}
        try:
            answer = handle(request)
        except (_Wrong, ValueError, LookupError) as error:
            self._refuse(id, error)
            return None
        if not inspect.isawaitable(answer):
            self._run.respond(id, answer)
            return None

        async def finish() -> None:
            try:
                payload = await answer
            except (_Wrong, ValueError, LookupError) as error:
                self._refuse(id, error)
            else:
                self._run.respond(id, payload, beside)

        return finish

    def _refuse(self, id: RequestId, error: Exception) -> None:
        text = str(error.args[0]) if error.args else str(error)
        code = getattr(error, "code", None)
        if code is None and isinstance(error, ValueError):
            code = _code_of_mode(text)
        self._run.refuse(id, text, code, getattr(error, "beside", None))

    # The session.

    async def _initialize(self, request: JsonObject) -> Answer:
        run = self._run
        hooks = request.get("hooks")
        is_repeated = run.initialize is not None
        # What is no object is refused as a whole.
        given = cast("JsonObject", hooks) if isinstance(hooks, dict) else {"": hooks}
        run.hooks.register(None if hooks is None else given)
        run.initialize = request
        if isinstance(title := request.get("title"), str) and title:
            run.set_title(title)
        run.wake()
        await run.start_servers()
        if is_repeated:
            run.tasks.start_soon(_tell_running, run)
        return self._told.initialized(has_hooks=hooks is not None and bool(given))

    def _interrupt(self, request: JsonObject) -> Answer:
        return self._run.interrupt(cancel_queued=request.get("cancel_queued") is True)

    def _set_model(self, request: JsonObject) -> Answer:
        model = request.get("model")
        if not isinstance(model, str | None):
            raise _Wrong("set_model: model must be a string", "invalid_request", model=self._run.model)
        self._run.set_model(model)
        return {"model": self._run.model}

    def _set_permission_mode(self, request: JsonObject) -> Answer:
        run, mode = self._run, request.get("mode")
        with run.holding("status") as held:
            run.permissions.set_mode(str(mode))
        run.tasks.start_soon(_say_later, run, held)
        return {"mode": run.permission_mode}

    def _set_max_thinking_tokens(self, request: JsonObject) -> Answer:
        tokens = request.get("max_thinking_tokens")
        if not isinstance(tokens, int | float | None):
            raise _Wrong(
                "set_max_thinking_tokens: max_thinking_tokens must be a number, or null for the default"
            )
        return None

    def _cancel_message(self, request: JsonObject) -> Answer:
        uuid = str(request.get("message_uuid"))
        is_found = self._run.queue.cancel(uuid)
        if is_found:
            self._run.say(frames.lifecycle(uuid, "cancelled"))
        return {"cancelled": is_found}

    def _rename_session(self, request: JsonObject) -> Answer:
        title = request.get("title")
        if not isinstance(title, str) or not title.strip():
            raise _Wrong("title must be non-empty")
        self._run.set_title(title)
        return None

    async def _generate_title(self, request: JsonObject) -> Answer:
        description = request.get("description")
        title = str(description).strip()[:60] or None if isinstance(description, str) else None
        if title and request.get("persist") is True:
            self._run.set_title(title)
        return {"title": title}

    async def _side_question(self, request: JsonObject) -> Answer:
        run = self._run
        run.say(
            {
                "type": "system",
                "subtype": "control_request_progress",
                "request_id": request["request_id"],
                "status": "started",
            }
        )
        asked = {"role": "user", "content": str(request.get("question"))}
        talk = Talk(
            run,
            frames.Speaker(),
            [*run.messages, asked],
            model=run.model,
            tools=run.offered,
            system=run.offer.system_prompt(),
        )
        try:
            return {"response": await run.script_model.text(talk), "synthetic": False}
        except ApiError as error:
            return {"response": error.text, "synthetic": True}

    # Servers.

    async def _mcp_toggle(self, request: JsonObject) -> Answer:
        name = _server_name(request)
        await self._run.mcp.toggle(name, request.get("enabled") is True)
        return None

    async def _mcp_reconnect(self, request: JsonObject) -> Answer:
        await self._run.mcp.reconnect(_server_name(request))
        return None

    async def _mcp_set_servers(self, request: JsonObject) -> Answer:
        servers = request.get("servers")
        if not isinstance(servers, dict):
            raise _Wrong("mcp_set_servers: servers must be an object of config objects")
        return await self._run.mcp.set_servers(cast("JsonObject", servers))

    async def _mcp_message(self, request: JsonObject) -> Answer:
        message = request.get("message")
        if isinstance(message, dict):
            await self._run.mcp.receive(str(request.get("server_name")), cast("JsonObject", message))
        return None

    async def _mcp_call(self, request: JsonObject) -> Answer:
        arguments = request.get("arguments")
        given = cast("JsonObject", arguments) if isinstance(arguments, dict) else {}
        tool = str(request.get("tool"))
        for server in self._run.mcp.statuses():
            if server["transport"] == "sdk" and tool.startswith(f"mcp__{server['name']}__"):
                raise _Wrong(
                    "mcp_call does not support SDK MCP servers. SDK servers are caller-provided — "
                    "invoke tools directly."
                )
        return await self._run.mcp.call_tool(tool, given)

    async def _mcp_read_resource(self, request: JsonObject) -> Answer:
        return await self._run.mcp.read_resource(_server_name(request), str(request.get("uri")))

    # Files.

    def _inside(self, name: object) -> Path | None:
        """The path, if it lies in the folders of the session."""
        if not isinstance(name, str) or not name:
            return None
        path = Path(os.path.realpath(self._run.cwd / name))
        folders = (str(self._run.cwd), *self._run.invocation.add_dirs)
        is_inside = any(path.is_relative_to(os.path.realpath(folder)) for folder in folders)
        return path if is_inside else None

    def _read_file(self, request: JsonObject) -> Answer:
        name = request.get("path")
        path = self._inside(name)
        if path is None or not path.is_file():
            raise _Wrong(f"read denied: {name}")
        limit = request.get("max_bytes")
        whole = path.read_bytes()
        data = whole[: limit if isinstance(limit, int) else None]
        answer: JsonObject = {"contents": "", "absPath": str(self._run.cwd / str(name))}
        if request.get("encoding") == "base64":
            answer |= {"contents": base64.b64encode(data).decode(), "encoding": "base64"}
        else:
            text = data.decode("utf-8", "replace")
            answer |= {"contents": text, "lossy": text.encode() != data}
        if len(data) < len(whole):
            answer["truncated"] = True
        return answer | {"requested_path": name}

    def _seed_read_state(self, request: JsonObject) -> Answer:
        self._run.tools.mark_read(str(request.get("path")))
        return None

    def _add_directory(self, request: JsonObject) -> Answer:
        directory = str(request.get("directory") or request.get("path"))
        self._run.permissions.apply(
            [{"type": "addDirectories", "directories": [directory], "destination": "session"}]
        )
        return {"directory": directory}

    def _rewind_files(self, request: JsonObject) -> Answer:
        is_on = self._run.environment.get("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING")
        text = "No file checkpoint found for this message." if is_on else "File rewinding is not enabled."
        if request.get("dry_run") is True:
            return {"canRewind": False, "error": text}
        raise _Wrong(text)

    # Settings.

    def _apply_flag_settings(self, request: JsonObject) -> Answer:
        settings = request.get("settings")
        if not isinstance(settings, dict):
            raise _Wrong("apply_flag_settings requires `settings` to be an object, got undefined")
        given = cast("JsonObject", settings)
        permissions = given.get("permissions", {})
        if not isinstance(permissions, dict):
            raise _Wrong(
                "apply_flag_settings: nothing in this request was applied: permissions is not an object"
            )
        self._settings |= given
        self._take_rules(cast("JsonObject", permissions))
        if isinstance(model := given.get("model"), str):
            self._run.set_model(frames.resolve(model))
        return None

    def _take_rules(self, permissions: JsonObject) -> None:
        for behavior in ("allow", "deny", "ask"):
            rules = permissions.get(behavior)
            if not isinstance(rules, list):
                continue
            named = [_rule(str(rule)) for rule in cast("list[object]", rules)]
            update: JsonObject = {"type": "addRules", "rules": named, "behavior": behavior}
            self._run.permissions.apply([update | {"destination": "session"}])

    # Tasks.

    def _background_tasks(self, request: JsonObject) -> Answer:
        call = request.get("tool_use_id")
        moved = self._run.background.move_all(call if isinstance(call, str) else None)
        return {} if call is None else {"backgrounded": moved}

    async def _stop_task(self, request: JsonObject) -> Answer:
        await self._run.background.stop(str(request.get("task_id")))
        return {}

    def _get_task_output(self, request: JsonObject) -> Answer:
        return self._run.background.output(str(request.get("task_id")))


async def _say_later(run: Run, held: list[JsonObject]) -> None:
    # The answer comes first.
    for frame in held:
        run.say(frame)


async def _tell_running(run: Run) -> None:
    run.background.tell_running()


def _nothing(_: JsonObject) -> Answer:
    return None


def _code_of_mode(text: str) -> str | None:
    if text.startswith("Cannot set permission mode to bypassPermissions"):
        return "bypass_not_launched"
    return "invalid_mode" if text.startswith("Cannot set permission mode") else None


def _server_name(request: JsonObject) -> str:
    name = request.get("serverName")
    if not isinstance(name, str):
        raise _Wrong(f"{request['subtype']}: serverName must be a string")
    return name


def _rule(text: str) -> JsonObject:
    name, bracket, rest = text.partition("(")
    return {"toolName": name, "ruleContent": rest.removesuffix(")")} if bracket else {"toolName": name}
