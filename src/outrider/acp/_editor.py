"""Files and terminals of the editor, as tools in the place of Claude Code's own.

They see what is not saved yet, and commands run where the person can watch them. Claude Code does not know
what they do, so its own rules for `Read`, `Write`, `Edit` and `Bash` do not hold for them: the rules of the
options are applied here instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import anyio
from acp import schema
from pydantic import BaseModel, ValidationError

from outrider.acp._rpc import RpcError
from outrider.errors import OptionsError, ToolFailed
from outrider.handlers import Image, Policy, Rule, ToolContext, ToolServer, allow, deny, tool

if TYPE_CHECKING:
    from typing import TypeAlias

    from outrider.acp._rpc import Rpc
    from outrider.acp._updates import Updates
    from outrider.handlers import Answer, PermissionRequest
    from outrider.options import OptionFields, Options

    _OnTerminal: TypeAlias = type[
        schema.WaitForTerminalExitRequest
        | schema.KillTerminalRequest
        | schema.TerminalOutputRequest
        | schema.ReleaseTerminalRequest
    ]

M = TypeVar("M")

_SERVER: Final = "editor"
_PREFIX: Final = f"mcp__{_SERVER}__"
_NAMES: Final = {"Read": "read_file", "Write": "write_file", "Edit": "edit_file", "Bash": "run_command"}
"""The editor's tool for each of Claude Code's. With the same name, rules would mean both."""
_OWN: Final = {f"{_PREFIX}{name}": own for own, name in _NAMES.items()}
_IMAGES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_MOST_LINES: Final = 2000
_MOST_OUTPUT: Final = 30_000
_SECONDS, _MOST_SECONDS = 120.0, 600.0
_OPEN_SECONDS: Final = 30.0
_KILL_SECONDS: Final = 5.0


def own_name(name: str) -> str:
    """The name of Claude Code's own tool, for one of the editor's."""
    return _OWN.get(name, name)


class EditorTools:
    """The tools of one session that work through the editor."""

    def __init__(
        self,
        rpc: Rpc,
        session_id: str,
        updates: Updates,
        capabilities: schema.ClientCapabilities,
        options: Options,
        *,
        is_wanted: bool,
    ) -> None:
        """Raises `OptionsError` for options that would not be asked about these tools."""
        self._rpc, self._session_id, self._updates = rpc, session_id, updates
        self._options, self._cwd = options, options.cwd or "/"
        self.names = _offered(capabilities, options) if is_wanted else ()
        """The tools of Claude Code that are replaced."""
        if self.names:
            _refuse_lost_guards(options, self.names)
        rules = [
            *(Rule("deny", each) for each in self._own_rules(options.disallowed_tools)),
            *(Rule("allow", each) for each in self._own_rules(options.allowed_tools)),
        ]
        self._policy = Policy(rules or [Rule("ask")])

    def fields(self) -> OptionFields:
        """The options that put them in the place of the others."""
        if not self.names:
            return {}
        servers = self._options.mcp_servers
        if isinstance(servers, str):
            raise OptionsError(
                "`mcp_servers` is the path of a file, and the editor's tools are a server of this process",
                hint="Give the servers themselves, or leave the editor's tools off.",
            )
        functions: dict[str, Callable[..., object]] = {
            "Read": self.read,
            "Write": self.write,
            "Edit": self.edit,
            "Bash": self.bash,
        }
        made: list[Callable[..., object]] = [
            tool(name=_NAMES[name], read_only=name == "Read")(function)
            for name, function in functions.items()
            if name in self.names
        ]
        return {
            "mcp_servers": {**servers, _SERVER: ToolServer(_SERVER, made)},
            "disallowed_tools": [*self._options.disallowed_tools, *self.names],
        }

    def _own_rules(self, rules: tuple[str, ...]) -> list[str]:
        return [each for each in rules if each.partition("(")[0] in self.names]

    def decide(self, request: PermissionRequest) -> Answer | None:
        """What Claude Code would decide by itself about a call of its own tool; None: it would ask."""
        explained = self._policy.explain(request.tool_name, request.tool_input, cwd=self._cwd)
        if explained.decision == "deny":
            return deny(f"{request.tool_name} is not allowed to do this, {explained.by}.")
        is_edit = request.tool_name in ("Edit", "Write")
        if explained.decision == "allow" or (is_edit and self._accepts_edit(request)):
            return allow()
        is_inside = request.tool_name == "Read" and self._is_inside(request.tool_input.get("file_path"))
        return allow() if is_inside else None

    def _accepts_edit(self, request: PermissionRequest) -> bool:
        path = request.tool_input.get("file_path")
        return request.session.info.permission_mode == "acceptEdits" and self._is_inside(path)

    def _is_inside(self, path: object) -> bool:
        if not isinstance(path, str):
            return False
        # Links lead where they lead.
        found = Path(self._cwd, path).resolve()
        folders = (self._cwd, *self._options.add_dirs)
        return any(found.is_relative_to(Path(self._cwd, each).resolve()) for each in folders)

    def _check(self, name: str, **input: object) -> None:
        """Claude Code asks nobody in some modes, and its own rules do not hold for these tools."""
        if self._policy.explain(name, input, cwd=self._cwd).decision == "deny":
            raise ToolFailed(f"{name} is not allowed to do this.")

    def _path(self, path: str) -> str:
        return str(Path(self._cwd, path))

    # The tools.

    async def read(
        self,
        file_path: Annotated[str, "The absolute path of the file"],
        offset: Annotated[int | None, "The first line to read, from 1"] = None,
        limit: Annotated[int | None, "How many lines to read"] = None,
    ) -> str | Image:
        """Read a file as it is in the user's editor, with changes that are not saved yet. The result has line
        numbers. Images can be read, too."""
        self._check("Read", file_path=file_path)
        if file_path.lower().endswith(_IMAGES):
            return Image(self._path(file_path))
        first, most = max(offset or 1, 1), min(limit or _MOST_LINES, _MOST_LINES)
        text = await self._read(file_path, line=first, limit=most + 1)
        # As editors count them: a form feed or U+2028 ends no line.
        lines = text.removesuffix("\n").split("\n") if text else []
        shown = "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines[:most], first))
        more = "\n(there is more: read on with `offset`)" if len(lines) > most else ""
        return (shown or "(there is nothing in it)") + more

    async def write(
        self,
        file_path: Annotated[str, "The absolute path of the file"],
        content: Annotated[str, "All of its new content"],
    ) -> str:
        """Write a file through the user's editor; replaces what is in it."""
        self._check("Write", file_path=file_path, content=content)
        await self._write(file_path, content)
        return f"Wrote {file_path}."

    async def edit(
        self,
        file_path: Annotated[str, "The absolute path of the file"],
        old_string: Annotated[str, "The text to replace, exactly as it is in the file"],
        new_string: Annotated[str, "The text to put there"],
        replace_all: Annotated[bool, "Replace it everywhere"] = False,
    ) -> str:
        """Replace a text in a file through the user's editor. `old_string` must be in the file exactly once,
        unless `replace_all` is set."""
        self._check("Edit", file_path=file_path, old_string=old_string, new_string=new_string)
        text = await self._read(file_path)
        found = text.count(old_string) if old_string else 0
        if not found:
            raise ToolFailed("`old_string` is not in the file. Read it again.")
        if found > 1 and not replace_all:
            raise ToolFailed(f"`old_string` is in the file {found} times. Give more of the text around it.")
        await self._write(file_path, text.replace(old_string, new_string))
        return f"Edited {file_path}: {found} replaced."

    async def bash(
        self,
        command: Annotated[str, "The command"],
        ctx: ToolContext,
        description: Annotated[str | None, "What it does, in a few words"] = None,
        timeout: Annotated[float | None, "Milliseconds that it may take, 600000 at most"] = None,
    ) -> str:
        """Run a shell command in a terminal of the user's editor, and return what it prints."""
        self._check("Bash", command=command)
        seconds = _SECONDS if timeout is None else min(max(timeout / 1000, 1.0), _MOST_SECONDS)
        opening = schema.CreateTerminalRequest(
            session_id=self._session_id,
            command="bash",
            args=["-c", command],
            cwd=self._cwd,
            output_byte_limit=_MOST_OUTPUT,
        )
        # Also when the turn is cancelled: who does not know the terminal's id cannot release it.
        with anyio.move_on_after(_OPEN_SECONDS, shield=True) as scope:
            created = await self._request("terminal/create", opening, schema.CreateTerminalResponse)
        if scope.cancelled_caught:
            raise ToolFailed("The editor opened no terminal in time.")
        terminal, has_ended = created.terminal_id, False
        try:
            await self._updates.progress(ctx.tool_use_id or "", "in_progress", terminal=terminal)
            with anyio.move_on_after(seconds):
                await self._terminal("wait_for_exit", schema.WaitForTerminalExitRequest, terminal)
                has_ended = True
            if not has_ended:
                await self._terminal("kill", schema.KillTerminalRequest, terminal)
            output = schema.TerminalOutputResponse.model_validate(
                await self._terminal("output", schema.TerminalOutputRequest, terminal)
            )
        except ValidationError as error:
            raise ToolFailed("The editor's terminal gave no output that can be read.") from error
        finally:
            # Also when the turn is cancelled: releasing a terminal ends what runs in it.
            with anyio.move_on_after(_KILL_SECONDS, shield=True), suppress(ToolFailed):
                await self._terminal("release", schema.ReleaseTerminalRequest, terminal)
        return _report(output, None if has_ended else seconds)

    async def _read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        params = schema.ReadTextFileRequest(
            session_id=self._session_id, path=self._path(path), line=line, limit=limit
        )
        return (await self._request("fs/read_text_file", params, schema.ReadTextFileResponse)).content

    async def _write(self, path: str, content: str) -> None:
        params = schema.WriteTextFileRequest(
            session_id=self._session_id, path=self._path(path), content=content
        )
        await self._request("fs/write_text_file", params, schema.WriteTextFileResponse)

    async def _terminal(self, verb: str, form: _OnTerminal, id: str) -> dict[str, object]:
        params = form(session_id=self._session_id, terminal_id=id)
        return await self._request(f"terminal/{verb}", params, dict[str, object])

    async def _request(self, method: str, params: BaseModel, answer: type[M]) -> M:
        try:
            return await self._rpc.request(method, params, answer)
        except RpcError as error:
            raise ToolFailed(f"The editor refused: {error}") from error


def _report(output: schema.TerminalOutputResponse, timed_out: float | None) -> str:
    status = output.exit_status or schema.TerminalExitStatus()
    parts = ["(the beginning is left out)"] if output.truncated else []
    parts += [output.output.rstrip("\n")] if output.output.strip() else []
    if timed_out is not None:
        parts.append(f"It did not end within {timed_out:g} s, so it was ended.")
    elif status.signal:
        parts.append(f"It was ended by {status.signal}.")
    elif status.exit_code:
        parts.append(f"Exit code {status.exit_code}")
    text = "\n".join(parts) or "(no output)"
    if timed_out is not None or status.signal or status.exit_code:
        raise ToolFailed(text)
    return text


def _offered(capabilities: schema.ClientCapabilities, options: Options) -> tuple[str, ...]:
    """The tools that the editor can stand in for, of those that the session has."""
    files = capabilities.fs or schema.FileSystemCapabilities()
    able = {
        "Read": files.read_text_file,
        "Write": files.write_text_file,
        "Edit": files.read_text_file and files.write_text_file,
        "Bash": capabilities.terminal,
    }
    given = options.tools
    # Only tools of the user's own leave all of Claude Code's; no tools at all leave none.
    has_all = (
        given is None or given == "default" or (given and not any(isinstance(each, str) for each in given))
    )
    return tuple(
        name
        for name in _NAMES
        if able[name] and name not in options.disallowed_tools and (has_all or name in (given or ()))
    )


def _refuse_lost_guards(options: Options, names: tuple[str, ...]) -> None:
    """Refuse what decides about Claude Code's own tools, and would not be asked about the editor's."""
    if options.approvals or options.permission_prompt_tool_name or options.permission_prompts == "none":
        raise OptionsError(
            "the tools of the editor need `permission`, or the person at the editor, to decide",
            hint="Leave the editor's tools off, or the other way to decide.",
        )
    for event, hooks in options.hooks.items():
        for hook in hooks:
            matcher = str(getattr(hook, "matcher", None) or "")
            meant = set(re.findall(r"\w+", matcher)) & set(names)
            if event == "PreToolUse" and not re.search(r"\w", matcher):
                meant = set(names)
            for name in sorted(meant):
                if _NAMES[name] not in matcher:
                    raise OptionsError(
                        f"a hook for {event} is for {name}, and the editor's tool takes its place",
                        hint=f"Leave the editor's tools off, or match `{_PREFIX}{_NAMES[name]}`, too.",
                    )
