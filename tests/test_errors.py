"""Every error keeps its facts, says them, says what to do next, and survives copying."""

from __future__ import annotations

import ast
import copy
import pickle
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from outrider import errors
from outrider.errors import (
    AgentNotFound,
    AgentTooOld,
    ApiFailed,
    CommandTooLong,
    ConnectionLost,
    Denied,
    FolderNotFound,
    FrameTooLarge,
    LaunchError,
    LeaseLost,
    LimitReached,
    MalformedFrame,
    McpServerFailed,
    MessageInvalid,
    OptionsError,
    OutputInvalid,
    OutriderError,
    ProcessExited,
    ProtocolError,
    RequestFailed,
    RequestTimedOut,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StoreError,
    StoreTimedOut,
    ToolFailed,
    TranscriptDamaged,
    TranscriptError,
    TransportClosed,
    TurnFailed,
    TurnInterrupted,
    TurnTimedOut,
    Unsupported,
    UsageError,
    UserNotFound,
)
from tests.cases import every_case

pytestmark = pytest.mark.requirement("A1")

SECRET = "sk-ant-api03-hunter2hunter2"
PASSWORD = "correct-horse"


@dataclass
class Result:
    """Stands for a result message: errors must not know the wire."""

    subtype: str = "success"
    session_id: str = "s-77"
    is_error: bool = True
    errors: list[str] | str | None = None
    result: str | None = None
    api_error_status: int | None = None


@dataclass
class Request:
    subtype: str = "set_model"


@dataclass
class Case:
    kind: type[OutriderError]
    facts: dict[str, object]
    """All of them, under the names of parameters and attributes."""
    shown: tuple[str, ...]
    """What the text says of them."""
    least: dict[str, object] = field(default_factory=dict[str, object])
    """The facts that cannot be left out."""

    def __str__(self) -> str:
        return self.kind.__name__


SESSION: dict[str, object] = {"session_id": "s-42"}
ARGV: dict[str, object] = {"argv": ("claude", "--verbose")}
TURN: dict[str, object] = {"result": Result(result="it broke"), "messages": ("one", "two"), **SESSION}

CASES = [
    Case(
        OutriderError,
        {"message": "so it is", "hint": "Do that.", **SESSION},
        ("so it is", "Do that.", "s-42"),
    ),
    Case(LaunchError, {**ARGV}, ("could not be started", "claude --verbose", "`cli_path`")),
    Case(
        AgentNotFound,
        {"searched": ("/opt/bin/claude", "/usr/bin/claude"), **ARGV},
        (
            "/opt/bin/claude",
            "/usr/bin/claude",
            "npm install -g @anthropic-ai/claude-code",
            "PATH",
            "`cli_path`",
        ),
    ),
    Case(
        AgentTooOld,
        {"version": "1.0.9", "minimum": "2.0.0", **ARGV},
        ("1.0.9", "2.0.0", "claude update", "npm install"),
        {"version": "", "minimum": "2.0.0"},
    ),
    Case(FolderNotFound, {"path": "/no/such", **ARGV}, ("'/no/such'", "`cwd`"), {"path": ""}),
    Case(UserNotFound, {"name": "nobody7", **ARGV}, ("'nobody7'", "`user`"), {"name": 70000}),
    Case(
        CommandTooLong,
        {"option": "--agents", "size": 200001, "limit": 131072, **ARGV},
        ("--agents", "200001", "131072", "file", "initialize"),
        {"option": "", "size": 1, "limit": 0},
    ),
    Case(
        McpServerFailed,
        {"name": "tickets", "reason": "ENOENT: no such file", "status": "failed", **SESSION},
        ("'tickets'", "ENOENT: no such file", "failed", "`required`", "s-42"),
        {"name": ""},
    ),
    Case(ConnectionLost, {**SESSION}, ("connection", "new session", "s-42")),
    Case(
        ProcessExited,
        {"returncode": 3, "signal": None, "stderr_tail": "first\nlast", **SESSION},
        ("exited with code 3", "first", "    last", "stderr", "s-42"),
    ),
    Case(
        TransportClosed,
        {"why": "the input has ended", **SESSION},
        ("the input has ended", "new session"),
        {"why": ""},
    ),
    Case(ProtocolError, {**SESSION}, ("protocol", "claude update")),
    Case(
        MalformedFrame,
        {"line": b"npm warn \xff", "reason": "no object", **SESSION},
        ("npm warn \ufffd", "no object", "stdout"),
        {"line": b""},
    ),
    Case(
        FrameTooLarge,
        {"size": 301, "limit": 299, **SESSION},
        ("301", "299", "`max_buffer_size`"),
        {"size": 1, "limit": 0},
    ),
    Case(
        MessageInvalid,
        {"data": {"type": "odd"}, "reason": "no `uuid`", **SESSION},
        ("{'type': 'odd'}", "no `uuid`", "`data`"),
        {"data": None},
    ),
    Case(
        RequestFailed,
        {"request": "set_model", "message": "no such model", "code": 404, **SESSION},
        ("no such model", "`set_model`", "404", "send it again"),
        {"request": "x"},
    ),
    Case(
        Unsupported,
        {"request": Request(), "message": "what?", "code": "unknown", **SESSION},
        ("what?", "does not support", "`set_model`", "unknown", "claude update"),
        {"request": object},
    ),
    Case(
        RequestTimedOut,
        {"request": "initialize", "timeout": 60.0, **SESSION},
        ("`initialize`", "within 60 s", "more time"),
        {"request": ""},
    ),
    Case(TurnFailed, {**TURN}, ("it broke", "received: 2", "`messages`", "s-42")),
    Case(
        TurnTimedOut,
        {"which": "silence", "timeout": 0.5, **TURN},
        ("`silence`", "0.5 s", "`Timeouts`", "resume"),
        {"which": ""},
    ),
    Case(TurnInterrupted, {**TURN}, ("interrupted", "received: 2", "new prompt")),
    Case(
        LimitReached, {"kind": "max_turns", "limit": 5, **TURN}, ("`max_turns`", "5", "Raise"), {"kind": ""}
    ),
    Case(
        ApiFailed,
        {
            "status": 529,
            "kind": "overloaded",
            "retryable": True,
            "retry_after": 2.5,
            "resets_at": 1794724059,
            "request_id": "req_7",
            **TURN,
        },
        ("529", "overloaded", "req_7", "it broke", "Try again in 2.5 s"),
    ),
    Case(
        OutputInvalid,
        {"errors": ("total: not a number",), **TURN},
        ("total: not a number", "form", "`result`"),
    ),
    Case(TranscriptError, {**SESSION}, ("transcript", "List the sessions", "s-42")),
    Case(
        SessionNotFound,
        {"id": "s-9", "searched": ("/home/a/.claude",)},
        ("'s-9'", "Searched:\n    /home/a/.claude", "List the sessions"),
        {"id": ""},
    ),
    Case(
        TranscriptDamaged,
        {"path": "/t/a.jsonl", "line_number": 12, **SESSION},
        ("'/t/a.jsonl'", "line 12", "Restore"),
        {"path": "a"},
    ),
    Case(
        SessionExists,
        {"id": "s-9", "where": "/t"},
        ("'s-9' already in '/t'", "Delete it first"),
        {"id": ""},
    ),
    Case(
        SessionBusy,
        {"id": "s-9", "holder": "host-a", "retry_after": 12.5},
        ("'s-9' is in use by host-a", "again in 12.5 s"),
        {"id": ""},
    ),
    Case(LeaseLost, {"id": "s-9", "holder": "host-b"}, ("'s-9'", "host-b has it"), {"id": ""}),
    Case(
        StoreError,
        {"store": "redis://h", "operation": "append", "reason": "refused", "retryable": True, **SESSION},
        ("redis://h", "`append`: refused", "be reached"),
        {"store": "", "operation": ""},
    ),
    Case(
        StoreTimedOut,
        {"store": "redis://h", "operation": "load", "timeout": 2.5},
        ("`load` within 2.5 s",),
        {"store": "", "operation": ""},
    ),
    Case(
        UsageError,
        {"message": "it is closed", "hint": "Use `async with`.", **SESSION},
        ("it is closed", "Use `async"),
    ),
    Case(
        OptionsError,
        {"message": "limit is -1", "hint": "Give 0 or more."},
        ("limit is -1", "Give 0 or more."),
    ),
    Case(ToolFailed, {"text": "no ticket 7"}, ("no ticket 7",), {"text": ""}),
    Case(Denied, {"reason": "not here", "interrupt": True}, ("not here", "turn ends"), {"reason": ""}),
]

each_case = every_case("case", CASES, ids=str)


def planted(value: object) -> object:
    """The same fact with secrets in it."""
    match value:
        case str():
            return f"{value} {SECRET} password={PASSWORD}"
        case bytes():
            return value + f" {SECRET} password={PASSWORD}".encode()
        case tuple():
            return tuple(planted(item) for item in cast(tuple[object, ...], value))
        case dict():
            return {**value, "api_key": PASSWORD, "note": SECRET}
        case Result():
            return Result(result=f"{SECRET} password={PASSWORD}", session_id=SECRET)
        case Request():
            return Request(subtype=SECRET)
        case _:
            return value


def facts_of(error: OutriderError) -> dict[str, object]:
    return {name: value for name, value in vars(error).items() if name != "__notes__"}


def assert_same(copied: OutriderError, error: OutriderError) -> None:
    assert type(copied) is type(error)
    assert copied is not error
    assert str(copied) == str(error)
    assert repr(copied) == repr(error)
    assert copied.args == error.args
    assert facts_of(copied) == facts_of(error)
    assert getattr(copied, "__notes__", None) == getattr(error, "__notes__", None)


def everyone() -> set[type[OutriderError]]:
    found = {OutriderError}
    queue = [OutriderError]
    while queue:
        children = [child for child in queue.pop().__subclasses__() if child.__module__ == errors.__name__]
        found.update(children)
        queue.extend(children)
    return found


def test_every_class_is_in_the_table_and_in_all() -> None:
    assert {case.kind for case in CASES} == everyone()
    assert sorted(errors.__all__) == sorted(kind.__name__ for kind in everyone())
    assert len(set(errors.__all__)) == len(errors.__all__)


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    assert errors.__doc__ is not None
    drawn: dict[str, set[str]] = {"OutriderError": {"Exception"}}
    for line in re.findall(r"[├└]─ (.+)", errors.__doc__):
        parent, colon, children = line.rpartition(": ")
        if colon:
            drawn.setdefault(parent, {"OutriderError"})
        for name, also in re.findall(r"(\w+)(?: \(also (\w+)\))?(?:, |$)", children):
            drawn[name] = {parent or "OutriderError", also} - {""}
    assert drawn == {kind.__name__: {base.__name__ for base in kind.__bases__} for kind in everyone()}


def test_only_what_makes_texts_safe_and_typing_are_imported() -> None:
    nodes = ast.parse(Path(errors.__file__).read_text(encoding="utf-8")).body
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported == {"__future__", "typing", "outrider._display", "outrider.redaction"}
    assert not any(isinstance(node, ast.Import) for node in nodes)


@each_case
def test_facts_are_attributes_and_in_the_text(case: Case) -> None:
    error = case.kind(**case.facts)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for name, value in case.facts.items():
        assert getattr(error, name) == value
    for words in case.shown:
        assert words in str(error)
    if case.kind not in (ToolFailed, Denied):
        assert error.hint
        assert error.hint in str(error)


@each_case
def test_a_message_is_used_and_the_facts_still_appear(case: Case) -> None:
    if "message" in case.facts or case.kind in (ToolFailed, Denied):
        return
    error = case.kind(**case.facts, message="The lamp went out.")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert str(error).startswith("The lamp went out (")
    assert error.args == ("The lamp went out.",)
    for words in case.shown:
        assert words.lower() in str(error).lower()


@each_case
def test_the_least_facts_make_a_text_of_their_own(case: Case) -> None:
    error = case.kind(**case.least)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert str(error).strip()
    assert "None" not in str(error).replace("NoneType", "").replace("message None", "")
    assert repr(error).startswith(f"{case.kind.__name__}(")
    assert error.retryable in (True, False)
    assert error.session_id in (None, "")
    with pytest.raises(OutriderError) as caught:
        raise error
    assert caught.value is error


@each_case
@every_case("amount", ["all", "least"])
def test_pickles_and_copies_are_the_same(case: Case, amount: str) -> None:
    facts = case.facts if amount == "all" else case.least
    error = case.kind(**facts)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    error.add_note("seen on a Tuesday")
    error.__cause__ = OSError(2, "gone")
    copies = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for copied in [*copies, copy.copy(error), copy.deepcopy(error)]:
        assert_same(copied, error)
        assert isinstance(copied.__cause__, FileNotFoundError)
        assert copied.__cause__.args == (2, "gone")
        copied.add_note("more")
    assert error.__notes__ == ["seen on a Tuesday"]


@each_case
def test_no_secret_is_shown(case: Case) -> None:
    facts = {name: planted(value) for name, value in case.facts.items()}
    error = case.kind(**facts)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    error.add_note(f"the key was {SECRET}")
    shown = [str(error), repr(error), repr(error.args), *traceback.format_exception(error)]
    shown += [error.message, error.hint, repr(getattr(error, "argv", "")), getattr(error, "stderr_tail", "")]
    for text in shown:
        assert "hunter2" not in text
        assert PASSWORD not in text
    assert "***" in str(error) or case.kind is UserNotFound


@each_case
def test_a_repr_is_one_short_line(case: Case) -> None:
    error = case.kind(**{**case.facts, **({"message": "long " * 500} if "message" in case.facts else {})})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert len(repr(error)) < 200
    assert "\n" not in repr(error)


def test_bases_of_the_standard_library() -> None:
    assert issubclass(RequestTimedOut, TimeoutError)
    assert issubclass(TurnTimedOut, TimeoutError)
    assert issubclass(UsageError, RuntimeError)
    assert issubclass(OptionsError, ValueError)
    assert not issubclass(AgentNotFound, OSError)
    assert not issubclass(ConnectionLost, OSError)


@every_case(
    "error, retryable",
    [
        (OutriderError("x"), False),
        (AgentNotFound(), False),
        (McpServerFailed("s"), False),
        (McpServerFailed("s", status="pending"), True),
        (McpServerFailed("s", status="needs-auth"), False),
        (ConnectionLost(), True),
        (TransportClosed("closed"), False),
        (ProcessExited(1), False),
        (ProcessExited(0), False),
        (ProcessExited(-9), True),
        (ProcessExited(-11), True),
        (ProcessExited(-15), False),
        (ProcessExited(-2), False),
        (RequestFailed("x"), False),
        (RequestTimedOut("x"), True),
        (TurnFailed(), False),
        (TurnTimedOut("turn"), True),
        (TurnInterrupted(), False),
        (LimitReached("max_turns"), False),
        (ApiFailed(429), True),
        (ApiFailed(529, "overloaded"), True),
        (ApiFailed(503), True),
        (ApiFailed(400), False),
        (ApiFailed(401, "authentication_failed"), False),
        (ApiFailed(None, "unknown"), True),
        (ApiFailed(None, "billing_error"), False),
        (ApiFailed(), False),
        (ApiFailed(429, retryable=False), False),
        (ApiFailed(400, retryable=True), True),
    ],
    ids=repr,
)
def test_whether_a_retry_can_help(error: OutriderError, retryable: bool) -> None:
    assert error.retryable is retryable


@pytest.mark.parametrize(
    "status, advice",
    [
        ("failed", "Check its command or its address"),
        ("pending", "`timeouts.connect`"),
        ("needs-auth", "`McpAuthenticate`"),
        ("disabled", "Enable it in the settings"),
        (None, "Check its command"),
    ],
)
def test_what_to_do_about_a_server_depends_on_its_status(status: str | None, advice: str) -> None:
    assert advice in str(McpServerFailed("s", "why", status))
    assert "None" not in str(McpServerFailed("s", "why", status))


@every_case(
    "error, signal, text",
    [
        (ProcessExited(3), None, "exited with code 3. It wrote nothing to stderr"),
        (ProcessExited(0), None, "exited with code 0"),
        (ProcessExited(), None, "exited with an unknown code"),
        (ProcessExited(-9), 9, "ended by SIGKILL. Most often the system ran out of memory"),
        (ProcessExited(137, 9), 9, "ended by SIGKILL"),
        (ProcessExited(None, 15), 15, "ended by SIGTERM. Something asked it to stop"),
        (ProcessExited(-11), 11, "ended by SIGSEGV. It crashed"),
        (ProcessExited(-40), 40, "ended by signal 40"),
    ],
    ids=repr,
)
def test_how_a_process_ended(error: ProcessExited, signal: int | None, text: str) -> None:
    assert error.signal == signal
    assert text in str(error)


def test_the_last_lines_of_stderr_are_shown_and_all_are_kept() -> None:
    tail = "\n".join(f"line {number}" for number in range(100)) + "\n" + "x" * 5000
    error = ProcessExited(1, stderr_tail=tail)
    assert error.stderr_tail == tail
    assert "Last 10 of 101 lines on stderr:\n    line 91\n" in str(error)
    assert "line 90\n" not in str(error)
    assert len(str(error)) < 1000


def test_a_private_key_over_several_lines_of_stderr_is_hidden() -> None:
    error = ProcessExited(
        1, stderr_tail="-----BEGIN PRIVATE KEY-----\nAAAA\nBBBB\n-----END PRIVATE KEY-----\nbye"
    )
    assert "AAAA" not in str(error) + error.stderr_tail
    assert "bye" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        MalformedFrame(b"x" * 10_000_000),
        MessageInvalid({"text": "x" * 10_000_000}),
        TransportClosed("x" * 100_000),
    ],
    ids=lambda error: type(error).__name__,
)
def test_long_values_are_shortened_in_the_text_alone(error: OutriderError) -> None:
    assert "x" * 150 + "…" in str(error) or "x" * 190 in str(error)
    assert len(str(error)) < 1200


class Unprintable:
    def __repr__(self) -> str:
        raise LookupError("no text")


def test_data_that_cannot_be_shown_is_named_by_its_class() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert "the message <list> is not valid: why" in str(MessageInvalid(deep, "why")).lower()
    assert "<Unprintable>" in str(MessageInvalid(Unprintable()))


def test_whole_values_are_kept() -> None:
    data = {"api_key": PASSWORD, "text": "x" * 5000}
    assert MessageInvalid(data).data is data
    line = f"password={PASSWORD}".encode()
    assert MalformedFrame(line).line is line


@every_case(
    "result, text",
    [
        (Result(errors=["one ", "", "two"], result="no"), "The turn failed: one; two."),
        (Result(errors="bare"), "The turn failed: bare."),
        (Result(errors=["  "], result=" said "), "The turn failed: said."),
        (Result(subtype="error_during_execution"), "The turn failed: error_during_execution."),
        (Result(api_error_status=500), "The turn failed: HTTP status 500."),
        (Result(), "The turn failed. "),
        (None, "The turn failed. "),
        ("odd", "The turn failed. "),
    ],
)
def test_the_reason_is_the_best_that_the_result_has(result: object, text: str) -> None:
    error = TurnFailed(result)
    assert str(error).startswith(text)
    assert error.session_id == ("s-77" if isinstance(result, Result) else None)


@every_case(
    "error, hint",
    [
        (ApiFailed(401), "claude auth login"),
        (ApiFailed(None, "authentication_failed"), "claude auth login"),
        (ApiFailed(413), "would fail again"),
        (ApiFailed(429), "Try again later."),
        (ApiFailed(429, hint="Buy more."), "Buy more."),
        (LimitReached("max_budget_usd", 0.25), "resume in a new session"),
        (LimitReached("max_turns", hint="Enough."), "Enough."),
        (ProcessExited(1, hint="Look."), "Look."),
        (ProcessExited(1, stderr_tail="x"), "Put right what it says on stderr"),
        (OutputInvalid([f"place {number}" for number in range(13)]), "… and 3 more in `errors`"),
        (SessionNotFound("a", hint="Ask around."), "Ask around."),
    ],
    ids=repr,
)
def test_what_to_do_next_depends_on_the_facts(error: OutriderError, hint: str) -> None:
    assert hint in str(error)


@dataclass
class Outcome:
    """Stands for what a turn came to."""

    message: Result | None
    text: str = "half an answer"
    session_id: str = "s-78"


def test_what_a_turn_came_to_tells_the_reason_too() -> None:
    error = TurnFailed(Outcome(Result(errors=["no luck"])))
    assert str(error).startswith("The turn failed: no luck.")
    assert error.session_id == "s-78"
    assert str(TurnFailed(Outcome(None))).startswith("The turn failed. ")


def test_every_error_can_be_given_what_had_come_of_the_turn() -> None:
    assert ConnectionLost().result is None
    error = ProcessExited(1)
    error.result = Outcome(None)
    assert pickle.loads(pickle.dumps(error)).result == error.result
    assert "half an answer" not in str(error)


def test_paths_may_be_path_objects() -> None:
    assert FolderNotFound(Path("/a/b")).path == "/a/b"
    assert TranscriptDamaged(Path("/a/b")).path == "/a/b"


def test_the_session_is_shown_when_it_becomes_known_later() -> None:
    error = ConnectionLost("the pipe broke")
    error.session_id = "s-1"
    assert str(error).endswith("\n  Session: s-1")


class Mine(TurnFailed):
    """As users write them."""

    def __init__(self, job: int, **told: object) -> None:
        super().__init__(message=f"job {job} failed", **told)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        self.job = job


class Plain(OutriderError):
    pass


class Choosy(OutriderError):
    def __init__(self, *, colour: str) -> None:
        super().__init__()
        self.colour = colour


def test_users_may_subclass() -> None:
    error = Mine(7, messages=["a"])
    assert str(error).startswith("job 7 failed (the turn failed).")
    assert_same(pickle.loads(pickle.dumps(error)), error)
    assert_same(copy.deepcopy(error), error)
    assert str(Plain("x")) == "x"
    assert str(Plain()) == "Plain"
    assert_same(copy.copy(Choosy(colour="red")), Choosy(colour="red"))


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__(lambda: None)


class UnpicklesBadly(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("text")


@pytest.mark.parametrize("make", [Unpicklable, lambda: UnpicklesBadly(1, 2)], ids=["pickle", "unpickle"])
def test_a_cause_that_cannot_travel_stays_behind(make: Callable[[], Exception]) -> None:
    error = ConnectionLost("the pipe broke")
    error.__cause__ = make()
    travelled = pickle.loads(pickle.dumps(error))
    assert_same(travelled, error)
    assert travelled.__cause__ is None
    assert not travelled.__suppress_context__


def test_a_chain_of_causes_travels() -> None:
    error = ConnectionLost("outer")
    error.__cause__ = ProcessExited(3)
    error.__cause__.__cause__ = OSError("root")
    travelled = pickle.loads(pickle.dumps(error))
    assert travelled.__cause__.returncode == 3
    assert travelled.__cause__.__cause__.args == ("root",)


def fail_to_decode() -> None:
    try:
        raise ValueError("bad json")
    except ValueError as error:
        raise MalformedFrame(b"{") from error


def test_raised_from_another() -> None:
    with pytest.raises(MalformedFrame) as caught:
        fail_to_decode()
    assert isinstance(caught.value.__cause__, ValueError)


def test_caught_in_groups() -> None:
    seen: list[BaseException] = []
    try:
        raise ExceptionGroup("several", [RequestTimedOut("x"), ExceptionGroup("more", [TurnInterrupted()])])
    except* TimeoutError as group:
        seen += group.exceptions
    except* TurnFailed as group:
        seen += group.exceptions
    assert isinstance(seen[0], RequestTimedOut)
    assert isinstance(seen[1], ExceptionGroup)
