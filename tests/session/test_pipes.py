"""What a session does in callbacks of the event loop, with a program at the other end of real pipes."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

import outrider
from outrider.errors import ApiFailed
from outrider.session import Session
from outrider.wire.hooks import PreToolUseInput
from tests.session.surroundings import QUICK, Program

pytestmark = pytest.mark.anyio

SECONDS = 30


async def test_questions_that_come_together_are_all_answered_but_what_is_taken_back(program: Program) -> None:
    asked: list[str | None] = []

    @outrider.hook("PreToolUse")
    async def look(_: PreToolUseInput, context: outrider.HookContext) -> None:
        asked.append(context.tool_use_id)
        await anyio.lowlevel.checkpoint()

    with anyio.fail_after(SECONDS):
        async with Session(cli_path=program("asks_many_at_once"), hooks=[look], timeouts=QUICK) as session:
            done = await session.ask("go")
    expected = sorted(f"ask-{number}" for number in range(39))
    assert done.text.split() == expected
    assert sorted(map(str, asked)) == expected


async def test_a_question_that_is_taken_back_leaves_what_is_shielded_alone(program: Program) -> None:
    seen: list[str] = []

    @outrider.hook("PreToolUse")
    async def look(_: PreToolUseInput, context: outrider.HookContext) -> None:
        with anyio.CancelScope(shield=True):
            await context.session.mcp_status()
            await anyio.lowlevel.checkpoint()
            seen.append("shielded")
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("cancelled")

    with anyio.fail_after(SECONDS):
        async with Session(
            cli_path=program("takes_a_question_back"), hooks=[look], timeouts=QUICK
        ) as session:
            await session.ask("go")
    assert seen == ["shielded", "cancelled"]


async def test_a_turn_is_given_up_by_what_the_loop_reads(program: Program) -> None:
    with anyio.fail_after(SECONDS), pytest.raises(ApiFailed) as caught:
        await outrider.run("go", cli_path=program("is_refused_by_the_api"), timeouts=QUICK)
    assert caught.value.status == 401
