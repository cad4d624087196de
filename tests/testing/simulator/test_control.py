"""Requests of the host to the simulated agent: each is answered, in the form of the program's answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outrider.testing import Simulator, exit_plan_mode, hang, say, use_tool
from outrider.wire.control import REQUESTS
from tests.cases import every_case
from tests.tapes import read
from tests.testing.simulator.driving import driven, request, user

pytestmark = pytest.mark.anyio

# Their answers hold what a user has, or an estimate in another form.
LOOSE = {
    "get_context_usage",
    "generate_session_title",
}


def recorded() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each request of the recording, with its answer."""
    asked: dict[str, dict[str, Any]] = {}
    pairs = []
    for record in read("08-control-requests"):
        frame = record.frame
        if not isinstance(frame, dict):
            continue
        if frame["type"] == "control_request" and record.direction == "host->cli":
            asked[frame["request_id"]] = frame["request"]
        elif frame["type"] == "control_response" and record.direction == "cli->host":
            pairs.append((asked[frame["response"]["request_id"]], frame["response"]))
    return pairs


ABSENT = ("/home/dev", "hello.txt")
# What only tells of the program itself, and is shown to a user in dialogs.
OUT_OF_SCOPE = {
    *("claim_session", "export_conversation", "file_suggestions", "get_hooks_listing", "get_memory_dialog"),
    *("get_sandbox_dialog", "get_skills_dialog", "get_status", "message_rated", "register_repo_root"),
    *("reload_output_styles", "reload_plugins", "reload_skills", "set_cwd"),
    *("set_mcp_permission_mode_override", "update_settings"),
}
PAIRS = [
    pytest.param(asked, answer, id=f"{number} {asked.get('subtype')}")
    for number, (asked, answer) in enumerate(recorded())
    if asked.get("subtype") not in OUT_OF_SCOPE and not any(path in str(asked) for path in ABSENT)
]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@every_case("asked, expected", PAIRS)
async def test_answers_have_the_form_of_the_programs(asked: dict[str, Any], expected: dict[str, Any]) -> None:
    argv = ("--permission-prompt-tool", "stdio")
    async with driven([say("ok")], *argv, initialize={}) as host:
        answer = await host.request(**asked)
    assert answer["subtype"] == expected["subtype"]
    assert answer.get("error_code") == expected.get("error_code")
    if answer["subtype"] == "error" and "characters)" not in expected["error"]:
        assert answer["error"] == expected["error"]
    if asked["subtype"] not in LOOSE and asked["subtype"] != "initialize":
        assert shape(answer.get("response")) == shape(expected.get("response"))


def shape(value: Any) -> Any:
    """The names of the fields, two levels deep: what is in lists and deeper is the user's."""
    if not isinstance(value, dict):
        return None
    return {name: sorted(inner) if isinstance(inner, dict) else None for name, inner in value.items()}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_answer_to_initialize_has_every_field() -> None:
    (pair,) = (answer for asked, answer in recorded() if asked["subtype"] == "initialize")
    async with driven([]) as host:
        answer = next(frame for frame in host.said if frame["type"] == "control_response")
    assert sorted(answer["response"]["response"]) == sorted(pair["response"])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@every_case("subtype", sorted(REQUESTS))
async def test_every_request_is_answered(subtype: str) -> None:
    async with driven([say("ok")], initialize={}) as host:
        answer = await host.request(subtype)
    assert answer["subtype"] in ("success", "error")


async def test_a_request_of_no_known_kind_is_refused() -> None:
    async with driven([]) as host:
        answer = await host.request("no_such_thing")
    assert answer["error_code"] == "unsupported_request"


async def test_another_model_answers_from_then_on() -> None:
    script = Simulator([say("one"), say("two")])
    async with driven(script) as host:
        await host.ask("a")
        answer = await host.request("set_model", model="sonnet")
        result = await host.ask("b")
    assert answer["response"] == {"model": "claude-sonnet-5-5"}
    assert [one.model for one in script.requests] == ["claude-opus-5-5", "claude-sonnet-5-5"]
    assert sorted(result["modelUsage"]) == ["claude-opus-5-5", "claude-sonnet-5-5"]
    told = next(frame for frame in host.said if frame.get("isReplay"))
    assert "Set model to `sonnet (claude-sonnet-5-5)`" in told["message"]["content"]


async def test_another_mode_counts_from_then_on_and_is_told_after_the_answer() -> None:
    async with driven([say("one")]) as host:
        answer = await host.request("set_permission_mode", mode="acceptEdits")
        frames = await host.until("system/status")
        await host.ask("a")
    assert answer["response"] == {"mode": "acceptEdits"}
    assert frames[-1]["permissionMode"] == "acceptEdits"
    assert next(f for f in host.said if f.get("subtype") == "init")["permissionMode"] == "acceptEdits"


async def test_files_of_the_session_can_be_read_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("hello")
    async with driven([], cwd=str(tmp_path)) as host:
        inside = await host.request("read_file", path="hello.txt")
        outside = await host.request("read_file", path="/etc/passwd")
    assert inside["response"]["contents"] == "hello"
    assert outside["error"] == "read denied: /etc/passwd"


async def test_rules_that_the_host_adds_count() -> None:
    async with driven([use_tool("Bash", command="touch x"), say("done")]) as host:
        settings = {"permissions": {"allow": ["Bash(touch *)"]}}
        await host.request("apply_flag_settings", settings=settings)
        result = await host.ask("go")
    assert result["permission_denials"] == []


async def test_a_question_beside_the_conversation_is_not_part_of_it() -> None:
    script = Simulator([say("an aside"), say("main")])
    async with driven(script) as host:
        answer = await host.request("side_question", question="What is up?")
        await host.ask("hello")
    assert answer["response"] == {"response": "an aside", "synthetic": False}
    assert len(script.requests[1].messages) == 1


async def test_a_request_that_is_taken_back_is_not_answered() -> None:
    script = Simulator([hang(), say("hello")])
    async with driven(script) as host:
        await host.send(request("side_question", id="slow", question="?"))
        script.wait_for(1)
        await host.send({"type": "control_cancel_request", "request_id": "slow"})
        await host.ask("hello")
    answers = [frame for frame in host.said if frame["type"] == "control_response"]
    assert "slow" not in [frame["response"]["request_id"] for frame in answers]


async def test_a_second_initialize_brings_other_hooks() -> None:
    hooks = {"UserPromptSubmit": [{"matcher": None, "hookCallbackIds": ["one"]}]}
    async with driven([say("ok")], initialize={"hooks": hooks}) as host:
        await host.request("initialize", hooks=None)
        await host.ask("hello")
    assert not [f for f in host.said if f["type"] == "control_request"]


async def test_hooks_of_another_form_are_refused_and_the_session_goes_on() -> None:
    async with driven([say("ok")], initialize={}) as host:
        refused = await host.request("initialize", hooks={"PreToolUse": "no"})
        assert "hooks must map hook events" in refused["error"]
        assert (await host.request("initialize", hooks=None))["subtype"] == "success"
        await host.send(user("go"))
        await host.until("result")


async def test_the_plan_can_be_asked_for() -> None:
    async with driven([exit_plan_mode("# Steps"), say("ok")], "--permission-mode", "plan") as host:
        assert (await host.request("get_plan"))["response"] == {"exists": False}
        await host.ask("plan it")
        plan = (await host.request("get_plan"))["response"]
    assert (plan["exists"], plan["content"]) == (True, "# Steps")
