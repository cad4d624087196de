"""What runs beside a turn of the simulated agent: its frames, as the program has them, and its end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.testing import RealAgent, Simulator, background_task, say, use_tool
from outrider.testing._simulator.frames import Outcome, ToolCall
from outrider.wire import CommandLifecycleMessage, Frame, JsonObject
from tests.real_program import Conversation, require_program
from tests.testing.simulator.world import World

pytestmark = pytest.mark.anyio

AGENT_CALL = ToolCall(id="toolu_agent", name="Agent", input={"prompt": "SUB", "description": "d"})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def task_of(outcome: Outcome) -> str:
    assert isinstance(outcome.detail, dict)
    return str(outcome.detail["backgroundTaskId"])


def is_running(pid: int) -> bool:
    """Whether a process does anything; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not is_so():  # noqa: ASYNC110 - other processes tell nobody
            await anyio.sleep(0.01)


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def pid_in(path: Path) -> int:
    """The number that a command writes there."""
    await until(lambda: text_of(path).endswith("\n"))
    return int(text_of(path))


def shown(frames: list[JsonObject]) -> list[JsonObject]:
    """Frames about tasks, without what differs each time."""
    made: list[JsonObject] = []
    for frame in frames:
        if str(frame.get("subtype")).startswith(("task_", "background_")):
            text = json.dumps(frame)
            text = re.sub(r'"(uuid|session_id|run_id|tool_use_id)": "[^"]*"', r'"\1": "X"', text)
            text = re.sub(r'"end_time": \d+', '"end_time": 0', text)
            text = re.sub(r'"output_file": "[^"]+/tasks/b\w{8}\.output"', '"output_file": "FILE"', text)
            text = re.sub(r"\bb[0-9a-z]{8}\b", "ID", text)
            plain = json.loads(text)
            plain.pop("uuid", None)
            plain.pop("session_id", None)
            made.append(plain)
    return made


def is_idle(event: object) -> bool:
    return isinstance(event, Frame) and b'"tasks":[]' in (event.wire_line or b"")


async def test_a_command_in_the_background_is_told_of_from_its_start_to_its_end(world: World) -> None:
    heard: list[tuple[str, JsonObject]] = []
    world.background.on_end = lambda text, origin: heard.append((text, origin))
    async with world.running():
        outcome = await world.use(
            "Bash", command="echo out; exit 3", run_in_background=True, description="Slow thing"
        )
        task = task_of(outcome)
        assert world.background.is_busy
        await world.background.wait_idle()
        assert [frame["subtype"] for frame in world.frames] == [
            "background_tasks_changed",
            "task_started",
            "task_updated",
            "task_notification",
            "background_tasks_changed",
        ]
        run_id = world.background.run_id(task)
    assert {frame.get("task_id", task) for frame in world.frames} == {task}
    (notification,) = world.of("task_notification")
    assert notification["status"] == "failed"
    assert notification["summary"] == 'Background command "Slow thing" failed with exit code 3'
    assert text_of(Path(notification["output_file"])) == "out\n\n[exited with code 3]\n"
    ((text, origin),) = heard
    assert origin == {"kind": "task-notification", "producer": "session-task", "runId": run_id}
    assert f"<task-id>{task}</task-id>" in text
    assert "<status>failed</status>" in text
    assert not world.background.is_busy


async def test_what_a_command_has_said_so_far_can_be_asked_for(world: World) -> None:
    async with world.running():
        task = task_of(await world.use("Bash", command="echo so far; sleep 60", run_in_background=True))
        await until(lambda: world.background.output(task)["total_bytes"] > 0)
        assert world.background.output(task) == {"output": "so far\n", "total_bytes": 7, "truncated": False}
        with pytest.raises(LookupError, match="no shell or Monitor task with that task_id"):
            world.background.output("bnope")


async def test_a_command_can_be_stopped_with_all_that_it_started(world: World, tmp_path: Path) -> None:
    world.background.on_end = lambda text, origin: pytest.fail("the model was told")
    async with world.running():
        command = f": ; sleep 600 & echo $! > {tmp_path}/pid; wait"
        task = task_of(await world.use("Bash", command=command, run_in_background=True))
        pid = await pid_in(tmp_path / "pid")
        world.frames.clear()
        assert await world.background.stop(task)
        assert [frame["subtype"] for frame in world.frames] == [
            "task_updated",
            "task_notification",
            "background_tasks_changed",
        ]
        assert world.frames[0]["patch"]["status"] == "killed"
        assert world.frames[1]["status"] == "stopped"
        assert world.background.running() == []
        await until(lambda: not is_running(pid))
        assert not await world.background.stop(task)
    assert len(world.frames) == 3


async def test_nothing_runs_any_more_when_the_run_has_ended(world: World, tmp_path: Path) -> None:
    async with world.running():
        await world.use("Bash", command=f"echo $$ > {tmp_path}/a; sleep 600", run_in_background=True)
        # One that was left behind by a command that has ended, one in a session of its own.
        await world.use("Bash", command=f": ; sleep 600 & echo $! > {tmp_path}/b")
        await world.use("Bash", command=f"setsid sh -c 'echo $$ > {tmp_path}/c; sleep 600' & :")
        pids = [await pid_in(tmp_path / name) for name in "abc"]
        assert all(is_running(pid) for pid in pids)
    await until(lambda: not any(is_running(pid) for pid in pids))
    ends = [frame["subtype"] for frame in world.frames][-3:]
    assert ends == ["task_notification", "task_updated", "background_tasks_changed"]


async def test_a_run_that_is_cut_off_leaves_no_command(world: World, tmp_path: Path) -> None:
    pid = 0
    async with anyio.create_task_group() as world.tasks:
        with anyio.fail_after(30):
            await world.use("Bash", command=f"echo $$ > {tmp_path}/a; sleep 600", run_in_background=True)
            pid = await pid_in(tmp_path / "a")
            world.tasks.cancel_scope.cancel()
    assert pid
    assert not is_running(pid)


async def test_a_command_in_the_background_does_not_run_for_ever(world: World) -> None:
    heard: list[str] = []
    world.background.on_end = lambda text, origin: heard.append(text)
    async with world.running():
        await world.use("Bash", command="sleep 600", run_in_background=True, timeout=100)
        await world.background.wait_idle()
    assert "<status>failed</status>" in heard[0]


async def test_a_command_in_the_foreground_ends_at_its_limit(world: World) -> None:
    async with world.running():
        outcome = await world.use("Bash", command=": ; sleep 600", timeout=50)
    assert outcome.is_error
    assert outcome.content == "Command timed out after 0.05s"
    assert world.frames == []


async def test_a_subagent_in_the_background_is_told_of_and_can_be_stopped(world: World) -> None:
    heard: list[str] = []
    stopped: list[str] = []
    world.background.on_end = lambda text, origin: heard.append(text)
    usage: JsonObject = {"total_tokens": 15, "tool_uses": 1, "duration_ms": 7}

    def start() -> str:
        return world.background.start_agent(
            AGENT_CALL,
            subagent_type="helper",
            is_backgrounded=True,
            stop=lambda: stopped.append("stopped"),
        )

    async with world.running():
        first = start()
        assert world.background.is_busy
        assert world.frames[0]["tasks"][0]["subagent_type"] == "helper"
        assert world.frames[1]["prompt"] == "SUB"
        world.background.progress(first, description="Running x", usage=usage, last_tool_name="Bash")
        world.background.finish_agent(
            first, status="completed", summary="sub said", usage=usage, result="sub said"
        )
        assert [frame["subtype"] for frame in world.frames[2:]] == [
            "task_progress",
            "task_updated",
            "task_notification",
            "background_tasks_changed",
        ]
        assert world.frames[4]["summary"] == "sub said"
        assert '<summary>Agent "d" finished</summary>\n<result>sub said</result>' in heard[0]
        second = start()
        assert await world.background.stop(second)
        assert stopped == ["stopped"]
        # The core hears of the end of what it was told to stop.
        world.background.finish_agent(second, status="killed", summary="", usage=usage, result="")
        assert [frame["status"] for frame in world.of("task_notification")] == ["completed", "stopped"]
        assert len(heard) == 1


async def test_a_subagent_in_the_foreground_is_no_background_task(world: World) -> None:
    world.background.on_end = lambda text, origin: pytest.fail("the model was told")
    async with world.running():
        task = world.background.start_agent(
            AGENT_CALL, subagent_type="helper", is_backgrounded=False, stop=lambda: None
        )
        assert not world.background.is_busy
        world.background.finish_agent(task, status="completed", summary="said", usage={}, result="said")
    assert [frame["subtype"] for frame in world.frames] == [
        "task_started",
        "task_updated",
        "task_notification",
    ]


@pytest.mark.real
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    "given",
    [
        {"command": "sleep 0.3; exit 3", "run_in_background": True, "description": "Slow"},
        {"command": "sleep 0.3; echo a", "run_in_background": True},
    ],
    ids=["fails", "completes"],
)
async def test_the_frames_are_those_of_the_program(world: World, given: Any) -> None:
    with RealAgent([use_tool("Bash", given)], otherwise=say("ok"), program=require_program()) as agent:
        with anyio.fail_after(60):
            async with Conversation(agent.options(permission_mode="bypassPermissions")) as conversation:
                await conversation.turn("go")
                if not any(map(is_idle, conversation.received)):
                    await conversation.until(is_idle)
                frames = [event for event in conversation.received if isinstance(event, Frame)]
    expected = shown([json.loads(frame.wire_line) for frame in frames if frame.wire_line])
    async with world.running():
        await world.use("Bash", **given)
        await world.background.wait_idle()
    assert len(expected) >= 2
    assert shown(world.frames) == expected


async def test_a_prompt_that_comes_while_the_agent_works_on_its_own_account_gets_that_result() -> None:
    waits = background_task("echo finished")
    touches = use_tool("Bash", command="touch file", description="Touch")
    agent = Simulator([waits, say("It runs."), touches, say("It has ended.")])
    asked, decided = anyio.Event(), anyio.Event()

    async def permission(_: outrider.PermissionRequest) -> bool:
        asked.set()
        await decided.wait()
        return True

    with anyio.fail_after(30):
        async with outrider.Session(
            transport=agent, permission=permission, allowed_tools=["Bash(echo *)"]
        ) as session:
            assert (await session.ask("go")).text == "It runs."
            await asked.wait()
            turn = await session.send("again")
            async for message in turn:
                if isinstance(message, CommandLifecycleMessage):
                    break
            decided.set()
            assert (await turn.result()).text == "It has ended."
