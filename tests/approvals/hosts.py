"""Programs that park a session and go on with it, and end by SIGKILL at a step; for tests."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import anyio

import outrider
from outrider import Approval, Approvals, Options, Policy
from outrider.errors import SessionBusy
from outrider.session import _gate
from outrider.session._store import link
from outrider.testing import Simulator, say, use_tool

# Short, so that tests need not wait for what a host leaves that was killed.
link.LEASE_SECONDS = 0.5  # type: ignore[misc]
link.RENEW_SECONDS = 0.1  # type: ignore[misc]
_gate.OFFER_SECONDS = 0.5  # type: ignore[misc]
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


def park(place: Any, root: Path, step: str) -> None:
    """Ask for a call, until it is parked."""
    anyio.run(partial(_park, place, root, step))


async def _park(place: Any, root: Path, step: str) -> None:
    pid = os.getpid()
    command = f"echo x >> made; kill -9 {pid}" if step == "running" else "echo x >> made"
    # The process that goes on is another one.
    command = command.replace(str(pid), "$(cat host)")
    async with _playing(place, root, step, use_tool("Bash", command=command), say("Parked.")) as options:
        await outrider.run("Make it", options)
    if step == "deferred":
        kill()


def go_on(place: Any, root: Path, step: str) -> None:
    """Go on with what was decided."""
    anyio.run(partial(_go_on, place, root, step))


async def _go_on(place: Any, root: Path, step: str) -> None:
    (root / "project" / "host").write_text(str(os.getpid()))
    session = (root / "session").read_text()
    script = [use_tool("Bash", command="echo x >> made")] if (root / "again").exists() else []
    async with _playing(place, root, step, *script, say("All done.")) as options:
        is_busy = True
        while is_busy:
            try:
                result = await outrider.go_on(session, options)
                (root / "said").write_text(f"{result.text} {result.messages}")
                is_busy = False
            except SessionBusy:
                # The one that was killed has it for a moment.
                await anyio.sleep(0.05)


class _playing:  # noqa: N801 - read as a function
    def __init__(self, place: Any, root: Path, step: str, *script: Any) -> None:
        self._agent = Simulator(
            script, folder=root / "project", config_dir=root / "config", otherwise=say("All done.")
        )
        self._approvals = Dying(place, patience=0.0)
        self._approvals.step, self._approvals.root = step, root
        self._root = root

    async def __aenter__(self) -> Options:
        self._agent.__enter__()
        self._stand_in = self._agent.stand_in()
        self._stand_in.__enter__()
        return Options(cwd=self._root / "project", permission=POLICY, approvals=self._approvals)

    async def __aexit__(self, *_: object) -> None:
        self._stand_in.__exit__(None, None, None)
        self._agent.__exit__(None, None, None)
