"""How sessions are opened: their deadlines, and going on from a store which does not have them."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from outrider.compat import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    InMemorySessionStore,
    ProcessError,
    ResultError,
    ResultMessage,
    SessionKey,
    SessionStoreEntry,
    get_session_messages_from_store,
    query,
)
from outrider.compat._options import translated_options
from outrider.testing import RealAgent, Simulator, say, use_tool
from tests.real_program import require_program

pytestmark = pytest.mark.anyio


async def result_of(options: ClaudeAgentOptions) -> ResultMessage:
    with anyio.fail_after(30):
        found = [each async for each in query(prompt="hello", options=options)]
    result = found[-1]
    assert isinstance(result, ResultMessage)
    return result


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


async def test_a_turn_may_take_its_time_but_not_be_silent() -> None:
    options = ClaudeAgentOptions(load_timeout_ms=1500, session_store=InMemorySessionStore())
    limits = translated_options(options).timeouts
    assert (limits.turn, limits.background, limits.retries) == (None, None, None)
    assert (limits.first_event, limits.silence, limits.store) == (600, 600, 1.5)


async def test_a_session_that_is_only_on_disk_goes_on_and_is_stored_whole(place: Path) -> None:
    with Simulator([say("one"), say("two")], executable=True) as agent:
        native = agent.options(cwd=place)
        options = ClaudeAgentOptions(cli_path=native.cli_path, env=dict(native.env), cwd=place)
        first = await result_of(options)
        store = InMemorySessionStore()
        options.resume, options.session_store = first.session_id, store
        second = await result_of(options)
    assert (first.result, second.result) == ("one", "two")
    assert second.session_id == first.session_id
    kept = await get_session_messages_from_store(store, first.session_id, directory=str(place))
    assert [each.type for each in kept] == ["user", "assistant"] * 2


async def test_what_a_store_does_not_have_is_refused_as_without_one(place: Path) -> None:
    with Simulator([say("one")], executable=True) as agent:
        native = agent.options(cwd=place)
        for unknown in ("00000000-0000-4000-8000-000000000001", "a title"):
            options = ClaudeAgentOptions(cli_path=native.cli_path, env=dict(native.env), cwd=place)
            options.resume, options.session_store = unknown, InMemorySessionStore()
            with pytest.raises(ResultError, match=unknown) as raised:
                await result_of(options)
            assert (raised.value.exit_code, raised.value.subtype) == (1, "error_during_execution")


@pytest.mark.real
async def test_a_schema_that_claude_code_does_not_take_is_the_error_of_its_process() -> None:
    for schema, is_taken in (({"type": "object"}, True), ({"type": "object", "unknown": 1}, False)):
        script = [use_tool("StructuredOutput", a=1), say("one")]
        with RealAgent(script, program=require_program(), otherwise=say("two")) as agent:
            native = agent.options()
            options = ClaudeAgentOptions(cli_path=native.cli_path, env=dict(native.env), cwd=native.cwd)
            options.output_format = {"type": "json_schema", "schema": schema}
            if is_taken:
                assert (await result_of(options)).structured_output == {"a": 1}
                continue
            with pytest.raises(ProcessError, match="JSON Schema") as raised:
                await result_of(options)
            assert raised.value.exit_code == 1
            async with ClaudeSDKClient(options) as client:
                await client.query("hello")
                with pytest.raises(ProcessError, match="JSON Schema"):
                    _ = [each async for each in client.receive_response()]


class Noting(InMemorySessionStore):
    """As people derive their own stores from it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        self.asked.add("append")
        await super().append(key, entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        self.asked.add("load")
        return await super().load(key)


async def test_what_is_changed_of_the_store_in_memory_is_what_is_called(place: Path) -> None:
    with Simulator([say("one"), say("two")], executable=True) as agent:
        native = agent.options(cwd=place)
        store = Noting()
        options = ClaudeAgentOptions(
            cli_path=native.cli_path, env=dict(native.env), cwd=place, session_store=store
        )
        options.resume = (await result_of(options)).session_id
        assert store.asked == {"append"}
        await result_of(options)
    assert store.asked == {"append", "load"}


async def test_a_session_that_is_nowhere_is_an_error(place: Path) -> None:
    with Simulator([say("one")], executable=True) as agent:
        native = agent.options(cwd=place)
        options = ClaudeAgentOptions(
            cli_path=native.cli_path,
            env=dict(native.env),
            cwd=place,
            resume=str(uuid4()),
            session_store=InMemorySessionStore(),
        )
        with pytest.raises(ResultError, match="No conversation found with session ID"):
            await result_of(options)
