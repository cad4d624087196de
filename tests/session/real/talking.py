"""Sessions with the real program, whose model follows a script, for the tests of this folder.

Does not check anything.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from anyio import to_thread

from outrider.session import Result, Session, SessionState, Turn
from outrider.testing import Gate, RealAgent
from outrider.wire import Json, StreamEvent
from tests.real_program import require_program

DEADLINE: Final = 30.0
"""Far longer than anything takes, and shorter than the limit of a test."""

HOLD: Final = "echo running > began; cat end"
"""A command that waits: `began` and `ended` are for the test. The agent refuses to run `sleep` alone."""

RETRIES: Final = "CLAUDE_CODE_MAX_RETRIES"


def real_agent(*script: Any, **more: Any) -> RealAgent:
    """The program with a script; skips the test if it is not there."""
    return RealAgent(script, program=require_program(), **more)


def make_pipes(agent: RealAgent) -> None:
    """What the command `HOLD` needs."""
    for name in ("began", "end"):
        if not (agent.folder / name).exists():
            os.mkfifo(agent.folder / name)


def came_to(error: BaseException) -> Result[Json]:
    """What a turn that failed came to."""
    result = getattr(error, "result", None)
    assert isinstance(result, Result)
    return result


def state_of(session: Session) -> SessionState:
    """The session's state, which type checkers do not expect to change."""
    return session.state


def is_piece(message: object) -> bool:
    """Whether a message is a piece of text that the model is writing."""
    return isinstance(message, StreamEvent) and bool(message.text)


@asynccontextmanager
async def opened(agent: RealAgent, **fields: Any) -> AsyncGenerator[Session]:
    """A session that may use every tool."""
    fields = {"permission_mode": "bypassPermissions"} | fields
    make_pipes(agent)
    with anyio.fail_after(DEADLINE):
        async with Session(agent.options(**fields)) as session:
            yield session


@asynccontextmanager
async def talking(
    *script: Any, subagents: Iterable[Any] = (), otherwise: Any = None, side: Any = None, **fields: Any
) -> AsyncGenerator[tuple[RealAgent, Session]]:
    """A session with a program of its own, and that program."""
    with real_agent(*script, subagents=subagents, otherwise=otherwise, side=side) as agent:
        async with opened(agent, **fields) as session:
            yield agent, session


async def requested(agent: RealAgent, what: int | Callable[[Any], bool]) -> Any:
    """Wait until the API has got a request."""
    return await to_thread.run_sync(agent.api.wait_for, what)


async def reached(gate: Gate) -> None:
    """Wait until an answer is held at a gate."""
    await to_thread.run_sync(gate.wait_reached)


async def began(agent: RealAgent) -> None:
    """Wait until the command `HOLD` runs."""
    assert await to_thread.run_sync((agent.folder / "began").read_text) == "running\n"


async def end(agent: RealAgent, said: str = "went\n") -> None:
    """Let the command `HOLD` say this, and end."""
    await to_thread.run_sync((agent.folder / "end").write_text, said)


async def seen(turn: Turn, is_it: Callable[[Any], bool]) -> Any:
    """The first message of a turn that is the one."""
    async for message in turn:
        if is_it(message):
            return message
    raise AssertionError(f"no such message among {[type(message).__name__ for message in turn.messages]}")
