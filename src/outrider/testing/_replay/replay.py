"""`Player`, a recorded run that is played: what is compared with what, and how a difference is shown."""

from __future__ import annotations

import difflib
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import dropwhile, takewhile
from json import dumps
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outrider.errors import (
    ConnectionLost,
    OptionsError,
    OutriderError,
    ProcessExited,
    ProtocolError,
    TransportClosed,
    UsageError,
)
from outrider.redaction import MASK, mask_json, preview
from outrider.transports import Transport
from outrider.wire import Json, JsonObject, encode

if TYPE_CHECKING:
    from outrider.transports import TraceRecord, TraceRun


Ignored: TypeAlias = tuple[tuple[str, ...], ...]
"""Places in frames that are not compared: the keys that lead there, `*` for any."""

Key: TypeAlias = tuple[str, ...]

_SHOWN_LINES: Final = 60
_SHOWN_LENGTH: Final = 400
_CONTEXT: Final = 3
_LONG_ID: Final = 16
"""A text as long as this is not what someone says by chance."""

# What each side makes up in every run.
_VOLATILE: Final[Mapping[str, Ignored]] = {
    "user": (("uuid",),),
    "control_request": (("request_id",),),
    "control_cancel_request": (),
    "control_response": (),
}


class ReplayMismatch(ProtocolError, AssertionError):
    """This run differs from what was recorded.

    `expected` is the recorded frame, `actual` the one of this run; None where there is none.
    """

    hint = "Record it again if the change is intended; `ignore` leaves out what differs each time."
    _what = ""

    def __init__(self, message: str, *, expected: Json = None, actual: Json = None, source: str = "") -> None:
        super().__init__(message)
        self.expected, self.actual = expected, actual
        self._evidence = (*_difference(expected, actual), *([f"Recorded in: {source}"] if source else []))


def read_ignored(paths: Iterable[str]) -> Ignored:
    """Places as users write them: `message.content`, `request.hooks.*`. Raises `OptionsError`."""
    if isinstance(paths, str):
        raise OptionsError("`ignore` is a text", hint=f"Did you mean [{paths!r}]?")
    read: list[tuple[str, ...]] = []
    for path in cast("Iterable[object]", paths):
        if not isinstance(path, str) or not all(path.split(".")):
            hint = 'Give the keys that lead there, with dots between them: "message.content".'
            raise OptionsError(f"`ignore` has {path!r}, which is not a place in a frame", hint=hint)
        read.append(tuple(path.split(".")))
    return tuple(read)


def key_of(frame: JsonObject | None) -> Key:
    """What kind of line it is. Two lines of another kind are never the same."""
    if frame is None:
        return ("no frame",)
    kind = str(frame.get("type"))
    if kind == "control_request":
        return kind, str(_fields(frame.get("request")).get("subtype"))
    if kind == "control_response":
        return kind, str(_fields(frame.get("response")).get("request_id"))
    return (kind,)


class _Leeway(NamedTuple):
    ignored: Ignored
    is_masked: bool
    """Whether a `***` stands for a secret; else it was said."""


def is_same(expected: JsonObject, actual: JsonObject, ignored: Ignored, *, is_masked: bool) -> bool:
    """Whether a frame is the recorded one, but for what is made up in each run, what is ignored, and secrets
    if some were hidden in it."""
    return aligned(expected, actual, ignored, is_masked=is_masked) is expected


def aligned(expected: Json, actual: Json, ignored: Ignored, *, is_masked: bool) -> Json:
    """What was said, with what is not compared as it was recorded, so that the rest can be seen; what was
    recorded itself if nothing else differs."""
    kind = str(expected.get("type")) if isinstance(expected, dict) else ""
    leeway = _Leeway((*ignored, *_VOLATILE.get(kind, ())), is_masked)
    return cast("Json", _aligned(expected, actual, (), leeway))


def _aligned(expected: object, actual: object, path: tuple[str, ...], leeway: _Leeway) -> object:
    if path and any(_leads_to(place, path) for place in leeway.ignored):
        return expected
    if isinstance(expected, dict) and isinstance(actual, dict):
        theirs, ours = cast("JsonObject", expected), cast("JsonObject", actual)
        found: dict[str, object] = {}
        for key in (*ours, *(key for key in theirs if key not in ours)):
            made = _aligned(theirs.get(key, _Missing), ours.get(key, _Missing), (*path, key), leeway)
            if made is not _Missing:
                found[key] = made
        is_whole = found.keys() == theirs.keys() and all(found[key] is theirs[key] for key in theirs)
        return theirs if is_whole else found
    if isinstance(expected, list) and isinstance(actual, list):
        items, others = cast("list[object]", expected), cast("list[object]", actual)
        pairs = enumerate(zip(items, others, strict=False))
        made_items = [_aligned(one, other, (*path, str(n)), leeway) for n, (one, other) in pairs]
        made_items += others[len(items) :]
        is_whole = len(items) == len(others) and all(map(operator.is_, made_items, items))
        return items if is_whole else made_items
    # Neither is a container here, or only one is, which pyright cannot tell.
    equal = _is_equal(expected, actual, leeway)  # pyright: ignore[reportUnknownArgumentType]
    return expected if equal else actual  # pyright: ignore[reportUnknownVariableType]


def _is_equal(expected: object, actual: object, leeway: _Leeway) -> bool:
    if isinstance(expected, str) and leeway.is_masked and MASK in expected:
        return actual is not _Missing and _fits_mask(expected, actual)
    # Not `1 == True`; but numbers are the same however they are written.
    return isinstance(expected, bool) == isinstance(actual, bool) and expected == actual


class _Missing:
    """Marks a missing key."""


def _fits_mask(expected: str, actual: object) -> bool:
    """Whether a text may be the one in which secrets were hidden."""
    if not isinstance(actual, str):
        return expected == MASK
    first, *middle, last = expected.split(MASK)
    rest = actual.removeprefix(first)
    if not actual.startswith(first) or not rest.endswith(last):
        return False
    rest = rest[: len(rest) - len(last)]
    for piece in middle:
        _, found, rest = rest.partition(piece) if piece else ("", "", rest)
        if found != piece:
            return False
    return True


def _leads_to(place: Sequence[str], path: Sequence[str]) -> bool:
    return len(place) == len(path) and all(
        word in ("*", step) for word, step in zip(place, path, strict=True)
    )


def with_ids(value: Json, ids: Mapping[str, str]) -> Json:
    """A copy with each id replaced by the one that stands for it."""
    return cast("Json", _with_ids(value, ids, ""))


def _with_ids(value: object, ids: Mapping[str, str], key: str) -> object:
    if isinstance(value, str):
        # Short ones are words of a script, which mean an id only where one is expected.
        is_id = len(value) >= _LONG_ID or key.lower().endswith(("uuid", "request_id"))
        return ids.get(value, value) if is_id else value
    if isinstance(value, dict):
        fields = cast("JsonObject", value)
        return {name: _with_ids(item, ids, name) for name, item in fields.items()}
    if isinstance(value, list):
        return [_with_ids(item, ids, key) for item in cast("list[object]", value)]
    return value


def _difference(expected: Json, actual: Json) -> list[str]:
    """The lines in which two frames differ, secrets hidden, elided."""
    if expected is None or actual is None:
        shown = _lines(expected if actual is None else actual)
        sign = "-" if actual is None else "+"
        lines = [f"{sign} {line}" for line in shown]
    else:
        found = difflib.unified_diff(_lines(expected), _lines(actual), lineterm="", n=_CONTEXT)
        lines = ["…" if line.startswith("@@") else f"{line[:1]} {line[1:]}" for line in list(found)[2:]]
        lines = lines[1:]
    if len(lines) > _SHOWN_LINES:
        lines[_SHOWN_LINES:] = [f"… and {len(lines) - _SHOWN_LINES} lines more"]
    return ["- recorded, + said now:", *lines] if lines else []


def _lines(frame: Json) -> list[str]:
    text = (
        frame
        if isinstance(frame, str)
        else dumps(mask_json(frame), indent=1, ensure_ascii=False, sort_keys=True)
    )
    return [preview(line, _SHOWN_LENGTH) for line in text.splitlines()]


def _fields(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


_HOST, _AGENT = "host->cli", "cli->host"
_SHOWN: Final = 5


class Step:
    """A recorded line, in its place."""

    def __init__(self, record: TraceRecord) -> None:
        self.record = record
        self.is_hosts = record.direction == _HOST
        self.key = key_of(record.frame)
        self.is_met = False
        """A line of the host: it has been said in this run."""
        self.is_optional = False
        """A line of the host: it need not be said, and nothing waits for it."""
        self.is_held = False
        """A line of the agent: it was said only after the end of its input."""
        self.is_said = False
        """A line of the agent: it has been said in this run, or there is no one to say it to."""

    @property
    def answered(self) -> str | None:
        """The id of the request that it answers, if it is an answer."""
        return self.key[1] if self.key[0] == "control_response" else None

    @property
    def asked(self) -> str | None:
        """The id of the request that it is, if it is one."""
        is_it = self.key[0] == "control_request"
        return str((self.record.frame or {}).get("request_id")) if is_it else None

    @property
    def withdrawn(self) -> str | None:
        """The id of the request that the agent takes back with it."""
        is_it = not self.is_hosts and self.key[0] == "control_cancel_request"
        return str((self.record.frame or {}).get("request_id")) if is_it else None


class Player(Transport):
    """Plays the agent of a recorded run: what it said is said again, at the point where it was said. With
    `strict`, each line of this side must be the recorded one, but for ids and what is ignored. Without, its
    kind is enough, requests may be left out, and one that was not recorded is refused."""

    def __init__(
        self,
        run: TraceRun,
        *,
        strict: bool = True,
        ignore: Ignored = (),
        patience: float | None = None,
        source: str = "",
    ) -> None:
        self.run = run
        self.is_strict = strict
        self._patience = patience
        self._ignored = ignore
        self._source = f"{source}, run {run.number}" if source else f"run {run.number}"
        self._steps = _steps(run, is_strict=strict)
        self._withdrawn = frozenset(step.withdrawn for step in self._steps)
        self._ends_by_itself = _ends_by_itself(self._steps, run)
        self._position = 0
        self._requests: dict[str, Json] = {}
        """By the recorded id of a request of this side: that of this run."""
        self._recorded_requests: dict[str, str] = {}
        """The other way round."""
        self._uuids: dict[str, str] = {}
        """By the recorded uuid of a prompt: that of this run."""
        self._recorded_uuids: dict[str, str] = {}
        self._aside: dict[str, Step] = {}
        """Answers to requests that have not been made in this run, by their recorded ids."""
        self._output: deque[bytes] = deque()
        self._moved: anyio.Event | None = None
        self._stderr: list[str] = [record.text for record in run.records if record.direction == "stderr"]
        self._stderr_listeners: list[Callable[[str], object]] = []
        self._rest = b""
        self._mismatch: ReplayMismatch | None = None
        self._is_connected = self._is_closed = self._is_input_ended = False

    def another(self, run: TraceRun, *, source: str) -> Player:
        """A player of another run, with the same rules."""
        return Player(
            run, strict=self.is_strict, ignore=self._ignored, patience=self._patience, source=source
        )

    # The transport.

    @property
    def agent_version(self) -> str | None:
        """The version of Claude Code that was recorded: what is sent to it depends on it."""
        for record in self.run.records:
            frame = record.frame if record.direction == "cli->host" else None
            answer = _fields(_fields(_fields(frame).get("response")).get("response"))
            said = _fields(frame).get("claude_code_version") or answer.get("claude_code_version")
            if isinstance(said, str):
                return said
        return None

    async def connect(self) -> None:
        """Begin. Raises `TransportClosed` after `close`, `UsageError` for a recording that is not whole."""
        await checkpoint()
        if self._is_closed:
            raise TransportClosed("it has been closed", hint="Replay the file anew.")
        for step in self._steps:
            if step.record.is_cut:
                raise UsageError(
                    f"A line of {step.record.size} bytes is not whole in the recording ({self._source})",
                    hint="Record it with a larger `max_line`.",
                )
        if not self._is_connected:
            self._is_connected = True
            for line in self._stderr:
                for tell in self._stderr_listeners:
                    tell(line)
            self._advance()

    async def receive(self) -> bytes:
        """The next line. Raises `ReplayMismatch` if this side has said what was not recorded."""
        await checkpoint()
        while True:
            if self._mismatch is not None:
                raise copy(self._mismatch)
            if self._output:
                return self._output.popleft()
            if self._is_closed or not self._is_connected:
                raise TransportClosed("it has been closed" if self._is_closed else "it is not connected yet")
            if self._is_over:
                if (error := self.exit_error) is not None:
                    raise error
                return b""
            if self._moved is None:
                self._moved = anyio.Event()
            owed = self._owed
            with anyio.move_on_after(None if owed is None else self._patience) as waiting:
                await self._moved.wait()
            if waiting.cancelled_caught and owed is not None and owed is self._owed:
                problem = (
                    f"Both sides have waited for {self._patience:g} s, and no {_named(owed.key)} was said"
                )
                self._fail(problem, _shown(owed), None)

    async def send(self, data: bytes) -> None:
        """Say something. Raises `ReplayMismatch` if it is not what was recorded."""
        await checkpoint()
        if self._is_closed or not self._is_connected:
            raise TransportClosed("it has been closed" if self._is_closed else "it is not connected yet")
        if self._is_input_ended:
            raise TransportClosed("its input has been ended")
        if self._is_over:
            raise self.exit_error or ProcessExited(self.returncode, stderr_tail=self.stderr_tail)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)

    async def end_input(self) -> None:
        await checkpoint()
        self._end_input()

    async def close(self) -> None:
        """End it: what the agent said after the end of its input is said now."""
        if self._is_connected and not self._is_closed:
            self._end_input()
        self._is_closed = True
        self._wake()
        await checkpoint()

    def on_stderr(self, tell: Callable[[str], object]) -> None:
        """Have each recorded line on stderr given to this function."""
        self._stderr_listeners.append(tell)

    @property
    def is_ready(self) -> bool:
        return self._is_connected and not (self._is_closed or self._is_input_ended or self._is_over)

    @property
    def returncode(self) -> int | None:
        """What the recorded program ended with; None while this one continues."""
        return self.run.returncode if self._is_over or self._is_closed else None

    @property
    def stderr_tail(self) -> str:
        """What was recorded of stderr."""
        return "\n".join(self._stderr[-100:])

    @property
    def exit_error(self) -> OutriderError | None:
        if not (self._ends_by_itself and self._is_over):
            return None
        if self.run.returncode:
            return ProcessExited(self.run.returncode, stderr_tail=self.stderr_tail)
        end = self.run.first("exit")
        if end is None:
            return ConnectionLost("the recording ends here")
        error = end.facts.get("error")
        return None if error is None else ConnectionLost(f"the recorded run was cut off: {error}")

    # What is said.

    def _take(self, line: bytes) -> None:
        frame = _frame(line)
        actual: Json = line.decode("utf-8", "backslashreplace")
        if frame is not None:
            # As it would have been said in the recording, so that it can be compared.
            actual = frame = self._as_recorded(frame)
        key = key_of(frame)
        candidates = [step for step in self._expected() if step.key == key]
        same = next((step for step in candidates if self._is_same(step, frame, line)), None)
        step = same or next(iter(candidates), None)
        if step is None:
            self._take_unexpected(key, actual)
        elif same is None and self.is_strict:
            expected = _shown(step)
            actual = aligned(expected, actual, self._ignored, is_masked=step.record.is_masked)
            self._fail(f"This {_named(key)} is not the recorded one", expected, actual)
        else:
            step.is_met = True
            self._learn(step.record.frame or {}, frame or {})
        self._advance()

    def _is_same(self, step: Step, frame: JsonObject | None, line: bytes) -> bool:
        if frame is None or step.record.frame is None:
            return step.record.data == line
        return is_same(step.record.frame, frame, self._ignored, is_masked=step.record.is_masked)

    def _expected(self) -> Iterator[Step]:
        """The lines of the host that may come now, in the recorded order. Answers come when they are ready,
        so that what was said after one may come before it. Any other line has to be said before all that the
        agent said after it, and that before what follows."""
        is_owed = is_blocked = False
        for step in self._steps:
            if not step.is_hosts:
                is_blocked = is_owed and self.is_strict
            elif not step.is_met:
                if step.answered is not None:
                    yield step
                elif not is_blocked:
                    yield step
                    is_owed = is_owed or not step.is_optional

    def _take_unexpected(self, key: tuple[str, ...], actual: Json) -> None:
        kind, *names = key
        if kind == "control_response":
            # The agent took its request back, or did not wait: who is first is chance.
            if self.is_strict and names[0] not in self._withdrawn:
                self._fail("This answer was not recorded", None, actual)
        elif kind == "control_request" and not self.is_strict:
            self._refuse(cast("JsonObject", actual))
        elif self.is_strict or kind == "user":
            expected = next((step for step in self._steps if step.is_hosts and not step.is_met), None)
            place = "nothing more was said then" if expected is None else "something else was said then"
            self._fail(f"This {_named(key)} was not recorded here: {place}", _shown(expected), actual)

    def _refuse(self, request: JsonObject) -> None:
        outcome = {
            "subtype": "error",
            "request_id": request.get("request_id"),
            "error": "This request is not in the recording",
        }
        self._output.append(encode({"type": "control_response", "response": outcome}) + b"\n")

    def _fail(self, message: str, expected: Json, actual: Json) -> None:
        self._mismatch = ReplayMismatch(message, expected=expected, actual=actual, source=self._source)
        self._wake()
        raise copy(self._mismatch)

    def _learn(self, recorded: JsonObject, said: JsonObject) -> None:
        """Keep which id of this run stands for which recorded one."""
        kind = recorded.get("type")
        if kind == "user":
            theirs, ours = recorded.get("uuid"), said.get("uuid")
            if isinstance(theirs, str) and isinstance(ours, str):
                self._uuids[theirs], self._recorded_uuids[ours] = ours, theirs
        elif kind == "control_request":
            theirs, ours = str(recorded.get("request_id")), said.get("request_id")
            self._requests[theirs], self._recorded_requests[str(ours)] = ours, theirs
            if (waiting := self._aside.pop(theirs, None)) is not None:
                self._say(waiting)

    def _as_recorded(self, frame: JsonObject) -> JsonObject:
        """A frame of this run as it would have been said in the recorded one."""
        frame = cast("JsonObject", with_ids(frame, self._recorded_uuids))
        if frame.get("type") == "control_cancel_request":
            id = str(frame.get("request_id"))
            frame["request_id"] = self._recorded_requests.get(id, id)
        return frame

    def _as_now(self, frame: JsonObject) -> JsonObject:
        """A recorded frame as it is to be said in this run."""
        frame = cast("JsonObject", with_ids(frame, self._uuids))
        if frame.get("type") == "control_response":
            outcome = cast("JsonObject", frame["response"])
            outcome["request_id"] = self._requests[str(outcome.get("request_id"))]
        return frame

    # Going on.

    @property
    def _owed(self) -> Step | None:
        """What this side has to send before the agent continues, unless it is an answer, if this side waits,
        too: it has asked for something and not got it, and is not busy with a request."""
        if self._is_at_rest or (step := self._steps[self._position]).answered is not None:
            return None
        said = [other for other in self._steps if (other.is_met if other.is_hosts else other.is_said)]
        turns = [other.key[0] for other in said if other.key in (("user",), ("result",))]
        unanswered = {other.answered for other in self._steps} - {other.answered for other in said}
        asking = [other.is_hosts for other in said if other.asked is not None and other.asked in unanswered]
        is_waiting = turns[-1:] == ["user"] or any(asking)
        return step if is_waiting and all(asking) else None

    @property
    def _is_over(self) -> bool:
        """Whether the agent has ended."""
        is_through = self._position == len(self._steps)
        return self._is_connected and is_through and (self._ends_by_itself or self._is_input_ended)

    def _advance(self) -> None:
        """Play everything that is due."""
        for step in self._steps[self._position :]:
            if step.is_hosts:
                if not (step.is_met or step.is_optional):
                    self._answer_beyond()
                    break
            elif not step.is_said:
                if step.is_held and not self._is_input_ended:
                    break
                self._say(step)
            self._position += 1
        self._wake()

    def _answer_beyond(self) -> None:
        """Answer what has been asked, where only lines of this side are between: it may wait for the answer
        before it says more."""
        beyond = dropwhile(lambda step: step.is_hosts, self._steps[self._position :])
        for step in takewhile(lambda step: step.answered in self._requests, beyond):
            if not step.is_said:
                self._say(step)

    def _say(self, step: Step) -> None:
        record = step.record
        step.is_said = True
        if step.answered is not None and step.answered not in self._requests:
            self._aside[step.answered] = step
            return
        line = record.data
        if record.frame is not None and (
            step.answered is not None or any(uuid.encode() in line for uuid in self._uuids)
        ):
            line = encode(self._as_now(record.frame))
        self._output.append(line if record.is_open else line + b"\n")

    def _end_input(self) -> None:
        self._is_input_ended = True
        self._advance()

    @property
    def _is_at_rest(self) -> bool:
        """Whether nothing more is said before the end of the input."""
        return self._position == len(self._steps) or self._steps[self._position].is_held

    def _wake(self) -> None:
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    # Afterwards.

    def check(self) -> None:
        """Raises `ReplayMismatch` if this side said something else, or with `strict` not all, of what was
        recorded."""
        if self._mismatch is not None:
            raise copy(self._mismatch)
        missing = [step for step in self._steps if step.is_hosts and not (step.is_met or step.is_optional)]
        if self.is_strict and missing:
            named = [_named(step.key) for step in missing[:_SHOWN]]
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            raise ReplayMismatch(
                f"What was recorded has not been said: {', '.join(named)}{more}",
                expected=_shown(missing[0]),
                source=self._source,
            )


def _steps(run: TraceRun, *, is_strict: bool) -> list[Step]:
    """The lines of a run, with what is known of each."""
    steps: list[Step] = []
    ended_at: int | None = None
    is_closed = False
    for record in run.records:
        if record.is_line:
            steps.append(Step(record))
        elif record.event in ("stdin_eof", "close"):
            ended_at = len(steps) if ended_at is None else ended_at
            is_closed = is_closed or record.event == "close"
        elif record.event == "send_failed":
            for step in [step for step in steps if step.is_hosts][-1:]:
                step.is_optional = True
    # Whoever only ended the input went on to wait for results; a session waits for them before.
    results = (number for number, step in enumerate(steps) if step.key == ("result",))
    last_awaited = -1 if is_closed else max(results, default=-1)
    has_begun = False
    withdrawn: set[str | None] = set()
    for number, step in enumerate(steps):
        withdrawn.add(step.withdrawn)
        step.is_held = ended_at is not None and number >= max(ended_at, last_awaited + 1)
        is_first = step.key == ("control_request", "initialize") and not has_begun
        has_begun = has_begun or is_first
        if not is_strict and not is_first and step.key[0] not in ("user", "control_response"):
            step.is_optional = True
        if step.answered is not None and step.answered in withdrawn:
            step.is_optional = True
    return steps


def _ends_by_itself(steps: list[Step], run: TraceRun) -> bool:
    """Whether the agent ended before it was asked to; or, asked to, while it owed an answer."""
    if run.first("exit") is None:
        return True
    events = [record.event for record in run.records]
    events = events[: events.index("exit")]
    if "close" in events or "stdin_eof" not in events:
        return "close" not in events
    asked = {step.asked for step in steps if step.is_hosts and step.asked is not None}
    if asked - {step.answered for step in steps if not step.is_hosts}:
        return True
    prompts = [number for number, step in enumerate(steps) if step.is_hosts and step.key == ("user",)]
    return bool(prompts) and all(step.key != ("result",) for step in steps[prompts[-1] :])


def _frame(line: bytes) -> JsonObject | None:
    try:
        found: object = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", found) if isinstance(found, dict) else None


def _named(key: tuple[str, ...]) -> str:
    kind, *names = key
    words = {"control_request": "request", "control_response": "answer", "user": "prompt"}
    return " ".join((words.get(kind, kind), *(f"`{name}`" for name in names)))


def _shown(step: Step | None) -> Json:
    return None if step is None else step.record.frame or step.record.text
