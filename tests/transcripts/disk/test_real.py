"""What the real program writes is read, while it runs and after."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

import outrider
from outrider.testing import RealAgent, answer, say, subagent, use_tool
from outrider.transcripts import SessionQuery
from outrider.transcripts._disk.read import Disk
from outrider.transcripts._values import MessageRange
from outrider.wire import AssistantMessage
from tests.real_program import require_program

pytestmark = pytest.mark.real


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_conversation_is_read_as_it_was_held() -> None:
    calls = answer(
        use_tool("Bash", command="echo one", description="one"),
        use_tool("Bash", command="echo two", description="two"),
    )
    steps = [calls, say("Both."), subagent("Look at the moon.", say("It is round.")), say("Round.")]
    with RealAgent(steps, program=require_program()) as agent, anyio.fail_after(60):
        options = agent.options(permission_mode="bypassPermissions")
        async with outrider.Session(options) as session:
            await session.ask("Run both.")
            disk = Disk(agent.config_dir)
            assert [entry.text for entry in disk.read(str(session.id), wanted=MessageRange(last=1))] == [
                "Both."
            ]
            await session.ask("Ask the moon.")
            id = str(session.id)
        (info,) = disk.list(SessionQuery(project=agent.folder))
        assert (info.id, info.first_prompt, info.title) == (id, "Run both.", "Ask the moon.")
        said = [entry.message for entry in disk.read(id)]
        uses = [use.name for each in said if isinstance(each, AssistantMessage) for use in each.tool_uses]
        assert uses == ["Bash", "Bash", "Agent"]
        assert [entry.text for entry in disk.read(id) if entry.text] == [
            "Run both.",
            "Both.",
            "Ask the moon.",
            "Round.",
        ]
        (one,) = disk.agents(id)
        assert [entry.text for entry in disk.read(id, wanted=MessageRange(agent=one))] == [
            "Look at the moon.",
            "It is round.",
        ]


@pytest.mark.anyio
async def test_a_title_and_a_tag_stay_at_the_end_of_a_file_that_grows() -> None:
    """Lists look at the ends only: the program itself writes them again after each turn."""
    steps = [say("Hello."), say("long " * 40_000)]
    with RealAgent(steps, program=require_program()) as agent, anyio.fail_after(60):
        result = await outrider.run("Hello?", agent.options())
        disk = Disk(agent.config_dir)
        id = str(result.session_id)
        path: Path = disk.find(id).path
        with path.open("a", encoding="utf-8") as file:
            for line in ({"type": "custom-title", "customTitle": "Named"}, {"type": "tag", "tag": "ci"}):
                file.write(json.dumps({**line, "sessionId": id}, separators=(",", ":")) + "\n")
        await outrider.run("Go on.", agent.options(resume=id))
        (info,) = disk.list()
        assert (info.size or 0) > 200_000
        assert (info.title, info.tag) == ("Named", "ci")
