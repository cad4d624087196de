"""Programs of Claude Code that are older than this package: what they are told, and what they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outrider import Session, resolve_settings
from outrider.errors import AgentTooOld, TurnInterrupted, Unsupported
from outrider.launch import Version
from outrider.options import Options
from outrider.testing import Simulator
from outrider.wire import AssistantMessage
from tests.session.surroundings import Program

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def old_one(program: Program, log: Path, **fields: Any) -> Options:
    return Options(cli_path=program("is_an_old_one"), env={"CHILD_LOG": str(log)}, **fields)


def starts(log: Path) -> list[list[str]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


async def test_an_old_program_is_asked_for_its_version_once_and_gets_the_prompt_its_own_way(
    program: Program, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    options = old_one(program, log, system_prompt=["Be brief.", "Speak Latin."])
    for _ in range(2):
        async with Session(options) as session:
            assert session.info.version == "2.0.0"
            turn = await session.send("x")
            async for message in turn:
                if isinstance(message, AssistantMessage):
                    assert message.text == "Be brief.\n\nSpeak Latin."
                    break
            await turn.cancel()
    first, asked, *again = starts(log)
    assert not any("prompt" in flag for flag in first)
    assert asked == ["-v"]
    assert [[flag.partition("=")[0] for flag in flags if "prompt" in flag] for flags in again] == [
        ["--system-prompt-file"]
    ] * 2


async def test_a_turn_of_an_old_program_is_cancelled_and_its_session_stays(
    program: Program, tmp_path: Path
) -> None:
    async with Session(old_one(program, tmp_path / "log")) as session:
        turn = await session.send("x")
        receipt = await turn.cancel()
        assert (receipt.outcome, receipt.was_withdrawn) == ("cancelled", False)
        with pytest.raises(TurnInterrupted) as caught:
            await turn.result()
        assert "newer message" not in str(caught.value)
        queued = await session.enqueue("y")
        with pytest.raises(Unsupported, match=r"2\.0\.0"):
            await queued.withdraw()
        assert (await queued.turn.cancel()).outcome == "cancelled"


@pytest.mark.parametrize(
    "fields",
    [
        {"output_format": {"type": "json_schema", "schema": {"type": "object"}}},
        {"effort": "low"},
        {"on_auth_refresh": lambda: "token"},
    ],
    ids=["which it would ignore", "with which it does not start", "which it would never ask for"],
)
async def test_an_option_that_an_old_program_lacks_is_refused_before_a_turn(
    fields: dict[str, Any], program: Program, tmp_path: Path
) -> None:
    session = Session(old_one(program, tmp_path / "log", **fields))
    for _ in range(2):
        with pytest.raises(AgentTooOld) as caught:
            await session.connect()
        assert (caught.value.version, caught.value.options) == ("2.0.0", tuple(fields))
        assert f"`{next(iter(fields))}` needs {caught.value.minimum}" in str(caught.value)
    # The second time, it was not even started.
    assert [flags for flags in starts(tmp_path / "log") if "-v" in flags] == [["-v"]]
    assert len(starts(tmp_path / "log")) == 2
    await session.close()


async def test_settings_of_an_old_program_cannot_be_resolved(program: Program, tmp_path: Path) -> None:
    with pytest.raises(AgentTooOld, match="cannot resolve settings"):
        await resolve_settings(old_one(program, tmp_path / "log"))


async def test_over_a_transport_of_the_users_nothing_that_an_old_program_ignores_is_lost() -> None:
    with pytest.raises(AgentTooOld) as caught:
        await Session(transport=Simulator(version="2.1.100"), system_prompt="Be brief.").connect()
    assert caught.value.options == ("system_prompt",)
    assert Version.parse(caught.value.minimum) > Version.parse("2.1.100")
