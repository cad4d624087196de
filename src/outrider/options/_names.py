"""What to say about an option's name that does not exist: which one was probably meant.

Knows how the same options are called by the TypeScript SDK and by the reference SDK for Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from outrider.errors import OptionsError
from outrider.options._readers import fold, near

OTHER_NAMES: Final[dict[str, str]] = {
    "abortController": "Cancel the task, or the turn with `turn.cancel()`.",
    "additionalDirectories": "It is called `add_dirs`.",
    "askUserQuestion": "It is called `question_preview_format`.",
    "can_use_tool": "It is called `permission`.",
    "canUseTool": "It is called `permission`.",
    "cli": "It is called `cli_path`.",
    "continue": "It is called `continue_conversation`.",
    "continue_": "It is called `continue_conversation`.",
    "debug_stderr": "It is called `stderr`, and is a function that gets each line.",
    "getOAuthToken": "Put the token into `env`, as `CLAUDE_CODE_OAUTH_TOKEN`.",
    "load_timeout_ms": "It is `timeouts=Timeouts(store=…)`, in seconds.",
    "loadTimeoutMs": "It is `timeouts=Timeouts(store=…)`, in seconds.",
    "max_tokens": "There is `max_thinking_tokens`, `task_budget` and `max_budget_usd`.",
    "pathToClaudeCodeExecutable": "It is called `cli_path`.",
    "spawnClaudeCodeProcess": "It is called `runner`.",
    "timeout": "It is `timeouts=Timeouts(turn=…)`, in seconds.",
    "toolConfig": "It is called `question_preview_format`.",
    "working_directory": "It is called `cwd`.",
}


def refuse_unknown(given: Iterable[str], known: Sequence[str]) -> NoReturn:
    """Raise for the names that are not known, with what was probably meant."""
    unknown = [name for name in given if name not in known]
    named = ", ".join(f"`{name}`" for name in unknown)
    hints = (_hint(name, known) for name in unknown)
    raise OptionsError(
        f"there is no option {named}",
        hint=" ".join(dict.fromkeys(filter(None, hints))) or "`Options` lists all that there are.",
    )


def _hint(name: str, known: Sequence[str]) -> str:
    folded = {fold(other): hint for other, hint in OTHER_NAMES.items()}
    if fold(name) in folded:
        return folded[fold(name)]
    meant = near(name, known)
    return f"Did you mean `{meant}`?" if meant else ""
