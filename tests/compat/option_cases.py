"""Options in all their forms, for either package: each case is what a user could write.

Does not know what they come to: `scripts/reference_options.py` runs them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.compat.option_flags import OTHER, PRESET, SCHEMA, STDIO, UUID, extra_args


@dataclasses.dataclass
class Case:
    """Options, and what is done with them."""

    options: dict[str, Any]
    prompt: Any = None
    """What a query is given, and what a client connects with; None: "hi", and nothing."""
    environ: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Variables of this process meanwhile."""
    client: Callable[[Any], Any] | None = None
    """What is done with a connected client; None: it is a `query`."""


def lay_out(folder: Path) -> None:
    """The files and folders that the cases name."""
    for name in ("project", "other", "plugin", "home"):
        (folder / name).mkdir()
    kept = folder / "home" / ".claude" / "projects" / re.sub("[^a-zA-Z0-9]", "-", str(folder / "project"))
    kept.mkdir(parents=True)
    (kept / f"{UUID}.jsonl").write_text("{}\n")
    (folder / "prompt.txt").write_text("from a file")
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"kept": {"command": "kept"}}}))
    (folder / "settings.json").write_text(json.dumps({"model": "opus", "sandbox": {"enabled": False}}))
    (folder / "project" / "near.json").write_text(json.dumps({"verbose": True}), encoding="utf-8-sig")
    (folder / "broken.json").write_text("{oops")


def cases(sdk: Any, folder: Path) -> dict[str, Case]:
    """All cases by name. Nothing is shared between them."""
    plain = {
        f"{group}: {name}": Case(options)
        for group, table in _tables(sdk, folder).items()
        for name, options in table.items()
    }
    return {**plain, **_environments(folder), **_prompts(sdk)}


def _tables(sdk: Any, folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    return {
        "none": _none(),
        "tools": _tools(),
        "system_prompt": _system_prompts(folder),
        "mcp_servers": _servers(sdk, folder),
        "model": _models(),
        "thinking": _thinking(),
        "permissions": _permissions(sdk),
        "settings": _settings(folder),
        "sessions": _sessions(folder),
        "stores": _stores(sdk),
        "skills": _skills(),
        "agents": _agents(sdk),
        "hooks": _hooks(sdk),
        "places": _places(folder),
        "output": _output(),
        "extra_args": extra_args(folder),
    }


def _none() -> dict[str, dict[str, Any]]:
    lists = ("allowed_tools", "disallowed_tools", "betas", "add_dirs", "plugins")
    mappings = ("mcp_servers", "agents", "hooks")
    return {
        "defaults": {},
        **{f"{name} is None": {name: None} for name in (*lists, *mappings)},
    }


def _tools() -> dict[str, dict[str, Any]]:
    return {
        "names": {"tools": ["Bash", "Read"]},
        "none": {"tools": []},
        "preset": {"tools": PRESET},
        "another mapping": {"tools": {"type": "x"}},
        "two in one": {"tools": ["Bash,Read"]},
        "allowed": {"allowed_tools": ["Read", "Bash(git log, git diff)", "mcp__a__b"]},
        "allowed twice": {"allowed_tools": ["Read", "Read"]},
        "allowed, two in one": {"allowed_tools": ["Read,Write", "Bash(ls) Glob", ""]},
        "allowed, half a rule": {"allowed_tools": ["Bash(ls", "Read"]},
        "allowed, blanks around": {"allowed_tools": [" Read "]},
        "disallowed": {"disallowed_tools": ["Bash(rm:*)", "WebFetch"]},
        "disallowed, two in one": {"disallowed_tools": ["Read, Write"]},
        "all three": {"tools": ["Read"], "allowed_tools": ["Read"], "disallowed_tools": ["Bash"]},
        "tuples": {"tools": ("Read",), "allowed_tools": ("Read", "Glob"), "disallowed_tools": ("Bash",)},
    }


def _system_prompts(folder: Path) -> dict[str, dict[str, Any]]:
    forms: dict[str, Any] = {
        "empty": "",
        "text": "Be brief.\nAnd kind: 日本 😀",
        "like a flag": "--help",
        "custom": {"type": "custom", "prompt": "Mine"},
        "custom, recorded": {"type": "custom", "prompt": "Mine", "snapshot": True},
        "custom, empty, not recorded": {"type": "custom", "prompt": "", "snapshot": False},
        "file": {"type": "file", "path": str(folder / "prompt.txt")},
        "preset": PRESET,
        "preset and more": {**PRESET, "append": "And more"},
        "preset and nothing": {**PRESET, "append": ""},
        "preset, all of it": {**PRESET, "append": "x", "exclude_dynamic_sections": True, "snapshot": True},
        "preset, none of it": {**PRESET, "exclude_dynamic_sections": False, "snapshot": False},
        "preset without a name": {"type": "preset", "append": "x"},
        "preset, not exactly switches": {**PRESET, "exclude_dynamic_sections": 1, "snapshot": None},
        "another key": {**PRESET, "append": "x", "later": True},
    }
    return {name: {"system_prompt": form} for name, form in forms.items()}


def _servers(sdk: Any, folder: Path) -> dict[str, dict[str, Any]]:
    @sdk.tool("add", "Adds", {"a": int})  # type: ignore[untyped-decorator]
    async def add(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": str(arguments)}]}

    own = sdk.create_sdk_mcp_server("calc", tools=[add])
    forms: dict[str, Any] = {
        "none": {},
        "stdio without a type": {"a": STDIO},
        "stdio": {"a": {"type": "stdio", **STDIO}, "b": {"type": "stdio", "command": "b"}},
        "sse": {"a": {"type": "sse", "url": "https://a.example/sse"}},
        "http": {"a": {"type": "http", "url": "https://a.example", "headers": {"Authorization": "Bearer t"}}},
        "own": {"calc": own},
        "own under another name": {"sums": own},
        "own and others": {"calc": own, "a": STDIO},
        "a path as text": str(folder / "mcp.json"),
        "a path": folder / "mcp.json",
        "JSON": '{"mcpServers": {"a": {"command": "a"}}}',
        "another key": {"a": {"command": "a", "timeout": 5, "alwaysLoad": True, "later": [1]}},
        "an unknown type": {"a": {"type": "carrier-pigeon", "url": "x"}},
        "a URL without a type": {"a": {"url": "https://a.example"}},
        "no command": {"a": {"type": "stdio"}},
        "empty text": "",
    }
    return {
        **{name: {"mcp_servers": form} for name, form in forms.items()},
        "no others": {"mcp_servers": {"a": STDIO}, "strict_mcp_config": True},
        "none, and no others": {"strict_mcp_config": True},
    }


def _models() -> dict[str, dict[str, Any]]:
    beta = "context-1m-2025-08-07"
    return {
        "named": {"model": "opus", "fallback_model": "sonnet"},
        "empty": {"model": "", "fallback_model": ""},
        "the same twice": {"model": "opus", "fallback_model": "opus"},
        "several to fall back to": {"fallback_model": "sonnet,haiku"},
        "betas": {"betas": [beta, "another"]},
        "a beta": {"betas": [beta]},
        "turns": {"max_turns": 3},
        "no turns": {"max_turns": 0},
        "turns below 0": {"max_turns": -1},
        "budgets": {"max_budget_usd": 0.5, "task_budget": {"total": 1000}},
        "small and whole budget": {"max_budget_usd": 2},
        "tiny budget": {"max_budget_usd": 0.00001},
        "no budget": {"max_budget_usd": 0},
        "no tokens": {"task_budget": {"total": 0}},
        "effort": {"effort": "xhigh"},
        "unknown effort": {"effort": "huge"},
        "effort in capitals": {"effort": "High"},
    }


def _thinking() -> dict[str, dict[str, Any]]:
    forms: dict[str, Any] = {
        "adaptive": {"type": "adaptive"},
        "adaptive, shown": {"type": "adaptive", "display": "summarized"},
        "enabled": {"type": "enabled", "budget_tokens": 2000},
        "enabled, hidden": {"type": "enabled", "budget_tokens": 2000, "display": "omitted"},
        "enabled with nothing": {"type": "enabled", "budget_tokens": 0},
        "enabled without a budget": {"type": "enabled"},
        "disabled": {"type": "disabled"},
        "disabled, shown": {"type": "disabled", "display": "summarized"},
        "unknown": {"type": "sideways"},
    }
    return {
        **{name: {"thinking": form} for name, form in forms.items()},
        "tokens": {"max_thinking_tokens": 500},
        "no tokens": {"max_thinking_tokens": 0},
        "both": {"max_thinking_tokens": 500, "thinking": {"type": "adaptive"}},
    }


def _permissions(sdk: Any) -> dict[str, dict[str, Any]]:
    async def allow(*_: object) -> Any:
        return sdk.PermissionResultAllow()

    async def deny(*_: object) -> Any:
        return sdk.PermissionResultDeny(message="no", interrupt=True)

    return {
        **{mode: {"permission_mode": mode} for mode in ("default", "acceptEdits", "plan", "dontAsk", "auto")},
        "bypass": {"permission_mode": "bypassPermissions", "env": {"IS_SANDBOX": "1"}},
        "unknown mode": {"permission_mode": "nonsense"},
        "callback allows": {"can_use_tool": allow},
        "callback denies": {"can_use_tool": deny},
        "callback and rules": {"can_use_tool": allow, "allowed_tools": ["Read", "Bash(ls)", "Read"]},
        "callback and bypass": {
            "can_use_tool": allow,
            "permission_mode": "bypassPermissions",
            "env": {"IS_SANDBOX": "1"},
        },
        "callback and all skills": {"can_use_tool": allow, "skills": "all"},
        "callback and edits": {"can_use_tool": allow, "permission_mode": "acceptEdits"},
        "tool": {"permission_prompt_tool_name": "mcp__a__ask"},
        "empty tool": {"permission_prompt_tool_name": ""},
        "callback and tool": {"can_use_tool": allow, "permission_prompt_tool_name": "mcp__a__ask"},
    }


def _settings(folder: Path) -> dict[str, dict[str, Any]]:
    sandbox = {"enabled": True, "network": {"allowLocalBinding": True}, "excludedCommands": ["git"]}
    project = folder / "project"
    return {
        "JSON": {"settings": '{"model": "opus"}'},
        "file": {"settings": str(folder / "settings.json")},
        "file beside cwd": {"settings": "near.json", "cwd": project},
        "missing file": {"settings": str(folder / "nowhere.json")},
        "broken file": {"settings": str(folder / "broken.json")},
        "broken JSON": {"settings": "{oops}"},
        "empty": {"settings": ""},
        "sandbox": {"sandbox": sandbox},
        "sandbox off": {"sandbox": {"enabled": False}},
        "sandbox of nothing": {"sandbox": {}},
        "sandbox, another key": {"sandbox": {"enabled": False, "later": {"a": 1}}},
        "sandbox and JSON": {"settings": '{"model": "opus", "sandbox": {"a": 1}}', "sandbox": sandbox},
        "sandbox and file": {"settings": str(folder / "settings.json"), "sandbox": sandbox},
        "sandbox and file beside cwd": {"settings": "near.json", "cwd": project, "sandbox": sandbox},
        "sandbox and missing file": {"settings": str(folder / "nowhere.json"), "sandbox": sandbox},
        "sandbox and broken file": {"settings": str(folder / "broken.json"), "sandbox": sandbox},
        "sandbox and broken JSON": {"settings": "{oops}", "sandbox": sandbox},
        "sources": {"setting_sources": ["user", "project", "local"]},
        "no sources": {"setting_sources": []},
        "unknown source": {"setting_sources": ["user", "nowhere"]},
    }


def _sessions(folder: Path) -> dict[str, dict[str, Any]]:
    kept = {"continue_conversation": True, "cwd": folder / "project"}
    return {
        "resume": {"resume": UUID},
        "resume by a title": {"resume": "--my session"},
        "resume, empty": {"resume": ""},
        "continue": kept,
        "continue, with nothing there": {"continue_conversation": True},
        "continue and resume": {"continue_conversation": True, "resume": UUID},
        "fork": {"resume": UUID, "fork_session": True},
        "fork the latest": {**kept, "fork_session": True},
        "fork nothing": {"fork_session": True},
        "fork under an id": {"resume": UUID, "fork_session": True, "session_id": OTHER},
        "id": {"session_id": UUID},
        "id, empty": {"session_id": ""},
        "id that is none": {"session_id": "mine"},
        "id and resume": {"session_id": OTHER, "resume": UUID},
        "from a message": {"resume": UUID, "resume_session_at": OTHER, "resume_drops_turn": UUID},
        "from a message, no turn": {"resume": UUID, "resume_session_at": OTHER, "resume_drops_turn": ""},
        "from a message of nothing": {"resume_session_at": OTHER},
        "drops a turn alone": {"resume": UUID, "resume_drops_turn": OTHER},
        "checkpoints": {"enable_file_checkpointing": True},
    }


def _stores(sdk: Any) -> dict[str, dict[str, Any]]:
    forms: dict[str, dict[str, Any]] = {
        "batched": {},
        "at once": {"session_store_flush": "eager"},
        "no time": {"load_timeout_ms": 1},
        "an unknown session": {"resume": UUID},
        "the latest of none": {"continue_conversation": True},
        "an unknown title": {"resume": "my session"},
        "checkpoints": {"enable_file_checkpointing": True},
    }
    return {name: {"session_store": sdk.InMemorySessionStore(), **form} for name, form in forms.items()}


def _skills() -> dict[str, dict[str, Any]]:
    sources: dict[str, dict[str, Any]] = {
        "": {},
        ", no sources": {"setting_sources": []},
        ", local": {"setting_sources": ["local"]},
        ", rules": {"allowed_tools": ["Read", "Skill(pdf)"]},
    }
    forms: dict[str, Any] = {"all": "all", "none": [], "some": ["pdf", "my:plugin", "with blank"]}
    return {
        f"{name}{more}": {"skills": form, **others}
        for name, form in forms.items()
        for more, others in sources.items()
    }


def _agents(sdk: Any) -> dict[str, dict[str, Any]]:
    every = sdk.AgentDefinition(
        description="Reviews",
        prompt="Review.",
        tools=["Read"],
        disallowedTools=["Bash"],
        model="haiku",
        skills=["pdf"],
        memory="project",
        mcpServers=["a", {"b": {"command": "b"}}],
        initialPrompt="Go",
        maxTurns=3,
        background=True,
        effort="low",
        permissionMode="plan",
    )
    return {
        "smallest": {"agents": {"a": sdk.AgentDefinition(description="A", prompt="Be A.")}},
        "all fields": {"agents": {"review": every}},
        "numbers and empties": {
            "agents": {
                "a": sdk.AgentDefinition(
                    description="A", prompt="A", tools=[], effort=5, background=False, model="inherit"
                )
            }
        },
        "empty texts": {"agents": {"a": sdk.AgentDefinition(description="", prompt="")}},
        "none": {"agents": {}},
    }


def _hooks(sdk: Any) -> dict[str, dict[str, Any]]:
    async def go_on(*_: object) -> dict[str, Any]:
        return {"continue_": True, "suppressOutput": True}

    async def later(*_: object) -> dict[str, Any]:
        return {"async_": True, "asyncTimeout": 5}

    async def decide(told: dict[str, Any], *_: object) -> dict[str, Any]:
        own = {"hookEventName": told["hook_event_name"], "permissionDecision": "allow"}
        return {"hookSpecificOutput": own}

    matcher = sdk.HookMatcher
    every = {event: [matcher(hooks=[go_on])] for event in ("PostToolUse", "UserPromptSubmit", "Stop")}
    return {
        "one": {"hooks": {"PreToolUse": [matcher(matcher="Bash|Write", hooks=[decide])]}},
        "several": {
            "hooks": {
                "PreToolUse": [matcher(matcher="Bash", hooks=[go_on, decide]), matcher(hooks=[later])],
                "Stop": [matcher(hooks=[go_on], timeout=2.5)],
            }
        },
        "limits": {"hooks": {"PreToolUse": [matcher(hooks=[go_on], timeout=5), matcher(hooks=[go_on])]}},
        "blocks": {"hooks": {"PreToolUse": [matcher(hooks=[go_on], on_failure="block")]}},
        "goes on": {"hooks": {"PreToolUse": [matcher(hooks=[go_on], on_failure="continue")]}},
        "events": {"hooks": every},
        "no functions": {"hooks": {"PreToolUse": [matcher(matcher="Bash", hooks=[])]}},
        "no matchers": {"hooks": {"PreToolUse": []}},
        "empty matcher": {"hooks": {"PreToolUse": [matcher(matcher="", hooks=[go_on])]}},
        "none": {"hooks": {}},
    }


def _places(folder: Path) -> dict[str, dict[str, Any]]:
    project = folder / "project"
    return {
        "cwd": {"cwd": str(project)},
        "cwd as a path": {"cwd": project},
        "cwd missing": {"cwd": folder / "nowhere"},
        "cwd is a file": {"cwd": folder / "prompt.txt"},
        "cwd, with dots": {"cwd": f"{project}/../project"},
        "program missing": {"cli_path": folder / "nowhere"},
        "more folders": {"add_dirs": [folder / "other", "relative", "--dashes"]},
        "plugins": {
            "plugins": [{"type": "local", "path": str(folder / "plugin")}, {"type": "local", "path": "p"}]
        },
        "another kind of plugin": {"plugins": [{"type": "remote", "path": "x"}]},
        "application": {"client_app": "mine/1.0"},
        "no application": {"client_app": ""},
    }


def _output() -> dict[str, dict[str, Any]]:
    return {
        "schema": {"output_format": {"type": "json_schema", "schema": SCHEMA}},
        "empty schema": {"output_format": {"type": "json_schema", "schema": {}}},
        "no schema": {"output_format": {"type": "json_schema"}},
        "another format": {"output_format": {"type": "text"}},
        "a schema and more": {"output_format": {"type": "json_schema", "schema": SCHEMA, "name": "x"}},
        "everything": {
            "include_partial_messages": True,
            "include_hook_events": True,
            "forward_subagent_text": True,
        },
        "stderr": {"stderr": lambda _: None},
        "buffer": {"max_buffer_size": 10_000},
        "buffer of nothing": {"max_buffer_size": 0},
    }


def _environments(folder: Path) -> dict[str, Case]:
    inside = {
        "CLAUDECODE": "1",
        "CLAUDE_CODE_ENTRYPOINT": "cli",
        "CLAUDE_AGENT_SDK_VERSION": "0",
        "CLAUDE_AGENT_SDK_DERIVED_CLIENT_APP": "derived",
        "CLAUDE_AGENT_SDK_CLIENT_APP": "outer",
        "CLAUDE_CODE_SDK_READS_SESSION_STATE": "0",
        "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "false",
        "TRACEPARENT": "00-1-2-01",
        "KEPT": "kept",
    }
    own = {**inside, "KEPT": "mine", "PWD": "/elsewhere", "NEW": "", "PATH": "/nowhere"}
    more: dict[str, Any] = {
        "client_app": "mine",
        "enable_file_checkpointing": True,
        "cwd": folder / "project",
    }
    return {
        "env: inherited": Case({}, environ=inside),
        "env: inherited, and options": Case(more, environ=inside),
        "env: own": Case({"env": own}),
        "env: own, and options": Case({"env": own, **more}),
        "env: own over inherited": Case({"env": {"KEPT": "mine", "NEW": "1"}}, environ=inside),
        "env: state in small letters": Case({"env": {"claude_code_sdk_reads_session_state": "0"}}),
    }


def _message(text: str, **more: object) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"type": "user", "message": message, "parent_tool_use_id": None, **more}


async def _messages(*messages: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    for message in messages:
        yield message


def _prompts(sdk: Any) -> dict[str, Case]:
    async def one(client: Any) -> None:
        await client.query("hi")

    async def under_a_name(client: Any) -> None:
        await client.query("hi", session_id="mine")

    async def several(client: Any) -> None:
        await client.query(_messages(_message("a"), _message("b", session_id="own")), session_id="mine")
        await heard(client)

    async def one_more(client: Any) -> None:
        await heard(client)
        await client.query("hi")

    async def heard(client: Any) -> None:
        async for _ in client.receive_response():
            pass

    async def changes(client: Any) -> None:
        await client.set_model("opus")
        await client.set_model()
        await client.set_permission_mode("plan")
        await client.query("hi")

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    blocks = {"type": "user", "message": {"role": "user", "content": [image, {"type": "text", "text": "?"}]}}
    verbatim = {"verbatim_prompts": True}
    return {
        "prompt: empty": Case({}, prompt=""),
        "prompt: lines": Case({}, prompt="a\nb 😀\u2028c"),
        "prompt: verbatim": Case(verbatim),
        "prompt: messages": Case({}, prompt=_messages(_message("a"), _message("b", session_id="x"))),
        "prompt: messages, verbatim": Case(verbatim, prompt=_messages(_message("a"), _message("b"))),
        "prompt: blocks": Case({}, prompt=_messages(blocks)),
        "prompt: other keys": Case({}, prompt=_messages(_message("a", priority="now", later={"a": 1}))),
        "client: one": Case({}, client=one),
        "client: under a name": Case({}, client=under_a_name),
        "client: several": Case({}, client=several),
        "client: verbatim": Case(verbatim, client=several),
        "client: first prompt": Case({}, prompt="first", client=one_more),
        "client: changes": Case({}, client=changes),
        "client: callback": Case(
            {"can_use_tool": _permissions(sdk)["callback allows"]["can_use_tool"]}, client=one
        ),
    }
