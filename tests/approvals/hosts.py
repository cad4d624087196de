"""Programs that park a session and go on with it, and end by SIGKILL at a step; for tests."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio

import outrider
from outrider import Approval, Approvals, Options, Policy
from outrider.errors import SessionBusy
from outrider.session import _gate
from outrider.session._store import link
from outrider.testing import Answer, Request, Simulator, say, use_tool

# For the store in S3, which is a server of the tests.
os.environ |= {"AWS_ACCESS_KEY_ID": "made-up", "AWS_SECRET_ACCESS_KEY": "made-up-word"}

POLICY = Policy.of({"ask": "Bash"}, {"allow": "*"})


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(Approvals):
    """Ends the process as soon as a step is written down."""

    step = ""
    root = Path()

    async def ask(self, *given: Any, **more: Any) -> Approval:
        asked = await super().ask(*given, **more)
        self.root.joinpath("session").write_text(asked.session_id)
        if self.step == "asked":
            kill()
        return asked

    async def change(self, id: str, step: Any) -> Approval:
        changed = await super().change(id, step)
        is_parked = changed.state == "pending" and changed.is_deferred
        if self.step == ("parked" if is_parked else changed.state):
            kill()
        return changed


class Setting(NamedTuple):
    """Where a host works, and with what."""

    place: str
    root: Path
    folder: Path
    options: Options | None = None
    """For the real program; without them, it is the simulator."""


def park(setting: Setting, step: str) -> None:
    """Ask for a call, until it is parked."""
    _run(_park, setting, step)


def _run(function: Callable[[Setting, str], Awaitable[None]], setting: Setting, step: str) -> None:
    # Short, so that tests need not wait for what a host leaves that was killed. In this process only.
    link.LEASE_SECONDS = 0.5  # type: ignore[misc]
    link.RENEW_SECONDS = 0.1  # type: ignore[misc]
    _gate.OFFER_SECONDS = 0.5  # type: ignore[misc]
    anyio.run(function, setting, step)


async def _park(setting: Setting, step: str) -> None:
    async with _playing(setting, step, use_tool("Bash", command=command(step)), say("Parked.")) as options:
        await outrider.run("Make it", options)
    if step == "deferred":
        kill()


def command(step: str) -> str:
    # The process that goes on is another one.
    return "echo x >> made; kill -9 $(cat host)" if step == "running" else "echo x >> made"


def decide(setting: Setting, step: str) -> None:
    """Approve what waits."""
    _run(_decide, setting, step)


async def _decide(setting: Setting, step: str) -> None:
    async with _dying(setting, step) as approvals:
        session = (setting.root / "session").read_text()
        (pending,) = await approvals.list(session_id=session, state="pending")
        await approvals.decide(pending.id, True, by="ada")


def go_on(setting: Setting, step: str) -> None:
    """Go on with what was decided."""
    _run(_go_on, setting, step)


async def _go_on(setting: Setting, step: str) -> None:
    (setting.folder / "host").write_text(str(os.getpid()))
    session = (setting.root / "session").read_text()
    script = [use_tool("Bash", command=command(""))] if (setting.root / "again").exists() else []

    def finish(request: Request) -> Answer:
        (setting.root / "said").write_text(str(request.messages))
        return say("All done.")

    async with _playing(setting, step, *script, otherwise=finish) as options:
        is_busy = True
        while is_busy:
            try:
                await outrider.go_on(session, options)
                is_busy = False
            except SessionBusy:
                # The one that was killed has it for a moment.
                await anyio.sleep(0.05)


def _dying(setting: Setting, step: str) -> Dying:
    made = Dying(setting.place, patience=0.0)
    made.step, made.root = step, setting.root
    return made


@asynccontextmanager
async def _playing(
    setting: Setting, step: str, *script: Any, otherwise: Any = None
) -> AsyncGenerator[Options]:
    given: dict[str, Any] = {"permission": POLICY, "approvals": _dying(setting, step)}
    if setting.options is not None:
        yield setting.options.replace(**given)
        return
    config = setting.root / "config"
    with (
        Simulator(script, folder=setting.folder, config_dir=config, otherwise=otherwise) as agent,
        agent.stand_in(),
    ):
        yield Options(cwd=setting.folder, **given)
