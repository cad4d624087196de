"""`Simulator` as the transport of real sessions: what users do with it, and that nothing is left of it."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest

import outrider
from outrider.errors import (
    ApiFailed,
    FolderNotFound,
    LaunchError,
    OptionsError,
    ProcessExited,
    TransportClosed,
    TurnFailed,
    UsageError,
)
from outrider.testing import (
    Gate,
    Simulator,
    answer,
    expect,
    fail,
    hang,
    say,
    structured,
    subagent,
    think,
    use_tool,
    when,
)

pytestmark = pytest.mark.anyio

SECONDS = 20.0


@outrider.tool
async def lookup(ticket: int) -> str:
    """Fetch a ticket."""
    return f"Ada owns {ticket}"


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    before = set(threading.enumerate())  # Another test's may still be ending.
    yield
    names = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [name for name in names if "simulated" in name or "portal" in name.lower()] == []


@pytest.mark.requirement("H1")
async def test_a_users_test_in_ten_lines() -> None:
    agent = Simulator([use_tool("mcp__tools__lookup", ticket=7), say("Ada owns it.")])
    async with outrider.Session(tools=[lookup], transport=agent) as session:
        result = await session.ask("Who owns ticket 7?")
    assert result.text == "Ada owns it."
    assert agent.requests[1].tool_results[0]["content"] == [{"type": "text", "text": "Ada owns 7"}]


async def test_run_and_stream_take_it_as_well() -> None:
    with Simulator([say("one"), say("a", "b")]) as agent:
        assert (await outrider.run("hi", transport=agent)).text == "one"
        async with outrider.stream("hi", transport=agent.again(), include_partial_messages=True) as turn:
            assert (await turn.result()).text == "ab"


async def test_without_a_script_each_tool_is_called_once() -> None:
    seen: list[int] = []

    @outrider.tool
    async def count(number: int) -> str:
        """Count."""
        seen.append(number)
        return "counted"

    async with outrider.Session(tools=[count], transport=Simulator()) as session:
        await session.ask("go")
        await session.ask("again")
    assert len(seen) == 1


async def test_several_turns_share_a_conversation() -> None:
    agent = Simulator([say("one"), say("two")])
    async with outrider.Session(transport=agent) as session:
        assert (await session.ask("first")).text == "one"
        assert (await session.ask("second")).text == "two"
    assert [message["content"] for message in agent.requests[1].messages if message["role"] == "user"] == [
        "first",
        "second",
    ]


async def test_permissions_hooks_and_built_in_tools_meet(tmp_path: Path) -> None:
    asked: list[str] = []

    async def permit(request: outrider.PermissionRequest) -> bool:
        asked.append(request.tool_name)
        return True

    steps = [use_tool("Write", file_path=str(tmp_path / "a.txt"), content="written"), say("done")]
    async with outrider.Session(transport=Simulator(steps), permission=permit, cwd=tmp_path) as session:
        assert (await session.ask("write")).text == "done"
    assert asked == ["Write"]
    assert (tmp_path / "a.txt").read_text() == "written"


async def test_a_denied_call_is_told_to_the_model_and_to_the_caller() -> None:
    agent = Simulator([use_tool("Bash", command="touch x"), say("then not")])

    async def permit(request: outrider.PermissionRequest) -> object:
        return outrider.deny("not today")

    async with outrider.Session(transport=agent, permission=permit) as session:
        result = await session.ask("touch")
    assert agent.requests[1].tool_results[0]["content"] == "not today"
    assert [denial["tool_name"] for denial in result.permission_denials] == ["Bash"]


class Invoice(msgspec.Struct):
    total: int


async def test_a_structured_answer_is_typed() -> None:
    agent = Simulator([structured({"total": 7})])
    result = await outrider.run("read it", output=Invoice, transport=agent)
    assert result.output == Invoice(7)


async def test_a_failure_of_the_api_is_an_error_of_the_turn() -> None:
    agent = Simulator([fail(403)])
    with pytest.raises(ApiFailed) as failed:
        await outrider.run("hi", transport=agent)
    assert failed.value.status == 403


async def test_an_interrupt_ends_the_turn_and_the_session_goes_on() -> None:
    gate = Gate()
    agent = Simulator([say("one two three", gate=gate), say("again")])
    async with outrider.Session(transport=agent) as session:
        turn = await session.send("slow")
        await anyio.to_thread.run_sync(gate.wait_reached)
        with anyio.fail_after(SECONDS):
            await turn.cancel()
        assert (await session.ask("go on")).text == "again"


# Scripts with mistakes.


async def test_an_expectation_that_is_not_met_fails_the_turn_and_is_raised_at_the_end() -> None:
    agent = Simulator([expect(prompt="Who"), say("never")])
    agent.__enter__()
    async with outrider.Session(transport=agent) as session:
        with pytest.raises(TurnFailed):
            await session.ask("What?")
    with pytest.raises(AssertionError, match="Who") as raised:
        agent.__exit__(None, None, None)
    assert "What?" in str(raised.value)


async def test_a_function_that_raises_fails_the_turn_with_a_clear_text() -> None:
    def broken(request: object) -> Any:
        raise ZeroDivisionError("a mistake in the test")

    agent = Simulator([broken])
    async with outrider.Session(transport=agent) as session:
        with anyio.fail_after(SECONDS), pytest.raises(TurnFailed, match="a mistake in the test"):
            await session.ask("hi")
    with pytest.raises(ZeroDivisionError):
        agent.check()


async def test_prompts_choose_their_answers() -> None:
    agent = Simulator([when(prompt="weather", then=[say("rain")]), say("first")])
    async with outrider.Session(transport=agent) as session:
        assert (await session.ask("hello")).text == "first"
        assert (await session.ask("the weather?")).text == "rain"


def test_what_is_no_script_is_refused_at_once() -> None:
    with pytest.raises(OptionsError):
        Simulator(cast("Any", ["text"]))


# One object, one run.


async def test_one_simulator_is_for_one_session() -> None:
    agent = Simulator([say("one")])
    async with outrider.Session(transport=agent):
        pass
    with pytest.raises(UsageError, match="again"):
        await outrider.run("hi", transport=agent)


async def test_a_session_is_gone_on_with_by_another_run() -> None:
    with Simulator([say("one"), say("two"), say("three")]) as agent:
        async with outrider.Session(transport=agent) as session:
            first = await session.ask("remember 7")
        async with outrider.Session(transport=agent.again(), resume=first.session_id) as session:
            second = await session.ask("what was it?")
        forked = agent.again()
        async with outrider.Session(transport=forked, resume=first.session_id, fork_session=True) as session:
            third = await session.ask("and now?")
    assert first.session_id == second.session_id != third.session_id
    assert len(agent.requests[1].messages) == 3
    assert len(agent.requests[2].messages) == 5
    assert second.total_cost_usd > first.total_cost_usd


async def test_the_latest_session_is_gone_on_with() -> None:
    with Simulator([say("one"), say("two")]) as agent:
        await outrider.run("remember 7", transport=agent)
        await outrider.run("what was it?", transport=agent.again(), continue_conversation=True)
    assert len(agent.requests[1].messages) == 3


async def test_a_session_that_is_not_there_ends_the_agent_with_its_words() -> None:
    agent = Simulator([say("never")])
    missing = "99999999-3333-4444-8555-666666666666"
    with pytest.raises(outrider.OutriderError, match=missing):
        await outrider.run("hi", transport=agent, resume=missing)
    assert agent.returncode == 1


async def test_options_of_the_agent_start_it() -> None:
    agent = Simulator([say("one")])
    assert (await outrider.run("hi", options=agent.options(model="sonnet"))).text == "one"
    assert agent.requests[0].model == "claude-sonnet-5-5"


# Folders.


def files_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


async def test_tools_work_in_a_folder_of_their_own_that_is_gone_afterwards() -> None:
    agent = Simulator([use_tool("Bash", command="pwd"), say("done")])
    folder = agent.folder
    async with outrider.Session(transport=agent, allowed_tools=["Bash"]) as session:
        await session.ask("where")
        assert folder.is_dir()
    assert agent.requests[1].tool_results[0]["content"] == str(folder)
    assert str(folder) != os.getcwd()  # noqa: PTH109 - as a text
    assert not folder.parent.exists()


async def test_nothing_is_written_into_the_config_folder_of_whoever_runs_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    await outrider.run("hi", transport=Simulator([say("one")]))
    assert files_in(tmp_path) == []


async def test_folders_can_be_given(tmp_path: Path) -> None:
    work, config = tmp_path / "work", tmp_path / "config"
    work.mkdir()
    agent = Simulator([use_tool("Bash", command="pwd"), say("done")], folder=work, config_dir=config)
    async with outrider.Session(transport=agent, allowed_tools=["Bash"]) as session:
        await session.ask("where")
    assert agent.requests[1].tool_results[0]["content"] == str(work)
    assert list(config.rglob("*.jsonl"))


# The transport itself.


@pytest.mark.requirement("H1")
async def test_every_line_that_the_host_sends_is_kept() -> None:
    agent = Simulator([say("one")])
    async with outrider.Session(transport=agent) as session:
        await session.ask("find me")
    frames = [msgspec.json.decode(line) for line in agent.written]
    assert [frame["type"] for frame in frames] == ["control_request", "user"]
    assert frames[1]["message"]["content"] == "find me"


@pytest.mark.requirement("H1")
async def test_it_can_fail_when_it_is_closed() -> None:
    agent = Simulator([say("one")], fail_at_close=RuntimeError("it will not close"))
    await agent.connect()
    with pytest.raises(RuntimeError, match="it will not close"):
        await agent.close()
    assert not agent.is_ready
    assert agent.returncode == 0


@pytest.mark.requirement("H1")
async def test_it_can_be_closed_again_and_again() -> None:
    agent = Simulator()
    await agent.close()
    await agent.close()
    with pytest.raises(TransportClosed):
        await agent.connect()
    with pytest.raises(TransportClosed):
        await agent.send(b"{}\n")


async def test_closing_ends_what_goes_on() -> None:
    agent = Simulator([hang()])
    with anyio.fail_after(SECONDS):
        async with outrider.Session(transport=agent) as session:
            await session.send("hang")
            await anyio.to_thread.run_sync(agent.wait_for_hang)
    assert agent.returncode is not None


async def test_what_it_said_can_be_read_after_it_was_closed() -> None:
    agent = Simulator()
    await agent.connect()
    await agent.send(b'{"type":"control_request","request_id":"1","request":{"subtype":"mcp_status"}}\n')
    await agent.close()
    said = b""
    while data := await agent.receive():
        said += data
    assert b'"mcpServers":[]' in said


@pytest.mark.parametrize(
    "line, words",
    [
        ("not json", "SyntaxError"),
        ('{"type":', "SyntaxError"),
        ("null", "TypeError"),
        ('{"type":"user"}', "Expected message role 'user', got 'undefined'"),
        ('{"type":"control_request","request_id":"1"}', "Missing request on control_request"),
    ],
)
async def test_one_malformed_line_ends_the_agent(line: str, words: str) -> None:
    agent = Simulator()
    async with agent:
        await agent.send(f"{line}\n".encode())
        with anyio.fail_after(SECONDS), pytest.raises(ProcessExited) as exited:
            await agent.receive()
        assert exited.value.returncode == 1
        assert words in exited.value.stderr_tail
        assert isinstance(agent.exit_error, ProcessExited)


@pytest.mark.parametrize("line", ["[]", "5", '"x"', '{"type":"unknown"}', "{}", "", '{"type":"keep_alive"}'])
async def test_other_lines_are_passed_over(line: str) -> None:
    agent = Simulator([say("still here")])
    async with outrider.Session(transport=agent) as session:
        await agent.send(f"{line}\r\n".encode())
        assert (await session.ask("hello")).text == "still here"


async def test_one_that_is_dropped_is_gone() -> None:
    agent = Simulator([hang()])
    await agent.connect()
    folder = agent.folder
    del agent
    gc.collect()
    assert not folder.exists()
    assert not any("portal" in thread.name.lower() for thread in threading.enumerate())


async def test_one_that_is_dropped_at_once_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for _ in range(20):
        agent = Simulator([say("never")])
        await agent.connect()
        del agent
        gc.collect()
    assert files_in(tmp_path) == []


async def test_many_run_side_by_side_in_one_thread() -> None:
    # More than the threads that sessions may take for files.
    count, before = 60, threading.active_count()
    agents = [Simulator([think("hm", then=say(str(number)))]) for number in range(count)]
    texts: dict[int, str] = {}

    async def talk(number: int) -> None:
        async with outrider.Session(transport=agents[number]) as session:
            texts[number] = (await session.ask("which")).text

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(talk, number)
    assert texts == {number: str(number) for number in range(count)}
    assert threading.active_count() < before + count


async def test_answers_of_several_blocks_arrive_in_order() -> None:
    agent = Simulator([answer(say("a"), say("b"))])
    async with outrider.Session(transport=agent) as session:
        turn = await session.send("go")
        texts = [
            block.text
            async for message in turn
            if isinstance(message, outrider.AssistantMessage)
            for block in message.content
            if isinstance(block, outrider.TextBlock)
        ]
    assert texts == ["a", "b"]


async def test_closing_ends_a_subagent_that_waits_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.testing._simulator.transport._GRACE_SECONDS", 0.1)
    script = [subagent("look", hang(), background=True), say("It looks.")]
    agent = Simulator(script)
    with anyio.fail_after(SECONDS):
        async with outrider.Session(
            transport=agent,
            permission_mode="bypassPermissions",
            timeouts=outrider.Timeouts(close=0.1, terminate=0.1),
        ) as session:
            assert (await session.ask("look")).text == "It looks."
    assert agent.returncode is not None


async def test_a_wrong_key_ends_the_turn_before_the_next_try() -> None:
    agent = Simulator([fail(401), say("for the next turn")])
    with anyio.fail_after(SECONDS):
        async with outrider.Session(transport=agent) as session:
            with pytest.raises(ApiFailed):
                await session.ask("hi")
            assert (await session.ask("hi")).text == "for the next turn"


async def test_a_folder_to_work_in_that_is_not_there_is_told_as_with_the_program(tmp_path: Path) -> None:
    with pytest.raises(FolderNotFound, match="nowhere"):
        await outrider.run("hi", transport=Simulator([say("never")]), cwd=tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="is not a folder"):
        await outrider.run("hi", transport=Simulator([say("never")]), cwd=tmp_path / "file")


async def test_a_folder_that_is_given_is_made(tmp_path: Path) -> None:
    agent = Simulator([use_tool("Bash", command="pwd"), say("done")], folder=tmp_path / "new" / "project")
    await outrider.run("where?", transport=agent, permission_mode="bypassPermissions")
    assert agent.requests[1].tool_results[0]["content"] == str(tmp_path / "new" / "project")


async def test_sessions_that_cannot_be_kept_go_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    agent = Simulator(
        [use_tool("Bash", command="seq 20000"), subagent("look", say("found")), say("done")],
        config_dir=tmp_path / "file",
    )
    result = await outrider.run("go", transport=agent, permission_mode="bypassPermissions")
    assert result.text == "done"


async def test_results_name_files_as_the_model_does_though_the_host_sees_whole_paths(tmp_path: Path) -> None:
    seen: list[object] = []

    def allow(request: outrider.PermissionRequest) -> bool:
        seen.append(request.tool_input["file_path"])
        return True

    agent = Simulator([use_tool("Write", file_path="sub/../a.txt", content="x"), say("done")])
    await outrider.run("write", transport=agent, cwd=tmp_path, permission=allow)
    assert seen == [str(tmp_path / "a.txt")]
    assert "created successfully at: sub/../a.txt" in agent.requests[1].tool_results[0]["content"]


async def test_a_mistake_in_the_script_is_not_taken_for_a_wrong_key() -> None:
    with pytest.raises(ApiFailed) as caught:
        await outrider.run("hi", transport=Simulator([expect(prompt="other"), say("x")]))
    assert "The test's script is wrong" in str(caught.value)
    assert "API key" not in str(caught.value)
