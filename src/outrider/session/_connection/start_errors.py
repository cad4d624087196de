"""Why the agent would not start: reads what it says on stderr, or in a result with nothing in it.

Does not know any other failure, and looks at nothing but the text and the options.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from outrider.errors import (
    FolderNotFound,
    LaunchError,
    OptionsError,
    OutriderError,
    ProcessExited,
    SessionNotFound,
    TranscriptError,
)
from outrider.options import Options
from outrider.redaction import preview

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outrider.wire import ResultMessage


class Case(NamedTuple):
    """What the agent said, and who heard it."""

    match: re.Match[str]
    text: str
    options: Options | None
    searched: Sequence[str]

    def option(self, name: str) -> str:
        """An option with its value, as a reader of the error knows them."""
        value = getattr(self.options, name, None)
        return f"`{name}`" if value is None else f"`{name}` is {preview(repr(value), 100)}, and"


def startup_failure(
    error: ProcessExited,
    options: Options | None = None,
    *,
    searched: Sequence[str] = (),
    result: ResultMessage | None = None,
) -> OutriderError:
    """The cause of an exit before the first answer, with the exit as its `__cause__`; the exit itself if none
    is known.

    `searched` is where the agent looks for sessions; `result`, what it wrote before it ended, if it did.
    """
    cause = None if result is None else cause_of(result, options, searched=searched, told=error.stderr_tail)
    cause = cause or _cause_in(error.stderr_tail, options, searched)
    if cause is not None:
        cause.__cause__ = error
        cause.session_id = cause.session_id or error.session_id
        return cause
    if flag := re.search(r"unknown option '(--[^'\s]+)'", error.stderr_tail):
        # Not the caller's, so the program is older than the flag.
        error.hint = f"The program does not know `{flag[1]}`: update it with `claude update`."
    return error


def cause_of(
    result: ResultMessage, options: Options | None, *, searched: Sequence[str] = (), told: str = ""
) -> OutriderError | None:
    """What a result says about a start that failed; None if it says nothing about one.

    `told` is the same in the agent's words on stderr, if these are known.
    """
    if result.subtype != "error_during_execution" or result.num_turns or result.terminal_reason:
        return None
    said = "\n".join(result.errors or ())
    if result.startup_failure_reason == "cwd_unavailable":
        return FolderNotFound(_folder(options))
    if result.invalid_config_file:
        backup = result.invalid_config_file.get("backup_path")
        restore = f", or copy its backup over it: {backup}" if backup else ""
        return LaunchError(
            f"The agent's configuration file {result.invalid_config_file.get('path', '')!r} is damaged",
            hint=f"Correct it, or remove it{restore}.",
        )
    cause = _cause_in(told, options, searched) or _cause_in(said, options, searched)
    return cause or LaunchError(said or str(result.startup_failure_reason or ""))


def _cause_in(text: str, options: Options | None, searched: Sequence[str]) -> OutriderError | None:
    for pattern, make in _patterns():
        if (match := pattern.search(text)) and (
            cause := make(Case(match, text[match.start() :], options, searched))
        ):
            return cause
    return None


def _folder(options: Options | None) -> str:
    return "." if options is None or options.cwd is None else options.cwd


def _no_session(case: Case) -> OutriderError:
    asked = None if case.options is None else case.options.resume
    given = re.search(r'Provided value "(.*?)" is not', case.text)
    id = case.match[1] if case.match.re.groups else asked or (given[1] if given else "")
    return SessionNotFound(id, case.searched)


def _no_message(case: Case) -> OutriderError:
    session = None if case.options is None else case.options.resume
    where = f"the session {session!r}" if session else "the session"
    return TranscriptError(
        f"{case.match[1]!r} is no message of {where}",
        hint="Give the uuid of one of its messages as `resume_session_at`, or leave it out.",
        session_id=session,
    )


def _drops_more(case: Case) -> OutriderError:
    session = None if case.options is None else case.options.resume
    return TranscriptError(
        f"{case.option('resume_session_at')} would forget more than the turn of `resume_drops_turn`: "
        f"{preview(case.match[1].strip(), 300)}",
        hint="Leave `resume_drops_turn` out to forget it all, or resume at a later message.",
        session_id=session,
    )


def _in_use(case: Case) -> OutriderError:
    return OptionsError(
        f"`session_id` is {case.match[1]!r}, and there is a session of that id already",
        hint="Give another id or none, or go on with that session by `resume`.",
    )


def _bad_id(case: Case) -> OutriderError:
    return OptionsError(
        f"{case.option('session_id')} must be a UUID", hint="Leave it out, or give `str(uuid.uuid4())`."
    )


def _not_forked(case: Case) -> OutriderError:
    return OptionsError(
        f"{case.option('session_id')} cannot be given to a session that is resumed",
        hint="Set `fork_session` to go on in a copy of that id, or leave `session_id` out.",
    )


def _root(case: Case) -> OutriderError:
    return OptionsError(
        f"{case.option('permission_mode')} the agent does not skip permissions for root",
        hint="Run it as another `user`, or choose another `permission_mode` and name what is allowed in "
        "`allowed_tools`.",
    )


def _unknown_flag(case: Case) -> OutriderError | None:
    flag = case.match[1]
    if case.options is None or flag.removeprefix("--") not in case.options.extra_args:
        return None
    return OptionsError(
        f"`extra_args` has {flag.removeprefix('--')!r}, and the agent does not know `{flag}`",
        hint="Correct its name, take it out, or update the agent with `claude update`.",
    )


def _bad_value(case: Case) -> OutriderError:
    flag, value, reason = case.match[1], case.match[2], case.match[3].strip()
    name = _option_of(flag, case.options)
    return OptionsError(
        f"The agent refuses {name}{'' if value is None else f' {preview(value)!r}'} (`{flag}`): {reason}",
        hint=f"Give another value for {name}; if it is a new one, update the agent with `claude update`.",
    )


def _bad_part(option: str, hint: str) -> Callable[[Case], OutriderError]:
    """For what is wrong with an option whose value may be long: the agent's own words say where."""

    def make(case: Case) -> OutriderError:
        words = " ".join(case.text.split()).removeprefix("Error: ")
        return OptionsError(f"The agent refuses `{option}`: {preview(words, 500)}", hint=hint)

    return make


def _no_folder(case: Case) -> OutriderError:
    return FolderNotFound(_folder(case.options))


def _damaged_config(case: Case) -> OutriderError:
    restore = re.search(r"cp -f .+", case.text)
    return LaunchError(
        f"The agent's configuration file {case.match[1]!r} is damaged",
        hint=f"Correct it, or remove it{f', or restore it: {restore[0]}' if restore else ''}.",
    )


def _option_of(flag: str, options: Options | None) -> str:
    name = flag.removeprefix("--")
    if options is not None and name in options.extra_args:
        return f"`extra_args[{name!r}]`"
    return (
        f"`{name.replace('-', '_')}`" if name.replace("-", "_") in Options.__struct_fields__ else f"`{flag}`"
    )


_MAKERS: Final[tuple[tuple[str, Callable[[Case], OutriderError | None]], ...]] = (
    (r"No conversation found with session ID: (\S+)", _no_session),
    (r"--resume requires a valid session", _no_session),
    (r"No message found with message\.uuid of: (\S+)", _no_message),
    (r"Resume rejected by --resume-drops-turn:(.*)", _drops_more),
    (r"Session ID (\S+) is already in use", _in_use),
    (r"Invalid session ID", _bad_id),
    (r"--session-id can only be used with", _not_forked),
    (r"cannot be used with root/sudo privileges", _root),
    (r"unknown option '(--[^'\s]+)'", _unknown_flag),
    (r"option '(--[\w-]+)[^']*' argument (?:'(.*)' is invalid\.|(?=missing))(.*)", _bad_value),
    (
        r"(?:Error: )?Invalid MCP configuration:",
        _bad_part("mcp_servers", "Correct the servers, or the file that lists them."),
    ),
    (
        r"(?:Error: )?Settings file not found",
        _bad_part(
            "settings", "Give a path that the agent can read, or the settings themselves as a mapping."
        ),
    ),
    (
        r"(?:Error: )?Invalid JSON provided to --settings",
        _bad_part("settings", "Give a mapping, which is always valid JSON."),
    ),
    (r"Error processing --setting-sources", _bad_part("setting_sources", "Name only those it has.")),
    (
        r"(?:Error: )?Invalid --agents configuration",
        _bad_part("agents", "Each needs a description and a prompt, both text."),
    ),
    (
        r"(?:Error: )?System prompt file not found",
        _bad_part("system_prompt", "Give a path that the agent can read, or the text itself."),
    ),
    (
        r"(?:Error: )?--json-schema is not",
        _bad_part("output_format", "Correct the schema: it must be a JSON Schema for an object."),
    ),
    (r"current directory no longer exists", _no_folder),
    (r"configuration file at (.+?) is corrupted", _damaged_config),
)
"""What the agent says (2.1.325), and what is made of it."""


@cache
def _patterns() -> list[tuple[re.Pattern[str], Callable[[Case], OutriderError | None]]]:
    return [(re.compile(pattern), make) for pattern, make in _MAKERS]
