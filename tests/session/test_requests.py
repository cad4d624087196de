"""What a session can ask the agent: each method, what it sends, and what it makes of the answer."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, assert_type, cast, get_type_hints, overload

import pytest

from outrider.errors import (
    OptionsError,
    OutriderError,
    RequestFailed,
    RequestTimedOut,
    Unsupported,
)
from outrider.options import HttpServer, SdkServer, StdioServer
from outrider.protocol import Peer, RequestAnswered, RequestReceived, RequestRefused
from outrider.session import UNSET, Requests, Timeout
from outrider.session._requests import check_fields
from outrider.wire import UNSUPPORTED_REQUEST, JsonObject, control
from outrider.wire.control import REQUESTS, Request, RewindReport
from tests.cases import every_case

T = TypeVar("T")

ANSWERS: Final = Path(__file__).parents[1] / "wire" / "data" / "answers.jsonl"
NUMBERS: Final[Counter[str]] = Counter()
UUID: Final = "aaaaaaaa-0000-4000-8000-000000000001"


@pytest.fixture
def anyio_backend() -> str:
    """One is enough: nothing here waits."""
    return "asyncio"


class Refused(NamedTuple):
    """An answer that is an error."""

    error: str
    code: str | None = None


class Wired(Requests):
    """Requests over two ends of the protocol, with an agent that gives one answer."""

    def __init__(self, answer: JsonObject | Refused | None = None) -> None:
        self.answer = answer
        self.asked: list[JsonObject] = []
        self.timeouts: list[Timeout] = []

    @overload
    async def request(self, request: Request[T], /, *, timeout: Timeout = UNSET) -> T: ...

    @overload
    async def request(self, request: str, /, *, timeout: Timeout = UNSET, **fields: object) -> JsonObject: ...

    async def request(
        self, request: Request[T] | str, /, *, timeout: Timeout = UNSET, **fields: object
    ) -> T | JsonObject:
        self.timeouts.append(timeout)
        host, agent = Peer("host"), Peer("agent", serves=[*REQUESTS, "brand_new"])
        id = host.request(request, **fields)
        line = host.take_output()
        (received,) = agent.receive(line)
        assert isinstance(received, RequestReceived)
        if not isinstance(request, str):
            assert received.request == request
        self.asked.append(json.loads(line)["request"])
        if isinstance(self.answer, Refused):
            agent.refuse(id, *self.answer)
        else:
            agent.respond(id, self.answer)
        (outcome,) = host.receive(agent.take_output())
        if isinstance(outcome, RequestAnswered):
            return cast("T | JsonObject", outcome.request.read_answer(outcome.payload))
        assert isinstance(outcome, RequestRefused)
        kind = Unsupported if outcome.code == UNSUPPORTED_REQUEST else RequestFailed
        raise kind(outcome.request, outcome.error, outcome.code)


def recorded(subtype: str, number: int = 0) -> JsonObject | None:
    """An answer as the program gave it: the first of this kind, or a later one."""
    lines = map(json.loads, ANSWERS.read_text(encoding="utf-8").splitlines())
    found: JsonObject | None = [line["payload"] for line in lines if line["subtype"] == subtype][number]
    return found


class Case(NamedTuple):
    call: str
    arguments: tuple[object, ...]
    keywords: dict[str, object]
    wire: JsonObject
    answer: JsonObject | None
    value: object
    """What comes back; attributes and items of it if this is a dict of such."""


def case(
    call: str,
    *arguments: object,
    wire: JsonObject,
    answer: JsonObject | None = None,
    value: object = None,
    **keywords: object,
) -> Any:
    made = Case(call, arguments, keywords, wire, answer, value)
    NUMBERS[call] += 1
    return pytest.param(made, id=f"{call} {NUMBERS[call]}")


class Has(dict[str, object]):
    """Attributes that the value must have, among others."""

    def __eq__(self, other: object) -> bool:
        return all(getattr(other, name) == wanted for name, wanted in self.items())

    __hash__ = None


CONVERSATION: Final = [
    case(
        "interrupt", wire={"subtype": "interrupt"}, answer=recorded("interrupt"), value=Has(still_queued=[])
    ),
    case(
        "interrupt",
        cancel_queued=True,
        wire={"subtype": "interrupt", "cancel_queued": True},
        answer=recorded("interrupt", 1),
        value=Has(still_queued=[], cancelled=[f"{UUID[:-1]}7", f"{UUID[:-1]}8"]),
    ),
    # As programs of long ago answer.
    case("interrupt", wire={"subtype": "interrupt"}, value=Has(still_queued=[], cancelled=None)),
    case(
        "cancel_message",
        UUID,
        wire={"subtype": "cancel_async_message", "message_uuid": UUID},
        answer=recorded("cancel_async_message"),
        value=True,
    ),
    case(
        "cancel_message",
        UUID,
        wire={"subtype": "cancel_async_message", "message_uuid": UUID},
        answer={"cancelled": False},
        value=False,
    ),
    case(
        "set_permission_mode",
        "plan",
        wire={"subtype": "set_permission_mode", "mode": "plan"},
        answer=recorded("set_permission_mode"),
        value="plan",
    ),
    # The agent says what it took it for.
    case(
        "set_permission_mode",
        "manual",
        wire={"subtype": "set_permission_mode", "mode": "manual"},
        answer={"mode": "default"},
        value="default",
    ),
    case(
        "set_permission_mode",
        "plan",
        wire={"subtype": "set_permission_mode", "mode": "plan"},
        value="plan",
    ),
    case(
        "set_model",
        "sonnet",
        wire={"subtype": "set_model", "model": "sonnet"},
        answer=recorded("set_model"),
        value="claude-sonnet-5-5",
    ),
    case(
        "set_model",
        wire={"subtype": "set_model", "model": None},
        answer={"model": "claude-opus-5-5"},
        value="claude-opus-5-5",
    ),
    case("set_model", "sonnet", wire={"subtype": "set_model", "model": "sonnet"}, value="sonnet"),
    case("set_model", None, wire={"subtype": "set_model", "model": None}, value="default"),
    case(
        "generate_title",
        "fix the login bug",
        wire={"subtype": "generate_session_title", "description": "fix the login bug", "persist": False},
        answer=recorded("generate_session_title"),
        value=None,
    ),
    case(
        "generate_title",
        "fix it",
        persist=True,
        wire={"subtype": "generate_session_title", "description": "fix it", "persist": True},
        answer={"title": "Fix"},
        value="Fix",
    ),
    case(
        "rename",
        "Renamed",
        wire={"subtype": "rename_session", "title": "Renamed"},
        answer=recorded("rename_session"),
    ),
]

SETTINGS: Final = [
    case(
        "apply_settings",
        {"permissions": {"allow": ("Bash(ls *)",)}, "model": None},
        wire={
            "subtype": "apply_flag_settings",
            "settings": {"permissions": {"allow": ["Bash(ls *)"]}, "model": None},
        },
        answer=recorded("apply_flag_settings"),
    ),
    case(
        "context_usage",
        wire={"subtype": "get_context_usage"},
        answer=recorded("get_context_usage"),
        value=Has(total_tokens=11615, max_tokens=1000000),
    ),
    case(
        "context_usage",
        detail="summary",
        wire={"subtype": "get_context_usage", "detail": "summary"},
        answer=recorded("get_context_usage", 1),
        value=Has(total_tokens=10806),
    ),
    case(
        "usage_report",
        wire={"subtype": "get_usage"},
        answer=recorded("get_usage"),
        value=Has(session=Has(total_cost_usd=0.0008)),
    ),
    case(
        "usage_report",
        skip_behaviors=True,
        wire={"subtype": "get_usage", "skip_behaviors": True},
        value=Has(rate_limits=None),
    ),
]

FILES: Final = [
    case(
        "rewind_files",
        UUID,
        wire={"subtype": "rewind_files", "user_message_id": UUID},
        answer={"canRewind": True, "filesChanged": ["/x"], "insertions": 1, "deletions": 2},
        value=Has(can_rewind=True, files_changed=["/x"], insertions=1, deletions=2),
    ),
    case(
        "rewind_files",
        UUID,
        dry_run=True,
        wire={"subtype": "rewind_files", "user_message_id": UUID, "dry_run": True},
        answer=recorded("rewind_files"),
        value=Has(can_rewind=False, error="File rewinding is not enabled."),
    ),
    case("stop_task", "b1", wire={"subtype": "stop_task", "task_id": "b1"}, answer=recorded("stop_task")),
]

MCP: Final = [
    case(
        "mcp_status",
        wire={"subtype": "mcp_status"},
        answer={"mcpServers": [{"name": "good", "status": "connected", "tools": [{"name": "echo"}]}]},
        value=[Has(name="good", status="connected", tools=[Has(name="echo")])],
    ),
    case(
        "mcp_set_servers",
        {
            "added": StdioServer(command="python3", args=("mcp.py",)),
            "bad": {"command": "/no/such"},
            "far": HttpServer(url="https://x.test/", headers={"Authorization": "Bearer x"}),
        },
        wire={
            "subtype": "mcp_set_servers",
            "servers": {
                "added": {"type": "stdio", "command": "python3", "args": ["mcp.py"]},
                "bad": {"type": "stdio", "command": "/no/such", "args": []},
                "far": {
                    "type": "http",
                    "url": "https://x.test/",
                    "headers": {"Authorization": "Bearer x"},
                },
            },
        },
        answer=recorded("mcp_set_servers"),
        value=Has(
            added=["added", "bad"],
            removed=[],
            errors={"bad": "Spread syntax requires ...iterable not be null or undefined"},
        ),
    ),
    case(
        "mcp_set_servers",
        {},
        wire={"subtype": "mcp_set_servers", "servers": {}},
        answer=recorded("mcp_set_servers", 1),
        value=Has(removed=["added", "bad"]),
    ),
    case(
        "mcp_reconnect",
        "good",
        wire={"subtype": "mcp_reconnect", "serverName": "good"},
        answer=recorded("mcp_reconnect"),
    ),
    case(
        "mcp_toggle",
        "good",
        False,
        wire={"subtype": "mcp_toggle", "serverName": "good", "enabled": False},
        answer=recorded("mcp_toggle"),
    ),
]

CASES: Final = [*CONVERSATION, *SETTINGS, *FILES, *MCP]


async def call(session: Requests, case: Case, **more: object) -> object:
    return await getattr(session, case.call)(*case.arguments, **case.keywords, **more)


@pytest.mark.anyio
@pytest.mark.requirement("A9")
@every_case("case", CASES)
async def test_each_method_sends_its_request_and_reads_the_answer(case: Case) -> None:
    session = Wired(case.answer)
    value = await call(session, case)
    assert session.asked == [case.wire]
    assert case.value == value
    if case.value is None:
        assert value is None


def methods() -> list[str]:
    return [name for name in dir(Requests) if not name.startswith("_") and name != "request"]


def test_each_method_is_shown_here() -> None:
    assert set(methods()) == {param.values[0].call for param in CASES}


@every_case("name", methods())
def test_each_method_waits_as_long_as_the_session_says_if_not_told_otherwise(name: str) -> None:
    timeout = inspect.signature(getattr(Requests, name)).parameters["timeout"]
    assert timeout.default is UNSET
    assert timeout.kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.anyio
@every_case("case", CASES)
async def test_each_method_passes_the_timeout_on(case: Case) -> None:
    session = Wired(case.answer)
    await call(session, case)
    await call(session, case, timeout=3)
    await call(session, case, timeout=None)
    assert session.timeouts == [UNSET, 3, None]


@every_case("name", [*methods(), "request"])
def test_the_types_of_each_method_can_be_looked_up(name: str) -> None:
    assert "return" in get_type_hints(getattr(Requests, name))
    assert getattr(Requests, name).__doc__


@pytest.mark.anyio
@every_case("case", [param for param in CASES if param.values[0].call != "rewind_files"])
async def test_a_refusal_is_raised(case: Case) -> None:
    with pytest.raises(RequestFailed, match="busy") as refused:
        await call(Wired(Refused("I am busy", "busy")), case)
    assert refused.value.code == "busy"
    with pytest.raises(Unsupported):
        await call(Wired(Refused("Unsupported control request subtype", UNSUPPORTED_REQUEST)), case)


@pytest.mark.anyio
@pytest.mark.requirement("A9")
async def test_any_request_is_asked_and_its_answer_has_its_type() -> None:
    session = Wired({"contents": "hello", "absPath": "/x"})
    file = await session.request(control.ReadFile("x", max_bytes=5))
    assert_type(file, control.FileContents)
    assert (file.contents, file.abs_path) == ("hello", "/x")
    assert session.asked == [{"subtype": "read_file", "path": "x", "max_bytes": 5}]
    assert_type(await session.request(control.GetSettings()), control.SettingsReport)
    assert_type(await session.request(control.SetColor("blue")), control.Acknowledged)
    assert_type(await session.request("brand_new"), JsonObject)


@pytest.mark.anyio
async def test_a_request_without_a_class_is_sent_as_it_is_given() -> None:
    session = Wired({"some": "thing"})
    assert await session.request("brand_new", depth=1) == {"some": "thing"}
    assert session.asked == [{"subtype": "brand_new", "depth": 1}]


ODD: Final[list[tuple[Request[Any], str]]] = [
    (control.ReadFile(cast(str, Path("x"))), "ReadFile cannot be sent: "),
    (control.ReadFile("x", max_bytes=cast(int, "1")), "Expected `int | null`, got `str` - at `$.max_bytes`"),
    (control.McpOauthCallbackUrl("x", cast(str, 1234)), "Expected `str`, got `int` - at `$.callbackUrl`"),
    (control.ApplyFlagSettings({"x": object()}), "ApplyFlagSettings cannot be sent: "),
    (control.AddDirectory(cast(JsonObject, [1])), "AddDirectory cannot be sent: "),
]


@every_case("request, says", ODD)
def test_fields_that_do_not_fit_are_refused_before_anything_is_sent(request: Any, says: str) -> None:
    with pytest.raises(OptionsError) as error:
        check_fields(request)
    assert says in str(error.value)
    assert "1234" not in str(error.value)


# Files that cannot be taken back.


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer",
    [
        Refused("No file checkpoint found for this message."),
        {"canRewind": False, "error": "No file checkpoint found for this message."},
    ],
    ids=["as an error", "as an answer"],
)
@pytest.mark.parametrize("dry_run", [True, False])
async def test_files_that_cannot_be_taken_back_are_no_exception(
    answer: JsonObject | Refused, dry_run: bool
) -> None:
    report = await Wired(answer).rewind_files(UUID, dry_run=dry_run)
    assert isinstance(report, RewindReport)
    assert not report.can_rewind
    assert report.error == "No file checkpoint found for this message."


class Failing(Requests):
    def __init__(self, error: OutriderError) -> None:
        self.error = error

    async def request(self, request: object, /, **_: object) -> Any:
        raise self.error


@pytest.mark.anyio
@pytest.mark.parametrize(
    "error", [Unsupported("rewind_files", "no"), RequestTimedOut("rewind_files", 1)], ids=["old", "silent"]
)
async def test_an_agent_that_does_not_rewind_at_all_is_an_exception(error: OutriderError) -> None:
    with pytest.raises(type(error)):
        await Failing(error).rewind_files(UUID)


# What cannot be meant.


@every_case(
    "name, arguments, keywords, says",
    [
        ("interrupt", (), {"cancel_queued": "yes"}, "`cancel_queued` must be True or False"),
        ("cancel_message", ("",), {}, "`uuid` must be a text that is not empty"),
        ("cancel_message", (None,), {}, "`uuid` must be a text"),
        ("set_permission_mode", ("acceptedits",), {}, "Did you mean 'acceptEdits'?"),
        ("set_permission_mode", ("",), {}, "`mode` must be a text that is not empty"),
        ("set_permission_mode", (None,), {}, "`mode` must be a text"),
        ("set_model", ("  ",), {}, "`model` must be a text that is not empty"),
        ("generate_title", ("",), {}, "`description`"),
        ("rename", ("",), {}, "`title` must be a text that is not empty"),
        ("rename", ("a\0b",), {}, "`title` contains a NUL byte"),
        ("apply_settings", ("x",), {}, "`settings` must be a mapping, not str"),
        ("apply_settings", ({"x": object()},), {}, "something that can be written as JSON"),
        ("context_usage", (), {"detail": "Summary"}, "Did you mean 'summary'?"),
        ("rewind_files", ("",), {}, "`user_message_id`"),
        ("stop_task", (7,), {}, "`task_id` must be a text, not 7"),
        ("mcp_set_servers", ("mcp.json",), {}, "Read the file"),
        ("mcp_set_servers", ([],), {}, "`servers` must be a mapping"),
        (
            "mcp_set_servers",
            ({"x": {"url": "https://x.test"}},),
            {},
            "`servers['x']` has a `url` but no `type`",
        ),
        ("mcp_set_servers", ({"x": SdkServer(name="x")},), {}, "the server 'x' runs in this process"),
        ("mcp_set_servers", ({"x": object()},), {}, "the server 'x' runs in this process"),
        ("mcp_reconnect", ("",), {}, "`server` must be a text that is not empty"),
        ("mcp_toggle", ("x", 1), {}, "`enabled` must be True or False"),
    ],
)
@pytest.mark.anyio
async def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    name: str, arguments: tuple[object, ...], keywords: dict[str, object], says: str
) -> None:
    session = Wired()
    with pytest.raises(OptionsError) as error:
        await getattr(session, name)(*arguments, **keywords)
    assert says in str(error.value)
    assert session.asked == []


def test_the_default_of_a_timeout_reads_well() -> None:
    assert "timeout: 'Timeout' = UNSET" in str(inspect.signature(Requests.interrupt))
