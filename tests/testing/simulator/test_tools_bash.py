"""The tool `Bash` of the simulated agent: what the comparison with the program does not show."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from outrider.testing._simulator.frames import Outcome, ToolCall
from tests.testing.simulator.test_background import is_running, pid_in, until
from tests.testing.simulator.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_cancelled_call_kills_the_command_with_all_that_it_started(
    world: World, tmp_path: Path
) -> None:
    pid = 0
    async with world.running():
        async with anyio.create_task_group() as turn:
            command = f": ; sleep 600 & echo $! > {tmp_path}/pid; sleep 600"
            turn.start_soon(lambda: world.use("Bash", command=command))
            pid = await pid_in(tmp_path / "pid")
            turn.cancel_scope.cancel()
        await until(lambda: not is_running(pid))
        outcome = await world.use("Bash", command="echo still here")
        assert outcome.content == "still here"
    assert world.frames == []


async def test_commands_run_side_by_side(world: World, tmp_path: Path) -> None:
    outcomes: list[Outcome] = []

    async def meet(mine: str, other: str) -> None:
        command = f"touch {tmp_path}/{mine}; until [ -e {tmp_path}/{other} ]; do sleep 0.01; done; echo met"
        outcomes.append(await world.use("Bash", command=command))

    async with world.running(), anyio.create_task_group() as group:
        group.start_soon(meet, "a", "b")
        group.start_soon(meet, "b", "a")
    assert [outcome.content for outcome in outcomes] == ["met", "met"]


async def test_commands_have_the_variables_of_the_run_and_no_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_TEST", "1")
    async with world.running():
        outcome = await world.use("Bash", command="env")
    assert isinstance(outcome.content, str)
    variables = dict(line.split("=", 1) for line in outcome.content.splitlines())
    assert "OF_THE_TEST" not in variables
    assert variables["HOME"] == world.environment["HOME"]
    assert variables["PWD"] == str(world.cwd)
    assert variables["CLAUDE_CODE_SESSION_ID"] == world.session_id


async def test_output_of_any_length_and_kind_is_read(world: World) -> None:
    async with world.running():
        outcome = await world.use("Bash", command="printf '\\377\\n'; head -c 3000000 /dev/zero | tr '\\0' x")
        detail = outcome.detail
        assert isinstance(detail, dict)
        assert detail["stdout"].startswith("\ufffd\nxxx")
        assert "characters truncated" in detail["stdout"]


async def test_a_folder_that_is_gone_is_an_error_for_the_model(world: World) -> None:
    async with world.running():
        world.cwd.rmdir()
        outcome = await world.use("Bash", command="ls")
    assert outcome.is_error
    assert str(outcome.content).startswith(f"The shell could not be started in {world.cwd}")


@pytest.mark.parametrize("name, code", [("TERM", 144), ("KILL", 1), ("HUP", 1)])
async def test_a_command_that_a_signal_ends_has_the_exit_code_of_the_program(
    name: str, code: int, world: World
) -> None:
    async with world.running():
        outcome = await world.use("Bash", command=f"kill -{name} $$")
    assert outcome.content == f"Exit code {code}"


async def test_a_refusal_that_needs_no_question_can_be_told_before_one_is_asked(world: World) -> None:
    def check(name: str, **given: object) -> Outcome | None:
        return world.tools.check(ToolCall(id="toolu_1", name=name, input=given))

    assert check("Bash", command="echo a") is None
    assert check("Read", file_path="missing.txt") is None
    for wrong in (
        check("Bash"),
        check("Glob", pattern="*"),
        check("Edit", file_path="missing.txt", old_string="a", new_string="b"),
    ):
        assert wrong is not None
        assert wrong.is_error
        assert str(wrong.content).startswith("<tool_use_error>")
