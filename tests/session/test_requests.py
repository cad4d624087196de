"""What a session can ask the agent: each method, what it sends, and what it makes of the answer."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast, get_type_hints, overload

import anyio
import pytest

from outrider.errors import (
    OptionsError,
    OutriderError,
    RequestFailed,
    RequestTimedOut,
    Unsupported,
    UsageError,
)
from outrider.options import HttpServer, LocalPlugin, SdkServer, StdioServer
from outrider.protocol import Peer, RequestAnswered, RequestReceived, RequestRefused
from outrider.session._requests import UNSET, Requests, Timeout
from outrider.wire import UNSUPPORTED_REQUEST, JsonObject, control
from outrider.wire.control import REQUESTS, PastSideQuestion, Request, RewindReport
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
    case("end_session", wire={"subtype": "end_session"}, answer=recorded("end_session")),
    case("end_session", "done", wire={"subtype": "end_session", "reason": "done"}),
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
        "set_thinking",
        max_tokens=2000,
        wire={"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 2000},
        answer=recorded("set_max_thinking_tokens"),
    ),
    case(
        "set_thinking",
        max_tokens=None,
        wire={"subtype": "set_max_thinking_tokens", "max_thinking_tokens": None},
    ),
    case(
        "set_thinking",
        display="omitted",
        wire={"subtype": "set_max_thinking_tokens", "thinking_display": "omitted"},
    ),
    case(
        "set_thinking",
        max_tokens=0,
        display=None,
        wire={"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 0, "thinking_display": None},
    ),
    case(
        "ask_side_question",
        "What?",
        wire={"subtype": "side_question", "question": "What?"},
        answer=recorded("side_question"),
        value=Has(response="ok", synthetic=False),
    ),
    case(
        "ask_side_question",
        "And?",
        history=[PastSideQuestion("What?", "ok")],
        wire={
            "subtype": "side_question",
            "question": "And?",
            "history": [{"question": "What?", "response": "ok"}],
        },
        answer={"response": None},
        value=Has(response=None),
    ),
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
    case("set_color", "blue", wire={"subtype": "set_color", "color": "blue"}),
    case(
        "rate_message",
        UUID,
        "positive",
        wire={
            "subtype": "message_rated",
            "messageUuid": UUID,
            "sentiment": "positive",
            "surface": "assistant_text",
            "cleared": False,
        },
        answer={},
    ),
    case(
        "pause_prompt_suggestions",
        wire={"subtype": "set_prompt_suggestions_paused", "paused": True},
        answer=recorded("set_prompt_suggestions_paused"),
    ),
    case(
        "pause_prompt_suggestions",
        False,
        wire={"subtype": "set_prompt_suggestions_paused", "paused": False},
    ),
    case(
        "set_has_subscribers",
        False,
        wire={"subtype": "set_has_subscribers", "has_subscribers": False},
        answer=recorded("set_has_subscribers"),
    ),
    case("set_has_subscribers", None, wire={"subtype": "set_has_subscribers", "has_subscribers": None}),
    case(
        "export_conversation",
        wire={"subtype": "export_conversation"},
        answer=recorded("export_conversation"),
        value=Has(default_filename="2026-11-15-061150-hi.txt"),
    ),
    case("plan", wire={"subtype": "get_plan"}, answer=recorded("get_plan"), value=Has(exists=False)),
    case(
        "plan",
        wire={"subtype": "get_plan"},
        answer=recorded("get_plan", 1),
        value=Has(content="# Plan\n1. Write the file\n2. Test it\n"),
    ),
    case(
        "rewind_conversation",
        UUID,
        interrupt=True,
        last_seen="u",
        wire={
            "subtype": "rewind_conversation",
            "target_message_uuid": UUID,
            "interrupt_if_running": True,
            "last_seen_user_message_uuid": "u",
        },
        answer={"rewound": True, "prefillText": "hi"},
        value=Has(rewound=True, prefill_text="hi"),
    ),
    case(
        "rewind_conversation",
        UUID,
        wire={"subtype": "rewind_conversation", "target_message_uuid": UUID},
        answer={"rewound": False, "prefillText": None, "reason": "target_not_found"},
        value=Has(rewound=False, prefill_text=None),
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
        "update_settings",
        "local",
        {"outputStyle": "Concise"},
        wire={
            "subtype": "update_settings",
            "source": "localSettings",
            "settings": {"outputStyle": "Concise"},
        },
        answer=recorded("update_settings"),
    ),
    case(
        "update_settings",
        "user",
        {},
        wire={"subtype": "update_settings", "source": "userSettings", "settings": {}},
    ),
    case(
        "settings_report",
        wire={"subtype": "get_settings"},
        answer=recorded("get_settings"),
        value=Has(applied=Has(model="claude-opus-5-5", effort="medium"), errors=None),
    ),
    case(
        "permission_rules",
        wire={"subtype": "list_permission_rules"},
        answer=recorded("list_permission_rules"),
        value=Has(rules=[], original_cwd="/home/dev/project"),
    ),
    case(
        "hooks_listing",
        wire={"subtype": "get_hooks_listing"},
        answer=recorded("get_hooks_listing"),
        value=Has(hooks=[], policy=Has(managed_only=False)),
    ),
    case(
        "reload_plugins",
        wire={"subtype": "reload_plugins"},
        answer=recorded("reload_plugins"),
        value=Has(error_count=0, held=None),
    ),
    case(
        "reload_plugins",
        add=["/p", Path("/q"), LocalPlugin("/r", skip_mcp_discovery=True), {"path": "/s"}],
        hold_on_cache_impact=True,
        refuse_if_busy=True,
        wire={
            "subtype": "reload_plugins",
            "hold_on_cache_impact": True,
            "add_plugins": [
                {"type": "local", "path": "/p"},
                {"type": "local", "path": str(Path("/q"))},
                {"type": "local", "path": "/r", "skipMcpDiscovery": True},
                {"type": "local", "path": "/s"},
            ],
            "refuse_if_busy": True,
        },
        answer={"held": True},
        value=Has(held=True),
    ),
    case(
        "reload_skills",
        wire={"subtype": "reload_skills"},
        answer=recorded("reload_skills"),
        value=[Has(name="one"), Has(name="dataviz"), Has(name="code-review", aliases=["review"])],
    ),
    case(
        "reload_output_styles",
        wire={"subtype": "reload_output_styles"},
        answer=recorded("reload_output_styles"),
        value=["default", "Proactive"],
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
    case(
        "session_cost",
        wire={"subtype": "get_session_cost"},
        answer={"text": "Total cost: $0.0008"},
        value="Total cost: $0.0008",
    ),
    case(
        "binary_version",
        wire={"subtype": "get_binary_version"},
        answer=recorded("get_binary_version"),
        value=Has(version="2.1.325", build_time="2026-11-13T18:52:23Z"),
    ),
    case(
        "status_report",
        wire={"subtype": "get_status"},
        answer=recorded("get_status"),
        value=Has(sections=[Has(title="Session", rows=[Has(label="Version", value="2.1.325")])]),
    ),
    case(
        "memory_dialog",
        wire={"subtype": "get_memory_dialog"},
        answer=recorded("get_memory_dialog"),
        value=Has(auto_memory=Has(enabled=True)),
    ),
    case(
        "skills_dialog",
        wire={"subtype": "get_skills_dialog"},
        answer=recorded("get_skills_dialog"),
        value=[Has(name="one", tokens=2)],
    ),
    case(
        "sandbox_dialog",
        wire={"subtype": "get_sandbox_dialog"},
        answer=recorded("get_sandbox_dialog"),
        value=Has(enabled=False, mode="disabled"),
    ),
    case(
        "list_models",
        wire={"subtype": "list_models"},
        answer={"models": [{"value": "default"}, {"value": "sonnet"}]},
        value=[Has(value="default"), Has(value="sonnet")],
    ),
]

FILES: Final = [
    case(
        "read_file",
        "hello.txt",
        wire={"subtype": "read_file", "path": "hello.txt"},
        answer=recorded("read_file"),
        value=Has(contents="hello file\n", lossy=False),
    ),
    case(
        "read_file",
        Path("hello.txt"),
        max_bytes=10,
        encoding="base64",
        wire={"subtype": "read_file", "path": "hello.txt", "max_bytes": 10, "encoding": "base64"},
        answer=recorded("read_file", 1),
        value=Has(contents="aGVsbG8gZmlsZQo=", encoding="base64"),
    ),
    case(
        "suggest_files",
        "hel",
        wire={"subtype": "file_suggestions", "query": "hel"},
        answer=recorded("file_suggestions"),
        value=Has(suggestions=[], cwd="/home/dev/project"),
    ),
    case(
        "seed_read_state",
        "/x",
        1_731_650_000_123_999_999,
        wire={"subtype": "seed_read_state", "path": "/x", "mtime": 1_731_650_000_123},
        answer=recorded("seed_read_state"),
    ),
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
    case(
        "workspace_diff",
        wire={"subtype": "get_workspace_diff"},
        answer={"diff": {"stats": {"filesCount": 0}}},
        value=Has(diff={"stats": {"filesCount": 0}}),
    ),
    case(
        "set_cwd",
        "/x",
        wire={"subtype": "set_cwd", "path": "/x"},
        answer={"status": "needs_trust", "directory": "/x", "trust_root": "/"},
        value=Has(status="needs_trust", directory="/x"),
    ),
    case(
        "set_cwd",
        "/x",
        trusted_directory="/x",
        wire={"subtype": "set_cwd", "path": "/x", "trust_accepted": True, "trusted_directory": "/x"},
        answer={"status": "ok", "cwd": "/x", "changed": True},
        value=Has(status="ok", cwd="/x"),
    ),
    case(
        "register_repo_root",
        "/home/dev/project/nested",
        wire={"subtype": "register_repo_root", "directory": "/home/dev/project/nested"},
        answer=recorded("register_repo_root"),
        value="/home/dev/project/nested",
    ),
    case(
        "register_repo_root",
        "nested",
        reload_claude_md=True,
        reload_plugins=True,
        reload_skills=True,
        wire={
            "subtype": "register_repo_root",
            "directory": "nested",
            "reload_claude_md": True,
            "reload_plugins": True,
            "reload_skills": True,
        },
        value="nested",
    ),
    case("stop_task", "b1", wire={"subtype": "stop_task", "task_id": "b1"}, answer=recorded("stop_task")),
    # With no call named, the agent does not say.
    case(
        "background_tasks",
        wire={"subtype": "background_tasks"},
        answer=recorded("background_tasks"),
        value=True,
    ),
    case(
        "background_tasks",
        "toolu_1",
        wire={"subtype": "background_tasks", "tool_use_id": "toolu_1"},
        answer=recorded("background_tasks", 1),
        value=False,
    ),
    case(
        "task_output",
        "b1",
        wire={"subtype": "get_task_output", "task_id": "b1"},
        answer=recorded("get_task_output"),
        value=Has(output="line 1\nline 2\n", total_bytes=14, truncated=False),
    ),
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
    case(
        "mcp_call",
        "mcp__good__echo",
        {"text": "direct"},
        wire={"subtype": "mcp_call", "tool": "mcp__good__echo", "arguments": {"text": "direct"}},
        answer=recorded("mcp_call"),
        value=Has(content=[{"type": "text", "text": "echo: direct"}], is_error=None),
    ),
    case(
        "mcp_call",
        "mcp__good__echo",
        check_permissions=True,
        result_not_for_model=True,
        tool_seconds=1.5,
        wire={
            "subtype": "mcp_call",
            "tool": "mcp__good__echo",
            "timeout_ms": 1500,
            "result_not_for_model": True,
            "check_permissions": True,
        },
        answer={"content": [], "isError": True},
        value=Has(content=[], is_error=True),
    ),
    case(
        "mcp_read_resource",
        "good",
        "ui://rig/page",
        wire={"subtype": "mcp_read_resource", "serverName": "good", "uri": "ui://rig/page"},
        answer=recorded("mcp_read_resource"),
        value=[Has(uri="ui://rig/page", mime_type="text/html", text="<p>hi</p>")],
    ),
    case(
        "mcp_set_permission_mode",
        "good",
        "auto",
        wire={"subtype": "set_mcp_permission_mode_override", "serverName": "good", "mode": "auto"},
        answer={"warning": "not known yet"},
        value="not known yet",
    ),
    case(
        "mcp_set_permission_mode",
        "good",
        None,
        wire={"subtype": "set_mcp_permission_mode_override", "serverName": "good", "mode": None},
        answer={},
        value=None,
    ),
    case(
        "mcp_enable_channel",
        "good",
        wire={"subtype": "channel_enable", "serverName": "good"},
    ),
    case(
        "mcp_authenticate",
        "far",
        redirect_uri="http://localhost:1/",
        redirect_uri_only=True,
        wire={
            "subtype": "mcp_authenticate",
            "serverName": "far",
            "redirectUri": "http://localhost:1/",
            "redirectUriOnly": True,
        },
        answer={"authUrl": "https://x.test/", "requiresUserAction": True},
        value=Has(auth_url="https://x.test/", requires_user_action=True),
    ),
    case(
        "mcp_submit_callback",
        "far",
        "http://localhost:1/?code=2",
        wire={
            "subtype": "mcp_oauth_callback_url",
            "serverName": "far",
            "callbackUrl": "http://localhost:1/?code=2",
        },
        answer={"new": 1},
        value=Has(raw={"new": 1}),
    ),
    case(
        "mcp_clear_authentication",
        "far",
        wire={"subtype": "mcp_clear_auth", "serverName": "far"},
        answer={},
        value=Has(raw={}),
    ),
]

CASES: Final = [*CONVERSATION, *SETTINGS, *FILES, *MCP]

NO_METHOD: Final = {
    "initialize": "the session sends it",
    "mcp_message": "servers in this process speak by it, and the session carries that",
    "claim_session": "for a program that was started ahead of time",
    "claude_authenticate": "logs the user in to the agent, not the session",
    "claude_oauth_callback": "the same",
    "claude_oauth_wait_for_completion": "the same",
    "remote_control": "opens the session to other devices",
    "submit_feedback": "for the agent's own user interface",
    "submit_survey_feedback": "the same",
    "ultrareview_launch": "starts work in the cloud",
    "set_chrome_browser_hints": "for the agent's own browser extension",
    "get_chrome_dialog": "the same",
    "get_chrome_browsers": "the same",
    "select_chrome_browser": "the same",
    "stage_file": "only works in a session in the cloud, and its fields are published nowhere",
    "add_directory": "its fields are published nowhere, and it refuses what one would guess",
    "fork_conversation": "its fields are published nowhere; `fork_session` does the same at the start",
}
"""Requests that have no method, and why; `request` sends them all."""


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


@pytest.mark.requirement("A9")
def test_each_request_has_a_method_or_a_reason() -> None:
    have_a_method = {param.values[0].wire["subtype"] for param in CASES}
    assert have_a_method | set(NO_METHOD) == set(REQUESTS)
    assert not have_a_method & set(NO_METHOD)


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
async def test_a_request_without_a_method_is_sent_as_it_is_given() -> None:
    session = Wired({"some": "thing"})
    assert await session.request("brand_new", depth=1) == {"some": "thing"}
    assert session.asked == [{"subtype": "brand_new", "depth": 1}]
    answer = await session.request(control.ClaimSession("/x"))
    assert answer.cwd == ""
    assert session.asked[1] == {"subtype": "claim_session", "cwd": "/x"}


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
        ("set_thinking", (), {"max_tokens": -1}, "`max_tokens` must be a whole number of 0 or more"),
        ("set_thinking", (), {"max_tokens": True}, "`max_tokens` must be a whole number of 0 or more"),
        ("set_thinking", (), {"display": "summarised"}, "Did you mean 'summarized'?"),
        ("ask_side_question", ("",), {}, "`question`"),
        ("ask_side_question", ("x",), {"history": ["y"]}, "`history[0]` must be a `PastSideQuestion`"),
        ("generate_title", ("",), {}, "`description`"),
        ("rename", ("",), {}, "`title` must be a text that is not empty"),
        ("rename", ("a\0b",), {}, "`title` contains a NUL byte"),
        ("rate_message", (UUID, "good"), {}, "`sentiment` must be one of 'positive', 'negative'"),
        ("rate_message", (UUID, "positive"), {"surface": "x"}, "`surface` must be one of"),
        ("rewind_conversation", ("",), {}, "`message_uuid`"),
        ("apply_settings", ("x",), {}, "`settings` must be a mapping, not str"),
        ("apply_settings", ({"x": object()},), {}, "something that can be written as JSON"),
        ("update_settings", ("project", {}), {}, "`source` must be one of 'user', 'local'"),
        ("reload_plugins", (), {"add": "/p"}, "`add` must be a list"),
        ("reload_plugins", (), {"add": Path("/p")}, "`add` must be a list"),
        ("reload_plugins", (), {"add": [""]}, "`add[0]` must be a path"),
        ("context_usage", (), {"detail": "Summary"}, "Did you mean 'summary'?"),
        ("read_file", ("",), {}, "`path` must be a path"),
        ("read_file", ("x",), {"max_bytes": 0}, "`max_bytes` must be a whole number of 1 or more"),
        ("read_file", ("x",), {"encoding": "utf8"}, "Did you mean 'utf-8'?"),
        ("seed_read_state", ("x", 1.5), {}, "st_mtime_ns"),
        ("seed_read_state", ("x", -1), {}, "`mtime_ns` must be a number of nanoseconds"),
        ("seed_read_state", ("x", True), {}, "`mtime_ns` must be a number of nanoseconds"),
        ("rewind_files", ("",), {}, "`user_message_id`"),
        ("set_cwd", ("",), {}, "`path` must be a path"),
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
        ("mcp_call", ("echo",), {}, "Give 'mcp__server__tool'"),
        ("mcp_call", ("mcp__good",), {}, "Give 'mcp__server__tool'"),
        ("mcp_call", ("mcp__good__",), {}, "Give 'mcp__server__tool'"),
        ("mcp_call", ("mcp__good__echo", [1]), {}, "`arguments` must be a mapping"),
        ("mcp_call", ("mcp__good__echo",), {"tool_seconds": 0.5}, "from 1 to 600"),
        ("mcp_call", ("mcp__good__echo",), {"tool_seconds": 601}, "from 1 to 600"),
        ("mcp_set_permission_mode", ("x", "Auto"), {}, "Did you mean 'auto'?"),
        ("mcp_submit_callback", ("x", "code-1234"), {}, "`callback_url` must be a URL, not str"),
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


def test_thinking_that_is_not_changed_is_a_mistake() -> None:
    with pytest.raises(UsageError, match=r"Give `max_tokens` or `display`\."):
        anyio.run(Wired().set_thinking)


def test_the_default_of_a_timeout_reads_well() -> None:
    assert "timeout: 'Timeout' = UNSET" in str(inspect.signature(Requests.interrupt))
