"""Owns `Invocation`, the command line of the program as it was read, and what is refused in it.

Starts nothing, and looks at no file but those that the command line names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, cast
from uuid import UUID

import msgspec

from outrider.wire import JsonObject

__all__ = ["DEFAULT_MODEL", "FLAGS", "Flag", "Invocation", "StartFailed", "Words", "cut", "read_invocation"]


Kind: TypeAlias = Literal["switch", "value", "optional", "many"]


class Flag(NamedTuple):
    """A flag: its key in what is read, what follows it, and which values are refused."""

    key: str
    kind: Kind = "value"
    label: str = ""
    """As the program writes the value in its errors."""
    choices: tuple[str, ...] = ()
    more_choices: tuple[str, ...] = ()
    """Accepted, and not told."""
    wrong: Callable[[str], str | None] | None = None
    """What is wrong with a value, in the program's words."""


class Words(NamedTuple):
    """A command line, cut up."""

    values: dict[str, list[str]]
    """What was given, by key; a flag alone has an empty text."""
    prompt: str | None
    error: str | None
    """What the program would say on stderr, if it refuses the line."""


def _number(value: str) -> str | None:
    try:
        int(value)
    except ValueError:
        return "must be a number"
    return None


def _money(value: str) -> str | None:
    try:
        is_right = float(value) > 0
    except ValueError:
        is_right = False
    return None if is_right else "--max-budget-usd must be a positive number greater than 0"


_MODES: Final = ("acceptEdits", "auto", "bypassPermissions", "manual", "dontAsk", "plan")
_SWITCHES: Final = (
    *("--allow-dangerously-skip-permissions", "--await-claim", "--await-initialize", "--ax-screen-reader"),
    *("--bare", "--brief", "--chrome", "--dangerously-skip-permissions", "--debug-to-stderr"),
    *("--disable-slash-commands", "--enable-auth-status", "--exclude-dynamic-system-prompt-sections"),
    *("--fork-session", "--forward-subagent-text", "--ide", "--include-hook-events"),
    *("--include-partial-messages", "--init", "--init-only", "--maintenance"),
    *("--managed-settings-in-initialize", "--no-chrome", "--no-session-persistence"),
    *("--plan-mode-required", "--replay-user-messages", "--restricted", "--safe-mode", "--session-mirror"),
    *("--strict-mcp-config", "--verbose", "--tmux"),
)
_VALUES: Final = {
    "--advisor": "<model>",
    "--agent": "<agent>",
    "--agent-id": "<id>",
    "--agent-name": "<name>",
    "--agents": "<json-or-file>",
    "--append-subagent-system-prompt": "<prompt>",
    "--append-subagent-system-prompt-file": "<file>",
    "--append-system-prompt": "<prompt>",
    "--append-system-prompt-file": "<file>",
    "--autocompact": "<auto|tokens>",
    "--channels": "<channels>",
    "--debug-file": "<path>",
    "--effort": "<level>",
    "--environment": "<environment_id>",
    "--fallback-model": "<model>",
    "--json-schema": "<schema>",
    "--managed-settings": "<settings>",
    "--model": "<model>",
    "--parent-session-id": "<id>",
    "--permission-prompt-tool": "<tool>",
    "--permission-prompts": "<target>",
    "--plan-mode-instructions": "<text>",
    "--plugin-dir": "<path>",
    "--plugin-dir-no-mcp": "<path>",
    "--plugin-url": "<url>",
    "--prefill": "<text>",
    "--project-config-root": "<path>",
    "--remote-control-session-name-prefix": "<prefix>",
    "--resume-drops-turn": "<message id>",
    "--resume-session-at": "<message id>",
    "--rewind-files": "<user-message-id>",
    "--sdk-url": "<url>",
    "--session-id": "<uuid>",
    "--setting-sources": "<sources>",
    "--settings": "<file-or-json>",
    "--system-prompt": "<prompt>",
    "--system-prompt-file": "<file>",
    "--system-prompt-snapshot": "<on|off>",
    "--task-budget": "<tokens>",
    "--team-name": "<name>",
    "--teammate-mode": "<mode>",
    "--workload": "<tag>",
}


def _table() -> dict[str, Flag]:
    table = {name: Flag(_key(name), "switch") for name in _SWITCHES}
    table |= {name: Flag(_key(name), "value", label) for name, label in _VALUES.items()}
    for names, flag in (
        (("-p", "--print"), Flag("print", "switch")),
        (("-v", "--version"), Flag("version", "switch")),
        (("-h", "--help"), Flag("help", "switch")),
        (("-c", "--continue"), Flag("continue", "switch")),
        (("-r", "--resume"), Flag("resume", "optional", "[value]")),
        (("-d", "--debug"), Flag("debug", "optional", "[filter]")),
        (("-n", "--name"), Flag("name", "value", "<name>")),
        (("-w", "--worktree"), Flag("worktree", "optional", "[name]")),
        (("--bg", "--background"), Flag("background", "switch")),
        (("--from-pr",), Flag("from_pr", "optional", "[value]")),
        (("--prompt-suggestions",), Flag("prompt_suggestions", "optional", "[value]")),
        (("--remote-control",), Flag("remote_control", "optional", "[name]")),
        (("--allowedTools", "--allowed-tools"), Flag("allowed_tools", "many", "<tools...>")),
        (("--disallowedTools", "--disallowed-tools"), Flag("disallowed_tools", "many", "<tools...>")),
        (("--tools",), Flag("tools", "many", "<tools...>")),
        (("--add-dir",), Flag("add_dir", "many", "<directories...>")),
        (("--betas",), Flag("betas", "many", "<betas...>")),
        (("--file",), Flag("file", "many", "<specs...>")),
        (("--mcp-config",), Flag("mcp_config", "many", "<configs...>")),
        (("--max-turns",), Flag("max_turns", "value", "<turns>", wrong=_number)),
        (("--max-thinking-tokens",), Flag("max_thinking_tokens", "value", "<tokens>", wrong=_number)),
        (("--max-budget-usd",), Flag("max_budget_usd", "value", "<amount>", wrong=_money)),
        (("--thinking",), Flag("thinking", "value", "<mode>", ("enabled", "adaptive", "disabled"))),
        (
            ("--thinking-display",),
            Flag("thinking_display", "value", "<display>", ("summarized", "omitted", "highlights")),
        ),
        (
            ("--output-format",),
            Flag("output_format", "value", "<format>", ("text", "json", "stream-json")),
        ),
        (("--input-format",), Flag("input_format", "value", "<format>", ("text", "stream-json"))),
        (("--permission-mode",), Flag("permission_mode", "value", "<mode>", _MODES, ("default",))),
    ):
        table |= dict.fromkeys(names, flag)
    return table


def _key(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


FLAGS: Final[dict[str, Flag]] = _table()


def cut(argv: Sequence[str]) -> Words:
    """Cut the arguments up as the program does: `--flag=value`, `--flag value`, `--many a b`, `-- prompt`."""
    values: dict[str, list[str]] = {}
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            rest += words
            break
        if not word.startswith("-") or word == "-":
            rest.append(word)
            continue
        name, equals, value = word.partition("=")
        flag = FLAGS.get(name)
        if flag is None:
            return Words(values, None, f"error: unknown option '{name}'")
        given = [value] if equals else []
        if flag.kind == "many":
            while not equals and words and not words[0].startswith("-"):
                given.append(words.pop(0))
        elif not equals and words and _takes(flag, words[0]):
            given.append(words.pop(0))
        if flag.kind in ("value", "many") and not given:
            return Words(values, None, f"error: option '{name} {flag.label}' argument missing")
        if error := _refusal(name, flag, given):
            return Words(values, None, error)
        values.setdefault(flag.key, []).extend(given or [""])
    return Words(values, " ".join(rest) if rest else None, None)


def _takes(flag: Flag, word: str) -> bool:
    """Whether a word is the flag's value: of one that must have a value it may begin with a dash."""
    return flag.kind == "value" or (flag.kind == "optional" and not word.startswith("-"))


def _refusal(name: str, flag: Flag, given: list[str]) -> str | None:
    for value in given:
        reason = flag.wrong(value) if flag.wrong is not None else None
        if flag.choices and value not in (*flag.choices, *flag.more_choices):
            reason = f"Allowed choices are {', '.join(flag.choices)}."
        if reason is not None:
            return f"error: option '{name} {flag.label}' argument '{value}' is invalid. {reason}"
    return None


DEFAULT_MODEL: Final = "claude-opus-5-5"
"""The model of a session that names none."""

_SOURCES: Final = ("user", "project", "local")
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_BETAS: Final = ("context-1m-2025-08-07",)


class StartFailed(Exception):
    """The program says this on stderr and exits with 1."""


class Invocation(msgspec.Struct, kw_only=True):
    """The command line of the program, with its values read. Unset: not given."""

    argv: tuple[str, ...] = ()
    is_print: bool = False
    """`-p`; streaming both ways is print mode as well, whether it is said or not."""
    prompt: str | None = None
    """The one on the command line."""
    output_format: str = "text"
    input_format: str = "text"
    verbose: bool = False
    asks_version: bool = False
    asks_help: bool = False

    model: str | None = None
    fallback_model: tuple[str, ...] = ()
    effort: str | None = None
    thinking: str | None = None
    thinking_display: str | None = None
    max_thinking_tokens: int | None = None
    betas: tuple[str, ...] = ()
    max_turns: int | None = None
    max_budget_usd: float | None = None
    task_budget: int | None = None
    json_schema: JsonObject | None = None

    system_prompt: str | None = None
    append_system_prompt: str | None = None
    append_subagent_system_prompt: str | None = None
    agents: JsonObject = {}
    agent: str | None = None

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
    strict_mcp_config: bool = False
    plugin_dirs: tuple[str, ...] = ()

    resume: str | None = None
    """A session's id or title."""
    continue_conversation: bool = False
    fork_session: bool = False
    session_id: str | None = None
    resume_session_at: str | None = None
    resume_drops_turn: str | None = None
    name: str | None = None
    no_session_persistence: bool = False
    session_mirror: bool = False

    include_partial_messages: bool = False
    include_hook_events: bool = False
    replay_user_messages: bool = False
    forward_subagent_text: bool = False
    prompt_suggestions: bool = False
    await_initialize: bool = False
    bare: bool = False
    disable_slash_commands: bool = False

    warnings: tuple[str, ...] = ()
    """Lines for stderr that stop nothing."""

    @property
    def is_streaming(self) -> bool:
        """Whether messages come on stdin, one a line."""
        return self.input_format == "stream-json"


def read_invocation(argv: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Invocation:
    """Read the arguments, without the program's own name. Raises `StartFailed` for what it refuses."""
    words = cut(argv)
    if words.error is not None:
        raise StartFailed(words.error)
    reader = _Reader(words, cwd)
    found = reader.read(tuple(argv))
    if not (found.asks_version or found.asks_help):
        _check(found, environment)
    return found


class _Reader:
    """Makes values of words."""

    def __init__(self, words: Words, cwd: Path) -> None:
        self._values, self._prompt, self._cwd = words.values, words.prompt, cwd
        self._warnings: list[str] = []

    def read(self, argv: tuple[str, ...]) -> Invocation:
        has, last = self._has, self._last
        system = self._text_of("system_prompt", "System prompt")
        return Invocation(
            argv=argv,
            is_print=has("print") or last("input_format") == "stream-json",
            prompt=self._prompt,
            output_format=last("output_format") or "text",
            input_format=last("input_format") or "text",
            verbose=has("verbose"),
            asks_version=has("version"),
            asks_help=has("help"),
            model=last("model"),
            fallback_model=tuple(filter(None, (last("fallback_model") or "").split(","))),
            effort=self._effort(),
            thinking=last("thinking"),
            thinking_display=last("thinking_display"),
            max_thinking_tokens=self._int("max_thinking_tokens"),
            betas=self._betas(),
            max_turns=self._int("max_turns"),
            max_budget_usd=None if (money := last("max_budget_usd")) is None else float(money),
            task_budget=self._int("task_budget"),
            json_schema=self._schema(),
            system_prompt=system,
            append_system_prompt=self._text_of("append_system_prompt", "Append system prompt"),
            append_subagent_system_prompt=self._text_of(
                "append_subagent_system_prompt", "Append subagent system prompt"
            ),
            agents=self._agents(),
            agent=last("agent"),
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
            strict_mcp_config=has("strict_mcp_config"),
            plugin_dirs=(*self._values.get("plugin_dir", ()), *self._values.get("plugin_dir_no_mcp", ())),
            resume=last("resume"),
            continue_conversation=has("continue"),
            fork_session=has("fork_session"),
            session_id=last("session_id"),
            resume_session_at=last("resume_session_at"),
            resume_drops_turn=last("resume_drops_turn"),
            name=last("name"),
            no_session_persistence=has("no_session_persistence"),
            session_mirror=has("session_mirror"),
            include_partial_messages=has("include_partial_messages"),
            include_hook_events=has("include_hook_events"),
            replay_user_messages=has("replay_user_messages"),
            forward_subagent_text=has("forward_subagent_text"),
            prompt_suggestions=last("prompt_suggestions") in ("", "true"),
            await_initialize=has("await_initialize"),
            bare=has("bare"),
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

    def _betas(self) -> tuple[str, ...]:
        given = tuple(self._values.get("betas", ()))
        for beta in given:
            if beta not in _BETAS:
                self._warnings.append(
                    f"Warning: Beta header '{beta}' is not allowed. "
                    f"Only the following betas are supported: {', '.join(_BETAS)}"
                )
        return tuple(beta for beta in given if beta in _BETAS)

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
        wrong = [
            f"{name}.{field}: Invalid input: expected string, received {_js_type(agent.get(field))}"
            for name, agent in cast("dict[str, JsonObject]", agents).items()
            for field in ("description", "prompt")
            if not isinstance(agent.get(field), str)
        ]
        if wrong:
            raise StartFailed("\n".join(("Error: Invalid --agents configuration:", *wrong)))
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
    if found.include_partial_messages and not is_streamed:
        raise StartFailed(
            "Error: --include-partial-messages requires --print and --output-format=stream-json."
        )
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


def _js_type(value: object) -> str:
    match value:
        case None:
            return "undefined"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "string"


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
