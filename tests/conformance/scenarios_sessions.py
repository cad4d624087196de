"""Scenarios: sessions that are gone on with."""

from __future__ import annotations

from outrider.testing import say, use_tool
from tests.conformance.host import Host
from tests.conformance.scenario import scenario
from tests.conformance.scenarios_tools import ANYTHING

NOWHERE = "00000000-0000-4000-8000-000000000000"
CHOSEN = "11111111-1111-4111-8111-111111111111"


@scenario(
    use_tool("Bash", command="echo hi"), say("one"), say("two"), say("three"), say("four"), flags=ANYTHING
)
async def resumed(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("first")
    first = host.session_id
    async with host.started("--resume", first):
        await host.initialize()
        await host.ask("second")
    async with host.started("--resume", first, "--fork-session"):
        await host.initialize()
        await host.ask("third")
    async with host.started("--continue"):
        await host.initialize()
        await host.ask("fourth")


@scenario(everywhere=True)
async def no_such_session(host: Host) -> None:
    async with host.started("--resume", NOWHERE):
        pass


@scenario(say("hello"))
async def nothing_to_continue(host: Host) -> None:
    async with host.started("--continue"):
        await host.initialize()
        await host.ask("hi")


@scenario(say("hello"))
async def a_chosen_id(host: Host) -> None:
    async with host.started("--session-id", CHOSEN):
        await host.initialize()
        await host.ask("hi")
    async with host.started("--session-id", CHOSEN):
        pass


@scenario(use_tool("Bash", command="echo hi"), say("hello"), flags=(*ANYTHING, "--session-mirror"))
async def mirrored(host: Host) -> None:
    async with host.started():
        await host.initialize()
        await host.ask("hi", uuid=CHOSEN)


@scenario(say("hello"), say("again"))
async def not_kept(host: Host) -> None:
    async with host.started("--no-session-persistence"):
        await host.initialize()
        await host.ask("hi")
    async with host.started("--resume", host.session_id):
        pass
