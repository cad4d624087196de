"""`on_auth_refresh`: a token that the API rejects is replaced, and the turn goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from outrider.errors import ApiFailed, LaunchError
from outrider.session import Session
from outrider.wire import UpdateEnvironmentVariables
from tests.cases import every_case
from tests.session.acting import Actor, acting
from tests.session.other_end import OtherEnd, playing, result, retry

pytestmark = pytest.mark.anyio

user = ContextVar("user", default="nobody")


async def test_a_rejected_token_is_replaced_and_the_turn_goes_on() -> None:
    tokens = iter(["first", " second\n", "third"])
    asked: list[str] = []

    async def refresh() -> str:
        asked.append(user.get())
        return next(tokens)

    async def play(agent: OtherEnd) -> None:
        for token in ("second", "third"):
            prompt = await agent.prompt()
            # The second one comes from a call that began before.
            await agent.say(retry(401), retry(401))
            assert await agent.next() == UpdateEnvironmentVariables({"CLAUDE_CODE_OAUTH_TOKEN": token})
            await agent.say(result(str(prompt.uuid), text=token))

    async with playing(play, on_auth_refresh=refresh) as session:
        user.set("Ada")
        assert (await session.ask("a")).text == "second"
        assert (await session.ask("b")).text == "third"
    assert asked == ["nobody", "Ada", "Ada"]


def fail() -> str:
    raise OSError("the vault is closed")


NO_TOKEN: dict[str, Callable[[], object]] = {
    "raises": fail,
    "none": lambda: None,
    "empty": lambda: " ",
    "the same": lambda: "first",
}


@every_case("case", NO_TOKEN)
async def test_without_another_token_the_turn_fails_at_once(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    actor = Actor()
    actor.opening = [retry(401)]
    login = {"CLAUDE_CODE_OAUTH_TOKEN": "first"}
    async with acting(actor, on_auth_refresh=NO_TOKEN[case], env=login) as session:
        with pytest.raises(ApiFailed) as caught:
            await session.ask("a")
    assert caught.value.status == 401
    assert ("the vault is closed" in caplog.text) is (case == "raises")
    caplog.clear()


async def test_a_new_token_that_is_rejected_too_is_the_end_of_it() -> None:
    asked: list[int] = []

    async def refresh() -> str:
        asked.append(1)
        return f"token {len(asked)}"

    actor = Actor()
    actor.opening = [retry(401)]
    async with acting(actor, on_auth_refresh=refresh) as session:
        turn = await session.send("a")
        while len(asked) < 2:
            await checkpoint()
        await actor.end.say(retry(401, attempt=2))
        with pytest.raises(ApiFailed):
            await turn.result()
    assert len(asked) == 2


@every_case("case", [name for name in NO_TOKEN if name != "the same"])
async def test_a_session_does_not_open_without_a_token(case: str) -> None:
    options: dict[str, Any] = {"on_auth_refresh": NO_TOKEN[case], "transport": OtherEnd().transport}
    with pytest.raises(LaunchError, match="`on_auth_refresh`") as caught:
        await Session(**options).connect()
    assert isinstance(caught.value.__cause__, OSError) is (case == "raises")


async def test_other_failures_ask_for_no_token() -> None:
    actor = Actor()
    actor.opening = [retry(500)]
    login = {"CLAUDE_CODE_OAUTH_TOKEN": "first"}
    async with acting(actor, on_auth_refresh=fail, env=login) as session:
        turn = await session.send("a")
        await actor.begun()
        await actor.finish()
        assert (await turn.result()).text == "done"
