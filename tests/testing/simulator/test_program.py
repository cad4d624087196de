"""The simulated agent as a program: its print modes, exit codes and signals, and sessions that start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any, Self

import anyio
import pytest

import outrider
from outrider.command import Command
from outrider.errors import SessionNotFound
from outrider.testing import Gate, Simulator, expect, hang, say, use_tool
from outrider.testing._simulator.program import write_launcher
from outrider.transports import ProcessTransport
from tests.testing.simulator.driving import STREAMING, Driver, user
from tests.testing.simulator.recorded_host import kinds

SECONDS = 30.0
PROGRAM = (sys.executable, "-m", "outrider.testing.agent")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path


def environment(place: Path, script: str | None = None) -> dict[str, str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(place), "CLAUDE_CONFIG_DIR": str(place / "config")}
    if script is not None:
        path = place / "script.py"
        path.write_text(f"from outrider.testing import *\nscript = {script}\n", encoding="utf-8")
        env["OUTRIDER_AGENT_SCRIPT"] = str(path)
    return env


def started(
    place: Path, *argv: str, script: str | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *argv],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
        cwd=place / "work",
        env=environment(place, script),
    )


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("flag", ["--version", "-v"])
def test_it_says_the_version_that_it_plays(flag: str, place: Path) -> None:
    done = started(place, flag)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2.1.325 (Claude Code)\n", "")


def test_the_version_needs_nothing_loaded(place: Path) -> None:
    code = (
        "import sys, outrider.testing.agent as a\n"
        "try: a.main(['-v'])\n"
        "except SystemExit: print('anyio' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
        env=environment(place),
    )
    assert done.stdout.splitlines() == ["2.1.325 (Claude Code)", "False"]


def test_it_has_help(place: Path) -> None:
    done = started(place, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: claude")


# Streaming.


class Program:
    """The program, started and spoken to."""

    def __init__(self, place: Path, script: str, *argv: str) -> None:
        command = Command(
            (*PROGRAM, *STREAMING, *argv), env=environment(place, script), cwd=str(place / "work")
        )
        self.transport = ProcessTransport(command)
        self.host = Driver(self.transport)

    async def __aenter__(self) -> Self:
        await self.transport.connect()
        await self.host.request("initialize", hooks=None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.transport.close()

    def signal(self, number: int) -> None:
        pid = self.transport.pid
        assert pid is not None
        os.kill(pid, number)


@pytest.mark.anyio
async def test_it_ends_with_its_input(place: Path) -> None:
    async with Program(place, "[say('one')]") as program:
        assert (await program.host.ask("hi"))["result"] == "one"
        await program.transport.end_input()
        await program.host.rest()
        assert program.transport.returncode == 0


@pytest.mark.anyio
@pytest.mark.parametrize(
    "script, code", [("[fail(403)]", 1), ("[fail(403), say('ok')]", 0), ("[say('ok'), fail(403)]", 1)]
)
async def test_the_last_result_is_in_the_exit_code(script: str, code: int, place: Path) -> None:
    async with Program(place, script) as program:
        for _ in range(script.count("(")):
            await program.host.ask("hi")
        await program.transport.end_input()
        await program.host.rest()
        assert program.transport.returncode == code


@pytest.mark.anyio
async def test_a_turn_goes_on_to_its_result_after_the_end_of_input(place: Path) -> None:
    async with Program(place, "[say('one two', delay=0.01)]") as program:
        await program.host.send(user("hi"))
        await program.transport.end_input()
        frames = await program.host.rest()
    assert frames[-1]["result"] == "one two"


@pytest.mark.anyio
async def test_one_malformed_line_ends_it(place: Path) -> None:
    async with Program(place, "[]") as program:
        await program.host.send("not json")
        assert await program.host.rest() == []
        assert program.transport.returncode == 1
        assert (
            "Error parsing streaming input line (type=unknown, 8 chars): SyntaxError"
            in program.transport.stderr_tail
        )


@pytest.mark.anyio
@pytest.mark.parametrize(
    "name, code, said",
    [
        ("SIGINT", 0, ["assistant[text] aborted", "user[text]", "result/error_during_execution"]),
        ("SIGTERM", 143, []),
        ("SIGHUP", 129, []),
    ],
)
async def test_a_signal_in_the_middle_of_an_answer(
    name: str, code: int, said: list[str], place: Path
) -> None:
    script = "[say('one ' * 100, delay=0.5)]"
    async with Program(place, script, "--include-partial-messages") as program:
        await program.host.send(user("hi"))
        await program.host.until("stream_event/content_block_delta")
        program.signal(getattr(signal, name))
        frames = await program.host.rest()
        assert program.transport.returncode == code
    assert [kind for kind in kinds(frames) if not kind.startswith("stream_event")] == said


@pytest.mark.anyio
@pytest.mark.parametrize("name, code", [("SIGINT", 0), ("SIGTERM", 143), ("SIGHUP", 129)])
async def test_a_signal_when_it_is_idle(name: str, code: int, place: Path) -> None:
    async with Program(place, "[say('one')]") as program:
        await program.host.ask("hi")
        program.signal(getattr(signal, name))
        await program.host.rest()
        assert program.transport.returncode == code


# In the place of the program.


@pytest.fixture
def launcher(place: Path) -> Path:
    return write_launcher(place)


@pytest.mark.anyio
@pytest.mark.requirement("H1")
async def test_a_session_starts_it_where_it_expects_the_program(place: Path, launcher: Path) -> None:
    env = environment(place, "[use_tool('lookup', ticket=7), say('Ada')]")

    @outrider.tool
    async def lookup(ticket: int) -> str:
        """Fetch a ticket."""
        return f"{ticket}: Ada"

    with anyio.fail_after(SECONDS):
        async with outrider.Session(
            cli_path=launcher, env=env, cwd=place / "work", tools=[lookup]
        ) as session:
            assert (await session.ask("who?")).text == "Ada"


@pytest.mark.anyio
@pytest.mark.requirement("H1")
async def test_a_simulator_can_be_a_program_with_the_script_of_the_test() -> None:
    seen: list[str] = []

    def choose(request: Any) -> Any:
        seen.append(request.prompt)
        return say("chosen")

    with Simulator([use_tool("Bash", command="pwd"), choose, say("three")], executable=True) as agent:
        options = agent.options(allowed_tools=["Bash"])
        with anyio.fail_after(SECONDS):
            async with outrider.Session(options=options) as session:
                first = await session.ask("where?")
                assert first.text == "chosen"
            # With the same script and folders, another process goes on with the session.
            async with outrider.Session(options=agent.options(resume=first.session_id)) as session:
                assert (await session.ask("go on")).text == "three"
        assert agent.requests[1].tool_results[0]["content"] == str(agent.folder)
        assert seen == ["where?"]
        assert len(agent.requests[2].messages) == 5
        path = agent.executable_path
        assert path.exists()
    assert not path.exists()


@pytest.mark.anyio
async def test_gates_and_hangs_hold_the_program_too() -> None:
    gate = Gate()
    with Simulator([say("one", gate=gate), hang(say("late"))], executable=True) as agent:
        with anyio.fail_after(SECONDS):
            async with outrider.Session(options=agent.options()) as session:
                turn = await session.send("wait")
                await anyio.to_thread.run_sync(gate.wait_reached)
                gate.open()
                assert (await turn.result()).text == "one"
                turn = await session.send("hang")
                await anyio.to_thread.run_sync(agent.wait_for_hang)
                agent.release()
                assert (await turn.result()).text == "late"


@pytest.mark.anyio
async def test_a_session_that_is_not_there_is_not_found() -> None:
    with Simulator([say("never")], executable=True) as agent:
        missing = "99999999-3333-4444-8555-666666666666"
        with anyio.fail_after(SECONDS), pytest.raises(SessionNotFound):
            await outrider.run("hi", options=agent.options(resume=missing))


@pytest.mark.anyio
async def test_a_mistake_in_the_script_is_raised_in_the_test() -> None:
    agent = Simulator([expect(prompt="other"), say("x")], executable=True)
    agent.__enter__()
    with anyio.fail_after(SECONDS), pytest.raises(outrider.TurnFailed):
        await outrider.run("hi", options=agent.options())
    with pytest.raises(AssertionError):
        agent.__exit__(None, None, None)


@pytest.mark.anyio
async def test_a_turn_that_is_interrupted_while_it_hangs_does_not_hold_up_the_next() -> None:
    gate = Gate()
    with Simulator([hang(), say("held", gate=gate), say("next")], executable=True) as agent:
        with anyio.fail_after(SECONDS):
            async with outrider.Session(options=agent.options()) as session:
                for wait in (agent.wait_for_hang, gate.wait_reached):
                    turn = await session.send("wait")
                    await anyio.to_thread.run_sync(wait)
                    await session.interrupt()
                    with pytest.raises(outrider.TurnFailed):
                        await turn.result()
                assert (await session.ask("go on")).text == "next"


@pytest.mark.anyio
async def test_an_executable_can_be_had_again_after_its_end() -> None:
    agent = Simulator([say("one"), say("two")], executable=True)
    for text in ("one", "two"):
        with agent, anyio.fail_after(SECONDS):
            assert (await outrider.run("hi", options=agent.options())).text == text


@pytest.mark.anyio
async def test_whoever_has_not_the_key_does_not_end_the_way_to_the_script() -> None:
    with Simulator([say("still there")], executable=True) as agent:
        address = agent.options().env["OUTRIDER_AGENT_SCRIPT"]
        with pytest.raises(AuthenticationError):
            Client(address, authkey=b"wrong")
        with anyio.fail_after(SECONDS):
            assert (await outrider.run("hi", options=agent.options())).text == "still there"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_as_good_as_none(closed: str, place: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, *STREAMING],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
        cwd=place / "work",
        env=environment(place),
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "name, text, told",
    [
        ("missing.json", None, "cannot be read"),
        ("broken.json", "{", "is not JSON"),
        ("typo.json", '[{"use_tol": "x"}]', "Did you mean `use_tool`?"),
        ("raises.py", "1/0", "raises.py, line 1: ZeroDivisionError"),
    ],
)
def test_a_script_that_is_none_is_told_in_one_line(
    name: str, text: str | None, told: str, place: Path
) -> None:
    if text is not None:
        (place / name).write_text(text)
    done = subprocess.run(
        [*PROGRAM, *STREAMING],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=place / "work",
        env=environment(place) | {"OUTRIDER_AGENT_SCRIPT": str(place / name)},
    )
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.anyio
async def test_nothing_is_left_of_an_executable_that_was_closed() -> None:
    agent = Simulator([say("one")], executable=True)
    with anyio.fail_after(SECONDS):
        assert (await outrider.run("hi", options=agent.options())).text == "one"
    places = (agent.executable_path, agent.folder, agent.config_dir)
    await agent.close()
    assert [place for place in places if place.exists()] == []
