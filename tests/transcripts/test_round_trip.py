"""A conversation with the real program, kept in each kind of store, goes on from there alone."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from outrider.session import Session
from outrider.testing import RealAgent, say, use_tool
from outrider.transcripts import FileStore, MemoryStore, SqliteStore, project_key
from tests.real_program import require_program
from tests.transcripts.stores.remote import REMOTES

pytestmark = [pytest.mark.anyio, pytest.mark.real]

DEADLINE = 50.0

STORES: dict[str, Callable[[Path], Any]] = {
    "memory": lambda folder: MemoryStore(),
    "file": lambda folder: FileStore(folder / "sessions"),
    "sqlite": lambda folder: SqliteStore(folder / "agents.db"),
    "postgres": lambda _: REMOTES["postgres"].make(),
    "redis": lambda _: REMOTES["redis"].make(),
    "s3": lambda _: REMOTES["s3"].make(),
}
"""Those with a server skip the test where it cannot be installed."""


@pytest.fixture(params=[pytest.param(make, id=name) for name, make in STORES.items()])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def with_stores(*names: str) -> pytest.MarkDecorator:
    """Not with all of them: what the store does in it is in its contract."""
    return pytest.mark.parametrize(
        "store", [pytest.param(STORES[name], id=name) for name in names], indirect=True
    )


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    # What differs between event loops is tested with agents in memory; this is about the program.
    return request.param


@asynccontextmanager
async def opened(agent: RealAgent, **fields: Any) -> AsyncGenerator[Session]:
    fields = {"permission_mode": "bypassPermissions", **fields}
    async with Session(agent.options(**fields)) as session:
        yield session


def real_agent(*script: Any, **more: Any) -> RealAgent:
    return RealAgent(script, program=require_program(), **more)


def sent(agent: RealAgent) -> str:
    """What the model was sent last."""
    return str(agent.api.main_requests[-1].messages)


def forget(agent: RealAgent) -> None:
    """Remove what the program keeps on disk."""
    shutil.rmtree(agent.config_dir / "projects")


def key_of(folder: Path, session_id: str | None) -> Any:
    return {"project_key": project_key(folder), "session_id": session_id}


def uuids(entries: Any) -> list[str]:
    return [entry["uuid"] for entry in entries if "uuid" in entry]


async def test_a_conversation_goes_on_from_the_store_alone(store: Any) -> None:
    script = [use_tool("Bash", command="echo told"), say("Hello Ada."), say("Ada."), say("Ada!")]
    with anyio.fail_after(DEADLINE), real_agent(*script) as agent:
        async with opened(agent, session_store=store) as session:
            id = (await session.ask("My name is Ada.")).session_id
        written = await store.load(key_of(agent.folder, id))
        assert len(set(uuids(written))) == len(uuids(written))
        # What it writes at its end is there too.
        assert written[-1]["type"] == "cost-state"
        forget(agent)
        async with opened(agent, session_store=store, resume=id) as session:
            again = await session.ask("What is my name?")
        assert again.session_id == id
        assert "My name is Ada." in sent(agent)
        assert "told" in sent(agent)
        # The local copy is there now, and is what the store has.
        async with opened(agent, session_store=store, resume=id) as session:
            await session.ask("Again?")
        assert "What is my name?" in sent(agent)
        entries = await store.load(key_of(agent.folder, id))
        assert entries[: len(written)] == written
        assert len(set(uuids(entries))) == len(uuids(entries))
    await store.close()


@with_stores("sqlite", "postgres")
async def test_a_conversation_goes_on_on_another_host(store: Any) -> None:
    with anyio.fail_after(DEADLINE):
        with real_agent(say("Hello Ada.")) as agent:
            async with opened(agent, session_store=store) as session:
                id = (await session.ask("My name is Ada.")).session_id
            key = key_of(agent.folder, id)
        before = await store.load(key)
        # Another configuration folder, another working folder.
        with real_agent(say("Ada."), say("Ada, in a fork.")) as agent:
            async with opened(agent, session_store=store, resume=id) as session:
                assert (await session.ask("What is my name?")).session_id == id
            assert "My name is Ada." in sent(agent)
            after = await store.load(key)
            assert after[: len(before)] == before
            assert await store.load(key_of(agent.folder, id)) is None, "it stays where it began"
            forget(agent)
            async with opened(agent, session_store=store, resume=id, fork_session=True) as session:
                fork = await session.ask("And now?")
            assert fork.session_id != id
            assert "What is my name?" in sent(agent)
            assert await store.load(key) == after
            assert "My name is Ada." in str(await store.load(key_of(agent.folder, fork.session_id)))
    await store.close()


@with_stores("sqlite")
async def test_a_hermetic_run_keeps_and_finds_its_session(store: Any) -> None:
    with anyio.fail_after(DEADLINE), real_agent(say("Hello Ada."), say("Ada.")) as agent:
        async with opened(agent, session_store=store, isolation="hermetic") as session:
            id = (await session.ask("My name is Ada.")).session_id
        async with opened(
            agent, session_store=store, isolation="hermetic", continue_conversation=True
        ) as session:
            assert (await session.ask("What is my name?")).session_id == id
        assert "My name is Ada." in sent(agent)
    await store.close()


@with_stores("sqlite")
async def test_subagents_go_on_from_the_store(store: Any) -> None:
    look = use_tool("Agent", description="look", prompt="Look around.", subagent_type="general-purpose")
    script = [look, say("They looked."), say("Yes.")]
    with anyio.fail_after(DEADLINE), real_agent(*script, subagents=[say("Nothing here.")]) as agent:
        async with opened(agent, session_store=store) as session:
            id = (await session.ask("Have somebody look.")).session_id
        (part,) = await store.list_subkeys(key_of(agent.folder, id))
        assert part.startswith("subagents/agent-")
        forget(agent)
        async with opened(agent, session_store=store, resume=id) as session:
            assert (await session.ask("Did they?")).session_id == id
        folder = agent.config_dir / "projects" / project_key(agent.folder) / str(id)
        assert names_in(folder) >= {f"{part}.jsonl", f"{part}.meta.json"}
    await store.close()


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
