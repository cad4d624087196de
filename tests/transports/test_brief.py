"""A command that is run to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.command import Command
from outrider.errors import AgentNotFound
from outrider.launch import Version, make_version_probe
from outrider.options import Options
from outrider.transports import run_to_end
from tests.real_program import clean_environment, require_program
from tests.transports.conftest import child, own_processes

pytestmark = pytest.mark.anyio


async def test_what_it_said_and_how_it_ended() -> None:
    finished = await run_to_end(Command(("sh", "-c", "echo out; echo err >&2; exit 3")), timeout=30)
    assert finished == (3, b"out\n", "err")


async def test_its_input_is_empty() -> None:
    assert await run_to_end(Command(("cat",)), timeout=30) == (0, b"", "")


@pytest.mark.parametrize("name", ["ignores_everything", "is_stopped", "never_reads"])
async def test_one_that_does_not_end_is_killed(name: str) -> None:
    finished = await run_to_end(child(name), timeout=0.2)
    assert finished.returncode is None
    assert own_processes() == []


async def test_one_that_floods_is_killed() -> None:
    finished = await run_to_end(child("floods"), timeout=30)
    assert finished.returncode is None
    assert len(finished.output) < 2_000_000


async def test_one_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AgentNotFound):
        await run_to_end(Command(("no-such-program",)), timeout=30)


@pytest.mark.real
@pytest.mark.requirement("B3")
async def test_the_real_program_tells_its_version(tmp_path: Path) -> None:
    options = Options(cli_path=require_program(), env=clean_environment(tmp_path))
    finished = await run_to_end(make_version_probe(options), timeout=30)
    assert Version.parse(finished.output.decode()) >= Version.parse("2.0.0")
