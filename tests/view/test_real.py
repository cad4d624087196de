"""The viewer with what Claude Code itself writes, while it writes it and after."""

from __future__ import annotations

import re

import anyio
import pytest

import outrider
from outrider.testing import RealAgent, say, use_tool
from outrider.view import app
from tests.real_program import require_program
from tests.view.serving import client
from tests.view.test_pages import words

pytestmark = pytest.mark.real

SCRIPT = [
    use_tool("Read", file_path="notes.txt"),
    use_tool("Write", file_path="plan.txt", content="one\ntwo\n"),
    use_tool("Edit", file_path="plan.txt", old_string="two", new_string="three"),
    use_tool("Bash", command="echo out; echo err >&2; exit 3"),
    use_tool("Agent", description="Look around", prompt="Look around.", subagent_type="general-purpose"),
    say("It is **done**."),
]


def test_a_session_of_claude_code() -> None:
    async def main() -> None:
        with RealAgent(SCRIPT, program=require_program(), otherwise=say("Nothing around here.")) as agent:
            (agent.folder / "notes.txt").write_text("Ship on Friday.\nNot on Saturday.\n")
            options = agent.options(permission_mode="bypassPermissions")
            async with outrider.Session(options) as session:
                live = app(session)
                await session.ask("When do we ship?")
                id = session.id
                looking = client(live)
                place = (await anyio.to_thread.run_sync(lambda: looking.get("/"))).headers["location"]
                heard = await anyio.to_thread.run_sync(lambda: looking.get(f"{place}?start=1").text)
                await live.close()
            kept = client(app(outrider.Sessions(config=agent.config_dir)))
            page = kept.get(f"/s/{id}?start=1").text
            outline = words(kept.get(f"/s/{id}/outline").text)
        for each in (heard, page):
            said = words(each)
            assert "When do we ship?" in said
            assert "Ship on Friday." in said
            assert '<span class="l" data-n="2">' in each
            assert 'class="l add"' in each
            assert "<mark>" in each or "three" in each
            assert 'class="call shell failed"' in each
            assert 'class="call agents done"' in each
            assert len(re.findall('class="row prompt"', each)) == 1
        assert "calls" in outline
        assert "tokens in" in outline

    anyio.run(main)
