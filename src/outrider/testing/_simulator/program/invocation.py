"""Owns `Invocation`, the command line of the program as it was read, and what is refused in it.

Starts nothing, and looks at no file but those that the command line names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, cast
from uuid import UUID

import msgspec

from outrider.wire import JsonObject

__all__ = ["DEFAULT_MODEL", "Invocation", "StartFailed", "read_invocation"]


def _is_number(value: str) -> bool:
    return re.fullmatch(r"[+-]?\d+", value) is not None


def _is_money(value: str) -> bool:
    try:
        return float(value) > 0
    except ValueError:
        return False


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ALONE: Final = _names(
    """allow-dangerously-skip-permissions await-claim await-initialize ax-screen-reader background bare bg
    brief chrome continue dangerously-skip-permissions debug-to-stderr disable-slash-commands
    enable-auth-status exclude-dynamic-system-prompt-sections fork-session forward-subagent-text help ide
    include-hook-events include-partial-messages init init-only maintenance managed-settings-in-initialize
    no-chrome no-session-persistence plan-mode-required print replay-user-messages restricted safe-mode
    session-mirror strict-mcp-config tmux verbose version"""
)
"""The flags that take no value."""
_ONE: Final = _names(
    """advisor agent agent-id agent-name agents append-subagent-system-prompt
    append-subagent-system-prompt-file append-system-prompt append-system-prompt-file autocompact channels
    debug-file effort environment fallback-model input-format json-schema managed-settings max-budget-usd
    max-thinking-tokens max-turns model name output-format parent-session-id permission-mode
    permission-prompt-tool permission-prompts plan-mode-instructions plugin-dir plugin-dir-no-mcp plugin-url
    prefill project-config-root remote-control-session-name-prefix resume-drops-turn resume-session-at
    rewind-files sdk-url session-id setting-sources settings system-prompt system-prompt-file
    system-prompt-snapshot task-budget team-name teammate-mode thinking thinking-display workload"""
)
"""Those that take one."""
_PERHAPS: Final = frozenset(
    ["debug", "from-pr", "prompt-suggestions", "remote-control", "resume", "worktree"]
)
"""Those that may have one."""
_SEVERAL: Final = frozenset(
    ["add-dir", "allowed-tools", "betas", "disallowed-tools", "file", "mcp-config", "tools"]
)
"""Those that take all that follows, up to the next flag."""
_OTHER_NAMES: Final = {
    "allowedTools": "allowed-tools",
    "c": "continue",
    "d": "debug",
    "disallowedTools": "disallowed-tools",
    "h": "help",
    "n": "name",
    "p": "print",
    "r": "resume",
    "v": "version",
    "w": "worktree",
}
_LABELS: Final = {
    "input-format": "<format>",
    "max-budget-usd": "<amount>",
    "max-turns": "<turns>",
    "output-format": "<format>",
    "permission-mode": "<mode>",
}
"""What the program calls a value in its errors, where it is not as the flag is called."""
_CHOICES: Final = {
    "input-format": ("text", "stream-json"),
    "output-format": ("text", "json", "stream-json"),
    "permission-mode": ("acceptEdits", "auto", "bypassPermissions", "manual", "dontAsk", "plan"),
    "thinking": ("enabled", "adaptive", "disabled"),
}
_CHECKS: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "max-budget-usd": (_is_money, "--max-budget-usd must be a positive number greater than 0"),
    "max-thinking-tokens": (_is_number, "must be a number"),
    "max-turns": (_is_number, "must be a number"),
}


def _cut(argv: Sequence[str]) -> dict[str, list[str]]:
    """Cut the arguments up as the program does: `--flag=value`, `--flag value`, `--many a b`.

    Gives what was given, by name; a flag alone has an empty text. Raises `StartFailed`.
    """
    values: dict[str, list[str]] = {}
    words = list(argv)
    while words and (word := words.pop(0)) != "--":
        if not word.startswith("-") or word == "-":
            continue
        flag, equals, value = word.partition("=")
        name = flag.lstrip("-")
        name = _OTHER_NAMES.get(name, name)
        given = [value] if equals else []
        if name in _SEVERAL:
            while not equals and words and not words[0].startswith("-"):
                given.append(words.pop(0))
        elif name in _ONE or name in _PERHAPS:
            # A value that must be there may begin with a dash.
            if not equals and words and (name in _ONE or not words[0].startswith("-")):
                given.append(words.pop(0))
        elif name not in _ALONE:
            raise StartFailed(f"error: unknown option '{flag}'")
        if name in _ONE | _SEVERAL and not given:
            raise StartFailed(f"error: option '{flag} {_label(name)}' argument missing")
        for each in given:
            _check_value(flag, name, each)
        values.setdefault(name.replace("-", "_"), []).extend(given or [""])
    return values


def _label(name: str) -> str:
    return _LABELS.get(name, f"<{name}>")


def _check_value(flag: str, name: str, value: str) -> None:
    reason = None
    choices, check = _CHOICES.get(name), _CHECKS.get(name)
    if choices is not None and value not in (*choices, "default"):
        reason = f"Allowed choices are {', '.join(choices)}."
    elif check is not None and not check[0](value):
        reason = check[1]
    if reason is not None:
        raise StartFailed(f"error: option '{flag} {_label(name)}' argument '{value}' is invalid. {reason}")


DEFAULT_MODEL: Final = "claude-opus-5-5"
"""The model of a session that names none."""

_SOURCES: Final = ("user", "project", "local")
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")


class StartFailed(Exception):
    """The program says this on stderr and exits with 1."""


class Invocation(msgspec.Struct, kw_only=True):
    """The command line of the program, with its values read. Unset: not given."""

    output_format: str = "text"
    input_format: str = "text"
    verbose: bool = False
    asks_version: bool = False
    asks_help: bool = False

    model: str | None = None
    fallback_model: tuple[str, ...] = ()
    effort: str | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    json_schema: JsonObject | None = None

    system_prompt: str | None = None
    append_system_prompt: str | None = None
    agents: JsonObject = {}

    tools: tuple[str, ...] | None = None
    """The built-in tools to offer; `("",)` or `()`: none of them; `("default",)` or unset: all."""
    allowed_tools: tuple[str, ...] = ()
    """Rules, one each: `("Bash(git *)", "Edit")`."""
    disallowed_tools: tuple[str, ...] = ()
    permission_mode: str | None = None
    permission_prompt_tool: str | None = None
    """`stdio`: the host is asked."""
    permission_prompts: str | None = None
    dangerously_skip_permissions: bool = False
    allow_dangerously_skip_permissions: bool = False
    add_dirs: tuple[str, ...] = ()

    settings: JsonObject = {}
    """Of `--settings`, a file or a text; a file that cannot be read as JSON counts for nothing."""
    setting_sources: tuple[str, ...] | None = None
    mcp_config: dict[str, JsonObject] = {}
    """The servers of every `--mcp-config`, by name."""

    resume: str | None = None
    """A session's id or title."""
    continue_conversation: bool = False
    fork_session: bool = False
    session_id: str | None = None
    resume_session_at: str | None = None
    name: str | None = None
    no_session_persistence: bool = False
    session_mirror: bool = False

    include_partial_messages: bool = False
    replay_user_messages: bool = False
    forward_subagent_text: bool = False
    await_initialize: bool = False
    disable_slash_commands: bool = False

    warnings: tuple[str, ...] = ()
    """Lines for stderr that stop nothing."""

    @property
    def is_streaming(self) -> bool:
        """Whether messages come on stdin, one a line."""
        return self.input_format == "stream-json"


def read_invocation(argv: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Invocation:
    """Read the arguments, without the program's own name. Raises `StartFailed` for what it refuses."""
    reader = _Reader(_cut(argv), cwd)
    found = reader.read()
    if not (found.asks_version or found.asks_help):
        _check(found, environment)
    return found


class _Reader:
    """Makes values of words."""

    def __init__(self, values: dict[str, list[str]], cwd: Path) -> None:
        self._values, self._cwd = values, cwd
        self._warnings: list[str] = []

    def read(self) -> Invocation:
        has, last = self._has, self._last
        return Invocation(
            output_format=last("output_format") or "text",
            input_format=last("input_format") or "text",
            verbose=has("verbose"),
            asks_version=has("version"),
            asks_help=has("help"),
            model=last("model"),
            fallback_model=tuple(filter(None, (last("fallback_model") or "").split(","))),
            effort=self._effort(),
            max_turns=self._int("max_turns"),
            max_budget_usd=None if (money := last("max_budget_usd")) is None else float(money),
            json_schema=self._schema(),
            system_prompt=self._text_of("system_prompt", "System prompt"),
            append_system_prompt=self._text_of("append_system_prompt", "Append system prompt"),
            agents=self._agents(),
            tools=None if not has("tools") else self._rules("tools"),
            allowed_tools=self._rules("allowed_tools"),
            disallowed_tools=self._rules("disallowed_tools"),
            permission_mode="default" if (mode := last("permission_mode")) == "manual" else mode,
            permission_prompt_tool=last("permission_prompt_tool"),
            permission_prompts=last("permission_prompts"),
            dangerously_skip_permissions=has("dangerously_skip_permissions"),
            allow_dangerously_skip_permissions=has("allow_dangerously_skip_permissions"),
            add_dirs=tuple(self._values.get("add_dir", ())),
            settings=self._settings(),
            setting_sources=self._sources(),
            mcp_config=self._servers(),
            resume=last("resume"),
            continue_conversation=has("continue"),
            fork_session=has("fork_session"),
            session_id=last("session_id"),
            resume_session_at=last("resume_session_at"),
            name=last("name"),
            no_session_persistence=has("no_session_persistence"),
            session_mirror=has("session_mirror"),
            include_partial_messages=has("include_partial_messages"),
            replay_user_messages=has("replay_user_messages"),
            forward_subagent_text=has("forward_subagent_text"),
            await_initialize=has("await_initialize"),
            disable_slash_commands=has("disable_slash_commands"),
            warnings=tuple(self._warnings),
        )

    def _has(self, key: str) -> bool:
        return key in self._values

    def _last(self, key: str) -> str | None:
        return self._values[key][-1] if key in self._values else None

    def _int(self, key: str) -> int | None:
        value = self._last(key)
        return int(value) if value is not None and re.fullmatch(r"-?\d+", value) else None

    def _rules(self, key: str) -> tuple[str, ...]:
        return tuple(rule for text in self._values.get(key, ()) for rule in _split_rules(text))

    def _path(self, name: str) -> Path:
        return Path(os.path.abspath(self._cwd / name))  # noqa: PTH100 - no links resolved

    def _text_of(self, key: str, label: str) -> str | None:
        """A text that is given, or a file that has it."""
        given = self._last(f"{key}_file")
        if given is None:
            return self._last(key)
        path = self._path(given)
        if not path.is_file():
            raise StartFailed(f"Error: {label} file not found: {path}")
        return path.read_text("utf-8", "replace")

    def _effort(self) -> str | None:
        effort = self._last("effort")
        if effort is not None and effort not in _EFFORTS:
            self._warnings.append(
                f"Warning: Unknown --effort value '{effort}' — ignoring it and using the default effort. "
                f"Valid values: {', '.join(_EFFORTS)}."
            )
            return None
        return effort

    def _schema(self) -> JsonObject | None:
        text = self._last("json_schema")
        if text is None:
            return None
        schema = _object_in(text)
        if schema is None:
            raise StartFailed("Error: --json-schema is not valid JSON")
        return schema

    def _agents(self) -> JsonObject:
        text = self._last("agents")
        if text is None:
            return {}
        path = self._path(text)
        if not text.lstrip().startswith("{") and path.is_file():
            text = path.read_text("utf-8", "replace")
        agents = _object_in(text)
        if agents is None:
            raise StartFailed(
                "Error: Invalid --agents configuration:\ninvalid JSON: JSON Parse error: Expected '}'"
            )
        return agents

    def _settings(self) -> JsonObject:
        text = self._last("settings")
        if text is None:
            return {}
        if text.lstrip().startswith("{"):
            settings = _object_in(text)
            if settings is None:
                raise StartFailed("Error: Invalid JSON provided to --settings")
            return settings
        path = self._path(text)
        if not path.is_file():
            raise StartFailed(f"Error: Settings file not found: {path}")
        return _object_in(path.read_text("utf-8", "replace")) or {}

    def _sources(self) -> tuple[str, ...] | None:
        text = self._last("setting_sources")
        if text is None:
            return None
        sources = tuple(filter(None, (source.strip() for source in text.split(","))))
        for source in sources:
            if source not in _SOURCES:
                raise StartFailed(
                    f"Error processing --setting-sources: Invalid setting source: {source}. "
                    f"Valid options are: {', '.join(_SOURCES)}"
                )
        return sources

    def _servers(self) -> dict[str, JsonObject]:
        servers: dict[str, JsonObject] = {}
        for text in self._values.get("mcp_config", ()):
            config = _object_in(text)
            if config is None:
                path = self._path(text)
                if not path.is_file():
                    raise StartFailed(f"Error: Invalid MCP configuration:\nMCP config file not found: {path}")
                config = _object_in(path.read_text("utf-8", "replace")) or {}
            found = config.get("mcpServers")
            if not isinstance(found, dict):
                other = f' — found "{next(iter(config))}" instead' if config else ""
                raise StartFailed(
                    f'Error: Invalid MCP configuration:\nmcpServers: Missing "mcpServers"{other}. '
                    'Claude Code reads MCP servers from the "mcpServers" key.'
                )
            servers |= cast("dict[str, JsonObject]", found)
        return servers


def _check(found: Invocation, environment: Mapping[str, str]) -> None:
    """What goes with what."""
    is_streamed = found.output_format == "stream-json"
    if found.is_streaming and not is_streamed:
        raise StartFailed("Error: --input-format=stream-json requires output-format=stream-json.")
    if is_streamed and not found.verbose:
        raise StartFailed("Error: When using --print, --output-format=stream-json requires --verbose")
    if not found.is_streaming:
        raise StartFailed("The simulated agent runs sessions only: start it with --input-format stream-json")
    skips = found.dangerously_skip_permissions or found.permission_mode == "bypassPermissions"
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if skips and is_root and not environment.get("IS_SANDBOX"):
        raise StartFailed(
            "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons"
        )
    if found.session_id is not None:
        if not _is_uuid(found.session_id):
            raise StartFailed("Error: Invalid session ID. Must be a valid UUID.")
        if (found.resume is not None or found.continue_conversation) and not found.fork_session:
            raise StartFailed(
                "Error: --session-id can only be used with --continue or --resume "
                "if --fork-session is also specified."
            )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def _object_in(text: str) -> JsonObject | None:
    try:
        value: object = json.loads(text)
    except ValueError:
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _split_rules(text: str) -> list[str]:
    """A list of rules with commas or spaces between; those in brackets belong to a rule."""
    rules, current, depth = list[str](), "", 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter in ", " and depth <= 0:
            rules.append(current)
            current = ""
        else:
            current += letter
    return [rule for rule in (*rules, current) if rule]
