"""Defines every exception that Outrider raises: the facts of each failure, and the text made from them.

Does not decide when to raise. Exceptions of other libraries are converted where they occur.

    OutriderError
    ├─ LaunchError: AgentNotFound, AgentTooOld, FolderNotFound, UserNotFound, CommandTooLong
    ├─ McpServerFailed
    ├─ ConnectionLost: ProcessExited, TransportClosed
    ├─ ProtocolError: MalformedFrame, FrameTooLarge, MessageInvalid
    ├─ RequestFailed: Unsupported, RequestTimedOut (also TimeoutError)
    ├─ TurnFailed: TurnTimedOut (also TimeoutError), TurnInterrupted, LimitReached, ApiFailed, OutputInvalid
    ├─ TranscriptError: SessionNotFound, SessionExists, SessionBusy, LeaseLost, TranscriptDamaged, StoreError
    ├─ StoreError: StoreTimedOut (also TimeoutError)
    ├─ UsageError (also RuntimeError), OptionsError (also ValueError)
    └─ ToolFailed, Denied

The facts are attributes. `str()` gives the message, the facts and a hint: what to do next. Secrets are masked
in all that is shown, and in `message`, `hint`, `argv` and `stderr_tail`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

from outrider._display import plain
from outrider.redaction import mask, mask_argv, preview, preview_value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from typing import Self, TypeAlias, Unpack

    from outrider.redaction import Redaction

    StrPath: TypeAlias = str | PathLike[str]

__all__ = [
    "AgentNotFound",
    "AgentTooOld",
    "ApiFailed",
    "CommandTooLong",
    "ConnectionLost",
    "Denied",
    "FolderNotFound",
    "FrameTooLarge",
    "LaunchError",
    "LeaseLost",
    "LimitReached",
    "MalformedFrame",
    "McpServerFailed",
    "MessageInvalid",
    "OptionsError",
    "OutputInvalid",
    "OutriderError",
    "ProcessExited",
    "ProtocolError",
    "RequestFailed",
    "RequestTimedOut",
    "SessionBusy",
    "SessionExists",
    "SessionNotFound",
    "StoreError",
    "StoreTimedOut",
    "ToolFailed",
    "TranscriptDamaged",
    "TranscriptError",
    "TransportClosed",
    "TurnFailed",
    "TurnInterrupted",
    "TurnTimedOut",
    "Unsupported",
    "UsageError",
    "UserNotFound",
]


def reason_of(result: object) -> str:
    """Why a turn failed, in the best words that its result has; empty if it has none."""
    result = getattr(result, "message", result)  # What a turn came to has the agent's own as `message`.
    errors = getattr(result, "errors", None) or ()
    words = [str(error).strip() for error in ((errors,) if isinstance(errors, str) else errors)]
    said = "; ".join(filter(None, words)) or str(getattr(result, "result", None) or "").strip()
    subtype, status = getattr(result, "subtype", None), getattr(result, "api_error_status", None)
    fallback = str(subtype) if subtype and subtype != "success" else f"HTTP status {status}" if status else ""
    return said or fallback


def pickled(cause: BaseException | None) -> bytes:
    """A cause in a form that cannot spoil the pickle that it goes into; empty if it has none."""
    import pickle

    try:
        return b"" if cause is None else pickle.dumps(cause)
    except Exception:  # noqa: BLE001
        return b""


def restored(kind: type[OutriderError], args: tuple[object, ...], cause: bytes) -> OutriderError:
    """The error without `__init__`, which wants facts that `args` does not have; its attributes follow."""
    import contextlib
    import pickle

    error = kind.__new__(kind)
    error.args = args
    # There may be none, and many can be pickled but not unpickled; that is no reason to lose this one.
    with contextlib.suppress(Exception):
        error.__cause__ = pickle.loads(cause)
    return error


_LONGEST = 32768
"""Characters of a message that are kept. It may be made of what a child said, and is looked through for
secrets where it is raised: on an event loop."""


class Context(TypedDict, total=False):
    """What every error may be given beside its own facts."""

    hint: str
    session_id: str | None


class Details(Context, total=False):
    """The same, and the text."""

    message: str


class OutriderError(Exception):
    """The root of everything that Outrider raises.

    `message` is the text it was raised with, empty if the facts say it all; `hint`, what to do next;
    `session_id`, the session that it happened in, if there was one yet; `result`, what had come of the turn
    by then, if one ran. `retryable` tells whether the same call, made again in a new session, can succeed. It
    does not tell what the failed one had done: resume a turn that has run tools instead of sending it again.
    """

    hint: str = ""
    retryable: bool = False
    result: object = None
    # What happened, with the facts: a clause that can stand in brackets, and lines for what is longer.
    _what: str = ""
    _evidence: tuple[str, ...] = ()

    def __init__(self, message: str = "", *, hint: str = "", session_id: str | None = None) -> None:
        self.message = preview(message, _LONGEST)
        super().__init__(*([self.message] if message else []))
        self.session_id, self.hint = session_id, mask(hint) or self.hint

    def __str__(self) -> str:
        what, text = preview(self._what, 1000), self.message.strip()
        if what:
            text = f"{text.rstrip('.')} ({what})" if text else what[0].upper() + what[1:]
        if self.hint:
            text += f" {self.hint}" if text.endswith((".", "!", "?")) else f". {self.hint}"
        session = [f"Session: {self.session_id}"] if self.session_id and self.session_id not in text else []
        # Much of it comes from elsewhere, and may be read at a terminal.
        return plain(mask("\n  ".join([text or type(self).__name__, *self._evidence, *session])))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({preview(str(self).splitlines()[0], 120)!r})"

    def add_note(self, note: str, /) -> None:
        super().add_note(mask(note))

    def hide(self, redaction: Redaction) -> Self:
        """Hide the values that a redaction knows in all that is shown. Returns the error itself."""
        for name, fact in list(vars(self).items()):
            if isinstance(fact, str):
                vars(self)[name] = redaction.mask_values(fact)
            elif isinstance(fact, (list, tuple)):
                texts = cast("list[object] | tuple[object, ...]", fact)
                hidden = [redaction.mask_values(text) if isinstance(text, str) else text for text in texts]
                vars(self)[name] = hidden if isinstance(texts, list) else tuple(hidden)
        self.args = tuple(redaction.mask_values(arg) if isinstance(arg, str) else arg for arg in self.args)
        return self

    def __reduce__(self) -> tuple[object, ...]:
        facts = {name: list(fact) if name == "__notes__" else fact for name, fact in vars(self).items()}
        return restored, (type(self), self.args, pickled(self.__cause__)), facts


def in_seconds(word: str, number: float | None) -> str:
    return "" if number is None else f"{word} {number:g} s"


class TranscriptError(OutriderError):
    """A session on disk, or in a store, cannot be used."""

    hint = "List the sessions to see which there are."
    _what = "the transcript cannot be used"


class SessionNotFound(TranscriptError):
    """There is no session `id` in any of the places `searched`; none was started instead."""

    hint = "List the sessions to see which there are; each belongs to the folder that it was started in."

    def __init__(self, id: str, searched: Sequence[str] = (), **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.id = self.session_id = id
        self.searched: tuple[str, ...] = tuple(searched)
        self._what = f"there is no session {id!r}"
        self._evidence = ("Searched:", *(f"  {path}" for path in searched)) if searched else ()


class TranscriptDamaged(TranscriptError):
    """The transcript `path` cannot be read at `line_number`, counted from 1; None if all of it cannot."""

    hint = "Restore the file, or remove what cannot be read."

    def __init__(self, path: StrPath, line_number: int | None = None, **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.path, self.line_number = str(path), line_number
        place = "" if line_number is None else f" at line {line_number}"
        self._what = f"the transcript {self.path!r} is damaged{place}"


class SessionExists(TranscriptError):
    """There is a session `id` already, in the place `where`; it was left as it is."""

    hint = "Delete it first, or give the new one another id."

    def __init__(self, id: str, where: StrPath = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.id = self.session_id = id
        self.where = str(where)
        self._what = f"there is a session {id!r} already" + (f" in {self.where!r}" if self.where else "")


class SessionBusy(TranscriptError):
    """Another writer, the `holder`, has the session `id`; in `retry_after` seconds its hold ends, unless it
    renews it."""

    retryable = True

    def __init__(
        self, id: str, holder: str = "", retry_after: float | None = None, **details: Unpack[Details]
    ) -> None:
        super().__init__(**details)
        self.id = self.session_id = id
        self.holder, self.retry_after = holder, retry_after
        self._what = f"the session {id!r} is in use" + (f" by {holder}" if holder else "")
        wait = in_seconds(" in", retry_after)
        self.hint = details.get("hint") or f"Close it there, or try again{wait or ' later'}; or fork it."


class LeaseLost(TranscriptError):
    """The hold on the session `id` is over: it ran out, or another writer, the `holder`, has it now."""

    hint = "Open the session again: what was stored is kept."

    def __init__(self, id: str, holder: str = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.id = self.session_id = id
        self.holder = holder
        self._what = f"the hold on the session {id!r} is over" + (f": {holder} has it" if holder else "")


class StoreError(TranscriptError):
    """The `store` failed in the `operation`; `__cause__` is what its driver raised. `retryable` tells whether
    it may pass: a lost connection, a server that restarts."""

    hint = "Check that the store can be reached, and has room."

    def __init__(
        self,
        store: str,
        operation: str,
        reason: str = "",
        *,
        retryable: bool = False,
        **details: Unpack[Details],
    ) -> None:
        super().__init__(**details)
        self.store, self.operation, self.reason = store, operation, reason
        self.retryable = retryable
        self._what = f"the store {store} failed in `{operation}`" + (f": {reason}" if reason else "")


class StoreTimedOut(StoreError, TimeoutError):
    """The `store` did not answer within `timeout` seconds; what it was asked to do may still be done."""

    def __init__(
        self, store: str, operation: str, timeout: float | None = None, **details: Unpack[Details]
    ) -> None:
        super().__init__(store, operation, retryable=True, **details)
        self.timeout = timeout
        within = in_seconds(" within", timeout) or " in time"
        self._what = f"the store {store} did not answer `{operation}`{within}"


_SHOWN_LINES = 10
INSTALL = "npm install -g @anthropic-ai/claude-code"
_WITHOUT_AGENT = "To try Outrider without it, pass `transport=outrider.testing.Simulator()`."
# Those that have the same number on every system: the agent may run on another than this one.
_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
_STOP_SIGNALS = (1, 2, 15)
# Failures of the API that pass with time; `unknown` is what the agent calls a connection that broke.
_PASSING_KINDS = ("rate_limit", "overloaded", "server_error", "connection_failed", "unknown")


class _Launch(Details, total=False):
    argv: Sequence[str]


class _Turn(Details, total=False):
    result: object
    messages: Sequence[object]


class LaunchError(OutriderError):
    """The agent could not be started. `argv` is the command line, empty if it was not made yet."""

    hint = "Check that `cli_path` names a program that this user may run."
    _what = "the agent could not be started"

    def __init__(self, message: str = "", *, argv: Sequence[str] = (), **details: Unpack[Context]) -> None:
        super().__init__(message, **details)
        self.argv: tuple[str, ...] = tuple(mask_argv(argv))
        self._evidence = (f"Command: {preview(' '.join(self.argv))}",) if argv else ()


class AgentNotFound(LaunchError):
    """Claude Code was not found at any of the paths in `searched`."""

    hint = f"Install it with `{INSTALL}`, add its folder to PATH, or give its path as `cli_path`."
    _what = "Claude Code was not found"

    def __init__(self, searched: Sequence[str] = (), **details: Unpack[_Launch]) -> None:
        super().__init__(**details)
        self.searched: tuple[str, ...] = tuple(searched)
        if searched:
            places = ("Searched:", *(f"  {path}" for path in searched))
            self._evidence = (_WITHOUT_AGENT, *places, *self._evidence)


class AgentTooOld(LaunchError):
    """Claude Code is of a `version` below the `minimum`: that which Outrider can drive, or that which
    has the `options` that are set."""

    hint = f"Update it with `claude update` or `{INSTALL}@latest`."

    def __init__(
        self, version: str, minimum: str, options: Sequence[str] = (), **details: Unpack[_Launch]
    ) -> None:
        super().__init__(**details)
        self.version, self.minimum = version, minimum
        self.options: tuple[str, ...] = tuple(options)
        needs = f"{', '.join(f'`{name}`' for name in options)} needs" if options else "Outrider needs"
        self._what = f"the agent's version is {version or 'unknown'}, and {needs} {minimum} or later"
        if options:
            self.hint = f"{type(self).hint[:-1]}, or leave the option out."


class FolderNotFound(LaunchError):
    """The working folder `path` is not there."""

    hint = "Create it, or give another as `cwd`."

    def __init__(self, path: StrPath, **details: Unpack[_Launch]) -> None:
        super().__init__(**details)
        self.path = str(path)
        self._what = f"the working folder {self.path!r} does not exist"


class UserNotFound(LaunchError):
    """The user that the agent should run as, `name`, is not known here or cannot be switched to."""

    hint = "Give an existing name or a user id as `user`, or leave it out to run as yourself."

    def __init__(self, name: str | int, **details: Unpack[_Launch]) -> None:
        super().__init__(**details)
        self.name = name
        self._what = f"the agent cannot run as user {name!r}"


class CommandTooLong(LaunchError):
    """With `option`, the command line has a `size` over the system's `limit`. Nothing was started."""

    hint = "Pass it by file or in the initialize request instead, or make it shorter."

    def __init__(self, option: str, size: int, limit: int, **details: Unpack[_Launch]) -> None:
        super().__init__(**details)
        self.option, self.size, self.limit = option, size, limit
        self._what = f"`{option}` makes the command line {size} long, and the limit is {limit}"


class McpServerFailed(OutriderError):
    """The agent could not use the MCP server `name`, which is required, for the `reason` given.

    `status` is the agent's word for its state: `failed`, `needs-auth`, `disabled`, or `pending` if it was not
    reached in time, in which case it is `retryable`; None if the agent does not know the server.
    """

    hint = "Check its command or its address, or leave out `required` to start without it."

    def __init__(
        self, name: str, reason: str = "", status: str | None = "failed", **details: Unpack[Details]
    ) -> None:
        super().__init__(**details)
        self.name, self.reason, self.status = name, reason, status
        self.retryable = status == "pending"
        self.hint = mask(details.get("hint") or self._advice())
        state = f" ({status})" if status else ""
        self._what = _joined(f"the MCP server {preview(name)!r} cannot be used{state}", reason)

    def _advice(self) -> str:
        if self.status == "pending":
            return "Give it more time with `timeouts.connect`, or leave out `required` to start without it."
        if self.status == "needs-auth":
            return "Log in to it once, with `claude mcp` or a `McpAuthenticate` request, or give it a header."
        if self.status == "disabled":
            return "Enable it in the settings, or leave out `required` to start without it."
        return type(self).hint


class ConnectionLost(OutriderError):
    """The connection to the agent is lost. A new session may well work, so this is `retryable`."""

    hint = "Start a new session, or resume this one by its id."
    retryable = True
    _what = "the connection to the agent was lost"


class ProcessExited(ConnectionLost):
    """The agent's process ended before its work was done.

    `returncode` is negative for a signal, None if unknown; `signal` is the number of the one that ended it;
    `stderr_tail` has the last lines on stderr. It is `retryable` if a signal ended it, but for SIGHUP, SIGINT
    and SIGTERM, by which someone asks a process to stop; to exit with a code was the agent's own decision.
    """

    def __init__(
        self,
        returncode: int | None = None,
        signal: int | None = None,
        stderr_tail: str = "",
        **details: Unpack[Details],
    ) -> None:
        super().__init__(**details)
        self.returncode, self.stderr_tail = returncode, mask(stderr_tail)
        self.signal = -returncode if signal is None and returncode is not None and returncode < 0 else signal
        self.retryable = self.signal is not None and self.signal not in _STOP_SIGNALS
        self.hint = self.hint if details.get("hint") else self._advice()
        code = "an unknown code" if returncode is None else f"code {returncode}"
        name = _SIGNALS.get(self.signal or 0, f"signal {self.signal}")
        self._what = f"the agent was ended by {name}" if self.signal else f"the agent exited with {code}"
        if lines := self.stderr_tail.splitlines():
            shown = [f"  {preview(line)}" for line in lines[-_SHOWN_LINES:]]
            self._evidence = (f"Last {len(shown)} of {len(lines)} lines on stderr:", *shown)

    def _advice(self) -> str:
        if self.signal == 9:
            return "Most often the system ran out of memory: check the memory limit and the kernel log."
        if self.signal in _STOP_SIGNALS:
            return "Something asked it to stop: a supervisor, a deployment or Ctrl-C."
        if self.signal:
            return "It crashed: try again, and update it with `claude update` if it keeps happening."
        if self.stderr_tail.strip():
            return "Put right what it says on stderr, then start a new session."
        return "It wrote nothing to stderr; run `claude doctor` to check the installation."


class TransportClosed(ConnectionLost):
    """The transport is not open; `why` says whether not yet, not any more, or not in this direction."""

    hint = "Open a new session."
    retryable = False

    def __init__(self, why: str, **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.why = why
        # As it is: each session makes some of these, and secrets are hidden when one is shown.
        self._what = f"the transport is not open: {why}" if why else "the transport is not open"


class ProtocolError(OutriderError):
    """What went over the wire makes no sense."""

    hint = "Update the agent with `claude update`, and Outrider with pip: they may be too far apart."
    _what = "the protocol was not kept to"


class MalformedFrame(ProtocolError):
    """A `line` on the agent's stdout is not a JSON object, for the `reason` given."""

    hint = "Something else may write to the agent's stdout: a shell profile, a wrapper script, a debug print."

    def __init__(self, line: bytes, reason: str = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.line, self.reason = line, reason
        self._what = _joined(f"the line {preview(line)!r} is not a JSON object", reason)


class FrameTooLarge(ProtocolError):
    """A frame of `size` bytes is over the `limit`."""

    hint = "Raise `max_buffer_size`, or leave it unset to get an `OversizedMessage` in its place."

    def __init__(self, size: int, limit: int, **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.size, self.limit = size, limit
        self._what = f"a frame of {size} bytes is over the limit of {limit}"


class MessageInvalid(ProtocolError):
    """The message `data` does not have the form that it should have, for the `reason` given."""

    hint = "`data` has all of it: correct it if your code made it, update Outrider if the agent did."

    def __init__(self, data: object, reason: str = "", **details: Unpack[Details]) -> None:
        super().__init__(**details)
        self.data, self.reason = data, reason
        self._what = _joined(f"the message {preview_value(data)} is not valid", reason)


class RequestFailed(OutriderError):
    """The agent refused a control `request` (the request, or its subtype), perhaps with a `code`."""

    hint = "Correct the request and send it again."
    _says = "the agent refused {}"

    def __init__(
        self, request: object, message: str = "", code: int | str | None = None, **details: Unpack[Context]
    ) -> None:
        super().__init__(message, **details)
        self.request, self.code = request, code
        subtype = request if isinstance(request, str) else getattr(request, "subtype", None)
        name = f"`{preview(str(subtype or type(request).__name__))}`"
        self._what = self._says.format(name if code is None else f"{name} with code {code}")


class Unsupported(RequestFailed):
    """The agent does not know the request."""

    hint = "Update the agent with `claude update`, or look at its capabilities before you ask."
    _says = "the agent does not support {}"


class RequestTimedOut(RequestFailed, TimeoutError):
    """No answer came within `timeout` seconds. The agent may just be slow, so this is `retryable`."""

    hint = "Allow it more time, or close the session if the agent has stopped answering."
    retryable = True
    _says = "the agent did not answer {}"

    def __init__(self, request: object, timeout: float | None = None, **details: Unpack[Details]) -> None:
        super().__init__(request, **details)
        self.timeout = timeout
        self._what += in_seconds(" within", timeout) or " in time"


class TurnFailed(OutriderError):
    """A turn ended without what was asked for: with `result`, None if none came, and after `messages`."""

    hint = "`result` and `messages` show how far it came."

    def __init__(
        self, result: object = None, messages: Sequence[object] = (), **details: Unpack[Details]
    ) -> None:
        super().__init__(**details)
        self.result = result
        self.messages: tuple[object, ...] = tuple(messages)
        self.session_id = self.session_id or getattr(result, "session_id", None)
        self._what = self._what or _joined("the turn failed", reason_of(result))
        self._evidence = (f"Messages received: {len(self.messages)}",) if messages else ()


class TurnTimedOut(TurnFailed, TimeoutError):
    """The deadline `which` of `timeout` seconds passed. A turn rarely hangs twice, so this is `retryable`."""

    hint = "Raise it in `Timeouts`, or resume the session to go on from there."
    retryable = True

    def __init__(self, which: str, timeout: float | None = None, **details: Unpack[_Turn]) -> None:
        super().__init__(**details)
        self.which, self.timeout = which, timeout
        self._what = f"the turn ran into its `{which}` deadline{in_seconds(' of', timeout)}"


class TurnInterrupted(TurnFailed):
    """The turn was stopped on request."""

    hint = "`messages` has what came until then; send a new prompt to go on."
    _what = "the turn was interrupted"


class LimitReached(TurnFailed):
    """The turn reached the `limit` that `kind` names: an option such as `max_turns`."""

    def __init__(self, kind: str, limit: float | None = None, **details: Unpack[_Turn]) -> None:
        super().__init__(**details)
        self.kind, self.limit = kind, limit
        # A budget counts for the whole session, a number of turns for one prompt.
        go_on = "resume in a new session" if "budget" in kind else "send another prompt to go on"
        self.hint = mask(details.get("hint") or f"Raise `{kind}`, or {go_on}.")
        self._what = f"the turn reached `{kind}`" + ("" if limit is None else f" of {limit:g}")


class ApiFailed(TurnFailed):
    """The agent's call to the model's API failed, after the agent's own retries.

    `status` is the HTTP status, None if there was no answer; `kind`, the agent's word: `rate_limit`, …;
    `retryable`, as given or else judged by these two; `retry_after`, the seconds to wait first, `resets_at`,
    when the limit is lifted, in Unix seconds, and `request_id`, what the API calls the request, if known.
    """

    def __init__(
        self,
        status: int | None = None,
        kind: str | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        resets_at: float | None = None,
        request_id: str | None = None,
        **details: Unpack[_Turn],
    ) -> None:
        super().__init__(**details)
        self.status, self.kind, self.retry_after = status, kind, retry_after
        self.resets_at, self.request_id = resets_at, request_id
        passing = kind in _PASSING_KINDS if status is None else status in (408, 429) or status >= 500
        self.retryable = passing if retryable is None else retryable
        self.hint = self.hint if details.get("hint") else self._advice()
        code = (f" with status {status}" if status else "") + (f" for {request_id}" if request_id else "")
        self._what = _joined(
            f"the API call failed{code}{f' ({kind})' if kind else ''}", reason_of(self.result)
        )

    def _advice(self) -> str:
        if self.retryable:
            return f"Try again{in_seconds(' in', self.retry_after) or ' later'}."
        if self.status in (401, 403) or self.kind == "authentication_failed":
            return "Check the API key that the agent is given, or log in with `claude auth login`."
        return "The same request would fail again: change the model, the prompt or its size."


class OutputInvalid(TurnFailed):
    """The structured output does not fit the type that was asked for; `errors` has a text for each place."""

    hint = "Describe the form in the prompt, or ask for a wider type; `result` has the output as it came."
    _what = "the output does not have the form that was asked for"

    def __init__(self, errors: Sequence[str] = (), **details: Unpack[_Turn]) -> None:
        super().__init__(**details)
        self.errors: tuple[str, ...] = tuple(errors)
        shown = [preview(error) for error in self.errors[:_SHOWN_LINES]]
        more = [f"… and {len(errors) - len(shown)} more in `errors`"] if len(errors) > len(shown) else []
        self._evidence = (*shown, *more, *self._evidence)


class UsageError(OutriderError, RuntimeError):
    """The caller broke a rule of the API; the text shows the right call."""


class OptionsError(OutriderError, ValueError):
    """An option has a value that cannot work; nothing was started."""


class ToolFailed(OutriderError):
    """Raise it in a tool: the agent gets `text` as the tool's error, and the turn continues."""

    def __init__(self, text: str) -> None:
        super().__init__(text or "The tool failed")
        self.text = text


class Denied(OutriderError):
    """Raise it to forbid what the agent is about to do: it gets `reason`; `interrupt` ends the turn too."""

    def __init__(self, reason: str, interrupt: bool = False) -> None:
        super().__init__(reason or "Not allowed", hint="The turn ends here." if interrupt else "")
        self.reason, self.interrupt = reason, interrupt


def _joined(clause: str, reason: str) -> str:
    return f"{clause}: {preview(reason)}" if reason else clause


# Tracebacks show where users find a class, not where it is written.
for _moved in (
    OutriderError,
    *OutriderError.__subclasses__(),
    *TranscriptError.__subclasses__(),
    StoreTimedOut,
):
    _moved.__module__ = __name__
