"""The line to the host: requests both ways, the answers to its requests, and what a run says of itself."""

from __future__ import annotations

import base64
import inspect
import json
import os
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from uuid import uuid4

import anyio

from outrider.testing._simulator import frames
from outrider.testing._simulator.frames import Refused, ToolSpec, as_list, as_object, present
from outrider.testing._simulator.model import ApiError
from outrider.testing._simulator.turn import Prompt
from outrider.wire import JsonObject, encode

if TYPE_CHECKING:
    from outrider.testing._simulator.program import StandardStreams
    from outrider.testing._simulator.run import Run
    from outrider.testing._simulator.transport import PipeStreams


_WINDOW: Final = 1_000_000
_BUFFER: Final = 33_000


class Introspection:
    """What a run reports of itself, and offers to the model."""

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
        """The user's system prompt as blocks, if there is one."""
        found, given = self._run.invocation, self._asked("systemPrompt")
        own: list[object] = [*as_list(given)] or [found.system_prompt if given is None else given]
        texts = [*own, self._asked("appendSystemPrompt"), found.append_system_prompt]
        return [{"type": "text", "text": text} for text in texts if isinstance(text, str)]

    def init_frame(self, uuids: list[str]) -> JsonObject:
        """The `init` frame of a turn for these prompts."""
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


Streams: TypeAlias = "PipeStreams | StandardStreams"
"""Where a run reads and writes. Writing never waits and never fails: the program does not notice that no one
reads."""

CONTROL_TYPES: Final = frozenset(("control_request", "control_response", "control_cancel_request"))

current_owner: ContextVar[object] = ContextVar("simulated turn", default=None)
"""The turn that asks the host: its questions are withdrawn when it is interrupted."""


class _Gone(Refused):
    """The host can no longer answer: stdin has ended."""

    is_gone = True


class _Asked:
    """A request to the host."""

    def __init__(self, subtype: str) -> None:
        self.subtype, self.owner = subtype, current_owner.get()
        self.done = anyio.Event()
        self.payload: JsonObject = {}
        self.error: Refused | None = None

    def settle(self, payload: JsonObject | None = None, error: Refused | None = None) -> None:
        self.payload, self.error = payload or {}, error
        self.done.set()


class HostLine:
    def __init__(self, run: Run, streams: Streams) -> None:
        self._run, self._streams = run, streams
        self._count = 0
        self._asked: dict[str, _Asked] = {}
        self._answering: dict[str, anyio.CancelScope] = {}
        self.is_input_over = False

    # What comes in.

    async def read(self) -> None:
        """Take what the host sends, to its end."""
        held: list[bytes] = []
        while data := await self._streams.receive():
            *whole, rest = data.split(b"\n")
            if whole:
                whole[0] = b"".join((*held, whole[0]))
                held.clear()
            if rest:
                held.append(rest)
            for line in whole:
                self._on_line(line)
            self._run.wake()
        if held:
            self._on_line(b"".join(held))
        self.is_input_over = True
        for asked in self._asked.values():
            asked.settle(error=_Gone("stream closed before response received"))
        self._asked.clear()
        self._run.wake()

    def _on_line(self, raw: bytes) -> None:
        text = raw.decode("utf-8", "replace").lstrip("\ufeff").strip("\r \t")
        if not text or self._run.is_ending:
            return
        self._count += 1
        try:
            value: object = json.loads(text)
        except ValueError:
            self._die(f"Error parsing streaming input line (type=unknown, {len(text)} chars): SyntaxError")
            return
        if value is None:
            self._die(f"Error parsing streaming input line (type=unknown, {len(text)} chars): TypeError")
        elif isinstance(value, dict):
            self._on_frame(cast("JsonObject", value))

    def _on_frame(self, frame: JsonObject) -> None:
        kind, request = frame.get("type"), frame.get("request")
        is_initialize = as_object(request).get("subtype") == "initialize"
        if self._run.invocation.await_initialize and self._count == 1 and not is_initialize:
            self._die(
                "Error: --await-initialize requires the initialize control request as the first stdin line, "
                "and the first line is a different message."
            )
        elif kind == "user":
            message = as_object(frame.get("message"))
            role = message.get("role")
            if role != "user":
                self._die(
                    f"Error: Expected message role 'user', got '{'undefined' if role is None else role}'"
                )
            elif isinstance(message.get("content"), str | list):
                self._run.add_prompt(Prompt.of(frame))
        elif kind == "control_request" and not isinstance(request, dict):
            self._die("Error: Missing request on control_request")
        elif kind in CONTROL_TYPES:
            self._on_control(frame)

    def _die(self, text: str) -> None:
        """End the program because of an invalid line."""
        self._run.complain(text)
        self._run.end(1)

    def _on_control(self, frame: JsonObject) -> None:
        response = as_object(frame.get("response"))
        id = str(response.get("request_id", frame.get("request_id")))
        if frame["type"] == "control_request":
            self._on_request(id, as_object(frame["request"]))
        elif frame["type"] == "control_cancel_request":
            if (scope := self._answering.pop(id, None)) is not None:
                scope.cancel()
        elif (asked := self._asked.pop(id, None)) is not None:
            error = response.get("error") or "no reason given"
            is_refused = response.get("subtype") != "success"
            asked.settle(as_object(response.get("response")), Refused(str(error)) if is_refused else None)

    def _on_request(self, id: str, request: JsonObject) -> None:
        answer = self._run.requests.answer(id, request)
        if answer is None:
            return
        is_first = request.get("subtype") == "initialize"
        if is_first:
            self._run.begin_start()

        async def finish() -> None:
            with anyio.CancelScope() as scope:
                self._answering[id] = scope
                await answer
            self._answering.pop(id, None)
            if is_first:
                await self._run.finish_start()

        self._run.tasks.start_soon(finish, name="simulated request")

    # What goes out.

    def send(self, frame: JsonObject) -> None:
        self._streams.write(encode(frame) + b"\n")

    def respond(self, id: str, payload: JsonObject | None, beside: JsonObject | None = None) -> None:
        """Answer a request of the host; `beside` is what stands beside the payload."""
        outcome = {"subtype": "success", "request_id": id, **present(response=payload), **(beside or {})}
        self.send({"type": "control_response", "response": outcome})

    def refuse(self, id: str, error: str, code: str | None, beside: JsonObject | None = None) -> None:
        """Answer a request of the host with an error."""
        outcome: JsonObject = {"subtype": "error", "request_id": id, "error": error}
        outcome |= present(error_code=code) | (beside or {})
        self.send({"type": "control_response", "response": outcome})

    async def ask(self, subtype: str, fields: JsonObject) -> JsonObject:
        """Ask the host, and wait. Raises `Refused`, also once stdin has ended."""
        if self.is_input_over:
            raise _Gone("stream closed before response received")
        id = str(uuid4())
        asked = self._asked[id] = _Asked(subtype)
        self.send({"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}})
        try:
            await asked.done.wait()
        finally:
            if self._asked.pop(id, None) is not None and subtype != "mcp_message":
                self._cancel(id)
        if asked.error is not None:
            raise asked.error
        return asked.payload

    def withdraw(self, owner: object) -> None:
        """Withdraw the questions of an interrupted turn, before the interrupt is confirmed."""
        for id, asked in list(self._asked.items()):
            if asked.owner is owner and asked.subtype != "mcp_message":
                del self._asked[id]
                self._cancel(id)

    def _cancel(self, id: str) -> None:
        self.send({"type": "control_cancel_request", "request_id": id})


Answer: TypeAlias = JsonObject | None


class _Invalid(Exception):
    """The request cannot be carried out."""

    def __init__(self, text: str, code: str | None = None, **beside: object) -> None:
        super().__init__(text)
        self.code = code
        self.beside: JsonObject = beside


class Requests:
    """Answers the requests of the host in one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._settings: JsonObject = {}
        about: Introspection = run.introspection
        self._handlers: dict[str, Callable[[JsonObject], Answer | Awaitable[Answer]]] = {
            "initialize": self._initialize,
            "interrupt": lambda given: run.interrupt(cancel_queued=given.get("cancel_queued") is True),
            "set_model": self._set_model,
            "set_permission_mode": self._set_permission_mode,
            "set_max_thinking_tokens": self._set_max_thinking_tokens,
            "cancel_async_message": self._cancel_message,
            "mcp_status": lambda _: {"mcpServers": run.mcp.statuses()},
            "mcp_toggle": self._mcp_toggle,
            "mcp_reconnect": self._mcp_reconnect,
            "mcp_set_servers": self._mcp_set_servers,
            "mcp_message": self._mcp_message,
            "mcp_call": self._mcp_call,
            "read_file": self._read_file,
            "seed_read_state": self._seed_read_state,
            "rename_session": self._rename_session,
            "add_directory": self._add_directory,
            "apply_flag_settings": self._apply_flag_settings,
            # Commands stay in the foreground or in the background.
            "background_tasks": lambda given: (
                {} if given.get("tool_use_id") is None else {"backgrounded": False}
            ),
            "stop_task": self._stop_task,
            "get_task_output": lambda given: run.background.output(str(given.get("task_id"))),
            "rewind_files": self._rewind_files,
            "generate_session_title": self._generate_title,
            "side_question": self._side_question,
            "list_permission_rules": lambda _: run.permissions.listing(),
            "get_context_usage": about.context_usage,
            "get_session_cost": about.cost,
            "get_usage": about.usage,
            "get_binary_version": lambda _: {"version": run.version, "buildTime": "2026-11-13T18:52:23Z"},
            "list_models": lambda _: {"models": frames.models()},
            "get_settings": lambda _: about.settings(self._settings),
            "get_plan": lambda _: run.questions.plan(),
            "set_has_subscribers": lambda _: None,
            "set_prompt_suggestions_paused": lambda _: None,
            "end_session": lambda _: None,
        }

    def answer(self, id: str, request: JsonObject) -> Awaitable[None] | None:
        """Answer a request at once, or give what will."""
        subtype = request.get("subtype")
        if not isinstance(subtype, str):
            self._run.line.refuse(id, "control request without a subtype", "invalid_request")
            return None
        if subtype not in self._handlers:
            text = f"Unsupported control request subtype: {subtype}"
            self._run.line.refuse(id, text, "unsupported_request")
            return None
        try:
            answer = self._handlers[subtype]({**request, "request_id": id})
        except (_Invalid, ValueError, LookupError) as error:
            self._refuse(id, error)
            return None
        if inspect.isawaitable(answer):
            return self._finish(id, subtype, answer)
        self._run.line.respond(id, answer)
        return None

    async def _finish(self, id: str, subtype: str, answer: Awaitable[Answer]) -> None:
        beside: JsonObject = {}
        if subtype == "initialize":
            beside = {"pending_permission_requests": [], "pending_user_dialog_requests": []}
        try:
            payload = await answer
        except (_Invalid, ValueError, LookupError) as error:
            self._refuse(id, error)
        else:
            self._run.line.respond(id, payload, beside)

    def _refuse(self, id: str, error: Exception) -> None:
        text = str(error.args[0]) if error.args else str(error)
        self._run.line.refuse(id, text, getattr(error, "code", None), getattr(error, "beside", None))

    # The session.

    async def _initialize(self, request: JsonObject) -> Answer:
        run, hooks = self._run, request.get("hooks")
        is_repeated = run.initialize is not None
        # What is not an object is refused as a whole.
        given = cast("JsonObject", hooks) if isinstance(hooks, dict) else {"": hooks}
        run.hooks.register(None if hooks is None else given)
        run.initialize = {name: request[name] for name in request if name != "request_id"}
        if isinstance(title := request.get("title"), str) and title:
            run.set_title(title)
        run.wake()
        await run.start_servers()
        if is_repeated:
            run.later(run.background.tell_running)
        return run.introspection.initialized(has_hooks=hooks is not None and bool(given))

    def _set_model(self, request: JsonObject) -> Answer:
        model = request.get("model")
        if not isinstance(model, str | None):
            raise _Invalid("set_model: model must be a string", "invalid_request", model=self._run.model)
        self._run.set_model(model)
        return {"model": self._run.model}

    def _set_permission_mode(self, request: JsonObject) -> Answer:
        run = self._run
        frame = run.permissions.set_mode(str(request.get("mode")))
        if frame is not None:
            # The answer comes first.
            run.later(partial(run.say, frame))
        return {"mode": run.permission_mode}

    def _set_max_thinking_tokens(self, request: JsonObject) -> Answer:
        if isinstance(request.get("max_thinking_tokens"), int | float | None):
            return None
        raise _Invalid(
            "set_max_thinking_tokens: max_thinking_tokens must be a number, or null for the default"
        )

    def _cancel_message(self, request: JsonObject) -> Answer:
        uuid = str(request.get("message_uuid"))
        is_found = self._run.queue.cancel(uuid)
        if is_found:
            self._run.say(frames.lifecycle(uuid, "cancelled"))
        return {"cancelled": is_found}

    def _rename_session(self, request: JsonObject) -> Answer:
        title = request.get("title")
        if not isinstance(title, str) or not title.strip():
            raise _Invalid("title must be non-empty")
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
        progress: JsonObject = {"type": "system", "subtype": "control_request_progress", "status": "started"}
        run.say({**progress, "request_id": request["request_id"]})
        try:
            text = await run.ask_beside(str(request.get("question")))
        except ApiError as error:
            return {"response": error.text, "synthetic": True}
        return {"response": text, "synthetic": False}

    # Servers.

    async def _mcp_toggle(self, request: JsonObject) -> Answer:
        await self._run.mcp.toggle(_server(request), request.get("enabled") is True)
        return None

    async def _mcp_reconnect(self, request: JsonObject) -> Answer:
        await self._run.mcp.reconnect(_server(request))
        return None

    async def _mcp_set_servers(self, request: JsonObject) -> Answer:
        servers = request.get("servers")
        if not isinstance(servers, dict):
            raise _Invalid("mcp_set_servers: servers must be an object of config objects")
        return await self._run.mcp.set_servers(cast("JsonObject", servers))

    async def _mcp_message(self, request: JsonObject) -> Answer:
        if isinstance(message := request.get("message"), dict):
            self._run.mcp.receive(str(request.get("server_name")), cast("JsonObject", message))
        return None

    async def _mcp_call(self, request: JsonObject) -> Answer:
        tool = str(request.get("tool"))
        for server in self._run.mcp.statuses():
            if server["transport"] == "sdk" and tool.startswith(f"mcp__{server['name']}__"):
                raise _Invalid(
                    "mcp_call does not support SDK MCP servers. SDK servers are caller-provided — "
                    "invoke tools directly."
                )
        return await self._run.mcp.call_tool(tool, as_object(request.get("arguments")))

    # Files and settings.

    def _read_file(self, request: JsonObject) -> Answer:
        name, cwd = request.get("path"), self._run.cwd
        path = Path(os.path.realpath(cwd / str(name)))
        folders = (str(cwd), *self._run.invocation.add_dirs)
        is_inside = any(path.is_relative_to(os.path.realpath(folder)) for folder in folders)
        if not isinstance(name, str) or not name or not is_inside or not path.is_file():
            raise _Invalid(f"read denied: {name}")
        limit, whole = request.get("max_bytes"), path.read_bytes()
        data = whole[: limit if isinstance(limit, int) else None]
        answer: JsonObject = {"contents": "", "absPath": str(cwd / name)}
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
        self._run.permissions.apply([{"type": "addDirectories", "directories": [directory]}])
        return {"directory": directory}

    def _rewind_files(self, request: JsonObject) -> Answer:
        is_on = self._run.environment.get("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING")
        text = "No file checkpoint found for this message." if is_on else "File rewinding is not enabled."
        if request.get("dry_run") is True:
            return {"canRewind": False, "error": text}
        raise _Invalid(text)

    def _apply_flag_settings(self, request: JsonObject) -> Answer:
        given = as_object(request.get("settings"))
        if not isinstance(request.get("settings"), dict):
            raise _Invalid("apply_flag_settings requires `settings` to be an object, got undefined")
        if not isinstance(permissions := given.get("permissions", {}), dict):
            raise _Invalid(
                "apply_flag_settings: nothing in this request was applied: permissions is not an object"
            )
        self._settings |= given
        self._run.permissions.add_rules(cast("JsonObject", permissions), "session")
        if isinstance(model := given.get("model"), str):
            self._run.set_model(frames.resolve(model))
        return None

    # Tasks.

    async def _stop_task(self, request: JsonObject) -> Answer:
        await self._run.background.stop(str(request.get("task_id")))
        return {}


def _server(request: JsonObject) -> str:
    name = request.get("serverName")
    if not isinstance(name, str):
        raise _Invalid(f"{request['subtype']}: serverName must be a string")
    return name
