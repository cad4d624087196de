"""What is made here is a session to the real program: forks, archives, what stores add, imports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.testing import RealAgent, say, use_tool
from outrider.transcripts import MemoryStore, Sessions
from tests.real_program import require_program

pytestmark = [pytest.mark.anyio, pytest.mark.real]
DEADLINE = 120.0


@pytest.fixture
def agent() -> Iterator[RealAgent]:
    script = [
        use_tool("Bash", command="echo hi"),
        use_tool(
            "Agent",
            description="look",
            prompt="look around",
            subagent_type="general-purpose",
            run_in_background=False,
        ),
        say("done"),
        say("second"),
        say("resumed"),
        say("resumed again"),
    ]
    with RealAgent(script, program=require_program(), subagents=[say("seen")]) as agent:
        yield agent


async def ask(agent: RealAgent, prompt: str, **options: Any) -> outrider.Result:
    with anyio.fail_after(DEADLINE):
        return await outrider.run(prompt, agent.options(permission_mode="bypassPermissions", **options))


async def two_turns(agent: RealAgent) -> str:
    session_id = (await ask(agent, "first prompt")).session_id
    assert (await ask(agent, "second prompt", resume=session_id)).text == "second"
    assert session_id is not None
    return session_id


def sent(agent: RealAgent) -> list[str]:
    """What was said so far, as the model was told last; without what the program adds."""
    said = str([message for message in agent.api.main_requests[-1].messages if message["role"] != "system"])
    words = ["first prompt", "echo hi", "look around", "done", "second prompt", "'second'", "third prompt"]
    return [word for word in words if word in said]


async def test_the_program_goes_on_with_a_fork(agent: RealAgent) -> None:
    session_id = await two_turns(agent)
    sessions = Sessions(config=agent.config_dir)
    before = (await sessions.info(session_id)).size
    new = await sessions.fork(session_id, title="Another way")
    result = await ask(agent, "third prompt", resume=new)
    assert (result.session_id, result.text) == (new, "resumed")
    assert sent(agent) == [
        "first prompt",
        "echo hi",
        "look around",
        "done",
        "second prompt",
        "'second'",
        "third prompt",
    ]
    assert (await sessions.info(new)).custom_title == "Another way"
    assert await sessions.agents(new) == await sessions.agents(session_id) != []
    texts = [entry.text for entry in await sessions.read(new)]
    assert (texts[0], texts[-2:]) == ("first prompt", ["third prompt", "resumed"])
    assert (await sessions.info(session_id)).size == before


async def test_the_program_goes_on_where_a_fork_ends(agent: RealAgent) -> None:
    session_id = await two_turns(agent)
    sessions = Sessions(config=agent.config_dir)
    [at] = [entry.uuid for entry in await sessions.read(session_id) if entry.text == "done"]
    new = await sessions.fork(session_id, at=at)
    await ask(agent, "third prompt", resume=new)
    assert sent(agent) == ["first prompt", "echo hi", "look around", "done", "third prompt"]


async def test_the_program_goes_on_with_what_is_renamed_archived_and_came_from_a_store(
    agent: RealAgent, tmp_path: Path
) -> None:
    session_id = await two_turns(agent)
    disk, store = Sessions(config=agent.config_dir), Sessions(MemoryStore())
    await disk.copy(session_id, to=store)
    await store.rename(session_id, "From a store")
    await store.tag(session_id, "kept")
    await store.archive(session_id)
    export = tmp_path / "export.json"
    export.write_text(await store.export(session_id, "json"), encoding="utf-8")
    assert '"type":"archived"' in export.read_text(encoding="utf-8")
    await disk.delete(session_id)
    await store.copy(session_id, to=disk)
    info = await disk.info(session_id)
    assert (info.title, info.tag, info.is_archived) == ("From a store", "kept", True)
    result = await ask(agent, "third prompt", resume=session_id)
    assert result.session_id == session_id
    assert sent(agent)[-3:] == ["second prompt", "'second'", "third prompt"]
    assert not (await disk.info(session_id)).is_archived
    assert (await disk.info(session_id)).custom_title == "From a store"


async def test_the_program_does_not_mind_lines_that_only_a_store_has(agent: RealAgent) -> None:
    session_id = await two_turns(agent)
    path = (await Sessions(config=agent.config_dir).info(session_id)).path
    assert path is not None
    odd = {"type": "archived", "archived": True, "uuid": "0b6f3a1e-1111-4111-8111-111111111111"}
    with path.open("ab") as stream:
        # An empty line, and half a one, as well.
        stream.write(json.dumps({**odd, "sessionId": session_id}).encode() + b"\n   \n\n" + b'{"type":"us')
    await Sessions(config=agent.config_dir).rename(session_id, "After half a line")
    result = await ask(agent, "third prompt", resume=session_id)
    assert result.text == "resumed"
    assert sent(agent)[-3:] == ["second prompt", "'second'", "third prompt"]


async def test_the_program_goes_on_with_a_fork_that_ends_with_a_call(agent: RealAgent) -> None:
    session_id = await two_turns(agent)
    sessions = Sessions(config=agent.config_dir)
    call = (await sessions.read(session_id))[1]
    assert "echo hi" in str(call.raw)
    new = await sessions.fork(session_id, at=call.uuid)
    result = await ask(agent, "third prompt", resume=new)
    assert (result.session_id, result.text) == (new, "resumed")
    assert sent(agent)[0] == "first prompt"
    assert sent(agent)[-1] == "third prompt"
    assert "second prompt" not in sent(agent)


async def test_a_fork_of_a_compacted_session_is_the_same_to_the_model() -> None:
    script = [
        say("one"),
        say("two"),
        say("<summary>In short.</summary>"),
        say("three"),
        say("four"),
        say("five"),
    ]
    with RealAgent(script, program=require_program()) as agent:
        with anyio.fail_after(DEADLINE):
            async with outrider.Session(agent.options()) as session:
                for prompt in ("first", "second", "/compact", "after"):
                    await (await session.send(prompt)).result()
        assert session.id is not None
        sessions = Sessions(config=agent.config_dir)
        new = await sessions.fork(session.id)
        told: list[list[Any]] = []
        for session_id in (new, session.id):
            await ask(agent, "go on", resume=session_id)
            messages = agent.api.main_requests[-1].messages
            told.append([(message["role"], message["content"]) for message in messages])
        assert told[0] == told[1]
        assert "In short." in str(told[0])
        full = [entry.text for entry in await sessions.read(new, history="full")]
        assert full[:4] == ["first", "one", "second", "two"]
