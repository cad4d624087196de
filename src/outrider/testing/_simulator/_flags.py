"""Owns the flags of the program: their names, what they take, and how a command line is cut into them.

Does not know what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["FLAGS", "Flag", "Words", "cut"]

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
