"""Owns the requests of the host: what each of them does, and its answer.

What the program only tells of itself is in `_control_told`.
"""

from __future__ import annotations

import base64
import inspect
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from outrider.testing._simulator import frames
from outrider.testing._simulator.host import catalogue
from outrider.testing._simulator.host.introspection import Told
from outrider.testing._simulator.model import ApiError
from outrider.testing._simulator.model_loop import Talk
from outrider.wire import JsonObject

if TYPE_CHECKING:
    from outrider.testing._simulator.run import Run
    from outrider.wire import RequestId

__all__ = ["Control"]

Answer: TypeAlias = JsonObject | None
_BUILT: Final = "2026-11-13T18:52:23Z"
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
            "list_permission_rules": self._list_rules,
        }
        told_of: dict[str, _Handler] = {
            "get_context_usage": told.context_usage,
            "get_session_cost": lambda _: {"text": self._run.offer.cost_text()},
            "get_usage": told.usage,
            "get_binary_version": lambda _: {
                "version": self._run.version,
                "buildTime": "2026-11-13T18:52:23Z",
            },
            "list_models": lambda _: {"models": catalogue.models()},
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
            self._run.set_model(catalogue.resolve(model))
        return None

    def _take_rules(self, permissions: JsonObject) -> None:
        for behavior in ("allow", "deny", "ask"):
            rules = permissions.get(behavior)
            if not isinstance(rules, list):
                continue
            named = [_rule(str(rule)) for rule in cast("list[object]", rules)]
            update: JsonObject = {"type": "addRules", "rules": named, "behavior": behavior}
            self._run.permissions.apply([update | {"destination": "session"}])

    def _list_rules(self, _: JsonObject) -> Answer:
        found = self._run.invocation
        rules = [
            {"behavior": behavior, "rule": rule, "source": "cliArg"}
            for behavior, given in (("allow", found.allowed_tools), ("deny", found.disallowed_tools))
            for rule in given
        ]
        state: JsonObject = {
            "rules": rules,
            "workspaceDirectories": list(found.add_dirs),
            "originalCwd": str(self._run.cwd),
            "managedOnly": False,
        }
        return {"state": state}

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
