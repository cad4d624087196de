"""Conversations of the real program: cleared, compacted, resumed, forked, rewound; models and modes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from outrider.errors import FolderNotFound, OptionsError, RequestFailed, SessionNotFound, TranscriptError
from outrider.session import Session
from outrider.testing import fail, say, use_tool
from outrider.transcripts import has_sessions
from outrider.transports import live_processes
from outrider.wire import (
    AssistantMessage,
    CompactBoundaryMessage,
    ConversationResetMessage,
    DocumentBlock,
    ImageBlock,
    TextBlock,
)
from tests.session.real.talking import (
    DEADLINE,
    opened,
    real_agent,
    talking,
)

pytestmark = pytest.mark.anyio

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n"


def texts(request: Any) -> str:
    """All that a request to the model says, but for its tools."""
    return str(request.messages)


# Within one session.


async def test_clear_begins_a_new_session_and_totals_go_on() -> None:
    async with talking(say("one"), say("two")) as (agent, session):
        before = await session.ask("a")
        assert session.id == before.session_id
        cleared = await session.ask("/clear")
        assert any(isinstance(message, ConversationResetMessage) for message in cleared.messages)
        assert cleared.num_turns == 0
        assert session.id is not None
        assert session.id != before.session_id
        after = await session.ask("b")
        assert after.session_id == session.id != before.session_id
        assert '"a"' not in texts(agent.api.main_requests[1]).replace("'", '"')
        # The agent's own total begins again, the session's does not.
        assert after.message is not None
        assert after.message.total_cost_usd == pytest.approx(after.cost_usd)
        assert session.usage == before.usage + cleared.usage + after.usage
        assert session.usage.cost_usd == pytest.approx(2 * after.cost_usd)


async def test_compaction_keeps_the_session() -> None:
    async with talking(say("one"), say("two"), say("<summary>in short</summary>"), say("next")) as (
        agent,
        session,
    ):
        first, second = await session.ask("a"), await session.ask("b")
        compacted = await session.ask("/compact")
        (boundary,) = [
            message for message in compacted.messages if isinstance(message, CompactBoundaryMessage)
        ]
        assert boundary.session_id == first.session_id == session.id
        after = await session.ask("c")
        assert after.text == "next"
        assert "in short" in texts(agent.api.main_requests[-1])
        # Kept messages that are told again are not counted again.
        assert session.usage == first.usage + second.usage + compacted.usage + after.usage
        assert session.usage.input_tokens == 40


async def test_local_commands_are_answered_without_the_model() -> None:
    async with talking(say("as text")) as (agent, session):
        result = await session.ask("/cost")
        assert result.is_success
        assert (result.num_turns, result.usage.total_tokens) == (0, 0)
        assert result.text
        assert agent.api.main_requests == []
        assert (await session.ask("/no-such-command here")).text == "as text"


async def test_prompts_can_be_taken_as_written() -> None:
    async with talking(say("as text"), verbatim_prompts=True) as (agent, session):
        assert (await session.ask("/cost")).text == "as text"
        assert "/cost" in texts(agent.api.main_requests[0])


async def test_the_model_can_be_changed() -> None:
    async with talking(say("one"), say("two"), say("three"), model="opus") as (agent, session):
        await session.ask("a")
        began_with = session.info.model
        assert began_with is not None
        assert await session.set_model("claude-made-up-1") == "claude-made-up-1"
        await session.ask("b")
        assert session.info.model == "claude-made-up-1"
        assert (await session.set_model()) == began_with
        await session.ask("c")
        assert session.info.model == began_with
        models = [request.body["model"] for request in agent.api.main_requests]
        assert models == [began_with, "claude-made-up-1", began_with]
        assert set(session.usage.by_model) == {began_with, "claude-made-up-1"}


async def test_the_permission_mode_can_be_changed() -> None:
    write = use_tool("Bash", command="touch made")
    async with talking(
        write,
        say("no"),
        write,
        say("yes"),
        permission_mode="default",
        allow_dangerously_skip_permissions=True,
    ) as (agent, session):
        assert session.info.permission_mode == "default"
        result = await session.ask("make it")
        assert [denial["tool_name"] for denial in result.permission_denials] == ["Bash"]
        assert not (agent.folder / "made").exists()
        assert await session.set_permission_mode("bypassPermissions") == "bypassPermissions"
        assert session.info.permission_mode == "bypassPermissions"
        assert (await session.ask("make it")).permission_denials == ()
        assert (agent.folder / "made").exists()
        assert await session.set_permission_mode("plan") == "plan"
        assert session.info.permission_mode == "plan"


async def test_a_model_or_mode_that_cannot_be_had_is_refused_and_nothing_changes() -> None:
    async with talking(say("one"), permission_mode="default", side={"probe": fail(404)}) as (_, session):
        with pytest.raises(RequestFailed) as caught:
            await session.set_model("claude-made-up-1")
        assert caught.value.code == "not_found"
        with pytest.raises(RequestFailed) as caught:
            await session.set_permission_mode("bypassPermissions")
        assert caught.value.code == "bypass_not_launched"
        assert (await session.ask("a")).text == "one"
        assert session.info.model != "claude-made-up-1"
        assert session.info.permission_mode == "default"


async def test_files_can_be_taken_back() -> None:
    async with talking(enable_file_checkpointing=True) as (agent, session):
        path = agent.folder / "note.txt"
        write = use_tool("Write", file_path=str(path), content="new\n")
        agent.api.add(say("hi"), write, say("written"))
        await session.ask("hello")
        turn = await session.send("write")
        await turn.result()
        assert path.read_text() == "new\n"
        assert turn.uuid is not None
        would = await session.rewind_files(turn.uuid, dry_run=True)
        assert would.can_rewind
        assert would.files_changed == [str(path)]
        assert path.exists()
        did = await session.rewind_files(turn.uuid)
        assert did.can_rewind
        assert not path.exists()
        for dry_run in (True, False):
            unknown = await session.rewind_files(str(uuid4()), dry_run=dry_run)
            assert not unknown.can_rewind
            assert "checkpoint" in (unknown.error or "")


# What is sent along.


async def test_files_and_blocks_reach_the_model_as_blocks(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("dot.png", "notes.md", "paper.pdf")]
    for path, content in zip(files, (PNG, b"# Notes", PDF), strict=True):
        path.write_bytes(content)
    image = ImageBlock({"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()})
    document = DocumentBlock({"type": "text", "media_type": "text/plain", "data": "mine"}, "A title")
    async with talking(otherwise=say("I see")) as (agent, session):
        parts: list[Any] = ["look:", *files, image, document, TextBlock("thanks")]
        assert (await session.ask(parts)).text == "I see"
        (sent,) = [
            message for message in agent.api.main_requests[0].messages if "look:" in str(message["content"])
        ]
        # The agent adds notes of its own, such as where it keeps an image.
        blocks = [
            block
            for block in sent["content"]
            if not str(block.get("text", "")).startswith(("<system-reminder>", "[Image: source"))
        ]
        kinds = [(block["type"], block.get("source", {}).get("media_type")) for block in blocks]
        assert kinds == [
            ("text", None),
            ("image", "image/png"),
            ("document", "text/plain"),
            ("document", "application/pdf"),
            ("image", "image/png"),
            ("document", "text/plain"),
            ("text", None),
        ]
        assert [block.get("title") for block in blocks if block["type"] == "document"] == [
            "notes.md",
            "paper.pdf",
            "A title",
        ]
        assert (await session.ask({"role": "user", "content": [{"type": "text", "text": "raw"}]})).is_success
        assert "raw" in texts(agent.api.main_requests[1])


# Going on with sessions.


async def test_a_session_is_resumed_forked_and_continued() -> None:
    with real_agent(*map(say, ("one", "two", "three", "four", "five"))) as agent:
        async with opened(agent) as session:
            first = await session.ask("a")
            spent = session.usage
        async with opened(agent, resume=first.session_id) as session:
            second = await session.ask("b")
            assert second.session_id == first.session_id == session.id
            assert "one" in texts(agent.api.main_requests[1])
            # This connection's own part, and the whole by the agent's count.
            assert session.usage == second.usage == spent
            assert second.total_cost_usd == pytest.approx(2 * spent.cost_usd)
        async with opened(agent, resume=first.session_id, fork_session=True) as session:
            third = await session.ask("c")
            assert third.session_id != first.session_id
            assert "two" in texts(agent.api.main_requests[2])
        async with opened(agent, continue_conversation=True) as session:
            fourth = await session.ask("d")
            assert fourth.session_id in (first.session_id, third.session_id)
            assert "one" in texts(agent.api.main_requests[3])
        (told,) = [message for message in first.messages if isinstance(message, AssistantMessage)]
        async with opened(agent, resume=first.session_id, resume_session_at=told.uuid) as session:
            await session.ask("e")
            assert "one" in texts(agent.api.main_requests[4])
            assert "two" not in texts(agent.api.main_requests[4])


async def test_a_session_has_the_id_that_it_is_given() -> None:
    id = str(uuid4())
    with real_agent(say("one")) as agent:
        async with opened(agent, session_id=id) as session:
            assert (await session.ask("a")).session_id == session.id == id
        with pytest.raises(OptionsError, match="there is a session of that id") as caught:
            await Session(agent.options(session_id=id)).connect()
        assert id in str(caught.value)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_session_that_is_not_there_is_an_error() -> None:
    id = str(uuid4())
    with real_agent() as agent, anyio.fail_after(DEADLINE):
        session = Session(agent.options(resume=id))
        with pytest.raises(SessionNotFound) as caught:
            await session.connect()
        assert caught.value.id == id
        assert caught.value.searched == (str(agent.config_dir / "projects"),)
        assert live_processes() == []
        assert agent.api.requests == []


async def test_a_session_named_by_a_title_that_is_not_there_is_an_error() -> None:
    with real_agent() as agent, anyio.fail_after(DEADLINE):
        with pytest.raises(SessionNotFound) as caught:
            await Session(agent.options(resume="no such title")).connect()
        assert caught.value.id == "no such title"


async def test_a_message_that_is_not_there_is_an_error() -> None:
    with real_agent(say("one")) as agent:
        async with opened(agent) as session:
            id = (await session.ask("a")).session_id
        uuid = str(uuid4())
        with anyio.fail_after(DEADLINE), pytest.raises(TranscriptError, match=uuid):
            await Session(agent.options(resume=id, resume_session_at=uuid)).connect()


async def test_nothing_to_continue_is_an_error_and_starts_nothing() -> None:
    with real_agent() as agent, anyio.fail_after(DEADLINE):
        with pytest.raises(SessionNotFound) as caught:
            await Session(agent.options(continue_conversation=True)).connect()
        (folder,) = caught.value.searched
        assert folder.startswith(str(agent.config_dir / "projects"))
        async with opened(agent) as session:
            await session.ask("a")
        # It is where it was looked for.
        assert has_sessions(Path(folder))


async def test_nothing_is_continued_in_a_folder_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FolderNotFound):
        await Session(continue_conversation=True).connect()


async def test_a_session_that_is_not_kept_cannot_be_resumed() -> None:
    with real_agent(say("one")) as agent:
        async with opened(agent, persist_session=False) as session:
            id = (await session.ask("a")).session_id
        with pytest.raises(SessionNotFound):
            await Session(agent.options(resume=id)).connect()
