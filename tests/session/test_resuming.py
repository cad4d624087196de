"""Sessions that are resumed from a store: elsewhere, strictly, and by one writer at a time."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import anyio
import pytest

import outrider
from outrider.command import UserId
from outrider.errors import (
    OptionsError,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StoreError,
    StoreTimedOut,
    TranscriptError,
)
from outrider.launch import Prefix
from outrider.session import Session
from outrider.session._store import link
from outrider.session._store.restore_files import ConfigLocation, SessionFiles
from outrider.testing import Simulator, record, replay, say, use_tool
from outrider.transcripts import MemoryStore, SqliteStore, project_key
from tests.session.other_end import OtherEnd
from tests.session.stores import Told, has_lease, on_disk
from tests.transports.conftest import own_processes

pytestmark = pytest.mark.anyio

UNKNOWN = "5e551011-0000-4000-8000-0000000000ff"


async def begun(store: Any, folder: Path, *, prompt: str = "My name is Ada.", **fields: Any) -> str:
    """A session that is in the store, and nowhere else."""
    with anyio.fail_after(20), Simulator([say("Hello Ada.")]) as agent:
        async with Session(agent.options(session_store=store, cwd=folder, **fields)) as session:
            return (await session.ask(prompt)).session_id or ""


async def resumed(agent: Simulator, **fields: Any) -> Any:
    """What the next turn of a resumed session comes to."""
    with anyio.fail_after(20):
        async with Session(agent.options(**fields)) as session:
            return await session.ask("What is my name?")


def texts(agent: Simulator) -> list[str]:
    """What the model was sent last."""
    return [str(message["content"]) for message in agent.main_requests[-1].messages]


def key_of(folder: Path, session_id: str) -> Any:
    return {"project_key": project_key(folder), "session_id": session_id}


def part_of(folder: Path, session_id: str, part: str) -> Any:
    return {**key_of(folder, session_id), "subpath": part}


def uuids(entries: Any) -> list[str]:
    return [entry["uuid"] for entry in entries if "uuid" in entry]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


# Where it goes on.


@pytest.mark.parametrize("isolation", ["inherit", "hermetic"])
async def test_a_session_goes_on_in_another_place(tmp_path: Path, folder: Path, isolation: Any) -> None:
    store = MemoryStore()
    id = await begun(store, folder, isolation=isolation)
    other = tmp_path / "other"
    other.mkdir()
    before = len(store.get_entries(key_of(folder, id)))
    with Simulator([say("Ada.")]) as agent:
        result = await resumed(agent, session_store=store, resume=id, cwd=other, isolation=isolation)
        assert result.session_id == id
        assert "My name is Ada." in texts(agent)[0]
    # It is kept where it was.
    entries = store.get_entries(key_of(folder, id))
    assert len(entries) > before
    assert len(set(uuids(entries))) == len(uuids(entries))
    assert await store.find_session(id) == [project_key(folder)]
    assert not has_lease(store)


async def test_a_fork_is_a_session_of_its_own(folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    before = store.get_entries(key_of(folder, id))
    with Simulator([say("Ada.")]) as agent:
        # That somebody else has it does not matter: it is only read.
        await MemoryStore(store).acquire_lease(key_of(folder, id), "elsewhere:7", 60)
        result = await resumed(agent, session_store=store, resume=id, fork_session=True, cwd=folder)
    assert result.session_id != id
    assert store.get_entries(key_of(folder, id)) == before
    assert len(store.get_entries(key_of(folder, result.session_id))) > len(before)


async def test_a_session_goes_on_at_a_message(folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    entries: list[Any] = store.get_entries(key_of(folder, id))
    (first, *_) = [entry for entry in entries if entry["type"] == "assistant"]
    with Simulator([say("Ada."), say("Ada!")]) as agent:
        await resumed(agent, session_store=store, resume=id, cwd=folder)
        again = agent.again()
        await resumed(again, session_store=store, resume=id, resume_session_at=first["uuid"], cwd=folder)
        assert len(texts(again)) == 3


async def test_the_latest_session_is_continued(folder: Path) -> None:
    store = MemoryStore()
    await begun(store, folder, prompt="first")
    id = await begun(store, folder)
    side: Any = {"type": "user", "isSidechain": True, "uuid": "a"}
    await store.append(key_of(folder, UNKNOWN), [side])
    with Simulator([say("Ada.")]) as agent:
        result = await resumed(agent, session_store=store, continue_conversation=True, cwd=folder)
    assert result.session_id == id


async def test_the_latest_session_is_found_without_summaries(folder: Path) -> None:
    class Bare:
        def __init__(self, inner: MemoryStore) -> None:
            self._inner = inner

        async def append(self, key: Any, entries: Any) -> None:
            await self._inner.append(key, entries)

        async def load(self, key: Any) -> Any:
            return await self._inner.load(key)

    class WithList(Bare):
        async def list_sessions(self, project_key: str) -> Any:
            return await self._inner.list_sessions(project_key)

    store = MemoryStore()
    await begun(store, folder, prompt="first")
    id = await begun(store, folder)
    side: Any = {"type": "user", "isSidechain": True, "uuid": "a"}
    await store.append(key_of(folder, UNKNOWN), [side])
    with Simulator([say("Ada.")]) as agent:
        result = await resumed(agent, session_store=WithList(store), continue_conversation=True, cwd=folder)
        assert result.session_id == id
    with Simulator([say("Ada.")]) as agent:
        assert (await resumed(agent, session_store=Bare(store), resume=id, cwd=folder)).session_id == id
    with Simulator() as agent, pytest.raises(OptionsError, match="list_session_summaries"):
        await resumed(agent, session_store=Bare(store), resume="a title", cwd=folder)


async def test_a_session_is_found_by_its_title(folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    title: Any = {"type": "custom-title", "customTitle": "Release", "sessionId": id}
    await store.append(key_of(folder, id), [title])
    with Simulator([say("Ada.")]) as agent:
        assert (await resumed(agent, session_store=store, resume="Release", cwd=folder)).session_id == id
    with Simulator() as agent, pytest.raises(SessionNotFound):
        await resumed(agent, session_store=store, resume="Other", cwd=folder)


async def test_of_two_projects_the_newer_one_counts(tmp_path: Path, folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    entries = store.get_entries(key_of(folder, id))
    await store.append({"project_key": "-a-newer-one", "session_id": id}, entries)
    with Simulator([say("Ada.")]) as agent:
        await resumed(agent, session_store=store, resume=id, cwd=tmp_path)
    assert len(store.get_entries({"project_key": "-a-newer-one", "session_id": id})) > len(entries)


async def test_subagents_come_along(tmp_path: Path, folder: Path) -> None:
    store = MemoryStore()
    script = [
        use_tool("Agent", description="look", prompt="Look.", subagent_type="general-purpose"),
        say("Done."),
    ]
    with anyio.fail_after(20), Simulator(script, subagents=[say("Seen.")]) as agent:
        async with Session(agent.options(session_store=store, cwd=folder)) as session:
            id = (await session.ask("Look.")).session_id or ""
    (part,) = await store.list_subkeys(key_of(folder, id))
    kinds = [e["type"] for e in store.get_entries(part_of(folder, id, part))]
    assert kinds.count("agent_metadata") == 2
    config = tmp_path / "config"
    with Simulator([say("Ada.")], config_dir=config) as agent:
        await resumed(agent, session_store=store, resume=id, cwd=folder)
    place = on_disk(config, folder, id).with_suffix("") / part
    lines = lines_of(place.with_suffix(".jsonl"))
    assert "agent_metadata" not in [line["type"] for line in lines]
    assert len(lines) == len(kinds) - 2
    (told,) = lines_of(place.with_suffix(".meta.json"))
    assert told["finished"] is True
    assert "type" not in told


@pytest.mark.parametrize("subpath", ["/etc/x", "../x", "a/../../x", "C:\\x", "a\\..\\x", "a\0b", ""])
async def test_a_part_cannot_lead_elsewhere(
    tmp_path: Path, folder: Path, subpath: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(MemoryStore):
        async def list_subkeys(self, key: Any) -> list[str]:
            return [subpath]

        async def load(self, key: Any) -> Any:
            named: Any = {**key, "subpath": "x"} if "subpath" in key else key
            return await super().load(named)

    store = Odd()
    id = await begun(store, folder)
    with Simulator([say("Ada.")], config_dir=tmp_path / "config") as agent:
        await resumed(agent, session_store=store, resume=id, cwd=folder)
    assert transcripts_in(tmp_path) == [on_disk(tmp_path / "config", folder, id)]
    assert "is left out" in caplog.text


# Strictly.


@pytest.mark.parametrize(
    "fields", [{"resume": UNKNOWN}, {"continue_conversation": True}], ids=["id", "latest"]
)
async def test_a_session_that_is_not_there_is_not_begun(folder: Path, fields: Any) -> None:
    store = MemoryStore()
    with Simulator() as agent:
        with anyio.fail_after(10), pytest.raises(SessionNotFound) as caught:
            await Session(agent.options(session_store=store, cwd=folder, **fields)).connect()
        assert agent.command is None
    assert "MemoryStore" in str(caught.value)
    assert not has_lease(store)


@pytest.mark.parametrize("method", ["find_session", "acquire_lease", "load", "list_subkeys"])
async def test_a_store_that_fails_starts_nothing(folder: Path, method: str) -> None:
    store = Told()
    id = await begun(store, folder)
    store.is_closed = False

    async def fail(*_: object) -> None:
        raise RuntimeError("no idea")

    async def wait(*_: object) -> None:
        await anyio.sleep_forever()

    for broken, error in ((fail, StoreError), (wait, StoreTimedOut)):
        failing = type("Failing", (Told,), {method: staticmethod(broken)})()
        failing._data = store._data
        with Simulator() as agent:
            timeouts: Any = {"store": 0.05}
            options = agent.options(session_store=failing, cwd=folder, resume=id, timeouts=timeouts)
            with anyio.fail_after(10), pytest.raises(error, match=method):
                await Session(options).connect()
            assert agent.command is None
        assert failing.is_free


class Giving(MemoryStore):
    """Gives what it is told to."""

    def __init__(self, same_as: MemoryStore, **answers: Any) -> None:
        super().__init__(same_as)
        for name, answer in answers.items():
            setattr(self, name, self._giving(answer))

    def _giving(self, answer: Any) -> Any:
        async def give(*_: object) -> Any:
            return answer

        return give


LATEST: Any = {"continue_conversation": True}


@pytest.mark.parametrize(
    "method, answer, fields",
    [
        ("find_session", "text", {}),
        ("find_session", [7], {}),
        ("load", "text", {}),
        ("load", 7, {}),
        ("load", [None], {}),
        ("load", [["type", "user"]], {}),
        ("load", [{1: 2}], {}),
        ("list_subkeys", "text", {}),
        ("list_subkeys", [7], {}),
        ("list_session_summaries", [{}], LATEST),
        ("list_session_summaries", [{"session_id": 7, "mtime": 1, "data": {}}], LATEST),
        ("list_session_summaries", [{"session_id": UNKNOWN, "mtime": "late", "data": {}}], LATEST),
    ],
)
async def test_an_answer_that_is_none_starts_nothing(
    folder: Path, method: str, answer: Any, fields: Any
) -> None:
    kept = MemoryStore()
    id = await begun(kept, folder)
    store = Giving(kept, **{method: answer})
    with Simulator() as agent, anyio.fail_after(10):
        wanted: Any = fields or {"resume": id}
        options = agent.options(session_store=store, cwd=folder, **wanted)
        with pytest.raises(StoreError, match=f"`{method}`: it returned something unexpected"):
            await Session(options).connect()
        assert agent.command is None
    assert not has_lease(store)


@pytest.mark.parametrize("isolation", ["inherit", "hermetic"])
async def test_an_entry_that_is_no_json_is_not_shown(folder: Path, isolation: Any) -> None:
    kept = MemoryStore()
    id = await begun(kept, folder)
    store = Giving(kept, load=[{"type": "user", "text": "secret", "number": float("nan")}])
    # On disk, or with the command.
    agent = Simulator(executable=isolation == "inherit")
    with agent, pytest.raises(TranscriptError, match="is not JSON") as caught:
        await resumed(agent, session_store=store, resume=id, cwd=folder, isolation=isolation)
    assert "secret" not in str(caught.value)
    assert not has_lease(store)


@pytest.mark.parametrize("fields", [LATEST, {"resume": "Release notes"}], ids=["latest", "title"])
async def test_an_id_cannot_lead_elsewhere(tmp_path: Path, config: Path, folder: Path, fields: Any) -> None:
    kept = MemoryStore()
    await begun(kept, folder)
    odd = {"session_id": "../../../evil", "mtime": 1, "data": {"custom_title": "Release notes"}}
    store = Giving(kept, list_session_summaries=[odd], load=[{"type": "user", "uuid": "u1"}])
    with Simulator(config_dir=config, executable=True) as agent, anyio.fail_after(10):
        session = Session(agent.options(session_store=store, cwd=folder, **fields))
        with pytest.raises(SessionNotFound):
            await session.connect()
    assert not transcripts_in(tmp_path)


async def test_a_project_cannot_lead_elsewhere(tmp_path: Path, config: Path, folder: Path) -> None:
    kept = MemoryStore()
    id = await begun(kept, folder)
    write_lines(tmp_path / f"{id}.jsonl", [])
    (config / "projects").mkdir(parents=True)
    store = Giving(kept, find_session=["../.."], load=kept.get_entries(key_of(folder, id)))
    await program_resumes(store, config, folder, id)
    assert lines_of(tmp_path / f"{id}.jsonl") == []
    assert lines_of(on_disk(config, folder, id))


async def test_giving_up_leaves_no_lease(folder: Path) -> None:
    asked, answered = anyio.Event(), anyio.Event()

    class Slow(MemoryStore):
        async def acquire_lease(self, key: Any, holder: str, seconds: float) -> str:
            token = await super().acquire_lease(key, holder, seconds)
            asked.set()
            await answered.wait()
            return token

    kept = MemoryStore()
    id = await begun(kept, folder)
    store = Slow(kept)
    with Simulator() as agent, anyio.fail_after(10):
        session = Session(agent.options(session_store=store, cwd=folder, resume=id))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.connect)
            await asked.wait()
            tasks.cancel_scope.cancel()
            answered.set()
        assert agent.command is None
    assert not has_lease(store)


async def test_giving_up_does_not_wait_for_a_store_that_does_not_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(Told):
        async def acquire_lease(self, key: Any, holder: str, seconds: float) -> str:
            self.asked.set()
            await anyio.sleep_forever()
            return ""

    monkeypatch.setattr(link, "_ANSWER_SECONDS", 0.01)
    kept = MemoryStore()
    id = await begun(kept, folder)
    store = Silent()
    store._data = kept._data
    with Simulator() as agent, anyio.fail_after(10):
        session = Session(agent.options(session_store=store, cwd=folder, resume=id))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.connect)
            await store.asked.wait()
            tasks.cancel_scope.cancel()


async def test_what_cannot_be_started_leaves_no_lease(folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    session = Session(session_store=store, cwd=folder, resume=id, cli_path="/no/such/program")
    with anyio.fail_after(10), pytest.raises(outrider.AgentNotFound):
        await session.connect()
    assert not has_lease(store)


async def test_a_transport_of_the_users_is_left_alone(folder: Path) -> None:
    store = MemoryStore()
    agent = OtherEnd()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.open)
            async with Session(transport=agent.transport, session_store=store, resume=UNKNOWN):
                pass


async def test_a_new_session_does_not_take_the_id_of_another(folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    with Simulator() as agent, anyio.fail_after(10):
        with pytest.raises(SessionExists, match="MemoryStore"):
            await Session(agent.options(session_store=store, session_id=id, cwd=folder)).connect()
        assert agent.command is None


# One writer at a time.


async def test_of_two_that_resume_one_session_the_second_is_refused(folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    with anyio.fail_after(20), Simulator([say("one"), say("two")]) as agent:
        async with Session(agent.options(session_store=store, resume=id, cwd=folder)):
            for second in (store, MemoryStore(store)):
                other = Session(agent.again().options(session_store=second, resume=id, cwd=folder))
                with pytest.raises(SessionBusy) as caught:
                    await other.connect()
                assert str(os.getpid()) in caught.value.holder
        await resumed(agent.again(), session_store=MemoryStore(store), resume=id, cwd=folder)


async def test_of_two_that_begin_one_session_the_second_is_refused(folder: Path) -> None:
    store = MemoryStore()
    with anyio.fail_after(20), Simulator([say("one")]) as agent:
        async with Session(agent.options(session_store=store, session_id=UNKNOWN, cwd=folder)):
            again = agent.again().options(session_store=store, session_id=UNKNOWN, cwd=folder)
            with pytest.raises(SessionBusy):
                await Session(again).connect()
    assert not has_lease(store)


KILLED = """
    import os, signal, sys, anyio
    from outrider.session import Session
    from outrider.session._store import link
    from outrider.testing import Simulator, say

    link.LEASE_SECONDS = 0.01
    store, cwd = sys.argv[1:]

    async def main():
        with Simulator([say("Hello Ada."), say("Again.")]) as agent:
            async with Session(agent.options(session_store=store, cwd=cwd)) as session:
                result = await session.ask("My name is Ada.")
                print(result.session_id, flush=True)
                await session.send("And on.")
                os.kill(os.getpid(), signal.SIGKILL)

    anyio.run(main)
"""


async def had(store: Any, key: Any) -> str | None:
    """A lease, if nobody has it."""
    try:
        token: str = await store.acquire_lease(key, "me", 1)
    except SessionBusy:
        return None
    return token


async def test_a_host_that_is_killed_loses_nothing_that_was_answered(tmp_path: Path, folder: Path) -> None:
    place = tmp_path / "agents.db"
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(place), str(folder)]
    with anyio.fail_after(40):
        done = await anyio.to_thread.run_sync(
            lambda: subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        )
    assert done.returncode == -signal.SIGKILL, done.stderr
    id = done.stdout.strip()
    async with SqliteStore(place) as store:
        # Nobody gives back the lease of a host that was killed: it runs out.
        with anyio.fail_after(10):
            while (token := await had(store, key_of(folder, id))) is None:
                await anyio.lowlevel.checkpoint()
        await store.release_lease(key_of(folder, id), token)
    with Simulator([say("Ada.")]) as agent:
        result = await resumed(agent, session_store=place, resume=id, cwd=tmp_path)
        assert result.session_id == id
        assert "My name is Ada." in texts(agent)[0]
        assert "Hello Ada." in texts(agent)[1]
    async with SqliteStore(place) as store:
        entries = await store.load(key_of(folder, id)) or []
        assert len(set(uuids(entries))) == len(uuids(entries))


# On the disk of this machine.


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config"


async def program_resumes(store: Any, config: Path, folder: Path, id: str, **fields: Any) -> list[str]:
    """Resume with an agent that is a process; gives what its model was sent."""
    with Simulator([say("Ada.")], config_dir=config, executable=True) as agent:
        await resumed(agent, session_store=store, resume=id, cwd=folder, **fields)
        return texts(agent)


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, lines: list[Any], torn: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn, encoding="utf-8")


def transcripts_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.jsonl"))


def modes_in(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in transcripts_in(folder)}


async def test_a_program_finds_the_session_on_disk(config: Path, folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    sent = await program_resumes(store, config, folder, id)
    assert "My name is Ada." in sent[0]
    assert modes_in(config) == {0o600}
    assert store.get_entries(key_of(folder, id)) == lines_of(on_disk(config, folder, id))


@pytest.mark.parametrize("kept", [0, 1, -1], ids=["none", "first", "all but one"])
async def test_an_older_file_is_replaced(config: Path, folder: Path, kept: int) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    write_lines(
        on_disk(config, folder, id), store.get_entries(key_of(folder, id))[:kept], torn='{"type": "us'
    )
    await program_resumes(store, config, folder, id)
    assert store.get_entries(key_of(folder, id)) == lines_of(on_disk(config, folder, id))


async def test_what_only_the_file_has_goes_to_the_store_first(config: Path, folder: Path) -> None:
    whole, store = MemoryStore(), MemoryStore()
    id = await begun(whole, folder)
    entries = whole.get_entries(key_of(folder, id))
    request = {"type": "api-request", "shape": 1}
    part = [{"type": "user", "uuid": "p1"}]
    write_lines(on_disk(config, folder, id), [entries[0], request, *entries[1:], request])
    write_lines(on_disk(config, folder, id).with_suffix("") / "subagents" / "agent-a.jsonl", part)
    await store.append(key_of(folder, id), entries[:1])
    await program_resumes(store, config, folder, id)
    stored = store.get_entries(key_of(folder, id))
    assert stored[: len(entries)] == entries
    assert len(set(uuids(stored))) == len(uuids(stored))
    assert store.get_entries(part_of(folder, id, "subagents/agent-a")) == part
    # The file had it all, and stayed as it was.
    assert lines_of(on_disk(config, folder, id))[1] == request


@pytest.mark.parametrize("stored", [[], ["Old"], ["Old", "Theirs"]], ids=["none", "old", "newer"])
async def test_a_title_that_only_the_file_has_is_not_lost(
    config: Path, folder: Path, stored: list[str]
) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    entries: list[Any] = store.get_entries(key_of(folder, id))
    titles: list[Any] = [{"type": "custom-title", "customTitle": title} for title in ("Old", "Ours")]
    write_lines(on_disk(config, folder, id), [*entries[:1], *titles])
    theirs: list[Any] = [{"type": "custom-title", "customTitle": title} for title in stored]
    await store.append(key_of(folder, id), theirs)
    await program_resumes(store, config, folder, id)
    after: list[Any] = store.get_entries(key_of(folder, id))
    assert after[: len(entries)] == entries
    given = [entry["customTitle"] for entry in after if entry["type"] == "custom-title"]
    assert given == (stored if "Theirs" in stored else [*stored, "Ours"])
    assert lines_of(on_disk(config, folder, id)) == after


async def test_a_line_that_was_not_written_to_its_end_is_dropped(config: Path, folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    write_lines(on_disk(config, folder, id), store.get_entries(key_of(folder, id)), torn='{"type": "us')
    await program_resumes(store, config, folder, id)
    assert store.get_entries(key_of(folder, id)) == lines_of(on_disk(config, folder, id))


async def test_a_file_in_the_folder_where_it_began_is_used(
    tmp_path: Path, config: Path, folder: Path
) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    write_lines(on_disk(config, folder, id), store.get_entries(key_of(folder, id)))
    await program_resumes(store, config, tmp_path, id)
    assert transcripts_in(config) == [on_disk(config, folder, id)]


async def test_two_that_went_different_ways_are_an_error(config: Path, folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    entries: list[Any] = store.get_entries(key_of(folder, id))
    path = on_disk(config, folder, id)
    write_lines(path, [*entries[:1], {"type": "user", "uuid": "elsewhere"}])
    before = lines_of(path)
    with pytest.raises(TranscriptError, match="gone on both") as caught:
        await program_resumes(store, config, folder, id)
    assert str(path) in str(caught.value)
    assert lines_of(path) == before
    assert store.get_entries(key_of(folder, id)) == entries
    assert not has_lease(store)


async def test_a_file_with_odd_ids_is_compared(config: Path, folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    entries: list[Any] = store.get_entries(key_of(folder, id))
    write_lines(on_disk(config, folder, id), [{"type": "mode", "uuid": ["odd"]}, *entries])
    sent = await program_resumes(store, config, folder, id)
    assert "My name is Ada." in sent[0]
    assert store.get_entries(key_of(folder, id))[: len(entries)] == entries


async def test_a_folder_that_cannot_be_written_is_an_error(config: Path, folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    write_lines(config, [])
    with pytest.raises(TranscriptError, match="cannot be restored"):
        await program_resumes(store, config, folder, id)
    assert not has_lease(store)
    assert not own_processes()


async def test_a_hermetic_program_gets_the_session_with_its_command(folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    with Simulator([say("Ada.")], executable=True) as agent:
        options = agent.options(session_store=store, resume=id, cwd=folder)
        env = {name: value for name, value in options.env.items() if name != "CLAUDE_CONFIG_DIR"}
        async with Session(options.replace(isolation="hermetic", env=env)) as session:
            assert (await session.ask("What is my name?")).text == "Ada."
        assert "My name is Ada." in texts(agent)[0]
        assert not transcripts_in(agent.config_dir)


async def test_the_session_travels_to_another_machine(folder: Path) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    with anyio.fail_after(20), Simulator([say("Ada.")], executable=True) as agent:
        options = agent.options(session_store=store, resume=id)
        env = {name: value for name, value in options.env.items() if name != "CLAUDE_CONFIG_DIR"}
        far = Prefix(["env"], is_local=False)
        async with Session(options.replace(isolation="hermetic", env=env, runner=far)) as session:
            result = await session.ask("What is my name?")
        assert "My name is Ada." in texts(agent)[0]
    assert result.session_id == id
    assert store.get_entries(key_of(folder, id))[-1]["type"] == "cost-state"


@pytest.mark.parametrize("is_store_ahead", [False, True])
async def test_a_fork_leaves_the_store_as_it_is(config: Path, folder: Path, is_store_ahead: bool) -> None:
    store = MemoryStore()
    id = await begun(store, folder)
    entries: list[Any] = store.get_entries(key_of(folder, id))
    extra = {"type": "custom-title", "customTitle": "old", "sessionId": id}
    write_lines(on_disk(config, folder, id), [*entries[: 1 if is_store_ahead else None], extra])
    sent = await program_resumes(store, config, folder, id, fork_session=True)
    assert "My name is Ada." in sent[0]
    assert store.get_entries(key_of(folder, id)) == entries


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can give files away")
async def test_what_is_restored_belongs_to_the_user_of_the_program(tmp_path: Path) -> None:
    entries: list[Any] = [{"type": "user", "uuid": "a"}]
    told: list[Any] = [{"type": "agent_metadata", "agentType": "x"}]
    session_files = SessionFiles(UNKNOWN, {"": entries, "subagents/agent-a": [*entries, *told]}, "-p", "-p")
    await session_files.restore(ConfigLocation(tmp_path / "config", False, UserId(12345, 23456)), None)
    made = made_in(tmp_path)
    assert len(made) == 8
    assert set(made.values()) == {(12345, 23456)}


def made_in(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_uid, path.stat().st_gid) for path in folder.rglob("*")}


# What stands in for the program, and what is recorded.


async def test_what_stands_in_for_the_program_gets_the_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    store = MemoryStore()
    id = await begun(store, folder)
    with Simulator([say("Ada.")]) as agent, agent.stand_in():
        result = await outrider.run("What is my name?", session_store=store, resume=id, cwd=folder)
        assert result.session_id == id
        assert "My name is Ada." in texts(agent)[0]
    assert not transcripts_in(home), "nothing is written where the program would have looked"


async def test_a_recording_is_played_with_a_store(tmp_path: Path, folder: Path) -> None:
    cassette = tmp_path / "cassette.jsonl"

    async def talk(store: MemoryStore) -> tuple[str, str]:
        first = await outrider.run("My name is Ada.", session_store=store, cwd=folder)
        second = await outrider.run("My name?", session_store=store, cwd=folder, resume=first.session_id)
        assert store.get_entries(key_of(folder, first.session_id or ""))
        return str(first), str(second)

    with anyio.fail_after(30):
        with Simulator([say("Hello."), say("Ada.")]) as agent, record(cassette), agent.stand_in():
            assert await talk(MemoryStore()) == ("Hello.", "Ada.")
        with replay(cassette):
            assert await talk(MemoryStore()) == ("Hello.", "Ada.")


def test_sessions_without_await_use_stores_too(tmp_path: Path, folder: Path) -> None:
    place = f"sqlite:///{tmp_path}/agents.db"
    with Simulator([say("Hello."), say("Ada.")]) as agent, agent.stand_in(everywhere=True):
        first = outrider.sync.run("My name is Ada.", session_store=place, cwd=folder)
        again = outrider.sync.run("My name?", session_store=place, cwd=folder, resume=first.session_id)
    assert (str(again), again.session_id) == ("Ada.", first.session_id)


def test_the_times_of_a_lease_fit_together() -> None:
    assert link.RENEW_SECONDS * 2 < link.LEASE_SECONDS
