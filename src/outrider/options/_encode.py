"""Encodes options for arguments, requests and files. Each function returns None to send nothing."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from outrider.errors import OptionsError
from outrider.options._forms import McpServer, SdkServer
from outrider.options._table import GivenPath
from outrider.options._values import (
    SYSTEM_PROMPT_DYNAMIC_BOUNDARY,
    AdaptiveThinking,
    CustomPrompt,
    DisabledThinking,
    EnabledThinking,
    FilePrompt,
    PresetPrompt,
    plain,
)
from outrider.wire import encode

if TYPE_CHECKING:
    from outrider.command import Runner
    from outrider.options._values import Isolation, JsonSchemaFormat, LocalPlugin, Sandbox
    from outrider.wire import JsonObject
    from outrider.wire.control import SdkMcpServerSetup

Prompt: TypeAlias = PresetPrompt | CustomPrompt | FilePrompt | None
Servers: TypeAlias = Mapping[str, McpServer] | str
Thinking: TypeAlias = AdaptiveThinking | EnabledThinking | DisabledThinking | None
Tools: TypeAlias = Sequence[object] | str | None


# Any option.


def joined(values: Sequence[str]) -> str | None:
    return ",".join(values) or None


def json_of(value: object) -> bytes:
    """JSON for a file or an argument. Options hold nothing that JSON cannot say."""
    return encode(plain(value))


def runs_here(runner: Runner | None) -> bool:
    """Whether the agent sees the files and folders of this machine."""
    return runner is None or runner.is_local


def absolute(path: str) -> str:
    """The path from the root, with links in it left alone, as a shell's `PWD` has it."""
    return os.path.abspath(path)  # noqa: PTH100 - `resolve` would follow links


def is_inline(value: str) -> bool:
    """Whether a text that may be JSON or the path of a file is JSON."""
    trimmed = value.strip()
    return trimmed.startswith("{") and trimmed.endswith("}")


def begins_like_json(value: str) -> bool:
    """Whether a text that should name a file looks like broken JSON, which may hold secrets."""
    return value.lstrip().startswith(("{", "["))


# Prompts.


def system_prompt(prompt: Prompt, append: str | None) -> list[str] | None:
    """The texts in place of the agent's own prompt; none for its own, `[""]` for no prompt at all."""
    if isinstance(prompt, CustomPrompt):
        return [prompt.prompt] if isinstance(prompt.prompt, str) else list(prompt.prompt)
    # A text to append without a prompt is appended to the agent's own.
    return [""] if prompt is None and append is None else None


def appended_prompt(append: str | None, prompt: Prompt) -> str | None:
    of_preset = prompt.append if isinstance(prompt, PresetPrompt) else None
    return "\n\n".join(part for part in (of_preset, append) if part) or None


def prompt_text(prompt: Prompt, append: str | None) -> str | None:
    """The same as one text, as Claude Code joins it: older versions do not know the boundary."""
    texts = system_prompt(prompt, append) or ()
    return "\n\n".join(text for text in texts if text != SYSTEM_PROMPT_DYNAMIC_BOUNDARY) or None


def no_prompt(prompt: Prompt, append: str | None) -> str | None:
    return "" if system_prompt(prompt, append) is not None and not prompt_text(prompt, append) else None


def prompt_file(prompt: Prompt) -> str | None:
    return prompt.path if isinstance(prompt, FilePrompt) else None


def prompt_snapshot(prompt: Prompt) -> bool | None:
    return prompt.snapshot if isinstance(prompt, PresetPrompt | CustomPrompt) else None


def without_dynamic_sections(prompt: Prompt) -> bool | None:
    return prompt.exclude_dynamic_sections if isinstance(prompt, PresetPrompt) else None


# The model.


def money(amount: float | None) -> str | None:
    """Plain decimals: an exponent is not understood everywhere, and rounding could make it 0."""
    return None if amount is None else format(Decimal(repr(amount)), "f")


def thinking_kind(thinking: Thinking) -> str | None:
    match thinking:
        case AdaptiveThinking() | EnabledThinking(budget_tokens=None):
            return "adaptive"
        case DisabledThinking():
            return "disabled"
        case _:
            return None


def thinking_tokens(max_thinking_tokens: int | None, thinking: Thinking) -> int | None:
    if isinstance(thinking, EnabledThinking):
        return thinking.budget_tokens
    return max_thinking_tokens if thinking is None else None


def thinking_display(thinking: Thinking) -> str | None:
    return thinking.display if isinstance(thinking, AdaptiveThinking | EnabledThinking) else None


def json_schema(output_format: JsonSchemaFormat | None) -> object:
    return None if output_format is None else plain(output_format.schema)


# What it may use.


def tools(value: Tools) -> str | None:
    if value is None or isinstance(value, str):
        return value
    names = [tool for tool in value if isinstance(tool, str)]
    return None if value and not names else ",".join(names)


def allowed_tools(allowed: Sequence[str], skills: str | Sequence[str] | None) -> str | None:
    if skills is None:
        of_skills: list[str] = []
    elif isinstance(skills, str):
        of_skills = ["Skill"]
    else:
        of_skills = [f"Skill({name})" for name in skills]
    return ",".join((*allowed, *(name for name in of_skills if name not in allowed))) or None


def skill_names(skills: str | Sequence[str] | None) -> list[str] | None:
    """The skills to offer. None at all is not the same as not to say: then all are."""
    return None if skills is None or isinstance(skills, str) else list(skills)


def plugin_paths(plugins: Sequence[LocalPlugin], delivery: str) -> list[str] | None:
    return _paths(plugins, delivery, skip_servers=False)


def plugin_paths_without_servers(plugins: Sequence[LocalPlugin], delivery: str) -> list[str] | None:
    return _paths(plugins, delivery, skip_servers=True)


def _paths(plugins: Sequence[LocalPlugin], delivery: str, *, skip_servers: bool) -> list[str] | None:
    if delivery != "argv":
        return None
    return [plugin.path for plugin in plugins if plugin.skip_mcp_discovery is skip_servers]


def plugins_in_initialize(plugins: Sequence[LocalPlugin], delivery: str) -> list[JsonObject] | None:
    if delivery != "initialize":
        return None
    skipping: JsonObject = {"skipMcpDiscovery": True}
    return [
        {"type": "local", "path": plugin.path} | (skipping if plugin.skip_mcp_discovery else {})
        for plugin in plugins
    ] or None


def awaits_initialize(
    resume: str | None,
    continue_conversation: bool,
    plugins: Sequence[LocalPlugin],
    delivery: str,
    managed: Mapping[str, object] | None,
) -> bool | None:
    """Whether the program must know what `initialize` says before it does anything. A session that was left
    with a deferred call continues by itself when it is resumed. Without this flag it may do so before the
    hooks are registered, and then a call runs that one of them denies."""
    is_resumed = resume is not None or continue_conversation
    return is_resumed or (delivery == "initialize" and bool(plugins)) or bool(managed) or None


def mcp_config(servers: Servers) -> bytes | GivenPath | None:
    """Servers that the agent connects to itself; those of this process are not among them."""
    if isinstance(servers, str):
        if is_inline(servers):
            return servers.encode()
        if begins_like_json(servers):
            raise OptionsError(
                "`mcp_servers` begins like JSON, but is not a JSON object",
                hint="Give a mapping, or put './' before the name of a file that begins like this.",
            )
        return GivenPath(servers)
    outside = {name: server for name, server in servers.items() if not isinstance(server, SdkServer)}
    return json_of({"mcpServers": outside}) if outside else None


def sdk_servers(servers: Servers) -> dict[str, SdkServer]:
    """The servers that run in this process."""
    if isinstance(servers, str):
        return {}
    return {name: server for name, server in servers.items() if isinstance(server, SdkServer)}


def sdk_server_names(servers: Servers) -> list[str] | None:
    return list(sdk_servers(servers)) or None


def sdk_server_setups(servers: Servers) -> dict[str, SdkMcpServerSetup] | None:
    """What the agent should know of servers that run in this process, beside their names."""
    from outrider.wire.control import SdkMcpServerSetup

    return {
        name: SdkMcpServerSetup(
            timeout=server.timeout, tools=None if server.tools is None else [*server.tools]
        )
        for name, server in sdk_servers(servers).items()
        if server.timeout is not None or server.tools is not None
    } or None


# What it must ask for.


def prompt_tool(
    permission: object | None, on_question: object | None, on_plan: object | None, name: str | None
) -> str | None:
    """Who is asked. Questions and plans come the same way as all that needs a permission."""
    return name if permission is None and on_question is None and on_plan is None else "stdio"


# Settings.


def setting_sources(sources: Sequence[str] | None, isolation: Isolation) -> str | None:
    if isolation.is_hermetic:
        return ""
    return None if sources is None else ",".join(sources)


def strict_mcp(strict: bool, isolation: Isolation) -> bool | None:
    return strict or isolation.is_hermetic or None


# Tokens.

AUTH_SECONDS: Final = 60.0
"""How long `on_auth_refresh` may take."""


def auth_wait(function: object) -> str | None:
    """How long the agent waits for another token after the API has rejected one, in milliseconds: a little
    longer than `on_auth_refresh` may take. Without it, the agent does not wait."""
    return None if function is None else f"{(AUTH_SECONDS + 15) * 1000:.0f}"


def nothing(value: object) -> str | None:
    """An empty text, which means the same as an unset variable, if the option is set."""
    return None if value is None else ""


# Switches.


def is_given(value: object) -> bool | None:
    return bool(value) or None


def is_set(value: object) -> bool | None:
    return value is not None or None


def is_false(value: bool) -> bool | None:
    return not value or None


def true(value: bool) -> str | None:
    return "true" if value else None


def settings(
    value: str | JsonObject | None,
    sandbox: Sandbox | None,
    strict: bool,
    cwd: str | None,
    runner: Runner | None,
) -> bytes | GivenPath | None:
    """What the agent is given as its settings: the content of a file to make, or the path of one. Raises
    `OptionsError` if they cannot be used; if they are not `strict`, warns and leaves them out, or leaves them
    to the agent. The agent itself passes over a file with mistakes in it without a word."""
    where = Path(cwd or "")
    is_here = runs_here(runner)
    if sandbox is not None:
        return json_of(_merged(value, sandbox, strict, where, is_here=is_here))
    if value is None:
        return None
    if not isinstance(value, str):
        return json_of(value)
    if is_inline(value):
        # As an argument, invalid JSON would make the agent exit; in a file, it would ignore it.
        _parsed(value.encode(), "the JSON text")
        return value.encode()
    if is_here or begins_like_json(value):
        try:
            _read(where, value)
        except OptionsError as error:
            # Passed on as a path, it would be on the command line.
            if strict or begins_like_json(value):
                raise
            _warn(f"{error.message}. The agent may pass over it without a word.")
    return GivenPath(value)


def _merged(
    settings: str | JsonObject | None, sandbox: Sandbox, strict: bool, cwd: Path, *, is_here: bool
) -> JsonObject:
    try:
        others = _loaded(settings, cwd, is_here=is_here)
    except OptionsError as error:
        if strict:
            raise
        _warn(f"{error.message}. They are left out: `sandbox` is the only setting that the agent gets.")
        others = {}
    return {**others, "sandbox": _sandbox(sandbox)}


def _loaded(settings: str | JsonObject | None, cwd: Path, *, is_here: bool) -> JsonObject:
    if settings is None:
        return {}
    if not isinstance(settings, str):
        return settings
    if is_inline(settings):
        return _parsed(settings.encode(), "the JSON text")
    if not is_here and not begins_like_json(settings):
        raise _unusable(f"the file {settings!r} is where the agent runs, and `sandbox` cannot be added to it")
    return _read(cwd, settings)


def _read(cwd: Path, name: str) -> JsonObject:
    try:
        content = (cwd / name).read_bytes()
    except (OSError, ValueError) as error:
        is_missing = isinstance(error, FileNotFoundError)
        why = "does not exist" if is_missing else f"cannot be read ({error})"
        if begins_like_json(name):
            why = "begins like JSON, but is not a JSON object, and a file of this name does not exist"
            raise _unusable(f"the text {why}") from None
        raise _unusable(f"the file {name!r} {why}") from error
    # Editors on Windows put a byte order mark first.
    return _parsed(content.removeprefix(b"\xef\xbb\xbf"), f"the file {name!r}")


def _parsed(content: bytes, source: str) -> JsonObject:
    try:
        value: object = msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:
        raise _unusable(f"{source} is not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise _unusable(f"{source} is valid JSON, but not an object")
    return cast("JsonObject", value)


def _unusable(why: str) -> OptionsError:
    return OptionsError(
        f"`settings` cannot be used: {why}", hint="Give a JSON object, or the path of a file with one."
    )


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=3)


def _sandbox(sandbox: Sandbox) -> JsonObject:
    fields = sandbox.to_wire()
    if fields.get("enabled") is True:
        # Otherwise the agent runs commands unconfined where it cannot confine them.
        fields.setdefault("failIfUnavailable", True)
    return fields
